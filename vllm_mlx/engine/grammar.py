"""What a row may write: token masks from grammars (llguidance). The one place in the engine that sees text.

Grammars are built in a thread, beside the step loop; a mask is computed on the CPU while the device runs the forward
pass of the same step.
"""

import codecs
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
from llguidance import LLMatcher, LLTokenizer

import tool_parsers
from tool_parsers.grammar import CallGrammar, Calls, literal
from vllm_mlx.engine.protocol import Structured, Submit, ToolGrammar

_log = logging.getLogger("vllm_mlx.engine")
_KEPT = 512
_UNQUOTABLE = re.compile(r"[\s\"\\]")

Bits = np.ndarray[Any, np.dtype[np.uint8]]
"""A bit an id, packed, lowest first."""

_TABLE = mx.array(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.bool_))


class Constraint(Protocol):
    """One row's grammar on its way through the reply. `free_calls` counts calls that it could not hold."""

    free_calls: int

    def allowed(self, *, thinking: bool) -> Bits | None:
        """What may come next; None: anything."""
        ...

    def accept(self, token: int, *, thinking: bool) -> bool:
        """The row has written this. True: if a thought was open, it is over, since a call has begun in it."""
        ...


def as_mask(bits: Bits, vocab_size: int) -> mx.array:
    """Packed bits to a bool an id, (vocabulary,). A table lookup: the same on the CPU and on Metal."""
    mask: mx.array = _TABLE[mx.array(bits)].reshape(-1)[:vocab_size]
    return mask


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
        """Which ids may be drawn, (vocabulary,) of bool; None: any. `banned` ones only if there are no others."""
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

    def free_calls(self, id: str) -> int:
        """How many calls of a sequence no grammar held although one was asked for."""
        constraint = self._here.get(id)
        return constraint.free_calls if constraint else 0

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
        self._words: _Words | None = None
        self._lock = Lock()
        self._built: OrderedDict[str, LLMatcher] = OrderedDict()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="grammar")

    def prepare(self, grammar: Structured | ToolGrammar, stop_ids: list[int]) -> "Future[Constraint]":
        """A constraint for one row, soon. The future raises `ValueError` for a grammar that cannot be built."""
        return self._threads.submit(self._constraint, grammar, stop_ids)

    def _constraint(self, grammar: Structured | ToolGrammar, stop_ids: list[int]) -> Constraint:
        words = self._vocabulary(stop_ids)
        if isinstance(grammar, Structured):
            return Answer(self._lark(grammar.lark), stop_ids, words)
        parser = tool_parsers.get(grammar.format)
        calls = parser.grammar(json.loads(grammar.tools), Calls(tuple(grammar.names), grammar.single), words.spell)
        if calls is None:
            raise ValueError(f"the format {grammar.format} has no grammar")
        if grammar.required and (first := calls.piece("")):
            self._lark(first)
        answer = Answer(self._lark(grammar.answer.lark), stop_ids, words) if grammar.answer else None
        return ToolCalls(calls, self._lark, stop_ids, words, required=grammar.required, answer=answer)

    def _lark(self, text: str) -> LLMatcher:
        return self._matcher(LLMatcher.grammar_from_lark(text))

    def _matcher(self, grammar: str) -> LLMatcher:
        """Raises `ValueError` for what the library refuses."""
        with self._lock:
            matcher = self._built.get(grammar)
        if matcher is None:
            assert self._words is not None
            matcher = LLMatcher(self._words.tokenizer, grammar, log_level=0)
            if matcher.is_error():
                raise ValueError(matcher.get_error())
            with self._lock:
                self._built[grammar] = matcher
                if len(self._built) > _KEPT:
                    self._built.popitem(last=False)
        return matcher.deep_copy()

    def _vocabulary(self, stop_ids: list[int]) -> "_Words":
        if self._words is None:
            self._words = _Words(self._file, self._vocab_size, stop_ids)
        return self._words


