"""Finding markers in text that arrives in pieces: what is held back, and nothing longer than needed."""

import re
from collections.abc import Iterable

# Layout between tags is a few characters; a longer run of white space is text of its own.
LONGEST_GAP = 4096

# Of one stretch, before the next reader must do with what it finds: each costs the stretch's length.
MOST_REREADS = 8

_GAP = re.compile(r"[ \t\r\n]*")


class Markers:
    """A set of literal markers. The longest one that matches at the earliest place wins."""

    def __init__(self, markers: Iterable[str]) -> None:
        self._all = sorted({marker for marker in markers if marker}, key=len, reverse=True)
        self._longest = max(map(len, self._all), default=0)
        self._any = re.compile("|".join(map(re.escape, self._all)) or r"(?!)")
        parts = sorted({marker[:length] for marker in self._all for length in range(1, len(marker))}, reverse=True)
        self._part_at_end = re.compile(rf"(?:{'|'.join(map(re.escape, parts))})\Z" if parts else r"(?!)")

    def search(self, text: str, at: int = 0) -> re.Match[str] | None:
        """The first whole marker at or after `at`."""
        return self._any.search(text, at)

    def held_from(self, text: str) -> int:
        """Where the longest suffix begins that may still become a marker; the text's length if there is none."""
        part = self._part_at_end.search(text, max(0, len(text) - self._longest + 1))
        return part.start() if part else len(text)


class Source:
    """The text of a turn as far as it has arrived and was not yet read. `ended`: no more will come."""

    __slots__ = ("_offset", "_reread_to", "_rereads", "at", "ended", "text")

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False
        self._offset = 0  # of `text` in the turn
        self._rereads = 0
        self._reread_to = 0

    def push(self, text: str) -> None:
        """More text has arrived."""
        self._offset += self.at
        self.text = self.text[self.at :] + text
        self.at = 0

    def unread(self, text: str) -> None:
        """Puts text back, to be read again another way."""
        self._offset += self.at - len(text)
        self.text = text + self.text[self.at :]
        self.at = 0

    def reread(self, text: str) -> None:
        """Puts text back that was read in vain up to here."""
        end = self._offset + self.at
        self._rereads = self._rereads + 1 if end == self._reread_to else 1
        self._reread_to = end
        self.unread(text)

    @property
    def worn(self) -> bool:
        """What stands here was put back so often that its next reader may not do it again."""
        return self._rereads >= MOST_REREADS and self._offset + self.at < self._reread_to

    def take(self, count: int) -> str:
        """Reads on by `count` characters."""
        start = self.at
        self.at += count
        return self.text[start : self.at]

    def rest(self) -> str:
        """Everything unread; reads it."""
        return self.take(len(self.text) - self.at)

    def starts_with(self, literal: str) -> bool:
        return self.text.startswith(literal, self.at)

    def past_gap(self, at: int) -> int:
        """Where white space that stands at `at` ends."""
        gap = _GAP.match(self.text, at)
        assert gap is not None
        return gap.end()

    def follows(self, at: int, *literals: str) -> bool | None:
        """Whether one of `literals` stands at `at`, after white space; None: more text must tell."""
        place = self.past_gap(at)
        if place - at > LONGEST_GAP:
            return False
        if any(self.text.startswith(literal, place) for literal in literals):
            return True
        tail = self.text[place : place + max(map(len, literals))]
        return None if not self.ended and any(literal.startswith(tail) for literal in literals) else False


_OPENING_FENCE = re.compile(r"(?: |>|(?:[-*+]|\d{1,9}[.)]) )*(`{3,})[^`]*$")
_CLOSING_FENCE = re.compile(r"[ >]*(`{3,})[ ]*$")


class Lines:
    """What a reader of the text so far sees: whether its last line is still blank, and whether a ``` fence is open.

    Fences are CommonMark's (0.31, section 4.5), backticks only, in list items and quotations too. How deep an item
    is nested is not followed: a fence may be indented by anything, and its end by at most three spaces more.
    """

    _KEPT = 200

    def __init__(self) -> None:
        self._line = ""
        self._fence = 0
        self._column = 0

    @property
    def blank(self) -> bool:
        """Only spaces and tabs stand on the current line."""
        return not self._line.strip(" \t")

    @property
    def fenced(self) -> bool:
        """The current line is inside a code fence."""
        return self._fence > 0

    def feed(self, text: str) -> None:
        """Reads on."""
        *whole, last = text.split("\n")
        for line in whole:
            self._end((self._line + line)[: self._KEPT])
        self._line = (self._line + last)[: self._KEPT]

    def restart(self) -> None:
        """Markup that is no text ended here: what follows stands at the start of a line."""
        self._line = ""

    def _end(self, line: str) -> None:
        self._line = ""
        line = line.rstrip("\r").expandtabs(4)
        if not self._fence:
            if fence := _OPENING_FENCE.match(line):
                self._fence, self._column = len(fence[1]), fence.start(1)
        elif (fence := _CLOSING_FENCE.match(line)) and len(fence[1]) >= self._fence:
            self._fence = self._fence if fence.start(1) > self._column + 3 else 0
