"""What every tool parser is: one incremental machine from model text to events.

A format is written as a grammar: a generator that reads `Source` and yields where it needs more text.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tool_parsers.arguments import ObjectWriter
from tool_parsers.events import (
    ArgumentsDelta,
    CallAborted,
    CallEnd,
    CallStart,
    Escape,
    Malformed,
    ParserEvent,
    Text,
)
from tool_parsers.grammar import CallGrammar, Calls, Spell, name_of
from tool_parsers.scan import Lines, Markers, Source
from tool_parsers.schema import Schema

ToolSchema = Mapping[str, Any]
"""An OpenAI tool: {"type": "function", "function": {"name", "description", "parameters"}}."""

Grammar = Generator[None, None, None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What markup inside an open thought is: a call that ends the thought, quoted text, or noise to drop."""

    kind: Literal["call", "text", "drop"]
    length: int = 0


class ToolParser(ABC):
    """Splits model text into visible text and tool calls.

    The result for a whole text is `feed(text) + finish()`, and for every way of cutting the text the folded
    events are equal. No input raises. Alone, a parser is complete; inside a server, `escapes` names
    the markers of others: met outside a call, one ends `feed` with an `Escape`, and
    the caller says how to go on by feeding what is left.
    """

    markers: ClassVar[tuple[str, ...]] = ()
    """What has a meaning outside calls. Inside open thinking each is put before `judge`."""

    hidden: ClassVar[tuple[str, ...]] = ()
    """What never stands in visible text, not even where pieces of text meet."""

    newlines_before: ClassVar[int] = 0
    """How many newlines the format's template writes before a block: layout, not text."""

    reasoning: ClassVar[str | None] = None
    """The reasoning parser of the templates that write this format: its layout goes with the format."""

    def __init__(self, tools: Sequence[ToolSchema] | None = None, *, escapes: tuple[str, ...] = ()) -> None:
        """`tools` None: no schemas are known, and any name may be called."""
        self._schemas = None if tools is None else {name_of(tool): Schema.of_tool(tool) for tool in tools}
        self._escapes = escapes
        self._text_markers = Markers((*self.markers, *escapes))
        self._lines = Lines()
        self._source = Source()
        self._events: list[ParserEvent] = []
        self._calls = 0
        self._machine = self._turn()

    @classmethod
    @abstractmethod
    def speaks(cls, template: str) -> bool:
        """Whether a chat template (Jinja source) writes this format."""

    @classmethod
    def grammar(cls, tools: Sequence[ToolSchema], calls: Calls, spell: Spell) -> CallGrammar | None:
        """What may be written in a call of this format, step by step; None: the format has no grammar."""
        return None

    @abstractmethod
    def judge(self, text: str, lines: Lines, *, ended: bool) -> Verdict | None:
        """Inside an open thought, `text` begins with one of `markers`: what is it? None: more text must tell.

        `lines` is where in the thought's text the marker stands. Once `ended`, the answer is never None.
        """

    @abstractmethod
    def _turn(self) -> Grammar:
        """The grammar of a turn, from the first character to the end of the text."""

    def feed(self, text: str) -> list[ParserEvent]:
        """Takes the next piece of text, of any length; returns what is decided."""
        self._source.push(text)
        return self._run()

    def finish(self) -> list[ParserEvent]:
        """The text has ended: returns the rest. After an `Escape`, feed and finish once more."""
        self._source.ended = True
        return self._run()

    def restart_line(self) -> None:
        """The next text does not continue the line of the last: a thought stood between them."""
        self._lines.restart()

    def _run(self) -> list[ParserEvent]:
        next(self._machine, None)
        events = self._events.copy()
        self._events.clear()
        return events

    def _declared(self, name: str) -> bool:
        """Whether a call of this name can be meant: it is offered, or nobody knows what is."""
        return self._schemas is None or name in self._schemas

    def _schema(self, name: str) -> Schema:
        return (self._schemas or {}).get(name) or Schema([], None)

    def _emit_text(self, text: str) -> None:
        if text:
            self._lines.feed(text)
            self._events.append(Text(text))

    def _until(self, markers: Markers, *, partial_is_text: bool = True) -> Generator[None, None, str]:
        """Emits text up to the next marker, which is returned unread; "" at the end of the text."""
        source = self._source
        while True:
            hit = markers.search(source.text, source.at)
            if hit is not None:
                self._emit_text(source.take(hit.start() - source.at))
                return hit.group()
            unread = source.rest()
            held = markers.held_from(unread)
            if source.ended:
                self._emit_text(unread[: None if partial_is_text else held])
                if not partial_is_text and held < len(unread):
                    self._events.append(Malformed("markup cut short", len(unread) - held))
                return ""
            self._emit_text(unread[:held])
            source.unread(unread[held:])
            yield

    def _hand_back(self) -> None:
        """Another's marker stands next: gives everything unread to the caller. The grammar must yield after this."""
        self._source.ended = False
        self._events.append(Escape(self._source.rest()))


class Call:
    """One call being read: numbers it, streams its arguments, and ends it one way or the other.

    Without a name there is no call: nothing is emitted, and what was read counts as malformed.
    """

    def __init__(self, events: list[ParserEvent], index: int, name: str, id: str | None = None) -> None:
        self._events = events
        self._index = index
        self.name = name
        self.arguments = ObjectWriter()
        events.append(CallStart(index, name, id))

    def send(self, json: str) -> None:
        """The next slice of the arguments."""
        if json:
            self._events.append(ArgumentsDelta(self._index, json))

    def end(self) -> None:
        self.send(self.arguments.close())
        self._events.append(CallEnd(self._index))

    def abort(self, reason: str) -> None:
        self._events.append(CallAborted(self._index))
        self._events.append(Malformed(reason, 0, self.name))


class PlainText(ToolParser):
    """The parser of a request without tools: everything is text."""

    @classmethod
    def speaks(cls, template: str) -> bool:
        return False

    def judge(self, text: str, lines: Lines, *, ended: bool) -> Verdict | None:
        raise AssertionError("plain text has no markers")

    def _turn(self) -> Grammar:
        while (yield from self._until(self._text_markers)):
            self._hand_back()
            yield
