"""A reply that may hold calls: text is free, and from where a call begins on each place of it has its own grammar."""

import codecs
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

import numpy as np
from llguidance import LLMatcher

from tool_parsers.grammar import CallGrammar
from vllm_mlx.engine.constraint import Answer
from vllm_mlx.engine.masks import Bits, Words, permit

_log = logging.getLogger("vllm_mlx.engine")

Build = Callable[[str], LLMatcher]


class Background(Protocol):
    """Runs a function in a thread."""

    def __call__(self, run: Callable[..., Any], /, *arguments: Any) -> "Future[Any]": ...


class ToolCalls:
    """Follows the text and the places of a call (`CallGrammar`).

    Behind a border the grammar of the next place is built in a thread, while the device runs the next step; whoever
    asks for a mask waits for what is left of that. Until then the thread alone touches the `CallGrammar`.
    """

    def __init__(
        self,
        calls: CallGrammar,
        build: Build,
        background: Background,
        stop_ids: list[int],
        words: Words,
        *,
        required: bool,
        answer: Answer | None = None,
    ) -> None:
        """`answer`: what text must be where no call is made; a call may begin in its place."""
        self._calls = calls
        self._build = build
        self._background = background
        self._stop_ids = stop_ids
        self._words = words
        self._required = required
        self._answer = answer
        self._trigger = words.ids.get(calls.trigger)
        self._armed = False
        self._awaited = False
        """Armed for a call that must come, and nothing of it is written: a thought may still come before it."""
        self._lost = False
        self.unconstrained_calls = 0
        self._free_seen = 0
        self._idle = False
        """Calls are made and no other has begun: the reply may end."""
        self._written = ""
        """The answer so far, where it has a form."""
        self._matcher: LLMatcher | None = None
        self._coming: Future[LLMatcher | None] | None = None
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._since: list[tuple[int, str]] = []
        """Tokens since the last border, or since a trigger; the first may straddle it."""

    # What may come.

    def allowed(self, *, thinking: bool) -> Bits | None:
        self._settle()
        calls = self._calls
        if self._lost:
            return None
        if thinking and self._awaited:
            self._armed = self._awaited = False
        if self._required and not thinking and not self._armed and not (calls.made and calls.calls.single):
            self._arm()
            self._settle()
            self._awaited = True
            self._idle = calls.made > 0
        if not self._armed:
            return self._thought() if thinking else self._of_text()
        bits = self._words.bits(self._matcher)
        permit(bits, self._stop_ids, allowed=self._idle)
        markers, quotes = self._words.markers.items(), self._words.quotes.items()
        permit(bits, [token for token, marker in quotes if calls.quotable(marker)], allowed=True)
        if self._matcher is None:
            permit(bits, [token for token, marker in markers if calls.banned(marker)], allowed=False)
        return bits

    def _thought(self) -> Bits | None:
        """In a thought: anything, but not the end of the reply where a call must follow."""
        if not self._required or self._calls.made or not self._stop_ids:
            return None
        bits = np.full(self._words.bytes, 0xFF, np.uint8)
        permit(bits, self._stop_ids, allowed=False)
        return bits

    def _of_text(self) -> Bits | None:
        """Outside calls: anything, unless the calls are made or the answer has a form of its own."""
        if self._calls.made and self._calls.calls.single and self._stop_ids:
            bits = np.zeros(self._words.bytes, np.uint8)
            permit(bits, self._stop_ids, allowed=True)
            return bits
        form = self._answer.allowed(thinking=False) if self._answer else None
        if form is not None and self._trigger is not None and not self._written.strip():
            permit(form, [self._trigger], allowed=True)
        return form

    # What has come.

    def accept(self, token: int, *, thinking: bool) -> bool:
        self._settle()
        if self._lost or token in self._stop_ids:
            return False
        self._awaited = False
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
        self._pass_border(len(self._calls.text))

    def _follow(self, token: int, text: str) -> None:
        calls = self._calls
        self._idle = self._idle and not text.strip()
        marker = self._words.quotes.get(token)
        if marker is not None and calls.quotable(marker):
            calls.quote(marker)
            self._pass_border(0)
            return
        if self._matcher is not None and not self._matcher.consume_token(token):
            self._lose(self._matcher.get_error())
            return
        rest = calls.write(text)
        if rest is not None:
            self._pass_border(rest)

    # From place to place.

    def _pass_border(self, rest: int) -> None:
        """The grammar of the new place is wanted; it reads again what stands behind the border: `rest` characters."""
        replay: list[tuple[int, str]] = []
        while rest > 0:
            replay.insert(0, self._since.pop())
            rest -= len(replay[0][1])
        prefix = replay[0][1][:-rest] if rest < 0 else ""
        self._since = replay
        self._matcher = None
        if self._calls.over:
            self._armed = False
        else:
            self._coming = self._background(self._at_place, prefix, [token for token, _ in replay])

    def _at_place(self, prefix: str, replay: list[int]) -> LLMatcher | None:
        """The matcher of the place at hand; None: anything goes there."""
        try:
            piece = self._calls.piece(prefix)
            matcher = None if piece is None else self._build(piece)
        except ValueError as error:
            self._calls.loosen(str(error).split("\n")[0])
            return None
        if matcher is not None:
            matcher.consume_tokens(replay)
        return matcher

    def _settle(self) -> None:
        """Takes over what the thread has built."""
        if self._coming is None:
            return
        self._matcher, self._coming = self._coming.result(), None
        calls = self._calls
        if calls.free > self._free_seen:
            self.unconstrained_calls += calls.free - self._free_seen
            self._free_seen = calls.free
            _log.warning("a call is not held to its schema, or not wholly: %s", calls.why)
        if self._matcher is not None and self._matcher.is_error():
            self._lose(self._matcher.get_error())

    def _lose(self, error: str) -> None:
        _log.warning("a call left its grammar and goes on without: %s", error.partition("\n")[0])
        self._lost = True
        self.unconstrained_calls += 1
