"""The grammar of formats with a block of invokes, each with its parameters between tags: from place to place."""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from tool_parsers.arguments import coerce
from tool_parsers.grammar import CallGrammar, Calls, Spell, anything
from tool_parsers.grammar_nodes import Node
from tool_parsers.lark import Lark, literal

_KEPT = 256
"""A longer text is no member of a list of values."""


class Place(Enum):
    """Where in a call the text stands."""

    BEFORE = "before the block"
    HEAD = "before an invoke"
    BETWEEN = "before a parameter or the invoke's end"
    VALUE = "inside a value"
    AFTER = "behind an invoke"


@dataclass(frozen=True, slots=True)
class Readers:
    """The tags for Python, with the white space before them; `invoke` and `parameter` have a group `name`."""

    open: re.Pattern[str]
    close: re.Pattern[str]
    invoke: re.Pattern[str]
    invoke_end: re.Pattern[str]
    parameter: re.Pattern[str]


class BlockGrammar(CallGrammar):
    """Reads along with the tags. What may come next is for each format to say."""

    readers: ClassVar[Readers]

    def __init__(self, tools: Sequence[Mapping[str, Any]], calls: Calls, spell: Spell) -> None:
        super().__init__(tools, calls, spell)
        self.place = Place.BEFORE
        self._arguments = anything()
        self._key = ""
        self._leaf = ""
        """The beginning of the value at hand, as far as it is no longer in `text`."""

    def loosen(self, why: str) -> None:
        super().loosen(why)
        self._arguments = anything()

    def _border(self) -> int | None:
        match self.place:
            case Place.BEFORE:
                return self._passes(self.readers.open, Place.HEAD)
            case Place.HEAD:
                return self._enter()
            case Place.BETWEEN:
                return self._enter_parameter() or self._passes(self.readers.invoke_end, Place.AFTER)
            case Place.VALUE:
                return self._leave_value()
            case Place.AFTER:
                if end := self._passes(self.readers.close, Place.BEFORE):
                    self._end_block()
                    return end
                end = self._enter()
                self.made += end is not None
                return end

    def _passes(self, tag: re.Pattern[str], place: Place) -> int | None:
        hit = tag.match(self.text)
        if hit is None:
            return None
        self.place = place
        return hit.end()

    def _enter(self) -> int | None:
        head = self.readers.invoke.match(self.text)
        if head is None:
            return None
        self.place = Place.BETWEEN
        self._arguments = self._opens(head["name"])
        return head.end()

    def _enter_parameter(self) -> int | None:
        head = self.readers.parameter.match(self.text)
        if head is None:
            return None
        self.place, self._key, self._leaf = Place.VALUE, head["name"], ""
        self._begin_value(head)
        return head.end()

    def _end_block(self) -> None:
        self.place = Place.BEFORE
        self.made += 1
        self.over = True

    def _begin_value(self, head: re.Match[str]) -> None:
        """A parameter's tag was read."""

    @abstractmethod
    def _leave_value(self) -> int | None:
        """Where the value at hand has ended, if it has; says so by `_left`."""

    def _left(self, value: str) -> None:
        """The value at hand has ended; `value` is the rest of its text."""
        child = self._arguments.child(self._key)
        self._arguments.enter(self._key)
        if len(self._leaf) < _KEPT:
            self._arguments.leave(child, coerce(self._leaf + value, child.schema.types))
        self.place = Place.BETWEEN

    def _remember(self, end: int) -> None:
        """The text up to `end`, of the value at hand, will be dropped: it may be long."""
        self._leaf += self.text[: min(end, _KEPT - len(self._leaf))]

    def piece(self, prefix: str) -> str | None:
        lark = Lark()
        match self.place:
            case Place.BEFORE:
                body = self._opening(lark)
            case Place.HEAD:
                body = self._heads(lark)
            case Place.BETWEEN:
                body = self._between(lark)
            case Place.VALUE:
                body = self._inside(lark)
            case Place.AFTER:
                more = "" if self.calls.single else f" | {self._heads(lark)}"
                body = lark.rule(f"{self._closing()}{more}")
        return lark.text(f"{literal(prefix)} {body}" if prefix else body)

    @abstractmethod
    def _opening(self, lark: Lark) -> str:
        """The block's opening tag and the heads behind it."""

    @abstractmethod
    def _closing(self) -> str:
        """The block's end."""

    def _heads(self, lark: Lark) -> str:
        """The opening tags of the tools, and how each must go on: those that go on alike in one."""
        groups: dict[str, list[str]] = {}
        for name in self.calls.names:
            groups.setdefault(self._follows(self.arguments(name)), []).append(name)
        return lark.rule(" | ".join(f"{self._head(names)} {follows}" for follows, names in groups.items()))

    @abstractmethod
    def _head(self, names: Sequence[str]) -> str:
        """The opening tag of one of several tools."""

    @abstractmethod
    def _follows(self, here: Node) -> str:
        """The tags that may come behind an opening tag."""

    @abstractmethod
    def _between(self, lark: Lark) -> str:
        """The parameters that may come, and the invoke's end."""

    @abstractmethod
    def _inside(self, lark: Lark) -> str:
        """The value at hand with what must follow it."""
