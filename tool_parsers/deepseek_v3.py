r"""DeepSeek V3, R1 and V3.1: JSON arguments between tokens.

    <｜tool▁calls▁begin｜>              BlockStart()
    <｜tool▁call▁begin｜>ping           CallStart(0, "ping"), at the separator
    <｜tool▁sep｜>{"host": "a"}         ArgumentsDelta(0, '{"host": "a"}'), CallEnd(0)
    <｜tool▁call▁end｜>
    <｜tool▁calls▁end｜>                BlockEnd()

So V3.1, all on one line. V3 and R1 write `function` in the place of the name, the name on a line after the
separator, and the arguments in a fence. What follows the separator tells them apart.
"""

import re
from collections.abc import Generator, Sequence
from typing import ClassVar

from tool_parsers.base import ToolSchema
from tool_parsers.blocks import LONGEST_HEADER
from tool_parsers.grammar import CallGrammar, Calls, Spell
from tool_parsers.json_calls import JsonCall, SectionParser
from tool_parsers.json_grammar import JsonGrammar, JsonSyntax
from tool_parsers.scan import Markers

_FENCE = "```"
_FENCED = f"{_FENCE}json"
"""What the templates of V3 and R1 write around arguments."""
_LANGUAGE = re.compile(r"[A-Za-z]*")


class DeepseekV3Grammar(JsonGrammar):
    """What may be written next in a section, as V3.1 or as V3 and R1 have it: the model decides."""

    trigger: ClassVar[str] = "<｜tool▁calls▁begin｜>"
    _call: ClassVar[str] = "<｜tool▁call▁begin｜>"
    _arguments_mark: ClassVar[str] = "<｜tool▁sep｜>"
    _call_end: ClassVar[str] = "<｜tool▁call▁end｜>"
    _end: ClassVar[str] = "<｜tool▁calls▁end｜>"
    syntaxes: ClassVar[tuple[JsonSyntax, ...]] = (
        JsonSyntax(
            (trigger,),
            (_call, "/function", _arguments_mark, rf"/%s[ ]?\n{_FENCE}[a-z]{{0,9}}[ \t\r\n]{{0,9}}\{{"),
            (f"/{_FENCE}", _call_end),
            _end,
        ),
        JsonSyntax((trigger,), (_call, "/%s", _arguments_mark, r"/\{"), (_call_end,), _end),
    )


class DeepseekV3(SectionParser):
    """The format of DeepSeek V3 and R1, and what V3.1 makes of it (see the module)."""

    section: ClassVar[str] = "<｜tool▁calls▁begin｜>"
    section_end: ClassVar[str] = "<｜tool▁calls▁end｜>"
    call: ClassVar[str] = "<｜tool▁call▁begin｜>"
    arguments: ClassVar[str] = "<｜tool▁sep｜>"
    call_end: ClassVar[str] = "<｜tool▁call▁end｜>"
    markers: ClassVar[tuple[str, ...]] = (section, section_end, call, arguments, call_end)
    hidden: ClassVar[tuple[str, ...]] = markers
    openers: ClassVar[tuple[str, ...]] = (section,)
    closers: ClassVar[tuple[str, ...]] = (section_end,)
    callers: ClassVar[tuple[str, ...]] = (call,)
    reasoning: ClassVar[str | None] = "deepseek_r1"

    @classmethod
    def speaks(cls, template: str) -> bool:
        return cls.call in template and _FENCED in template

    @classmethod
    def grammar(cls, tools: Sequence[ToolSchema], calls: Calls, spell: Spell) -> CallGrammar:
        return DeepseekV3Grammar(tools, calls, spell)

    def _named(self, header: str) -> Generator[None, None, tuple[str, str | None]]:
        name = header.strip()
        if name == "function" and (yield from self._skip_gap()) not in ("", "{", "<"):
            line = Markers(("\n", _FENCE, self.call_end))
            source = self._source
            while (end := line.search(source.text, source.at)) is None:
                if source.ended or len(source.text) - source.at > LONGEST_HEADER:
                    break
                yield
            name = source.take((end.start() if end else len(source.text)) - source.at).strip() if end else ""
        return name, None

    def _body(self, call: JsonCall, *ends: str) -> Generator[None, None, bool]:
        fenced = yield from self._at(_FENCE)
        if fenced:
            yield from self._skip_fence()
        whole = yield from super()._body(call, *ends, *([_FENCE] if fenced else []))
        if whole and fenced and (yield from self._at(_FENCE)):
            self._source.at = self._source.past_gap(self._source.at) + len(_FENCE)
        return whole

    def _skip_fence(self) -> Generator[None, None, None]:
        source = self._source
        source.at = source.past_gap(source.at) + len(_FENCE)
        while (language := _LANGUAGE.match(source.text, source.at)) and language.end() == len(source.text):
            if source.ended:
                return
            yield
        assert language is not None
        source.take(len(language[0]))


class DeepseekV31(DeepseekV3):
    """DeepSeek V3.1: the same machine, for templates without the fence; their prompts say whether to think."""

    reasoning: ClassVar[str | None] = "deepseek_v4"

    @classmethod
    def speaks(cls, template: str) -> bool:
        return cls.call in template and _FENCED not in template