class _Words:
    """The vocabulary as llguidance wants it, and which markers are tokens of their own."""

    def __init__(self, file: Path, vocab_size: int, stop_ids: list[int]) -> None:
        # A grammar that is satisfied permits the end: it must not be an id that has another meaning.
        end = stop_ids[0] if stop_ids else vocab_size - 1
        self.tokenizer = LLTokenizer(str(file), n_vocab=vocab_size, eos_token=end)
        self.bytes = -(-vocab_size // 8)
        added = json.loads(file.read_text(encoding="utf-8")).get("added_tokens", [])
        self.ids = {token["content"]: token["id"] for token in added if token["id"] < vocab_size}
        self.markers = {token["id"]: token["content"] for token in added if not token["special"]}
        self.quotes = {id: text for id, text in self.markers.items() if not _UNQUOTABLE.search(text)}
        """Markers that a text may quote: some tokens are whole texts of their own."""
        self.special = [token["id"] for token in added if token["special"]]

    def spell(self, marker: str) -> str:
        return f"<[{self.ids[marker]}]>" if marker in self.ids else literal(marker)

    def text(self, token: int) -> bytes:
        marker = self.markers.get(token)
        return marker.encode() if marker else bytes(self.tokenizer.decode_bytes([token]))

    def bits(self, matcher: LLMatcher | None) -> Bits:
        """What a matcher allows; without one, all but special tokens."""
        if matcher is not None:
            return np.frombuffer(matcher.compute_bitmask(), np.uint8)[: self.bytes].copy()
        bits = np.full(self.bytes, 0xFF, np.uint8)
        permit(bits, self.special, allowed=False)
        return bits


def permit(bits: Bits, ids: Iterable[int], *, allowed: bool) -> None:
    """Sets or clears single ids."""
    for token in ids:
        if token >> 3 < len(bits):
            bit = 1 << (token & 7)
            bits[token >> 3] = bits[token >> 3] | bit if allowed else bits[token >> 3] & (0xFF ^ bit)


class Answer:
    """A grammar over the whole answer: once it is satisfied the row may stop, and must when nothing can follow."""

    free_calls = 0

    def __init__(self, matcher: LLMatcher, stop_ids: list[int], words: _Words) -> None:
        self._matcher = matcher
        self._stop_ids = stop_ids
        self._words = words

    def allowed(self, *, thinking: bool) -> Bits | None:
        if thinking or self._matcher.is_error():
            return None
        bits = self._words.bits(self._matcher)
        permit(bits, self._stop_ids, allowed=self._matcher.is_accepting())
        return bits

    def accept(self, token: int, *, thinking: bool) -> bool:
        if not thinking and token not in self._stop_ids and not self._matcher.is_stopped():
            self._matcher.consume_token(token)
            if self._matcher.is_error():
                _log.warning("a grammar lost its way: %s", self._matcher.get_error().split("\n")[0])
        return False


class ToolCalls:
    """Text is free; from where a call begins on, each place of it has a grammar of its own (`CallGrammar`)."""

    def __init__(
        self,
        calls: CallGrammar,
        build: Callable[[str], LLMatcher],
        stop_ids: list[int],
        words: _Words,
        *,
        required: bool,
        answer: Answer | None = None,
    ) -> None:
        """`answer`: what text must be where no call is made; a call may begin in its place."""
        self._calls = calls
        self._build = build
        self._stop_ids = stop_ids
        self._words = words
        self._required = required
        self._answer = answer
        self._trigger = words.ids.get(calls.trigger)
        self._armed = False
        self._lost = False
        self._loose = False
        self.free_calls = 0
        self._idle = False
        """Calls are made and no other has begun: the reply may end."""
        self._written = ""
        """The answer so far, where it has a form."""
        self._matcher: LLMatcher | None = None
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._since: list[tuple[int, str]] = []
        """Tokens since the last border, or since a trigger; the first may straddle it."""

    def allowed(self, *, thinking: bool) -> Bits | None:
        calls = self._calls
        if self._lost:
            return None
        if self._required and not thinking and not self._armed and not (calls.made and calls.calls.single):
            self._arm()
            self._idle = calls.made > 0
        if not self._armed:
            return self._of_text(thinking=thinking)
        bits = self._words.bits(self._matcher)
        permit(bits, self._stop_ids, allowed=self._idle)
        markers, quotes = self._words.markers.items(), self._words.quotes.items()
        permit(bits, [token for token, marker in quotes if calls.quotable(marker)], allowed=True)
        if self._matcher is None:
            permit(bits, [token for token, marker in markers if calls.banned(marker)], allowed=False)
        return bits

    def _of_text(self, *, thinking: bool) -> Bits | None:
        """Outside calls: anything, unless the calls are made or the answer has a form of its own."""
        if self._must_end and self._stop_ids:
            return self._only_stops()
        bits = self._answer.allowed(thinking=thinking) if self._answer else None
        if bits is not None and self._trigger is not None and not self._written.strip():
            permit(bits, [self._trigger], allowed=True)
        return bits

    @property
    def _must_end(self) -> bool:
        """The calls that were asked for are made."""
        return self._calls.made > 0 and self._calls.calls.single

    def _only_stops(self) -> Bits:
        bits = np.zeros(self._words.bytes, np.uint8)
        permit(bits, self._stop_ids, allowed=True)
        return bits

    def accept(self, token: int, *, thinking: bool) -> bool:
        if self._lost or token in self._stop_ids:
            return False
        text = self._utf8.decode(self._words.text(token))
        self._since.append((token, text))
        if self._armed:
            self._follow(token, text)
            return False
        if self._answer is not None and not thinking:
            self._follow_answer(token, text)
            return False
        return self._watch(thinking=thinking)

    def _follow_answer(self, token: int, text: str) -> None:
        """The answer has a form: where nothing is written yet a call may take its place."""
        assert self._answer is not None
        if token == self._trigger and not self._written.strip():
            self._answer = None
            self._arm(text)
            return
        self._written += text
        self._since.clear()
        self._answer.accept(token, thinking=False)

    def _watch(self, *, thinking: bool) -> bool:
        """Free text: looks for the beginning of a call."""
        written = "".join(text for _, text in self._since)
        at = written.find(self._calls.trigger)
        begins = self._calls.begins(written[at:], thinking=thinking) if at >= 0 else False
        if begins is None:
            return False
        if not begins:
            self._forget(written, at)
            return False
        self._arm(written[at:])
        return thinking

    def _forget(self, written: str, at: int) -> None:
        """Keeps only tokens that may hold the beginning of a trigger."""
        keep = len(self._calls.trigger) - 1 if at < 0 else len(written) - at - 1
        while self._since and len(written) - len(self._since[0][1]) >= keep:
            written = written[len(self._since.pop(0)[1]) :]

    def _arm(self, written: str = "") -> None:
        self._armed = True
        self._calls.over = False
        self._calls.text = ""
        self._calls.write(written)
        self._restart(len(self._calls.text))

    def _follow(self, token: int, text: str) -> None:
        calls = self._calls
        self._idle = self._idle and not text.strip()
        marker = self._words.quotes.get(token)
        if marker is not None and calls.quotable(marker):
            calls.quote(marker)
            self._restart(0)
            return
        if self._matcher is not None and not self._matcher.consume_token(token):
            self._lose()
            return
        rest = calls.write(text)
        if rest is not None:
            self._restart(rest)

    def _restart(self, rest: int) -> None:
        """A border was passed: the grammar of the new place, which reads again what stands behind the border."""
        calls = self._calls
        replay: list[tuple[int, str]] = []
        while rest > 0:
            replay.insert(0, self._since.pop())
            rest -= len(replay[0][1])
        prefix = replay[0][1][:-rest] if rest < 0 else ""
        self._since = replay
        if calls.over:
            self._armed = False
            self._matcher = None
            return
        try:
            piece = calls.piece(prefix)
            self._matcher = self._build(piece) if piece is not None else None
        except ValueError as error:
            _log.warning("a tool's schema has no grammar: %s", str(error).split("\n")[0])
            calls.loosen()
            self._matcher = None
        if calls.loose and not self._loose:
            self.free_calls += 1
            _log.warning("a call of a tool whose schema has no grammar is free")
        self._loose = calls.loose
        if self._matcher is not None and not self._matcher.consume_tokens([token for token, _ in replay]):
            self._lose()

    def _lose(self) -> None:
        error = self._matcher.get_error().split("\n")[0] if self._matcher else ""
        _log.warning("a call left its grammar and goes on without: %s", error)
        self._lost = True
        self.free_calls += 1
