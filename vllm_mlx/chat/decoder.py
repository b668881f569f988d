"""From token ids to events: detokenizer, parsers, stop strings and pacing, in this order, for one reply."""

from collections.abc import Sequence
from dataclasses import dataclass

from tool_parsers.events import Event
from vllm_mlx.chat.detokenize import Detokenizer
from vllm_mlx.chat.output import OutputParser
from vllm_mlx.chat.pacing import Pacer
from vllm_mlx.chat.stops import StopStrings


@dataclass(frozen=True, slots=True)
class Ended:
    """The text, not the engine, found the end: the first `keep` tokens count. `stop`: the stop string found, if one."""

    keep: int
    stop: str | None = None


class TurnDecoder:
    """Reads one reply."""

    def __init__(
        self,
        detokenizer: Detokenizer,
        parser: OutputParser,
        stops: StopStrings,
        pacer: Pacer,
        *,
        end_ids: frozenset[int] = frozenset(),
    ) -> None:
        """`end_ids`: tokens that end the turn wherever they stand, unless they are its first."""
        self.ended: Ended | None = None
        """Set once the text has ended the turn: the caller tells the engine to finish, and feeds no more."""
        self.tokens = 0
        """Completion tokens that count."""
        self.reasoning_tokens = 0
        """Of these, how many were part of a thought."""
        self._detokenizer = detokenizer
        self._parser = parser
        self._stops = stops
        self._pacer = pacer
        self._end_ids = end_ids

    def feed(self, tokens: Sequence[int], raw: bytes | None = None) -> list[Event]:
        """Takes one delta of the engine: ids, or the raw bytes of a replay (which count as one token)."""
        if raw is not None:
            return self._step(self._detokenizer.feed_bytes(raw))
        out: list[Event] = []
        for token in tokens:
            if self.ended is not None:
                break
            if token in self._end_ids and self.tokens:
                self.ended = Ended(self.tokens)
                break
            out += self._step(self._detokenizer.feed((token,)))
        return out

    def finish(self) -> list[Event]:
        """Generation has ended: the rest."""
        events: list[Event] = []
        if self._stops.found is None:
            tail = self._parser.feed(self._detokenizer.finish()) + self._parser.finish()
            events = self._stops.feed(tail) + self._stops.finish()
        return self._pacer.feed(events)

    def _step(self, text: str) -> list[Event]:
        self.tokens += 1
        self.reasoning_tokens += self._parser.thinking
        if not text:
            return []
        events = self._stops.feed(self._parser.feed(text))
        if self._stops.found is not None:
            self.ended = Ended(self.tokens, self._stops.found)
        elif self._parser.ended:
            self.ended = Ended(self.tokens)
        return self._pacer.feed(events)
