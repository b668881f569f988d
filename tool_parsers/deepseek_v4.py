"""DeepSeek V3.2 and V4: tags with a token of their own in each, and parameters that say what they are.

    <｜DSML｜tool_calls>                                                  BlockStart()
    <｜DSML｜invoke name="search">                                        CallStart(0, "search")
    <｜DSML｜parameter name="text" string="true">a < b</｜DSML｜parameter>   ArgumentsDelta(0, '{"text":"a < b"')
    <｜DSML｜parameter name="hits" string="false">20</｜DSML｜parameter>     ArgumentsDelta(0, ',"hits":20')
    </｜DSML｜invoke>                                                     ArgumentsDelta(0, '}'), CallEnd(0)
    </｜DSML｜tool_calls>                                                 BlockEnd()

V3.2 calls the block `function_calls`; V4.1 calls it `calls` and puts a space behind the token. A string is raw, with
nothing escaped; anything else is JSON, whatever the schema says, which is asked only where it is not.
The token never stands in visible text: tags that fit nowhere are dropped.
"""

import re
from collections.abc import Generator, Sequence
from typing import ClassVar

from tool_parsers.arguments import WHITESPACE
from tool_parsers.base import Grammar, ToolSchema
from tool_parsers.deepseek_v4_grammar import TOKEN, DsmlGrammar
from tool_parsers.events import BlockEnd, BlockStart, Malformed
from tool_parsers.grammar import CallGrammar, Calls, Spell
from tool_parsers.json_text import read_json, write_json
from tool_parsers.scan import Source
from tool_parsers.schema import Types
from tool_parsers.tagged import LONGEST_TAG, Head, HeadOr, TaggedParser, Tags
from tool_parsers.values import ValueTags

_OPENER = f"<{TOKEN}"
_CLOSER = f"</{TOKEN}"

TAGS = Tags(
    open=(f"{_OPENER}tool_calls>", f"{_OPENER}function_calls>", f"{_OPENER} calls>"),
    close=(f"{_CLOSER}tool_calls>", f"{_CLOSER}function_calls>", f"{_CLOSER} calls>"),
    invoke=(f"{_OPENER}invoke", f"{_OPENER} invoke"),
    invoke_end=(f"{_CLOSER}invoke>", f"{_CLOSER} invoke>"),
    parameter=(f"{_OPENER}parameter", f"{_OPENER} parameter"),
    parameter_end=(f"{_CLOSER}parameter>", f"{_CLOSER} parameter>"),
)

_QUOTED = """"[^"]*"|'[^']*'"""
_WHOLE = re.compile(rf"""(?:[^"'<>]|{_QUOTED})*+>""")
_SO_FAR = re.compile(rf"""(?:[^"'<>]|{_QUOTED})*+(?:"[^"]*|'[^']*)?""")
_ATTRIBUTE = re.compile(r"""([A-Za-z_]+)[ \t\r\n]*=[ \t\r\n]*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""")
_STRAY = re.compile(r"[^<>\n]{0,200}>")
_STRAY_SO_FAR = re.compile(r"[^<>\n]{0,200}")


class DeepseekV4(TaggedParser):
    """The DSML format (see the module)."""

    tags: ClassVar[Tags] = TAGS
    value_tags: ClassVar[ValueTags] = ValueTags(
        openers=TAGS.parameter,
        closers=TAGS.parameter_end,
        followers=(*TAGS.parameter, *TAGS.invoke_end, *TAGS.invoke, *TAGS.close),
        wrappers=tuple(zip(TAGS.open, TAGS.close, strict=True)),
        ends=TAGS.invoke_end,
        after_ends=TAGS.close,
    )
    heads: ClassVar[tuple[str, ...]] = (_OPENER, _CLOSER, TOKEN)
    markers: ClassVar[tuple[str, ...]] = heads
    hidden: ClassVar[tuple[str, ...]] = (TOKEN,)
    openers: ClassVar[tuple[str, ...]] = TAGS.open
    closers: ClassVar[tuple[str, ...]] = TAGS.close
    callers: ClassVar[tuple[str, ...]] = TAGS.invoke
    newlines_before: ClassVar[int] = 2
    reasoning: ClassVar[str | None] = "deepseek_v4"

    @classmethod
    def speaks(cls, template: str) -> bool:
        return TOKEN in template

    @classmethod
    def grammar(cls, tools: Sequence[ToolSchema], calls: Calls, spell: Spell) -> CallGrammar:
        return DsmlGrammar(tools, calls, spell)

    def _tag_at(self, text: str, *, ended: bool) -> str | None:
        tag = next(filter(text.startswith, TAGS.all), None)
        if tag is None and not ended and any(tag.startswith(text) for tag in TAGS.all):
            return None
        return tag or next(filter(text.startswith, self.heads))

    def _resolve(self, marker: str) -> Generator[None, None, str]:
        source = self._source
        longest = max(map(len, TAGS.all))
        while (tag := self._tag_at(source.text[source.at : source.at + longest], ended=source.ended)) is None:
            yield
        return tag

    def _stray(self, tag: str) -> Grammar:
        """Drops the tag whole if it has an end, else only the token: the words after it are text."""
        source = self._source
        while True:
            text, start = source.text, source.at + len(tag)
            length = len(tag)
            if tag == TOKEN or tag.endswith(">"):
                break
            if whole := _STRAY.match(text, start):
                length += len(whole[0])
                break
            if not _STRAY_SO_FAR.fullmatch(text, start):
                break
            if source.ended:
                rest = text[source.at :]
                if any(rest.startswith(known) or known.startswith(rest) for known in TAGS.all):
                    self._events += (BlockStart(), BlockEnd())
                    length = len(rest)
                break
            yield
        self._events.append(Malformed(f"stray {tag}", length))
        source.take(length)

    def _read_head(self, source: Source, tag: str) -> HeadOr:
        text, start = source.text, source.at + len(tag)
        if start < len(text) and text[start] not in WHITESPACE + ">":
            return None
        whole = _WHOLE.match(text, start, start + LONGEST_TAG)
        if whole is None:
            if len(text) - start > LONGEST_TAG or not _SO_FAR.fullmatch(text, start):
                return None
            return "cut" if source.ended else "wait"
        values = {
            hit[1]: next(group for group in hit.groups()[1:] if group is not None)
            for hit in _ATTRIBUTE.finditer(whole[0])
        }
        if "name" not in values and tag in TAGS.parameter:
            return None
        string = {"true": True, "false": False}.get(values.get("string", ""))
        return Head(values.get("name", "").strip(), whole.end() - source.at, string)

    def _json(self, text: str, types: Types, head: Head) -> str:
        if head.string is False:
            try:
                return write_json(read_json(text))
            except ValueError:
                pass
        return super()._json(text, types, head)
