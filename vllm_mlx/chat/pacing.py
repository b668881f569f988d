"""How eagerly the arguments of a call leave: as they are written, parameter by parameter, or the call as a whole."""

from collections.abc import Iterable
from typing import Literal

from tool_parsers.events import ArgumentsDelta, CallAborted, CallEnd, CallStart, Event
from tool_parsers.json_text import Members

Pace = Literal["value", "parameter", "call"]


class Pacer:
    """Holds a call's events back as far as the pace asks. What a cut call held back is never sent."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._start: list[Event] = []
        self._slices: list[str] = []
        self._members = Members()

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """The events that may leave."""
        if self._pace == "value":
            return list(events)
        out: list[Event] = []
        for event in events:
            self._step(event, out)
        return out

    def _step(self, event: Event, out: list[Event]) -> None:
        match event:
            case CallStart():
                self._slices.clear()
                self._members = Members()
                (self._start if self._pace == "call" else out).append(event)
            case ArgumentsDelta(index, json):
                whole = self._members.feed(json) if self._pace == "parameter" else -1
                if whole >= 0:
                    self._slices.append(json[:whole])
                    self._release(index, out)
                    json = json[whole:]
                self._slices.append(json)
            case CallEnd(index):
                out += self._start
                self._start.clear()
                self._release(index, out)
                out.append(event)
            case CallAborted():
                self._start.clear()
                self._slices.clear()
                out.append(event)
            case _:
                out.append(event)

    def _release(self, index: int, out: list[Event]) -> None:
        json = "".join(self._slices)
        self._slices.clear()
        if json:
            out.append(ArgumentsDelta(index, json))
