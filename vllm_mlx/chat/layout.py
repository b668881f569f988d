"""Newlines that a template writes around its markup: they belong to the format, not to the text.

A segment is the text between two boundaries (tags, calls, the ends of a turn).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tool_parsers.scan import Markers

BLANK = " \t\r\n"
ALL = 1 << 30


@dataclass(slots=True)
class Segment:
    """Passes text on as soon as it cannot be layout any more.

    `head`: at most so many newlines are dropped at the start. `tail`: so many may be dropped at the end, and are
    held back until it is known. `bounded`: a boundary stands before the segment, so nothing is lost when it is blank.
    """

    head: int = 0
    tail: int = 0
    bounded: bool = False
    blank: bool = True
    _held: list[str] = field(default_factory=list)

    def feed(self, text: str) -> str:
        """The text that is certain, with the next piece."""
        if self.blank:
            self._held.append(text)
            if not text.strip(BLANK):
                return ""
            self.blank = False
            text = _without_head("".join(self._held), self.head)
        elif self.tail == ALL and not text.strip("\n"):
            self._held.append(text)
            return ""
        else:
            text = "".join(self._held) + text
        kept = len(text) - _newlines_at_end(text, self.tail)
        self._held = [text[kept:]]
        return text[:kept]

    def end(self, *, drop: int = 0) -> str:
        """A boundary follows: the rest, without at most `drop` newlines; nothing if the segment is blank."""
        text, self._held = "".join(self._held), []
        if self.blank:
            return ""
        return text[: len(text) - _newlines_at_end(text, drop)]

    def finish(self) -> str:
        """The turn is over: the rest."""
        if self.blank and self.bounded:
            return ""
        return "".join(self._held)


class Never:
    """Keeps spellings out of a text whose pieces meet where something between them was dropped.

    The character that would complete one is left out: the result is the same however the text is cut.
    """

    def __init__(self, spellings: Iterable[str]) -> None:
        spellings = tuple(spellings)
        self._markers = Markers(spellings)
        self._reach = max(map(len, spellings), default=1) - 1
        self._tail = ""

    def feed(self, text: str) -> str:
        """The next piece, as it may be shown."""
        joined = self._tail + text
        while hit := self._markers.search(joined):
            joined = joined[: hit.end() - 1] + joined[hit.end() :]
        shown = joined[len(self._tail) :]
        self._tail = joined[max(0, len(joined) - self._reach) :]
        return shown


def _without_head(text: str, most: int) -> str:
    return text[min(most, len(text) - len(text.lstrip("\n"))) :]


def _newlines_at_end(text: str, most: int) -> int:
    return min(most, len(text) - len(text.rstrip("\n")))
