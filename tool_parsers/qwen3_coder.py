"""Qwen3-Coder and Qwen3.5: tags with raw values, a newline on each side of a value.

    Reading it now.                      Text("Reading it now.")
    <tool_call>                          BlockStart()
    <function=read_file>                 CallStart(0, "read_file")
    <parameter=path>
    a.py                                 ArgumentsDelta(0, '{"path":"a.py'), one character per piece if it comes so
    </parameter>                         ArgumentsDelta(0, '"')
    </function>                          ArgumentsDelta(0, '}'), CallEnd(0)
    </tool_call>                         BlockEnd()

Strings and scalars are printed by Python's `str` (`True`, `None`), mappings and lists as JSON; nothing is escaped.
The block tags are tokens of their own, the others are ordinary text: outside a block a function counts only if it
is declared, stands at the start of a line, outside code fences, and has a body.
"""

import re
from collections.abc import Sequence
from typing import ClassVar

from tool_parsers.base import ToolSchema
from tool_parsers.grammar import CallGrammar, Calls, Spell
from tool_parsers.grammar_values import Style
from tool_parsers.scan import Lines, Source
from tool_parsers.tag_grammar import TagGrammar, TagSyntax
from tool_parsers.tagged import LONGEST_TAG, Head, HeadOr, PlainTagsParser, Tags
from tool_parsers.values import ValueTags

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
FUNCTION = "<function="
FUNCTION_END = "</function>"
PARAMETER = "<parameter="
PARAMETER_END = "</parameter>"

_NAME = re.compile(r"[^<>\n]*")


class QwenGrammar(TagGrammar):
    """What may be written next in a block."""

    trigger: ClassVar[str] = OPEN
    syntax: ClassVar[TagSyntax] = TagSyntax(
        open=OPEN,
        close=CLOSE,
        invoke="<function=%s>",
        invoke_start=FUNCTION,
        invoke_end=FUNCTION_END,
        parameter="<parameter=%s>",
        parameter_end=PARAMETER_END,
        parameter_start=PARAMETER,
        inner=PARAMETER,
        style=Style(around=r"\n?", python=True),
        quoted=False,
    )

    def begins(self, text: str, *, thinking: bool) -> bool | None:
        """Behind a wrapper, the beginning of a function; in a thought, its whole header with a declared name."""
        if thinking:
            verdict = Qwen3Coder([{"name": name} for name in self.schemas]).judge(text, Lines(), ended=False)
            return None if verdict is None else verdict.kind == "call"
        source = Source()
        source.push(text[len(OPEN) :])
        return source.follows(0, FUNCTION)


class Qwen3Coder(PlainTagsParser):
    """The Qwen3-Coder format (see the module)."""

    tags: ClassVar[Tags] = Tags((OPEN,), (CLOSE,), (FUNCTION,), (FUNCTION_END,), (PARAMETER,), (PARAMETER_END,))
    value_tags: ClassVar[ValueTags] = ValueTags(
        openers=(PARAMETER,),
        closers=(PARAMETER_END,),
        followers=(PARAMETER, FUNCTION_END, FUNCTION, CLOSE),
        wrappers=((OPEN, CLOSE),),
        ends=(FUNCTION_END,),
        after_ends=(CLOSE,),
        padded=True,
    )
    markers: ClassVar[tuple[str, ...]] = (OPEN, CLOSE, FUNCTION)
    openers: ClassVar[tuple[str, ...]] = (OPEN,)
    closers: ClassVar[tuple[str, ...]] = (CLOSE,)
    hidden: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)
    newlines_before: ClassVar[int] = 2
    reasoning: ClassVar[str | None] = "qwen3"
    python_none: ClassVar[bool] = True

    @classmethod
    def speaks(cls, template: str) -> bool:
        return FUNCTION in template and PARAMETER in template

    @classmethod
    def grammar(cls, tools: Sequence[ToolSchema], calls: Calls, spell: Spell) -> CallGrammar:
        return QwenGrammar(tools, calls, spell)

    def _read_head(self, source: Source, tag: str) -> HeadOr:
        start = source.at + len(tag)
        name = _NAME.match(source.text, start, start + LONGEST_TAG)
        assert name is not None
        if source.text.startswith(">", name.end()):
            return Head(name[0].strip(), name.end() + 1 - source.at)
        if name.end() < len(source.text):
            return None
        return "cut" if source.ended else "wait"
