"""What a row may write: token masks from grammars (llguidance). The one place in the engine that sees text.

Grammars are built in a thread, beside the step loop; a mask is computed on the CPU while the device runs the forward
pass of the same step.
"""

import codecs
import json
import logging
from collections import OrderedDict
from collections.abc import Callable
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

Bits = np.ndarray[Any, np.dtype[np.uint8]]
"""A bit an id, packed, lowest first."""

_TABLE = mx.array(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.bool_))


class Constraint(Protocol):
    """One row's grammar on its way through the reply."""

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

    def expect(self, submit: Submit) -> None:
        """Begins to build what a sequence will need."""
        if submit.grammar is not None:
            self._coming[submit.id] = self._grammars.prepare(submit.grammar, submit.stop_ids)

    def settle(self, id: str) -> None:
        """Waits until the sequence's constraint is built. Raises `ValueError` for a grammar that cannot be."""
        if (coming := self._coming.pop(id, None)) is not None:
            self._here[id] = coming.result()

    def forget(self, id: str) -> None:
        """The sequence has ended."""
        self._coming.pop(id, None)
        self._here.pop(id, None)

    def holds(self, id: str) -> bool:
        return id in self._here

    def mask(self, id: str, *, thinking: bool) -> mx.array | None:
        """Which ids may be drawn, (vocabulary,) of bool; None: any."""
        constraint = self._here.get(id)
        bits = constraint.allowed(thinking=thinking) if constraint else None
        return None if bits is None or not bits.any() else as_mask(bits, self._vocab_size)

    def accept(self, id: str, token: int, *, thinking: bool) -> bool:
        """See `Constraint.accept`."""
        constraint = self._here.get(id)
        return constraint is not None and constraint.accept(token, thinking=thinking)


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
        words = self._vocabulary()
        if isinstance(grammar, Structured):
            return Answer(self._matcher(compiled(grammar)), stop_ids, words)
        parser = tool_parsers.get(grammar.format)
        calls = parser.grammar(json.loads(grammar.tools), Calls(tuple(grammar.names), grammar.single), words.spell)
        if calls is None:
            raise ValueError(f"the format {grammar.format} has no grammar")
        return ToolCalls(calls, self._lark, stop_ids, words, required=grammar.required)

    def _lark(self, text: str) -> LLMatcher:
        return self._matcher(LLMatcher.grammar_from_lark(text))

    def _matcher(self, grammar: str) -> LLMatcher:
        """Raises `ValueError` for what the library refuses."""
        with self._lock:
            matcher = self._built.get(grammar)
        if matcher is None:
            matcher = LLMatcher(self._vocabulary().tokenizer, grammar, log_level=0)
            if matcher.is_error():
                raise ValueError(matcher.get_error())
            with self._lock:
                self._built[grammar] = matcher
                if len(self._built) > _KEPT:
                    self._built.popitem(last=False)
        return matcher.deep_copy()

    def _vocabulary(self) -> "_Words":
        with self._lock:
            if self._words is None:
                self._words = _Words(self._file, self._vocab_size)
            return self._words


class _Words:
    """The vocabulary as llguidance wants it, and which markers are tokens of their own."""

    def __init__(self, file: Path, vocab_size: int) -> None:
        self.tokenizer = LLTokenizer(str(file), n_vocab=vocab_size)
        self.bytes = -(-vocab_size // 8)
        added = json.loads(file.read_text(encoding="utf-8")).get("added_tokens", [])
        self.ids = {token["content"]: token["id"] for token in added if token["id"] < vocab_size}
        self.markers = {token["id"]: token["content"] for token in added if not token["special"]}
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


def compiled(grammar: Structured) -> str:
    """llguidance's own form of a grammar. Raises `ValueError` where a schema is no JSON object."""
    match grammar.kind:
        case "json_schema":
            return str(LLMatcher.grammar_from_json_schema(grammar.text))
        case "regex":
            return str(LLMatcher.grammar_from_regex(grammar.text))
        case "lark":
            return str(LLMatcher.grammar_from_lark(grammar.text))


def permit(bits: Bits, ids: list[int], *, allowed: bool) -> None:
    """Sets or clears single ids."""
    for token in ids:
        if token >> 3 < len(bits):
            bit = 1 << (token & 7)
            bits[token >> 3] = bits[token >> 3] | bit if allowed else bits[token >> 3] & (0xFF ^ bit)


class Answer:
    """A grammar over the whole answer: once it is satisfied the row may stop, and must when nothing can follow."""

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
    ) -> None:
        self._calls = calls
        self._build = build
        self._stop_ids = stop_ids
        self._words = words
        self._required = required
        self._armed = False
        self._lost = False
        self._matcher: LLMatcher | None = None
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._since: list[tuple[int, str]] = []
        """Tokens since the last border, or since a trigger; the first may straddle it."""

    def allowed(self, *, thinking: bool) -> Bits | None:
        calls = self._calls
        if self._lost:
            return None
        if self._required and not thinking and not self._armed and not calls.made:
            self._arm()
        if not self._armed:
            return self._only_stops() if self._must_end and self._stop_ids else None
        bits = self._words.bits(self._matcher)
        permit(bits, self._stop_ids, allowed=False)
        quotable = [token for token, marker in self._words.markers.items() if calls.quotable(marker)]
        permit(bits, quotable, allowed=True)
        return bits

    @property
    def _must_end(self) -> bool:
        """The calls that were asked for are made."""
        return self._calls.made > 0 and (self._required or self._calls.calls.single)

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
        return self._watch(thinking=thinking)

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
        marker = self._words.markers.get(token)
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
            _log.warning("a tool's schema has no grammar, its calls are free: %s", str(error).split("\n")[0])
            calls.loosen()
            self._matcher = None
        if self._matcher is not None and not self._matcher.consume_tokens([token for token, _ in replay]):
            self._lose()

    def _lose(self) -> None:
        error = self._matcher.get_error().split("\n")[0] if self._matcher else ""
        _log.warning("a call left its grammar and goes on without: %s", error)
        self._lost = True
