"""One row's grammar on its way through a reply, and the simplest one: a form for the whole answer."""

import logging
from typing import Protocol

from llguidance import LLMatcher

from vllm_mlx.engine.masks import Bits, Words, permit

_log = logging.getLogger("vllm_mlx.engine")


class Constraint(Protocol):
    """What a row may write. `unconstrained_calls` counts calls that it could not hold, or not wholly."""

    unconstrained_calls: int

    def allowed(self, *, thinking: bool) -> Bits | None:
        """What may come next; None: anything."""
        ...

    def accept(self, token: int, *, thinking: bool) -> bool:
        """The row has written this. True: if a thought was open, it is over, since a call has begun in it."""
        ...


class Answer:
    """A grammar over the whole answer: once it is satisfied the row may stop, and must when nothing can follow."""

    unconstrained_calls = 0

    def __init__(self, matcher: LLMatcher, stop_ids: list[int], words: Words) -> None:
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
