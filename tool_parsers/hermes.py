r"""Hermes and Qwen (2.5, 3): JSON objects in tags.

    Checking.                                                        Text("Checking.")
    <tool_call>                                                      BlockStart()
    {"name": "get_forecast", "arguments": {"city": "Oslo"}}          CallStart(0, "get_forecast"),
                                                                     ArgumentsDelta(0, '{"city": "Oslo"}'), CallEnd(0)
    </tool_call>                                                     BlockEnd()

The tags are tokens of their own. Where a call ends is for its JSON to say: a tag inside a string is text. The
members may come in any order; arguments that come before the name wait for it.

    turn  = { text | block }
    block = OPEN { ws | call | list sign | prose } ( CLOSE | end of text )
    call  = a JSON object with a `name`; its last brace may be missing before CLOSE or OPEN; behind prose it
            begins with its name or its arguments
"""

import re
from collections.abc import Callable, Generator, Sequence
from typing import ClassVar

from tool_parsers.arguments import WHITESPACE
from tool_parsers.base import Grammar, ToolSchema
from tool_parsers.events import Malformed
from tool_parsers.grammar import CallGrammar, Calls, Spell
from tool_parsers.json_calls import JsonCall, JsonParser, parsed
from tool_parsers.json_grammar import JsonGrammar, JsonSyntax
from tool_parsers.json_text import Number, without_surrogates
from tool_parsers.scan import Markers

OPEN = "<tool_call>"
CLOSE = "</tool_call>"

_EXAMPLE = re.compile(r"""<tool_call>(?:\\n|\s)*\{+\\?["'](?:name|arguments)""")
_ARGUMENTS = ("arguments", "parameters")


class HermesGrammar(JsonGrammar):
    """What may be written next in a block."""

    trigger: ClassVar[str] = OPEN
    syntaxes: ClassVar[tuple[JsonSyntax, ...]] = (
        JsonSyntax(
            section=(),
            head=(
                OPEN,
                r'/\{[ \t\r\n]{0,9}"name"[ \t\r\n]{0,9}:[ \t\r\n]{0,9}"%s"[ \t\r\n]{0,9},[ \t\r\n]{0,9}"arguments"'
                r"[ \t\r\n]{0,9}:[ \t\r\n]{0,9}\{",
            ),
            tail=(r"/\}", CLOSE),
        ),
    )


class Hermes(JsonParser):
    """The Hermes format (see the module)."""

    markers: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)
    openers: ClassVar[tuple[str, ...]] = (OPEN,)
    closers: ClassVar[tuple[str, ...]] = (CLOSE,)
    hidden: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)
    newlines_before: ClassVar[int] = 1
    reasoning: ClassVar[str | None] = "qwen3"

    @classmethod
    def speaks(cls, template: str) -> bool:
        return _EXAMPLE.search(template) is not None

    @classmethod
    def grammar(cls, tools: Sequence[ToolSchema], calls: Calls, spell: Spell) -> CallGrammar:
        return HermesGrammar(tools, calls, spell)

    def _structure(self, marker: str) -> Grammar:
        if marker == OPEN:
            yield from self._block(marker)
        else:
            self._stray_closer(marker)

    def _block_body(self) -> Grammar:
        markers = Markers((OPEN, CLOSE, "{", *self._escapes))
        while True:
            first = yield from self._blank()
            if first == "{" and (yield from self._object_begins()):
                yield from self._call()
                continue
            if first and first in "[,]" and (yield from self._follows("[", ",", "]", "{", CLOSE)):
                self._drop(first)
                continue
            marker = yield from self._until(markers, partial_is_text=False)
            if marker == "{":
                if (yield from self._follows('"name"', *(f'"{key}"' for key in _ARGUMENTS))):
                    yield from self._call()
                else:
                    self._emit_text(self._source.take(1))
            elif marker in self._escapes:
                self._hand_back()
                yield
            elif marker == OPEN:
                self._drop(OPEN)
            else:
                self._source.take(len(marker))
                return

    def _blank(self) -> Generator[None, None, str]:
        """Emits white space; the character that follows, unread, or "" at the end of the text."""
        source = self._source
        while True:
            self._emit_text(source.take(source.past_gap(source.at) - source.at))
            if source.at < len(source.text):
                return source.text[source.at]
            if source.ended:
                return ""
            yield

    def _follows(self, *literals: str) -> Generator[None, None, bool]:
        """Whether one of these stands behind the next character."""
        while (follows := self._source.follows(self._source.at + 1, *literals)) is None:
            yield
        return follows

    def _object_begins(self) -> Generator[None, None, bool]:
        source = self._source
        begins = yield from self._follows('"', "}")
        return begins or (source.ended and not source.text[source.at + 1 :].strip(WHITESPACE))

    def _call(self) -> Grammar:
        """One call; at the place of reading stands its first brace."""
        self._source.take(1)
        members = _Members(self._start)
        whole = yield from self._members(members)
        if members.call is None:
            self._events.append(Malformed("call without a name", 0))
        elif whole:
            members.end()
        else:
            members.call.abort("the text ended inside a call" if self._source.ended else "a call that is not JSON")
        if whole:
            yield from self._drop_brackets()
        else:
            yield from self._discard_until(Markers((OPEN, CLOSE)))

    def _members(self, members: "_Members") -> Generator[None, None, bool]:
        """Everything up to the object's end, and past it; False: this is no call."""
        source = self._source
        while True:
            match (yield from self._skip_gap()):
                case "}":
                    source.take(1)
                    return True
                case ",":
                    source.take(1)
                case '"':
                    if not (yield from self._member(members)):
                        return False
                case "<":
                    return members.call is not None and (yield from self._at(OPEN, CLOSE))
                case _:
                    return False

    def _member(self, members: "_Members") -> Generator[None, None, bool]:
        key = parsed((yield from self._json(lambda piece: None)) or "")
        if key is None or (yield from self._skip_gap()) != ":":
            return False
        self._source.take(1)
        if key in _ARGUMENTS and not members.has_arguments:
            members.has_arguments = True
            return (yield from self._arguments(members.send))
        first = yield from self._skip_gap()
        read = self._json(lambda piece: None) if first and first in '"{[' else self._scalar()
        value = yield from read
        if value is not None and key == "name":
            members.name(parsed(value))
        return value is not None


class _Members:
    """A call of which the members come one by one: it starts at its name."""

    def __init__(self, start: Callable[[str], JsonCall]) -> None:
        self.call: JsonCall | None = None
        self.has_arguments = False
        self._start = start
        self._waiting: list[str] = []

    def name(self, name: object) -> None:
        if self.call is None and isinstance(name, str) and not isinstance(name, Number) and name.strip(WHITESPACE):
            self.call = self._start(without_surrogates(name).strip(WHITESPACE))
            self.call.send("".join(self._waiting))

    def send(self, json: str) -> None:
        if self.call is None:
            self._waiting.append(json)
        else:
            self.call.send(json)

    def end(self) -> None:
        assert self.call is not None
        self.send("" if self.has_arguments else "{}")
        self.call.end()
