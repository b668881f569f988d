"""What the formats share whose blocks of calls are opened and closed by tokens of their own."""

from abc import abstractmethod
from collections.abc import Generator, Sequence
from itertools import chain
from typing import ClassVar

from tool_parsers.arguments import WHITESPACE
from tool_parsers.base import Grammar, ToolParser, ToolSchema, Verdict
from tool_parsers.events import BlockEnd, BlockStart, CallStart, Malformed, Text
from tool_parsers.scan import Lines, Markers

# What does not become a call's header within so many characters is none.
LONGEST_HEADER = 4096
_SLICE = 128  # of a text that is judged: most are told by their first words


class BlockParser(ToolParser):
    """A format whose markers are unmistakable: outside calls they are structure wherever they stand.

    A marker that fits nowhere is dropped and the words around it stay. Inside a thought one is a quotation,
    unless the whole header of a declared tool's call follows.
    """

    openers: ClassVar[tuple[str, ...]] = ()
    """What opens a block."""
    closers: ClassVar[tuple[str, ...]] = ()
    """What closes it."""
    callers: ClassVar[tuple[str, ...]] = ()
    """What opens a call by itself, where the format has a token for that."""

    def __init__(self, tools: Sequence[ToolSchema] | None = None, *, escapes: tuple[str, ...] = ()) -> None:
        super().__init__(tools, escapes=escapes)
        self._quoted = 0

    def judge(self, text: str, lines: Lines, *, ended: bool) -> Verdict | None:
        tag = self._tag_at(text, ended=ended)
        if tag is None:
            return None
        if tag in self.closers:
            self._quoted, quoted = max(0, self._quoted - 1), self._quoted
            return Verdict("text" if quoted else "drop", len(tag))
        if tag not in (*self.openers, *self.callers):
            return Verdict("text", len(tag))
        verdict = self._judge_header(text, len(tag), ended=ended)
        if verdict is not None and verdict.kind == "text" and tag in self.openers:
            self._quoted += 1
        return verdict

    def _tag_at(self, text: str, *, ended: bool) -> str | None:
        """The tag that `text` begins with; None: more text must tell."""
        return next(marker for marker in self.markers if text.startswith(marker))

    def _judge_header(self, text: str, length: int, *, ended: bool) -> Verdict | None:
        """Whether a call of a declared tool begins here: the format's own machine reads the text and says."""
        probe = type(self)()
        slices = (text[at : at + _SLICE] for at in range(0, min(len(text), LONGEST_HEADER), _SLICE))
        for event in chain.from_iterable(map(probe.feed, slices)):
            match event:
                case CallStart(_, name):
                    return Verdict("call") if self._declared(name) else Verdict("text", length)
                case Text(words) if words.strip(WHITESPACE):
                    return Verdict("text", length)
                case Malformed():
                    return Verdict("text", length)
        if len(text) >= LONGEST_HEADER:
            return Verdict("text", length)
        return Verdict("call") if ended else None

    def _turn(self) -> Grammar:
        while marker := (yield from self._until(self._text_markers)):
            if marker in self._escapes:
                self._hand_back()
                yield
            else:
                yield from self._structure(marker)

    @abstractmethod
    def _structure(self, marker: str) -> Grammar:
        """Reads what begins with a marker in plain text."""

    def _block(self, opener: str) -> Grammar:
        self._source.take(len(opener))
        self._events.append(BlockStart())
        yield from self._block_body()
        self._end_block()

    @abstractmethod
    def _block_body(self) -> Grammar:
        """Everything up to the block's end, and past it."""

    def _end_block(self) -> None:
        self._events.append(BlockEnd())
        self._lines.restart()

    def _stray_closer(self, closer: str) -> None:
        self._drop(closer)
        self._events.append(BlockEnd())

    def _drop(self, marker: str) -> None:
        self._source.take(len(marker))
        self._events.append(Malformed(f"stray {marker}", len(marker)))

    def _skip_gap(self) -> Generator[None, None, str]:
        """Reads past white space; the character that follows, unread, or "" at the end of the text."""
        source = self._source
        while True:
            source.at = source.past_gap(source.at)
            if source.at < len(source.text):
                return source.text[source.at]
            if source.ended:
                return ""
            yield

    def _at(self, *literals: str) -> Generator[None, None, bool]:
        """Whether one of `literals` stands next, after white space."""
        while (here := self._source.follows(self._source.at, *literals)) is None:
            yield
        return here

    def _discard_until(self, markers: Markers) -> Generator[None, None, int]:
        """Drops what is left of something broken; how many characters that were. The marker stays unread."""
        source = self._source
        dropped = 0
        while True:
            hit = markers.search(source.text, source.at)
            end = hit.start() if hit else len(source.text) if source.ended else markers.held_from(source.text)
            dropped += len(source.take(max(0, end - source.at)))
            if hit or source.ended:
                return dropped
            yield
