"""The grammar of formats that wrap raw values in plain tags: which name may come next, and what each value may be."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tool_parsers.block_grammar import BlockGrammar, Place, Readers
from tool_parsers.grammar import Calls, Spell
from tool_parsers.grammar_nodes import Node, properties_of
from tool_parsers.grammar_values import PLAIN, Style, values
from tool_parsers.lark import ANY, ANY_TEXT, GAP, Lark, but, literal, one_of, pattern
from tool_parsers.schema import Types
from tool_parsers.tag_values import InnerTags, Inside


@dataclass(frozen=True, slots=True)
class TagSyntax:
    """How a format spells its tags. `invoke` and `parameter` are regular expressions around `%s`, the names."""

    open: str
    close: str
    invoke: str
    invoke_end: str
    parameter: str
    parameter_end: str
    parameter_start: str
    """What every parameter tag begins with."""
    inner: str
    """A regular expression for what opens an element inside a value, which then must close."""
    style: Style = PLAIN
    quoted: bool = True
    """Names may stand in quotes."""
    readers: Readers = field(init=False)
    inside: InnerTags = field(init=False)

    def __post_init__(self) -> None:
        name = r"""["']?\s*(?P<name>[^"'>]*?)\s*["']?"""
        gap = r"[ \t\r\n]*"
        invoke, parameter = (re.compile(gap + tag.replace("%s", name)) for tag in (self.invoke, self.parameter))
        others = (re.compile(gap + re.escape(tag)) for tag in (self.open, self.close, self.invoke_end))
        open, close, invoke_end = others
        object.__setattr__(self, "readers", Readers(open, close, invoke, invoke_end, parameter))
        inside = re.compile(f"{self.inner}|(?P<end>{re.escape(self.parameter_end)})")
        object.__setattr__(
            self, "inside", InnerTags(inside, self.open, self.close, self.invoke_end, self.parameter_end)
        )


class TagGrammar(BlockGrammar):
    """Reads along with the tags; see `TagSyntax`."""

    syntax: ClassVar[TagSyntax]

    def __init_subclass__(cls) -> None:
        cls.readers = cls.syntax.readers

    def __init__(self, tools: Sequence[Mapping[str, Any]], calls: Calls, spell: Spell) -> None:
        super().__init__(tools, calls, spell)
        self._value = Inside(self.syntax.inside, Types())

    # Reading along.

    def _begin_value(self, head: re.Match[str]) -> None:
        child = self._arguments.child(self._key)
        last = self._arguments.without(self._key).complete
        self._value = Inside(self.syntax.inside, child.schema.types, free=child.takes_text, last=last)

    def _leave_value(self) -> int | None:
        value = self._value
        constrained = value.constrained
        end = value.read(self.text)
        if end is not None:
            text = self.text[:end].rpartition(self.syntax.parameter_end)[0]
            self._left(text.strip("\n") if self.syntax.style.around else text)
            self._value = Inside(self.syntax.inside, Types())
            return end
        taken = value.take()
        self._remember(taken)
        if value.constrained != constrained:
            return taken
        self.text = self.text[taken:]
        return None

    def quotable(self, marker: str) -> bool:
        return self.place is Place.VALUE and self._value.quotable(marker)

    def banned(self, marker: str) -> bool:
        return self.place is Place.VALUE and not self._value.quotable(marker)

    def quote(self, marker: str) -> None:
        self._remember(len(self.text))
        self.text = ""
        if self._value.proves_end(marker):
            self._end_block()
        else:
            self._value.quote(marker)

    # What may come next.

    def piece(self, prefix: str) -> str | None:
        return super().piece(prefix) if self._value.constrained else None

    def _opening(self, lark: Lark) -> str:
        return f"/{GAP}/ {self.spell(self.syntax.open)} {self._heads(lark)}"

    def _closing(self) -> str:
        return f"/{GAP}/ {self.spell(self.syntax.close)} {ANY}"

    def _heads(self, lark: Lark) -> str:
        groups: dict[str, list[str]] = {}
        for name in self.calls.names:
            groups.setdefault(self._first(self.arguments(name)), []).append(name)
        heads = [(self.syntax.invoke.replace("%s", self._names(names)), first) for first, names in groups.items()]
        return lark.rule(" | ".join(f"/{GAP}{head}/ {first}" for head, first in heads))

    def _first(self, here: Node) -> str:
        options = []
        if here.free or here.welcomes_others or any(True for _ in here.children()):
            options.append(literal(self.syntax.parameter_start.removeprefix("<")))
        if here.complete:
            options.append(literal(self.syntax.invoke_end.removeprefix("<")))
        return f"/{GAP}</ ({' | '.join(options)}) {ANY}"

    def _between(self, lark: Lark) -> str:
        return f"/{GAP}</ {self._next(lark, self._arguments, deep=True)}"

    def _inside(self, lark: Lark) -> str:
        after = self._next(lark, self._arguments.without(self._key), deep=False)
        return f"{self._values(lark, self._arguments.child(self._key))} {after}"

    def _next(self, lark: Lark, here: Node, *, deep: bool) -> str:
        """What may follow a "<" between parameters: the names still open, and the end once all required are there.

        With `deep` their values too: a token may hold the end of a tag and the beginning of a value.
        """
        children = dict(here.children())
        plain = [name for name, child in children.items() if not deep or child.schema.types.only_string]
        options = [f"/{self._parameter(self._names(plain))}/ {ANY}"] if plain else []
        if here.free or here.welcomes_others:
            name = r"[^\"<>\n]{1,64}"
            other = self._parameter(f'"{name}"' if self.syntax.quoted else name)
            declared = [name for plain in here.plains for name in properties_of(plain)]
            tag = lark.terminal(but(other, self._parameter(self._names(declared)))) if declared else f"/{other}/"
            options.append(f"{tag} {self._values(lark, here.child('')) if deep else ''} {ANY}")
        options += [
            f"/{self._parameter(self._names([name]))}/ {self._values(lark, child)} {ANY}"
            for name, child in children.items()
            if name not in plain
        ]
        if here.complete:
            options.append(f"{literal(self.syntax.invoke_end[1:])} {ANY}")
        return lark.rule(" | ".join(options))

    def _names(self, names: Sequence[str]) -> str:
        return quoted(names) if self.syntax.quoted else one_of(names)

    def _parameter(self, names: str) -> str:
        return self.syntax.parameter.replace("%s", names).removeprefix("<")

    def _values(self, lark: Lark, child: Node) -> str:
        """A value with its closing tag and the "<" behind it."""
        end = f"{pattern(self.syntax.parameter_end)}[ \\t\\r\\n]*<"
        free = lark.rule(f"/{ANY_TEXT}{end}/", "[lazy]")
        style = self.syntax.style
        found = [
            text
            for plain in child.plains
            for text in values(lark, plain, child.schema, style=style, free=free, end=end)
        ]
        return lark.rule(" | ".join(dict.fromkeys([free] * child.free + found)))


def quoted(names: Sequence[str]) -> str:
    """One of several names, as an attribute's value in any of its styles: a regular expression."""
    any_of = one_of(names)
    return rf"""("[ ]?{any_of}[ ]?"|'[ ]?{any_of}[ ]?'|{any_of})"""
