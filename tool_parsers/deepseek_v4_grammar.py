"""What may be written next in a call of DeepSeek V3.2 and V4: a token of its own stands in each tag.

No regular expression matches the token, so no tag stands inside a value here: the parser finds the end of values that
quote the format's tags, a grammar would not.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tool_parsers.arguments import WHITESPACE
from tool_parsers.block_grammar import BlockGrammar, Readers
from tool_parsers.grammar import Calls, Spell
from tool_parsers.grammar_nodes import Node, properties_of
from tool_parsers.grammar_values import Plain, kinds_of, listed, values
from tool_parsers.lark import ANY, GAP, Lark, but, one_of, pattern
from tool_parsers.schema import Kind, Schema

TOKEN = "｜DSML｜"

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

    def _heads(self, lark: Lark) -> str:
        groups: dict[str, list[str]] = {}
        for name in self.calls.names:
            groups.setdefault(self._follows(self.arguments(name)), []).append(name)
        heads = [(f'invoke name="{one_of(names)}">', follows) for follows, names in groups.items()]
        return lark.rule(" | ".join(f"/{GAP}</ {self.spell(TOKEN)} /{head}/ {follows}" for head, follows in heads))

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
