"""The grammar of formats that wrap raw values in tags: which name may come next, and what each value may be."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from tool_parsers.arguments import CONTAINERS
from tool_parsers.grammar import ANY, GAP, CallGrammar, Calls, Lark, Spell, literal, one_of, pattern
from tool_parsers.grammar_values import (
    ANY_TEXT,
    PLAIN,
    Style,
    alternatives,
    is_free_text,
    json_kinds,
    json_schema,
    kinds_of,
    scalars,
)
from tool_parsers.json_text import JsonScanner, Scan
from tool_parsers.schema import Schema, Types

_LONGEST = 64
"""No tag that matters inside a value begins further back than this without being whole."""
_ANY_NAME = r'"[^"<>\n]{1,64}"'
_GAP = re.compile(r"[ \t\r\n]*")


class Place(Enum):
    """Where in a call the text stands."""

    BEFORE = "before the block"
    HEAD = "before an invoke"
    BETWEEN = "before a parameter or the invoke's end"
    VALUE = "inside a value"
    AFTER = "behind an invoke"


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
    readers: tuple[re.Pattern[str], re.Pattern[str]] = field(init=False)
    """The two with any name, for Python."""
    inside: re.Pattern[str] = field(init=False)
    """What matters inside a value."""

    def __post_init__(self) -> None:
        name = r"""["']?\s*(?P<name>[^"'>]*?)\s*["']?"""
        readers = tuple(re.compile(r"[ \t\r\n]*" + tag.replace("%s", name)) for tag in (self.invoke, self.parameter))
        object.__setattr__(self, "readers", readers)
        object.__setattr__(self, "inside", re.compile(f"{self.inner}|(?P<end>{re.escape(self.parameter_end)})"))


class TagGrammar(CallGrammar):
    """Reads along with the tags; see `TagSyntax`."""

    syntax: ClassVar[TagSyntax]

    def __init__(self, tools: Sequence[Mapping[str, Any]], calls: Calls, spell: Spell) -> None:
        super().__init__(tools, calls, spell)
        self.place = Place.BEFORE
        self._tool = Schema([], None)
        self._done: set[str] = set()
        self._key = ""
        self._inside = _Inside(self.syntax, Types())

    # Reading along.

    def _border(self) -> int | None:
        match self.place:
            case Place.BEFORE:
                return self._passes(self.syntax.open, Place.HEAD)
            case Place.HEAD:
                return self._enters_invoke()
            case Place.BETWEEN:
                return self._enters_parameter() or self._passes(self.syntax.invoke_end, Place.AFTER)
            case Place.VALUE:
                return self._leaves_value()
            case Place.AFTER:
                return self._leaves_invoke()

    def _passes(self, tag: str, place: Place) -> int | None:
        gap = _GAP.match(self.text)
        assert gap is not None
        if not self.text.startswith(tag, gap.end()):
            return None
        self.place = place
        return gap.end() + len(tag)

    def _enters_invoke(self) -> int | None:
        head = self.syntax.readers[0].match(self.text)
        if head is None:
            return None
        self.place = Place.BETWEEN
        self._tool = self.schemas.get(head["name"], Schema([], None))
        self._done = set()
        self.loose = False
        return head.end()

    def _enters_parameter(self) -> int | None:
        head = self.syntax.readers[1].match(self.text)
        if head is None:
            return None
        self.place = Place.VALUE
        self._key = head["name"]
        schema = self._tool.property(self._key)
        done = {*self._done, self._key}
        whole = all(name in done for name, required in self._tool.members.items() if required)
        free = self.loose or _is_free(schema)
        self._inside = _Inside(self.syntax, schema.types, free=free, last=self.loose or whole)
        return head.end()

    def _leaves_invoke(self) -> int | None:
        if self._passes(self.syntax.close, Place.BEFORE):
            self._end_block()
            return len(self.text)
        head = self.syntax.readers[0].match(self.text)
        if head is None:
            return None
        self.made += 1
        return self._enters_invoke()

    def _leaves_value(self) -> int | None:
        inside = self._inside
        constrained = inside.constrained
        end = inside.read(self.text)
        if end is not None:
            self._done.add(self._key)
            self._inside = _Inside(self.syntax, Types())
            self.place = Place.BETWEEN
            return end
        if inside.constrained != constrained:
            return inside.take()
        self.text = self.text[inside.take() :]
        return None

    def quotable(self, marker: str) -> bool:
        return self.place is Place.VALUE and self._inside.quotable(marker)

    def banned(self, marker: str) -> bool:
        return self.place is Place.VALUE and not self.loose and not self._inside.quotable(marker)

    def quote(self, marker: str) -> None:
        self.text = ""
        if self._inside.proves_end(marker):
            self._end_block()
        else:
            self._inside.quote(marker)

    def _end_block(self) -> None:
        self.place = Place.BEFORE
        self.made += 1
        self.over = True

    # What may come next.

    def piece(self, prefix: str) -> str | None:
        if (self.loose and self.place in (Place.BETWEEN, Place.VALUE)) or not self._inside.constrained:
            return None
        lark = Lark()
        match self.place:
            case Place.BEFORE:
                body = f"/{GAP}/ {self.spell(self.syntax.open)} {self._heads(lark)}"
            case Place.HEAD:
                body = self._heads(lark)
            case Place.BETWEEN:
                body = f"/{GAP}</ {self._next(lark, self._done, deep=True)}"
            case Place.VALUE:
                after = self._next(lark, self._done | {self._key}, deep=False)
                body = f"{self._value(lark, self._key)} {after}"
            case Place.AFTER:
                more = "" if self.calls.single else f" | {self._heads(lark)}"
                body = lark.rule(f"/{GAP}/ {self.spell(self.syntax.close)} {ANY}{more}")
        return lark.text(f"{literal(prefix)} {body}" if prefix else body)

    def _heads(self, lark: Lark) -> str:
        """The opening tags of the tools, and how each must go on."""
        groups: dict[str, list[str]] = {}
        for name in self.calls.names:
            schema = self.schemas.get(name, Schema([], None))
            groups.setdefault(self._first(schema), []).append(name)
        heads = [(self.syntax.invoke.replace("%s", self._names(names)), first) for first, names in groups.items()]
        return lark.rule(" | ".join(f"/{GAP}{head}/ {first}" for head, first in heads))

    def _first(self, schema: Schema) -> str:
        start = self.syntax.parameter_start.removeprefix("<")
        end = self.syntax.invoke_end.removeprefix("<")
        options = []
        if schema.members or schema.open:
            options.append(literal(start))
        if not any(schema.members.values()):
            options.append(literal(end))
        return f"/{GAP}</ ({' | '.join(options)}) {ANY}"

    def _next(self, lark: Lark, done: set[str], *, deep: bool) -> str:
        """What may follow a "<" between parameters: the names still open, and the end once all required are there."""
        members = self._tool.members
        options = []
        left = [name for name in members if name not in done]
        plain = [name for name in left if not deep or self._tool.property(name).types.only_string]
        if plain:
            options.append(f"/{self._parameter(self._names(plain))}/ {ANY}")
        if self._tool.open:
            options.append(f"/{self._parameter(_ANY_NAME if self.syntax.quoted else _ANY_NAME[1:-1])}/ {ANY}")
        options += [
            f"/{self._parameter(self._names([name]))}/ {self._value(lark, name)} {ANY}"
            for name in left
            if name not in plain
        ]
        if all(name in done for name, required in members.items() if required):
            options.append(f"{literal(self.syntax.invoke_end[1:])} {ANY}")
        return lark.rule(" | ".join(options))

    def _names(self, names: Sequence[str]) -> str:
        return quoted(names) if self.syntax.quoted else one_of(names)

    def _parameter(self, names: str) -> str:
        return self.syntax.parameter.replace("%s", names).removeprefix("<")

    def _value(self, lark: Lark, key: str) -> str:
        """A value with its closing tag and the "<" behind it."""
        end = f"{pattern(self.syntax.parameter_end)}[ \\t\\r\\n]*<"
        schema = self._tool.property(key)
        free = lark.rule(f"/{ANY_TEXT}{end}/", "[lazy]")
        options: list[str] = []
        for plain in alternatives(schema) or [{}]:
            kinds = kinds_of(plain, schema.root)
            if is_free_text(plain) and (not kinds or "string" in kinds):
                options.append(free)
            options += (f"/{text}{end}/" for text in scalars(plain, schema, self.syntax.style))
            for kind in json_kinds(plain, schema.root):
                inner = lark.rule(f"%json {json_schema({**plain, 'type': kind}, schema.root)}")
                options.append(f"/{GAP}/ {inner} /{GAP}{end}/")
        return lark.rule(" | ".join(dict.fromkeys(options)))


class _Inside:
    """Reads along inside a value: finds its end, and where nothing can be asked of it.

    An element that opens inside a raw value must close before the value can end; what is JSON ends where its JSON ends.
    """

    def __init__(self, syntax: TagSyntax, types: Types, *, free: bool = True, last: bool = True) -> None:
        """`free`: the value may be any text. `last`: the call may end behind it."""
        self._syntax = syntax
        self._types = types
        self._free = free
        self._last = last
        self._begun = types.only_string
        self._json: JsonScanner | None = None
        self._depth = 0
        self._wrappers = 0
        self._candidate = False
        self._tail = ""
        self._at = 0

    @property
    def constrained(self) -> bool:
        return not self._depth

    def take(self) -> int:
        """How much of the text was dealt with."""
        at, self._at = self._at, 0
        return at

    def read(self, text: str) -> int | None:
        """Where the tag behind the value begins, if it has come; else `take` says what was dealt with."""
        if not self._begun:
            self._begin(text)
        self._tail = text[-_LONGEST:]
        if self._json is not None and self._json.state is Scan.OPEN:
            self._at += self._json.feed(text[self._at :])
            if self._json.state is Scan.OPEN:
                return None
        before = self.constrained
        for hit in self._syntax.inside.finditer(text, self._at):
            if hit["end"] is None:
                self._depth += self._json is None
            elif self._depth:
                self._depth -= 1
                self._candidate = True
            else:
                gap = _GAP.match(text, hit.end())
                assert gap is not None
                if gap.end() == len(text):
                    self._at = hit.start()
                    return None
                if text[gap.end()] == "<":
                    return gap.end()
            self._at = hit.end()
            if self.constrained != before:
                return None
        tail = text.rfind("<", max(self._at, len(text) - _LONGEST))
        self._at = len(text) if tail < 0 else tail
        return None

    def _begin(self, text: str) -> None:
        lead = text.lstrip(" \t\r\n")
        self._begun = bool(lead)
        kind = CONTAINERS.get(lead[:1])
        if kind and self._types.kinds and self._types.permits(kind):
            self._json = JsonScanner()
            self._at = len(text) - len(lead)

    def quotable(self, marker: str) -> bool:
        """Whether the token of a marker may stand here as text."""
        before = self._tail.rstrip(" \t\r\n")
        if self._json is not None or not self._free or before.endswith(self._syntax.parameter_end):
            return False
        return marker != self._syntax.close or self._closes_more() or (self._candidate and self._last)

    def proves_end(self, marker: str) -> bool:
        """The block's end right behind an invoke's: the value ended before, at an end tag that an element took."""
        return marker == self._syntax.close and not self._closes_more()

    def _closes_more(self) -> bool:
        """Whether the block's end is an inner one's, or does not follow an invoke's end."""
        return self._wrappers > 0 or not self._tail.rstrip(" \t\r\n").endswith(self._syntax.invoke_end)

    def quote(self, marker: str) -> None:
        """It does."""
        self._tail = ""
        self._wrappers += (marker == self._syntax.open) - (marker == self._syntax.close)
        self._wrappers = max(0, self._wrappers)


def _is_free(schema: Schema) -> bool:
    """Whether a value may be any text."""
    try:
        plains = alternatives(schema) or [{}]
    except ValueError:
        return True
    return any(is_free_text(plain) and "string" in (kinds_of(plain, schema.root) or ("string",)) for plain in plains)


def quoted(names: Sequence[str]) -> str:
    """One of several names, as an attribute's value in any of its styles: a regular expression."""
    any_of = one_of(names)
    return rf"""("[ ]?{any_of}[ ]?"|'[ ]?{any_of}[ ]?'|{any_of})"""
