"""From text to events: owns the state of one turn, the seam between thinking and calls, and layout newlines.

Works without MLX; `vllm-mlx parse` is a thin wrapper around `OutputParser`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import reasoning_parsers
import tool_parsers
from reasoning_parsers.base import ReasoningParser
from tool_parsers.base import PlainText, ToolParser, ToolSchema
from tool_parsers.events import (
    ArgumentsDelta,
    BlockEnd,
    BlockStart,
    CallAborted,
    CallEnd,
    CallStart,
    Escape,
    Event,
    Malformed,
    ParserEvent,
    Reasoning,
    Text,
    ThoughtEnd,
    ThoughtStart,
)
from tool_parsers.scan import Lines, Markers
from vllm_mlx.chat.layout import ALL, Never, Segment

_ROLE_WORD = re.compile(r"[A-Za-z_]{0,16}\n?")
_SLICE = 4096
_TAG = re.compile(r"(?:</?(?:[A-Za-z_][^<>\n]*>?)?)?")
"""As much of a tag as there is."""
_LONGEST_TAG = 256


@dataclass(frozen=True, slots=True)
class TurnTokens:
    """How a family spells begin of text, the opener of a role, and the end of a turn. None reaches a client."""

    begin: str | None = None
    role: str | None = None
    end: str | None = None
    hidden: tuple[str, ...] = ()
    """Other tokens that are dropped from visible text; a thought may quote them."""

    @property
    def spellings(self) -> tuple[str, ...]:
        return tuple(spelling for spelling in (self.begin, self.role, self.end) if spelling)


def parser_classes(
    tool: str | None, reasoning: str | None
) -> tuple[type[ToolParser] | None, type[ReasoningParser] | None]:
    """The parser classes of two names (None: no such parser).

    A reasoning parser with the same tags as the one that the tool format's template belongs to gives way to
    it: the newlines around the tags are the template's.

    Raises:
        KeyError: an unknown name, with what there is.
    """
    tool_class = tool_parsers.get(tool) if tool else None
    reasoning_class = reasoning_parsers.get(reasoning) if reasoning else None
    if tool_class and reasoning_class and tool_class.reasoning and not reasoning_class.inline:
        own = reasoning_parsers.get(tool_class.reasoning)
        if own.markers() == reasoning_class.markers():
            reasoning_class = own
    return tool_class, reasoning_class


class OutputParser:
    """Splits a turn's text into thoughts, visible text and tool calls.

    Inside a thought the reasoning parser reads, elsewhere the tool parser; each hands over at the other's markers.
    For every way of cutting the text the folded events are equal.
    """

    def __init__(
        self,
        tool_parser: type[ToolParser] | None,
        reasoning_parser: type[ReasoningParser] | None,
        *,
        tools: Sequence[ToolSchema] | None = None,
        thinking_open: bool = False,
        turn: TurnTokens = TurnTokens(),
    ) -> None:
        """`tool_parser` None: nothing is parsed as a call. `tools` None: no schemas, any name may be called."""
        self.ended = False
        """The text itself ended the turn; what follows is discarded."""
        self._turn = turn
        think = reasoning_parser.markers() if reasoning_parser else ()
        reader = tool_parser or PlainText
        self._plain = tool_parser is None
        # What a format has a use for is its parser's to hide.
        self._hidden = tuple(spelling for spelling in turn.hidden if spelling not in reader.markers)
        self._tool: ToolParser = reader(tools, escapes=(*turn.spellings, *self._hidden, *think))
        self._reasoning: ReasoningParser | None = None
        if reasoning_parser:
            visible = self._hidden if reasoning_parser.inline else ()
            escapes = (*turn.spellings, *visible, *self._tool.markers)
            self._reasoning = reasoning_parser(thinking=thinking_open, shared=True, escapes=escapes)
        self._thought: Segment | None = Segment(tail=self._thought_tail) if self.thinking and not self._inline else None
        self._answer = Segment(tail=self._tool.newlines_before)
        self._turn_ends = Markers(filter(None, (turn.role, turn.end)))
        self._never = Never(self._never_shown(think))
        self._lines = Lines()
        self._in_block = False
        self._untouched = True
        self._undecided = ""
        self._thoughts = 0
        self._contents = 0
        self._out: list[Event] = []

    @property
    def thinking(self) -> bool:
        """A thought is open."""
        return self._reasoning is not None and self._reasoning.thinking

    @property
    def _inline(self) -> bool:
        return self._reasoning is not None and self._reasoning.inline

    def _never_shown(self, think: tuple[str, ...]) -> tuple[str, ...]:
        """Spellings that no text may show, not even put together from what stood around something dropped."""
        if self._inline:
            return (*self._turn.spellings, *self._turn.hidden)
        reopens = self._reasoning is not None and self._reasoning.reopens_anywhere
        return (*self._turn.spellings, *self._turn.hidden, *self._tool.hidden, *(think if reopens else ()))

    @property
    def _thought_tail(self) -> int:
        assert self._reasoning is not None
        return max(self._reasoning.before_closer, self._tool.newlines_before)

    def feed(self, text: str) -> list[Event]:
        """Takes the next piece of text; returns what is decided."""
        # In slices, since each marker hands the rest of a piece on.
        for at in range(0, len(text), _SLICE):
            if not self.ended:
                self._drive(self._undecided + text[at : at + _SLICE], last=False)
        return self._take()

    def finish(self) -> list[Event]:
        """The text has ended: returns the rest."""
        if not self.ended:
            self._drive(self._undecided, last=True)
            self._close()
        return self._take()

    def _take(self) -> list[Event]:
        out, self._out = self._out, []
        return joined(out) if len(out) > 1 else out

    def _close(self) -> None:
        """The turn is over: what was held as possible layout is text."""
        self.ended = True
        if self._thought is not None:
            self._emit_thought(self._thought.finish())
        self._emit_answer(self._answer.finish())

    def _drive(self, text: str, *, last: bool) -> None:
        """Lets the parser whose turn it is read, until all is read or a marker waits for more text."""
        self._undecided = ""
        rest: str | None = text
        while rest is not None and not self.ended:
            reader = self._reasoning if self._reasoning is not None and self._reasoning.thinking else self._tool
            events: list[ParserEvent] = [*reader.feed(rest)]
            if last and not (events and isinstance(events[-1], Escape)):
                events += reader.finish()
            rest = self._dispatch(events)
            if rest is not None:
                rest = self._marker(rest, last=last)

    def _dispatch(self, events: Sequence[ParserEvent]) -> str | None:
        """Sends events on; returns what the parser handed back."""
        for event in events:
            self._untouched &= isinstance(event, Text | Reasoning | Escape)
            match event:
                case Escape(rest):
                    return rest
                case Text(text):
                    self._text(text)
                case Reasoning(text):
                    assert self._thought is not None
                    self._lines.feed(text)
                    self._emit_thought(self._thought.feed(text))
                case ThoughtStart():
                    self._open_thought()
                case ThoughtEnd():
                    self._end_thought()
                case BlockStart() | BlockEnd():
                    self._block(event)
                case CallStart():
                    self._boundary(drop=ALL)
                    self._out.append(event)
                case CallEnd() | CallAborted():
                    self._out.append(event)
                    self._start_inside()
                case Malformed():
                    self._out.append(event)
                    self._dropped_tag()
                case _:
                    self._out.append(event)
        return None

    # What a marker means.

    def _marker(self, rest: str, *, last: bool) -> str | None:
        """`rest` begins with a marker of another than the parser that met it; returns what is still to be read."""
        if not rest:
            return "" if last else None
        if any(rest.startswith(spelling) for spelling in self._turn.spellings):
            return self._turn_token(rest, last=last)
        self._untouched = False
        if (self._inline or not self.thinking) and (hidden := next(filter(rest.startswith, self._hidden), None)):
            return self._hidden_tag(rest, len(hidden), last=last) if self._plain else rest[len(hidden) :]
        if self._reasoning is None:
            return rest
        if not self._reasoning.thinking:
            return self._think_marker(self._reasoning, rest)
        if any(rest.startswith(marker) for marker in self._tool.markers):
            return self._judge(self._reasoning, rest, last=last)
        return rest

    def _hidden_tag(self, rest: str, start: int, *, last: bool) -> str | None:
        """A token that no client may see goes with the tag that it marks, if it marks one."""
        tag = _TAG.match(rest, start, start + _LONGEST_TAG)
        assert tag is not None
        if tag.end() == len(rest) and not last and len(rest) - start < _LONGEST_TAG and not tag[0].endswith(">"):
            self._undecided = rest
            return None
        return rest[tag.end() if tag[0].endswith(">") else start :]

    def _think_marker(self, reasoning: ReasoningParser, rest: str) -> str | None:
        """A thinking tag outside thoughts: noise between calls, else for the reasoning parser to say."""
        marker = next((marker for marker in reasoning.markers() if rest.startswith(marker)), None)
        if marker is None:
            return rest
        if self._in_block:
            self._dropped_tag()
            return rest[len(marker) :]
        reasoning.at_start = self._answer.blank
        return self._dispatch(reasoning.feed(rest))

    def _judge(self, reasoning: ReasoningParser, rest: str, *, last: bool) -> str | None:
        """Call markup inside an open thought: the tool parser says whether it is a call or prose about one."""
        # Where the turn ends in text, the text ends; what may become that end is not judged yet.
        end = self._turn_ends.search(rest)
        text = rest[: end.start()] if end else rest if last else rest[: self._turn_ends.held_from(rest)]
        verdict = self._tool.judge(text, self._lines, ended=last or end is not None)
        if verdict is None:
            self._undecided = rest
            return None
        if verdict.kind == "call":
            reasoning.leave()
            self._tool.restart_line()
        elif verdict.kind == "text":
            self._dispatch(reasoning.quote(rest[: verdict.length]))
        return rest[verdict.length :]

    def _turn_token(self, rest: str, *, last: bool) -> str | None:
        turn = self._turn
        if turn.begin and rest.startswith(turn.begin):
            return rest[len(turn.begin) :]
        if turn.role and rest.startswith(turn.role) and self._untouched:
            word = _ROLE_WORD.match(rest, len(turn.role))
            assert word is not None
            if word.end() == len(rest) and not word[0].endswith("\n") and not last:
                self._undecided = rest
                return None
            return rest[word.end() :]
        if not last:
            # The reader may hold more than it gave back; a call cut by the end of the turn is closed by `finish`.
            self._dispatch(self._tool.finish() if not self.thinking else [])
        self._close()
        return None

    # Segments and boundaries.

    def _text(self, text: str) -> None:
        if self._reasoning is not None and self._reasoning.inline and self._reasoning.thinking:
            self._lines.feed(text)
        self._emit_answer(self._answer.feed(text))

    def _emit_answer(self, text: str) -> None:
        if text := self._never.feed(text):
            self._untouched = False
            self._contents += 1
            self._out.append(Text(text))

    def _emit_thought(self, text: str) -> None:
        """Several thoughts of a turn are joined by a newline."""
        if text:
            self._untouched = False
            if self._thoughts < 0:
                text = "\n" + text
            self._thoughts = 1
            self._out.append(Reasoning(text))

    def _open_thought(self) -> None:
        """Also a repeated opener, which begins the thought anew while it is blank."""
        assert self._reasoning is not None
        if self._thought is None:
            self._emit_answer(self._answer.end())
        self._lines = Lines()
        self._thought = Segment(head=self._reasoning.after_opener, tail=self._thought_tail, bounded=True)

    def _end_thought(self) -> None:
        """Also a closer without a thought, which is dropped but divides the text."""
        assert self._reasoning is not None
        if self._thought is None:
            self._emit_answer(self._answer.end())
        else:
            self._finish_thought(self._reasoning.before_closer)
        self._answer = Segment(head=self._reasoning.after_closer, tail=self._tool.newlines_before, bounded=True)

    def _finish_thought(self, drop: int) -> None:
        assert self._thought is not None
        self._emit_thought(self._thought.end(drop=drop))
        self._thought = None
        self._thoughts = -abs(self._thoughts)

    def _block(self, event: BlockStart | BlockEnd) -> None:
        if isinstance(event, BlockStart):
            self._in_block = True
            if self._thought is not None:
                self._finish_thought(self._tool.newlines_before)
            else:
                self._boundary(drop=self._tool.newlines_before)
            self._start_inside()
        elif self._in_block:
            self._boundary(drop=ALL)
            self._in_block = False
            self._answer = Segment(head=self._first_newline, tail=self._tool.newlines_before, bounded=True)
        elif self._answer.blank:
            # A stray end of a block: blank text before it is layout.
            self._answer = Segment(head=self._first_newline, tail=self._tool.newlines_before, bounded=True)

    @property
    def _first_newline(self) -> int:
        """Where templates write no text, a newline at its start is text only if it divides it from other text."""
        return 0 if self._contents else 1

    def _start_inside(self) -> None:
        """Text inside a block, where templates write none."""
        self._answer = Segment(head=self._first_newline, tail=ALL, bounded=True)

    def _dropped_tag(self) -> None:
        """Inside a block the newlines around a tag are layout, also of one that fits nowhere."""
        if self._in_block:
            self._boundary(drop=ALL)
            self._start_inside()

    def _boundary(self, *, drop: int) -> None:
        self._emit_answer(self._answer.end(drop=drop))


def joined(events: Sequence[Event]) -> list[Event]:
    """The same events, pieces of one text next to each other made one."""
    out: list[Event] = []
    for event in events:
        match event, out[-1] if out else None:
            case Text(text), Text(before):
                out[-1] = Text(before + text)
            case Reasoning(text), Reasoning(before):
                out[-1] = Reasoning(before + text)
            case ArgumentsDelta(index, json), ArgumentsDelta(same, before) if same == index:
                out[-1] = ArgumentsDelta(index, before + json)
            case _:
                out.append(event)
    return out
