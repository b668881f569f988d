"""Kimi K2 and K2.5: JSON arguments between tokens.

    <|tool_calls_section_begin|>                                     BlockStart()
    <|tool_call_begin|>functions.fs.read:3                           CallStart(0, "fs.read", id="functions.fs.read:3")
    <|tool_call_argument_begin|>{"path": "a"}<|tool_call_end|>       ArgumentsDelta(0, '{"path": "a"}'), CallEnd(0)
    <|tool_calls_section_end|>                                       BlockEnd()

The header is the call's id, which the template prints again beside the result: it is kept. Its number counts over
the whole conversation; an id that the turn has used already is none.
"""

import re
from collections.abc import Generator, Sequence
from typing import ClassVar

from tool_parsers.base import ToolSchema
from tool_parsers.grammar import CallGrammar, Calls, Spell
from tool_parsers.json_calls import SectionParser
from tool_parsers.json_grammar import JsonGrammar, JsonSyntax

_ID = re.compile(r"(?:functions\.)?+(?P<name>(?!:[0-9]+\Z)\S.*?)(?P<number>:[0-9]+)?")


class KimiGrammar(JsonGrammar):
    """What may be written next in a section."""

    trigger: ClassVar[str] = "<|tool_calls_section_begin|>"
    syntaxes: ClassVar[tuple[JsonSyntax, ...]] = (
        JsonSyntax(
            section=(trigger,),
            head=("<|tool_call_begin|>", r"/(functions\.)?%s:[0-9]{1,4}", "<|tool_call_argument_begin|>", r"/\{"),
            tail=("<|tool_call_end|>",),
            section_end="<|tool_calls_section_end|>",
        ),
    )


class KimiK2(SectionParser):
    """The Kimi format (see the module)."""

    section: ClassVar[str] = "<|tool_calls_section_begin|>"
    section_end: ClassVar[str] = "<|tool_calls_section_end|>"
    call: ClassVar[str] = "<|tool_call_begin|>"
    arguments: ClassVar[str] = "<|tool_call_argument_begin|>"
    call_end: ClassVar[str] = "<|tool_call_end|>"
    markers: ClassVar[tuple[str, ...]] = (section, section_end, call, arguments, call_end)
    hidden: ClassVar[tuple[str, ...]] = markers
    openers: ClassVar[tuple[str, ...]] = (section,)
    closers: ClassVar[tuple[str, ...]] = (section_end,)
    callers: ClassVar[tuple[str, ...]] = (call,)
    reasoning: ClassVar[str | None] = "kimi_k2"

    def __init__(self, tools: Sequence[ToolSchema] | None = None, *, escapes: tuple[str, ...] = ()) -> None:
        super().__init__(tools, escapes=escapes)
        self._ids: set[str] = set()

    @classmethod
    def speaks(cls, template: str) -> bool:
        return cls.call in template

    @classmethod
    def grammar(cls, tools: Sequence[ToolSchema], calls: Calls, spell: Spell) -> CallGrammar:
        return KimiGrammar(tools, calls, spell)

    def _named(self, header: str) -> Generator[None, None, tuple[str, str | None]]:
        yield from ()
        id = header.strip()
        parts = _ID.fullmatch(id)
        if parts is None:
            return "", None
        kept = id if parts["number"] and id not in self._ids else None
        self._ids.add(id)
        return parts["name"], kept
