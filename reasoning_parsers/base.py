"""The tag machine that splits thoughts from answers; a family is a subclass that names its tags and layout."""

from collections.abc import Generator
from typing import ClassVar

from tool_parsers.events import Escape, ParserEvent, Reasoning, Text, ThoughtEnd, ThoughtStart
from tool_parsers.scan import Markers, Source

BLANK = " \t\r\n"


class ReasoningParser:
    """Splits model text at its thinking tags.

    The result for a whole text is `feed(text) + finish()`, and for every way of cutting the text the folded events
    are equal. Alone, a parser reads the whole turn. With `shared`, another parser reads what is not thought: outside
    thoughts only a marker that stands first is looked at, and everything after it is handed back (`Escape`).
    Inside a thought, `escapes` are handed back too: the caller decides, and goes on with `quote` or `leave`.
    """

    opener: ClassVar[str]
    closer: ClassVar[str]
    after_opener: ClassVar[int] = 0
    """How many newlines the format's template writes after the opener, before the closer, and after the closer."""
    before_closer: ClassVar[int] = 0
    after_closer: ClassVar[int] = 0
    reopens_anywhere: ClassVar[bool] = False
    """Whether an opener in running text opens a thought; else it is text, and its closer with it."""
    inline: ClassVar[bool] = False
    """Thoughts stay in the text, tags and all."""

    def __init__(self, *, thinking: bool, shared: bool = False, escapes: tuple[str, ...] = ()) -> None:
        """`thinking`: the prompt left a thought open."""
        self.thinking = thinking
        self.at_start = True
        """Nothing but blank text stands in this segment yet. Outside thoughts, who reads the text keeps it true."""
        self._shared = shared
        self._in_thought = Markers((self.opener, self.closer, *escapes))
        self._in_text = Markers((self.opener, self.closer))
        self._quoted = 0
        self._source = Source()
        self._events: list[ParserEvent] = []
        self._machine = self._turn()

    @classmethod
    def markers(cls) -> tuple[str, str]:
        """What has a meaning outside calls."""
        return cls.opener, cls.closer

    @classmethod
    def speaks(cls, template: str) -> bool:
        """Whether a chat template (Jinja source) writes these tags."""
        return False

    def feed(self, text: str) -> list[ParserEvent]:
        """Takes the next piece of text; returns what is decided."""
        self._source.push(text)
        return self._run()

    def finish(self) -> list[ParserEvent]:
        """The text has ended: returns the rest. After an `Escape`, feed and finish once more."""
        self._source.ended = True
        return self._run()

    def quote(self, text: str) -> list[ParserEvent]:
        """An escape turned out to be text of the thought."""
        self._thought_text(text)
        return self._take_events()

    def leave(self) -> None:
        """An escape turned out to end the thought."""
        self.thinking = False
        self.at_start = True

    def _run(self) -> list[ParserEvent]:
        next(self._machine, None)
        return self._take_events()

    def _take_events(self) -> list[ParserEvent]:
        events, self._events = self._events, []
        return events

    def _turn(self) -> Generator[None, None, None]:
        prefilled = self.thinking
        while not self._source.text and not self._source.ended:
            yield
        if prefilled and self.inline and self._source.text:
            self._events.append(Text(self.opener))
        while True:
            yield from self._thought() if self.thinking else self._text()

    def _thought(self) -> Generator[None, None, None]:
        """Reads one step of a thought: up to the next marker, and past it."""
        source = self._source
        hit = self._in_thought.search(source.text, source.at)
        if hit is None:
            unread = source.rest()
            held = len(unread) if source.ended else self._in_thought.held_from(unread)
            self._thought_text(unread[:held])
            source.unread(unread[held:])
            yield
            return
        self._thought_text(source.take(hit.start() - source.at))
        match hit.group():
            case self.closer:
                source.take(len(self.closer))
                self._mark(ThoughtEnd(), self.closer)
                self.thinking = False
                self.at_start = True
            case self.opener:
                source.take(len(self.opener))
                if self.at_start and not self.inline:
                    self._events.append(ThoughtStart())
                else:
                    self._thought_text(self.opener)
            case _:
                yield from self._hand_back()

    def _text(self) -> Generator[None, None, None]:
        """Reads one step of an answer; shared, only a marker that stands first."""
        source = self._source
        hit = self._in_text.search(source.text, source.at)
        if self._shared and (hit is None or hit.start() > source.at):
            yield from self._hand_back()
            return
        if hit is None:
            unread = source.rest()
            held = len(unread) if source.ended else self._in_text.held_from(unread)
            self._answer_text(unread[:held])
            source.unread(unread[held:])
            yield
            return
        self._answer_text(source.take(hit.start() - source.at))
        source.take(len(hit.group()))
        if hit.group() == self.opener:
            self._opener_in_text()
        elif self._quoted or self.inline:
            self._quoted = max(0, self._quoted - 1)
            self._answer_text(self.closer)
        else:
            self._events.append(ThoughtEnd())
            self.at_start = True

    def _opener_in_text(self) -> None:
        if self.inline:
            self._answer_text(self.opener)
        elif self.at_start or self.reopens_anywhere:
            self._events.append(ThoughtStart())
            self.thinking = True
            self.at_start = True
        else:
            self._quoted += 1
            self._answer_text(self.opener)

    def _mark(self, event: ThoughtStart | ThoughtEnd, spelling: str) -> None:
        self._events.append(Text(spelling) if self.inline else event)

    def _thought_text(self, text: str) -> None:
        if text:
            self._events.append(Text(text) if self.inline else Reasoning(text))
            self.at_start = self.at_start and not text.strip(BLANK)

    def _answer_text(self, text: str) -> None:
        if text:
            self._events.append(Text(text))
            self.at_start = self.at_start and not text.strip(BLANK)

    def _hand_back(self) -> Generator[None, None, None]:
        self._source.ended = False
        self._events.append(Escape(self._source.rest()))
        yield
