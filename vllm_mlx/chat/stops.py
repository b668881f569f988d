"""Stop strings: found in visible text only, and never sent in part."""

from collections.abc import Iterable, Sequence

from tool_parsers.events import Event, Text
from tool_parsers.scan import Markers


class StopStrings:
    """Passes events on until one of the strings has been written.

    Thoughts and calls are no visible text: a string neither matches in them nor across them.
    """

    def __init__(self, strings: Sequence[str], *, include: bool = False) -> None:
        """`include`: the string that was found is part of the reply."""
        self.found: str | None = None
        self._markers = Markers(strings)
        self._include = include
        self._held = ""

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """The events up to a stop string; after one was found, none."""
        out: list[Event] = []
        for event in events:
            if self.found is not None:
                break
            if isinstance(event, Text):
                self._text(self._held + event.text, out)
            else:
                out += self.finish()
                out.append(event)
        return out

    def finish(self) -> list[Event]:
        """No more text will come: what was held as a possible stop string is text."""
        held, self._held = self._held, ""
        return [Text(held)] if held else []

    def _text(self, text: str, out: list[Event]) -> None:
        hit = self._markers.search(text)
        if hit is not None:
            self.found = hit.group()
            self._held = ""
            end = hit.end() if self._include else hit.start()
        else:
            end = self._markers.held_from(text)
            self._held = text[end:]
        if end:
            out.append(Text(text[:end]))
