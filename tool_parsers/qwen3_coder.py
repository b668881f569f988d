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
from typing import ClassVar

from tool_parsers.scan import Source
from tool_parsers.tagged import LONGEST_TAG, Head, HeadOr, PlainTagsParser, Tags
from tool_parsers.values import ValueTags

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
FUNCTION = "<function="
FUNCTION_END = "</function>"
PARAMETER = "<parameter="
PARAMETER_END = "</parameter>"

_NAME = re.compile(r"[^<>\n]*")


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

    def _read_head(self, source: Source, tag: str) -> HeadOr:
        start = source.at + len(tag)
        name = _NAME.match(source.text, start, start + LONGEST_TAG)
        assert name is not None
        if source.text.startswith(">", name.end()):
            return Head(name[0].strip(), name.end() + 1 - source.at)
        if name.end() < len(source.text):
            return None
        return "cut" if source.ended else "wait"
