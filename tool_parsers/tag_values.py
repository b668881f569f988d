"""Inside the values of tag formats: where one ends that quotes its own format, read along as a grammar must."""

import re
from dataclasses import dataclass

from tool_parsers.arguments import CONTAINERS
from tool_parsers.json_text import JsonScanner, Scan
from tool_parsers.schema import Types

_LONGEST = 64
"""No tag that matters inside a value begins further back than this without being whole."""
_GAP = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class InnerTags:
    """The tags of a format that matter inside a value: `inside` finds openers, and closers as its group `end`."""

    inside: re.Pattern[str]
    open: str
    close: str
    invoke_end: str
    parameter_end: str
    followers: tuple[str, ...]
    """What ends a value behind its closing tag."""


class Inside:
    """Reads along inside a value: finds its end, and where nothing can be asked of it.

    An element that opens inside a raw value must close before the value can end; what is JSON ends where its JSON ends.
    """

    def __init__(self, tags: InnerTags, types: Types, *, free: bool = True, last: bool = True) -> None:
        """`free`: the value may be any text. `last`: the call may end behind it."""
        self._tags = tags
        self._types = types
        self._free = free
        self._last = last
        self._begun = types.only_string
        self._json: JsonScanner | None = None
        self._depth = 0
        self._wrappers = 0
        self._candidate = False
        self._tail = ""
        self._at = 0

    @property
    def constrained(self) -> bool:
        return not self._depth

    def take(self) -> int:
        """How much of the text was dealt with."""
        at, self._at = self._at, 0
        return at

    def read(self, text: str) -> int | None:
        """Where the tag behind the value begins, if it has come; else `take` says what was dealt with."""
        if not self._begun:
            self._begin(text)
        self._tail = text[-_LONGEST:]
        if self._json is not None and self._json.state is Scan.OPEN:
            self._at += self._json.feed(text[self._at :])
            if self._json.state is Scan.OPEN:
                return None
        before = self.constrained
        for hit in self._tags.inside.finditer(text, self._at):
            if hit["end"] is None:
                self._depth += self._json is None
            elif self._depth:
                self._depth -= 1
                self._candidate = True
            else:
                gap = _GAP.match(text, hit.end())
                assert gap is not None
                rest = text[gap.end() :]
                if rest.startswith(self._tags.followers):
                    return gap.end()
                if any(tag.startswith(rest) for tag in self._tags.followers):
                    self._at = hit.start()
                    return None
            self._at = hit.end()
            if self.constrained != before:
                return None
        tail = text.rfind("<", max(self._at, len(text) - _LONGEST))
        self._at = len(text) if tail < 0 else tail
        return None

    def _begin(self, text: str) -> None:
        lead = text.lstrip(" \t\r\n")
        self._begun = bool(lead)
        kind = CONTAINERS.get(lead[:1])
        if kind and self._types.kinds and self._types.permits(kind):
            self._json = JsonScanner()
            self._at = len(text) - len(lead)

    def quotable(self, marker: str) -> bool:
        """Whether the token of a marker may stand here as text."""
        before = self._tail.rstrip(" \t\r\n")
        if self._json is not None or not self._free or before.endswith(self._tags.parameter_end):
            return False
        return marker != self._tags.close or self._closes_more() or (self._candidate and self._last)

    def proves_end(self, marker: str) -> bool:
        """The block's end right behind an invoke's: the value ended before, at an end tag that an element took."""
        return marker == self._tags.close and not self._closes_more()

    def _closes_more(self) -> bool:
        """Whether the block's end is an inner one's, or does not follow an invoke's end."""
        return self._wrappers > 0 or not self._tail.rstrip(" \t\r\n").endswith(self._tags.invoke_end)

    def quote(self, marker: str) -> None:
        """It does."""
        self._tail = ""
        self._wrappers += (marker == self._tags.open) - (marker == self._tags.close)
        self._wrappers = max(0, self._wrappers)
