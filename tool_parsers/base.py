"""What every tool parser is: one incremental machine from model text to events."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tool_parsers.events import BlockEnd, BlockStart, Escape, Event

ToolSchema = Mapping[str, Any]
"""An OpenAI tool: {"type": "function", "function": {"name", "description", "parameters"}}."""

ParserEvent = Event | BlockStart | BlockEnd | Escape


class ToolParser(ABC):
    """Splits model text into visible text and tool calls.

    The result for a whole text is `feed(text) + finish()`, and for every way of cutting the text the folded
    events are equal. No input raises. Alone, a parser is complete; inside a server, `escapes` names
    the markers of a reasoning parser: met in plain text, one ends `feed` with an `Escape`, and
    the caller says how to go on by feeding what is left.
    """

    openers: ClassVar[tuple[str, ...]]
    """What a call may begin with; inside open thinking each is tentative until `probe` has answered."""

    newlines_before: ClassVar[int] = 0
    """How many newlines the model's template writes before a block: layout, not text."""

    def __init__(self, tools: Sequence[ToolSchema] | None = None, *, escapes: tuple[str, ...] = ()) -> None:
        self.tools = tools
        self.escapes = escapes

    @classmethod
    @abstractmethod
    def speaks(cls, template: str) -> bool:
        """Whether a chat template (Jinja source) writes this format."""

    @abstractmethod
    def feed(self, text: str) -> list[ParserEvent]:
        """Takes the next piece of text, of any length; returns what is decided."""

    @abstractmethod
    def finish(self) -> list[ParserEvent]:
        """The text has ended: returns the rest. The parser takes no more text."""
