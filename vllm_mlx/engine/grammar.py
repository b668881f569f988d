"""Grammars (llguidance) for the rows that have one: built in threads, and the masks that they give.

Nothing is built in the step loop; a mask is computed on the CPU while the device runs the forward pass of the same
step. With its masks this is the one place in the engine that sees text.
"""

import json
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import mlx.core as mx
from llguidance import LLMatcher

import tool_parsers
from tool_parsers.grammar import Calls
from vllm_mlx.engine.constraint import Answer, Constraint
from vllm_mlx.engine.masks import Words, as_mask, permit
from vllm_mlx.engine.protocol import Structured, Submit, ToolGrammar
from vllm_mlx.engine.tool_calls import ToolCalls

_KEPT = 512


class Constraints:
    """The constraints of the sequences that have one, by the sequence's id."""

    def __init__(self, folder: Path, vocab_size: int) -> None:
        self._grammars = Grammars(folder, vocab_size)
        self._vocab_size = vocab_size
        self._coming: dict[str, Future[Constraint]] = {}
        self._here: dict[str, Constraint] = {}
        self._before: dict[str, list[int]] = {}
        """Of those that have written nothing: which ids may come before what is constrained."""

    def expect(self, submit: Submit) -> None:
        """Begins to build what a sequence will need."""
        if submit.grammar is not None:
            self._coming[submit.id] = self._grammars.prepare(submit.grammar, submit.stop_ids)
            thinking = submit.thinking
            if thinking is not None and not thinking.open:
                marks = (ids for ids in (thinking.open_ids, thinking.close_ids) if len(ids) == 1)
                self._before[submit.id] = [ids[0] for ids in marks]

    def ready(self, id: str) -> bool:
        """Whether `settle` need not wait."""
        coming = self._coming.get(id)
        return coming is None or coming.done()

    def settle(self, id: str) -> None:
        """Waits until the sequence's constraint is built. Raises `ValueError` for a grammar that cannot be."""
        if (coming := self._coming.pop(id, None)) is not None:
            self._here[id] = coming.result()

    def forget(self, id: str) -> None:
        """The sequence has ended."""
        for known in (self._coming, self._here, self._before):
            known.pop(id, None)

    def holds(self, id: str) -> bool:
        return id in self._here

    def mask(self, id: str, *, thinking: bool, banned: Iterable[int] = ()) -> mx.array | None:
        """What is added to the logits: (vocabulary,) of float32, 0 for the ids that may be drawn and -inf for others.

        None: nothing is masked, since any id may be drawn or the grammar allows none. `banned` ids may be drawn only
        if there are no others.
        """
        constraint = self._here.get(id)
        bits = constraint.allowed(thinking=thinking) if constraint else None
        if bits is None or not bits.any():
            return None
        permit(bits, self._before.get(id, []), allowed=True)
        if banned:
            rest = bits.copy()
            permit(rest, banned, allowed=False)
            bits = rest if rest.any() else bits
        return as_mask(bits, self._vocab_size)

    def take_unconstrained_calls(self, id: str) -> int:
        """How many calls of a sequence no grammar holds although one was asked for, since this was last asked."""
        constraint = self._here.get(id)
        if constraint is None or not constraint.unconstrained_calls:
            return 0
        count, constraint.unconstrained_calls = constraint.unconstrained_calls, 0
        return count

    def accept(self, id: str, token: int, *, thinking: bool) -> bool:
        """See `Constraint.accept`."""
        constraint = self._here.get(id)
        if constraint is None or token in self._before.pop(id, ()):
            return False
        return constraint.accept(token, thinking=thinking)


class Grammars:
    """Builds constraints for one model's vocabulary, and keeps what was built lately."""

    def __init__(self, folder: Path, vocab_size: int) -> None:
        self._file = folder / "tokenizer.json"
        self._vocab_size = vocab_size
        self._words: Words | None = None
        self._lock = Lock()
        self._built: OrderedDict[str, LLMatcher] = OrderedDict()
        # What a running row waits for must not queue behind what a new request needs.
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="grammar")
        self._now = ThreadPoolExecutor(1, thread_name_prefix="grammar-now")

    def prepare(self, grammar: Structured | ToolGrammar, stop_ids: list[int]) -> "Future[Constraint]":
        """A constraint for one row, soon. The future raises `ValueError` for a grammar that cannot be built."""
        return self._ahead.submit(self._constraint, grammar, stop_ids)

    def _constraint(self, grammar: Structured | ToolGrammar, stop_ids: list[int]) -> Constraint:
        words = self._vocabulary(stop_ids)
        if isinstance(grammar, Structured):
            return Answer(self.build(grammar.lark), stop_ids, words)
        parser = tool_parsers.get(grammar.format)
        calls = parser.grammar(json.loads(grammar.tools), Calls(tuple(grammar.names), grammar.single), words.spell)
        if calls is None:
            raise ValueError(f"the format {grammar.format} has no grammar")
        if grammar.required and (first := calls.piece("")):
            self.build(first)
        answer = Answer(self.build(grammar.answer.lark), stop_ids, words) if grammar.answer else None
        return ToolCalls(calls, self.build, self._now.submit, stop_ids, words, required=grammar.required, answer=answer)

    def build(self, lark: str) -> LLMatcher:
        """A matcher at the beginning of a grammar. Raises `ValueError` for what the library refuses."""
        with self._lock:
            matcher = self._built.get(lark)
            if matcher is not None:
                self._built.move_to_end(lark)
        if matcher is None:
            assert self._words is not None
            matcher = LLMatcher(self._words.tokenizer, LLMatcher.grammar_from_lark(lark), log_level=0)
            if matcher.is_error():
                raise ValueError(matcher.get_error())
            with self._lock:
                self._built[lark] = matcher
                if len(self._built) > _KEPT:
                    self._built.popitem(last=False)
        return matcher.deep_copy()

    def _vocabulary(self, stop_ids: list[int]) -> Words:
        if self._words is None:
            self._words = Words(self._file, self._vocab_size, stop_ids)
        return self._words
