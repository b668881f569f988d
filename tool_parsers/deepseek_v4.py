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

Under the grammar no tag stands inside a value, since no regular expression matches the token: the parser finds the end
of values that quote the format's tags, a grammar would not.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar

from tool_parsers.arguments import WHITESPACE
from tool_parsers.base import Grammar, ToolSchema
from tool_parsers.block_grammar import BlockGrammar, Readers
from tool_parsers.events import BlockEnd, BlockStart, Malformed
from tool_parsers.grammar import CallGrammar, Calls, Spell
from tool_parsers.grammar_nodes import Node, properties_of
from tool_parsers.grammar_values import Plain, kinds_of, listed, values
from tool_parsers.json_text import read_json, write_json
from tool_parsers.lark import ANY, GAP, Lark, but, one_of, pattern
from tool_parsers.scan import Source
from tool_parsers.schema import Kind, Schema, Types
from tool_parsers.tagged import LONGEST_TAG, Head, HeadOr, TaggedParser, Tags
from tool_parsers.values import ValueTags

TOKEN = "｜DSML｜"

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

_BLOCKS = ("tool_calls", "function_calls")
_BLOCK = f"({'|'.join(_BLOCKS)})"
_PARAMETER_END = re.compile(rf"</{TOKEN}parameter>")
_OTHER = r'[^"<>\n]{1,64}'
_KINDS: tuple[Kind, ...] = ("object", "array", "number", "boolean", "null")


class DsmlGrammar(BlockGrammar):
    """Reads along with the tags."""

    trigger: ClassVar[str] = f"<{TOKEN}"
    readers: ClassVar[Readers] = Readers(
        open=re.compile(rf"\s*<{TOKEN}{_BLOCK}>"),
        close=re.compile(rf"\s*</{TOKEN}{_BLOCK}>"),
        invoke=re.compile(rf'\s*<{TOKEN}invoke name="(?P<name>[^"]*)">'),
        invoke_end=re.compile(rf"\s*</{TOKEN}invoke>"),
        parameter=re.compile(rf'\s*<{TOKEN}parameter name="(?P<name>[^"]*)" string="(?P<string>true|false)">'),
    )

    def __init__(self, tools: Sequence[Mapping[str, Any]], calls: Calls, spell: Spell) -> None:
        super().__init__(tools, calls, spell)
        self._string = False

    def begins(self, text: str, *, thinking: bool) -> bool | None:
        opening = self.readers.open.match(text)
        if opening is None:
            return None if any(f"<{TOKEN}{block}>".startswith(text) for block in _BLOCKS) else False
        rest = text[opening.end() :].lstrip(WHITESPACE)
        begun = f'<{TOKEN}invoke name="'
        if not rest.startswith(begun):
            return None if begun.startswith(rest) else False
        if not thinking:
            return True
        head = self.readers.invoke.match(rest)
        return (head["name"] in self.schemas) if head else None if '"' not in rest[len(begun) :] else False

    # Reading along.

    def _begin_value(self, head: re.Match[str]) -> None:
        self._string = head["string"] == "true"

    def _leave_value(self) -> int | None:
        end = _PARAMETER_END.search(self.text)
        if end is None:
            return None
        self._left(self.text[: end.start()])
        return end.end()

    # What may come next.

    def _opening(self, lark: Lark) -> str:
        return f"/{GAP}</ {self.spell(TOKEN)} /{_BLOCK}>/ {self._heads(lark)}"

    def _closing(self) -> str:
        return f"/{GAP}<\\// {self.spell(TOKEN)} /{_BLOCK}>/ {ANY}"

    def _head(self, names: Sequence[str]) -> str:
        return f'/{GAP}</ {self.spell(TOKEN)} /invoke name="{one_of(names)}">/'

    def _inside(self, lark: Lark) -> str:
        found = self._values(lark, self._arguments.child(self._key), string=self._string)
        return f"{found} {self._end(self._arguments.without(self._key))}"

    def _follows(self, here: Node) -> str:
        """The tags that may come behind a tag: a parameter, and the invoke's end."""
        more = here.free or here.welcomes_others or any(True for _ in here.children())
        slash = [""] * more + [r"\/"] * (here.free or here.complete)
        return f"/{GAP}<({'|'.join(slash)})/ {self.spell(TOKEN)} {ANY}"

    def _end(self, after: Node) -> str:
        """The end of a value and what may follow it."""
        return f"/<\\// {self.spell(TOKEN)} /parameter>/ {self._follows(after)}"

    def _between(self, lark: Lark) -> str:
        here, token = self._arguments, self.spell(TOKEN)
        named = [(pattern(name), child, name) for name, child in here.children()]
        options = [
            f'/{GAP}</ {token} /parameter name="{name}" string="{"true" if string else "false"}">/ '
            f"{self._values(lark, child, string=string)} {self._end(here.without(key))}"
            for name, child, key in named
            for string in (True, False)
            if self._has(child, string=string)
        ]
        if here.free or here.welcomes_others:
            declared = one_of([name for plain in here.plains for name in properties_of(plain)] or ['"'])
            other = lark.terminal(but(_OTHER, declared))
            options += [
                f'/{GAP}</ {token} "parameter name=\\"" {other} /" string="{word}">/ '
                f"{self._values(lark, here.child(''), string=word == 'true')} {self._end(here.without(''))}"
                for word in ("true", "false")
                if self._has(here.child(""), string=word == "true")
            ]
        if here.free or here.complete:
            options.append(f"/{GAP}<\\// {token} /invoke>{GAP}<\\/?/ {token} {ANY}")
        return lark.rule(" | ".join(options))

    def _has(self, child: Node, *, string: bool) -> bool:
        return bool(self._texts(Lark(), child, string=string))

    def _values(self, lark: Lark, child: Node, *, string: bool) -> str:
        return lark.rule(" | ".join(self._texts(lark, child, string=string)))

    def _texts(self, lark: Lark, child: Node, *, string: bool) -> list[str]:
        """The texts of a value that the tag calls a string, or JSON."""
        root = child.schema.root
        typed = [_of_kind(plain, root, string=string) for plain in ([{}] if child.free else child.plains)]
        found = [text for plain in typed if plain for text in values(lark, plain, Schema([plain], root))]
        return list(dict.fromkeys(found))


def _of_kind(plain: Plain, root: Any, *, string: bool) -> Plain | None:
    """The strings among the values of a schema, or the others."""
    members = listed(plain)
    if members is not None:
        rest = [member for member in members if (type(member) is str) is string]
        return {"enum": rest} if rest else None
    kinds = [kind for kind in kinds_of(plain, root) or ("string", *_KINDS) if (kind == "string") is string]
    return {**plain, "type": kinds} if kinds else None


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
