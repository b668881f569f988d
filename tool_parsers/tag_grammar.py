"""The grammar of formats that wrap raw values in plain tags: which name may come next, and what each value may be."""

import re
from collections.abc import Iterator, Mapping, Sequence
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
    invoke_start: str
    """What every invoke tag begins with."""
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
        inner = InnerTags(inside, self.open, self.close, self.invoke_end, self.parameter_end, self.followers)
        object.__setattr__(self, "inside", inner)

    @property
    def followers(self) -> tuple[str, ...]:
        """What ends a value where it stands behind a value's closing tag."""
        return (self.parameter_start, self.invoke_end, self.invoke_start, self.close)


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

    def _head(self, names: Sequence[str]) -> str:
        return f"/{GAP}{self.syntax.invoke.replace('%s', self._names(names))}/"

    def _follows(self, here: Node) -> str:
        options = []
        if here.free or here.welcomes_others or any(True for _ in here.children()):
            options.append(literal(self.syntax.parameter_start.removeprefix("<")))
        if here.complete:
            options.append(literal(self.syntax.invoke_end.removeprefix("<")))
        return f"/{GAP}</ ({' | '.join(options)}) {ANY}"

    def _between(self, lark: Lark) -> str:
        return f"/{GAP}</ {self._next(lark, self._arguments, deep=True)}"

    def _inside(self, lark: Lark) -> str:
        child, after = self._arguments.child(self._key), self._arguments.without(self._key)
        options = [f"{value} {self._next(lark, after, deep=False)}" for value in self._held(lark, child)]
        if child.takes_text:
            start, end = self.syntax.parameter_start, self.syntax.invoke_end
            if rest := list(self._parameters(lark, after, start, deep=False)):
                options.append(f"{self._text(lark, start)} {lark.rule(' | '.join(rest))}")
            if after.complete:
                options.append(f"{self._text(lark, end)} {ANY}")
        return lark.rule(" | ".join(options))

    def _next(self, lark: Lark, here: Node, *, deep: bool) -> str:
        """What may follow a "<" between parameters: the names still open, and the end once all required are there."""
        options = list(self._parameters(lark, here, "<", deep=deep))
        if here.complete:
            options.append(f"{literal(self.syntax.invoke_end[1:])} {ANY}")
        return lark.rule(" | ".join(options))

    def _parameters(self, lark: Lark, here: Node, begun: str, *, deep: bool) -> Iterator[str]:
        """The tags of the parameters that may come, but for what has begun of them.

        With `deep` their values too: a token may hold the end of a tag and the beginning of a value.
        """

        def tag(names: str) -> str:
            return self.syntax.parameter.replace("%s", names).removeprefix(begun)

        children = dict(here.children())
        plain = [name for name, child in children.items() if not deep or child.schema.types.only_string]
        if plain:
            yield f"/{tag(self._names(plain))}/ {ANY}"
        if here.free or here.welcomes_others:
            other = tag(r'"[^"<>\n]{1,64}"' if self.syntax.quoted else r"[^<>\n]{1,64}")
            declared = [name for plain in here.plains for name in properties_of(plain)]
            name = lark.terminal(but(other, tag(self._names(declared)))) if declared else f"/{other}/"
            yield f"{name} {self._whole(lark, here.child('')) if deep else ''} {ANY}"
        for name, child in children.items():
            if name not in plain:
                yield f"/{tag(self._names([name]))}/ {self._whole(lark, child)} {ANY}"

    def _names(self, names: Sequence[str]) -> str:
        return quoted(names) if self.syntax.quoted else one_of(names)

    def _whole(self, lark: Lark, child: Node) -> str:
        """A value with its closing tag and the beginning of the tag behind it."""
        text = [self._text(lark, self.syntax.parameter_start, self.syntax.invoke_end)] if child.takes_text else []
        return lark.rule(" | ".join([*text, *self._held(lark, child)]))

    def _held(self, lark: Lark, child: Node) -> list[str]:
        """What a value may be that is not any text, with its closing tag and the "<" behind it."""
        end = f"{pattern(self.syntax.parameter_end)}[ \\t\\r\\n]*<"
        style = self.syntax.style
        found = [
            text for plain in child.plains for text in values(lark, plain, child.schema, style=style, free="", end=end)
        ]
        return [text for text in dict.fromkeys(found) if text]

    def _text(self, lark: Lark, *tags: str) -> str:
        """Any text with its closing tag and one of `tags` behind it. What else would end it may not stand in it."""
        close = f"{pattern(self.syntax.parameter_end)}[ \\t\\r\\n]*"
        others = one_of(tag for tag in self.syntax.followers if tag not in tags)
        return lark.rule(but(f"{ANY_TEXT}{close}{one_of(tags)}", f"{ANY_TEXT}{close}{others}{ANY_TEXT}"), "[lazy]")


def quoted(names: Sequence[str]) -> str:
    """One of several names, as an attribute's value in any of its styles: a regular expression."""
    any_of = one_of(names)
    return rf"""("[ ]?{any_of}[ ]?"|'[ ]?{any_of}[ ]?'|{any_of})"""
