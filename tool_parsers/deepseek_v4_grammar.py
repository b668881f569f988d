"""What may be written next in a call of DeepSeek V3.2 and V4: a token of its own stands in each tag.

No regular expression matches the token, so no tag stands inside a value here: the parser finds the end of values that
quote the format's tags, a grammar would not.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

from tool_parsers.arguments import WHITESPACE, coerce
from tool_parsers.grammar import ANY, GAP, CallGrammar, Calls, Lark, Spell, literal, one_of, pattern
from tool_parsers.grammar_nodes import Node, arguments_of, properties_of
from tool_parsers.grammar_values import ANY_TEXT, is_free_text, json_schema, kinds_of, listed, text_of
from tool_parsers.schema import Schema

TOKEN = "｜DSML｜"

_BLOCKS = ("tool_calls", "function_calls")
_OPEN = re.compile(rf"\s*<{TOKEN}(?:tool_calls|function_calls)>")
_CLOSE = re.compile(rf"\s*</{TOKEN}(?:tool_calls|function_calls)>")
_INVOKE = re.compile(rf'\s*<{TOKEN}invoke name="([^"]*)">')
_INVOKE_END = re.compile(rf"\s*</{TOKEN}invoke>")
_PARAMETER = re.compile(rf'\s*<{TOKEN}parameter name="([^"]*)" string="(true|false)">')
_PARAMETER_END = re.compile(rf"</{TOKEN}parameter>")
_OTHER = r'[^"<>\n]{1,64}'


class Place(Enum):
    """Where in a call the text stands."""

    BEFORE = "before the block"
    HEAD = "before an invoke"
    BETWEEN = "before a parameter or the invoke's end"
    VALUE = "inside a value"
    AFTER = "behind an invoke"


class DsmlGrammar(CallGrammar):
    """Reads along with the tags."""

    trigger: ClassVar[str] = f"<{TOKEN}"

    def __init__(self, tools: Sequence[Mapping[str, Any]], calls: Calls, spell: Spell) -> None:
        super().__init__(tools, calls, spell)
        self.place = Place.BEFORE
        self._arguments = Node("", Schema([], None), free=True)
        self._key = ""
        self._string = False

    def begins(self, text: str, *, thinking: bool) -> bool | None:
        opening = _OPEN.match(text)
        if opening is None:
            return None if any(f"<{TOKEN}{block}>".startswith(text) for block in _BLOCKS) else False
        rest = text[opening.end() :].lstrip(WHITESPACE)
        begun = f'<{TOKEN}invoke name="'
        if not rest.startswith(begun):
            return None if begun.startswith(rest) else False
        if not thinking:
            return True
        head = _INVOKE.match(rest)
        return (head[1] in self.schemas) if head else None if '"' not in rest[len(begun) :] else False

    # Reading along.

    def _border(self) -> int | None:
        match self.place:
            case Place.BEFORE:
                return self._passes(_OPEN, Place.HEAD)
            case Place.HEAD:
                return self._enter()
            case Place.BETWEEN:
                if end := self._passes(_INVOKE_END, Place.AFTER):
                    self.made += 1
                    return end
                return self._enter_parameter()
            case Place.VALUE:
                return self._leave_value()
            case Place.AFTER:
                if end := self._passes(_CLOSE, Place.BEFORE):
                    self.over = True
                    return end
                return self._enter()

    def _passes(self, tag: re.Pattern[str], place: Place) -> int | None:
        hit = tag.match(self.text)
        if hit is None:
            return None
        self.place = place
        return hit.end()

    def _enter(self) -> int | None:
        head = _INVOKE.match(self.text)
        if head is None:
            return None
        self.place, self.loose = Place.BETWEEN, False
        self._arguments = self._of(head[1])
        self.loose = self._arguments.free
        return head.end()

    def _of(self, name: str) -> Node:
        try:
            return arguments_of(self.schemas.get(name, Schema([], None)))
        except ValueError:
            return Node("", Schema([], None), free=True)

    def _enter_parameter(self) -> int | None:
        head = _PARAMETER.match(self.text)
        if head is None:
            return None
        self.place, self._key, self._string = Place.VALUE, head[1], head[2] == "true"
        return head.end()

    def _leave_value(self) -> int | None:
        end = _PARAMETER_END.search(self.text)
        if end is None:
            return None
        child = self._arguments.child(self._key)
        self._arguments.enter(self._key)
        self._arguments.leave(child, coerce(self.text[: end.start()], child.schema.types))
        self.place = Place.BETWEEN
        return end.end()

    def loosen(self) -> None:
        super().loosen()
        self._arguments = Node("", Schema([], None), free=True)

    # What may come next.

    def piece(self, prefix: str) -> str | None:
        lark = Lark()
        token, block = self.spell(TOKEN), f"({'|'.join(_BLOCKS)})"
        match self.place:
            case Place.BEFORE:
                body = f"/{GAP}</ {token} /{block}>/ {self._heads(lark)}"
            case Place.HEAD:
                body = self._heads(lark)
            case Place.BETWEEN:
                body = self._next(lark)
            case Place.VALUE:
                values = self._values(lark, self._arguments.child(self._key), string=self._string)
                body = f"{values} {self._end(self._arguments.without(self._key))}"
            case Place.AFTER:
                more = "" if self.calls.single else f" | {self._heads(lark)}"
                body = lark.rule(f"/{GAP}<\\// {token} /{block}>/ {ANY}{more}")
        return lark.text(f"{literal(prefix)} {body}" if prefix else body)

    def _heads(self, lark: Lark) -> str:
        groups: dict[str, list[str]] = {}
        for name in self.calls.names:
            groups.setdefault(self._follows(self._of(name)), []).append(name)
        heads = [(f'invoke name="{one_of(names)}">', follows) for follows, names in groups.items()]
        return lark.rule(" | ".join(f"/{GAP}</ {self.spell(TOKEN)} /{head}/ {follows}" for head, follows in heads))

    def _follows(self, here: Node) -> str:
        """The tags that may come behind a tag: a parameter, and the invoke's end."""
        more = here.free or here.welcomes_others or any(True for _ in here.children())
        slash = [""] * more + [r"\/"] * (here.free or here.complete)
        return f"/{GAP}<({'|'.join(slash)})/ {self.spell(TOKEN)} {ANY}"

    def _end(self, after: Node) -> str:
        """The end of a value and what may follow it."""
        return f"/<\\// {self.spell(TOKEN)} /parameter>/ {self._follows(after)}"

    def _next(self, lark: Lark) -> str:
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
            other = lark.terminal(_OTHER, declared)
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
        return any(True for _ in self._texts(Lark(), child, string=string))

    def _values(self, lark: Lark, child: Node, *, string: bool) -> str:
        return lark.rule(" | ".join(dict.fromkeys(self._texts(lark, child, string=string))))

    def _texts(self, lark: Lark, child: Node, *, string: bool) -> Iterator[str]:
        """The texts of a value; one that says it is no string is JSON."""
        root = child.schema.root
        for plain in [{}] if child.free else child.plains:
            kinds = kinds_of(plain, root)
            members = listed(plain)
            if string and members is not None:
                yield from (f"/{pattern(member)}/" for member in members if type(member) is str)
            elif string and (not kinds or "string" in kinds):
                yield f"/{ANY_TEXT if is_free_text(plain) else text_of(plain)}/"
            elif not string and members is not None:
                rest = [member for member in members if type(member) is not str]
                if rest:
                    yield lark.rule(f"%json {json_schema({'enum': rest}, root)}")
            elif not string:
                for kind in kinds or ("object", "array", "number", "boolean", "null"):
                    if kind != "string":
                        inner = json_schema({**plain, "type": kind}, root)
                        yield f"/{GAP}/ {lark.rule(f'%json {inner}')} /{GAP}/"
