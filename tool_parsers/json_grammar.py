"""The grammar of formats whose arguments are JSON: members in any order, each value by its schema."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar

from tool_parsers.arguments import WHITESPACE
from tool_parsers.grammar import CallGrammar, Calls, Spell, anything
from tool_parsers.grammar_nodes import Node, properties_of
from tool_parsers.grammar_values import json_schema, kinds_of, values
from tool_parsers.json_text import read_json, write_json, write_string
from tool_parsers.lark import ANY, GAP, Lark, but, literal, one_of, pattern
from tool_parsers.schema import Kind, Schema

_LONGEST_HEADER = 512
_STEP = re.compile(r'["{}\[\],]')
_QUOTE = re.compile(r'["\\]')
_REST_OF_STRING = r'([^"\\\x00-\x1f]|\\(["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
_NUMBERS: set[Kind] = {"integer", "number"}
_KEY = re.compile(r'[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:', re.DOTALL)


class Place(Enum):
    """Where in a call the text stands."""

    BEFORE = "before the section"
    MEMBER = "before a member or the arguments' end"
    TAIL = "behind the arguments"
    AFTER = "behind a call"


@dataclass(frozen=True)
class JsonSyntax:
    """How a format writes a call around the arguments' members.

    Parts are markers, or regular expressions where they begin with a slash; `%s` in one stands for the names. A
    format without a `section` writes each call by itself. `head` ends with the arguments' opening brace.
    """

    section: tuple[str, ...]
    head: tuple[str, ...]
    tail: tuple[str, ...]
    section_end: str = ""

    @cached_property
    def readers(self) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
        """For Python: section, head with any name, tail."""
        name = r"(?P<name>[^\"'<>|\n]*?)"
        return tuple(  # type: ignore[return-value]
            re.compile(_for_python(parts).replace("%s", name)) for parts in (self.section, self.head, self.tail)
        )


def _for_python(parts: Sequence[str]) -> str:
    gap = r"[ \t\r\n]*"
    return gap + gap.join(part[1:] if part.startswith("/") else re.escape(part) for part in parts)


class JsonGrammar(CallGrammar):
    """Reads along with the members of the arguments; see `JsonSyntax`."""

    syntaxes: ClassVar[tuple[JsonSyntax, ...]]
    """The ways of writing a call, which share their section."""

    def __init__(self, tools: Sequence[Mapping[str, Any]], calls: Calls, spell: Spell) -> None:
        super().__init__(tools, calls, spell)
        self.syntax = self.syntaxes[0]
        """That of the call at hand."""
        self.place = Place.BEFORE
        self._arguments = anything()
        self._first = True
        self._quoting = False
        """A marker was written in the string at hand: what may come is the rest of it."""
        self._scan = _Scan()

    def begins(self, text: str, *, thinking: bool) -> bool | None:
        if thinking:
            opening = self.syntax.readers[0].match(text)
            header = self._header(text, opening.end()) if opening else None
            if header is None:
                return None if len(text) < _LONGEST_HEADER else False
            return header["name"] in self.schemas
        rest = text[len(self.trigger) :].lstrip(WHITESPACE)
        first = self._follows_trigger()
        return True if rest.startswith(first) else None if first.startswith(rest) else False

    def _follows_trigger(self) -> str:
        """What must stand behind the trigger: the rest of the section's opening, or of the call's."""
        parts = [*self.syntax.section, *self.syntax.head]
        following = parts[parts.index(self.trigger) + 1]
        return "{" if following.startswith("/") else following

    # Reading along.

    def _border(self) -> int | None:
        section, _, tail = self.syntax.readers
        match self.place:
            case Place.BEFORE:
                opening = section.match(self.text)
                return self._enter(opening.end()) if opening else None
            case Place.AFTER:
                gap = len(self.text) - len(self.text.lstrip(WHITESPACE))
                if self.text.startswith(self.syntax.section_end, gap):
                    self.over, self.place = True, Place.BEFORE
                    return gap + len(self.syntax.section_end)
                return self._enter(0)
            case Place.MEMBER:
                return self._pass_member()
            case Place.TAIL:
                end = tail.match(self.text)
                if end is None:
                    return None
                self.made += 1
                self.over = not self.syntax.section
                self.place = Place.BEFORE if self.over else Place.AFTER
                return end.end()

    def _header(self, text: str, at: int) -> re.Match[str] | None:
        """A call's header in one of the syntaxes, which is that of the call from then on."""
        for syntax in self.syntaxes:
            if header := syntax.readers[1].match(text, at):
                self.syntax = syntax
                return header
        return None

    def _enter(self, at: int) -> int | None:
        header = self._header(self.text, at)
        if header is None:
            return None
        self.place, self._first = Place.MEMBER, True
        self._scan = _Scan()
        self._arguments = self._opens(header["name"])
        return header.end()

    def loosen(self, why: str) -> None:
        super().loosen(why)
        self._arguments = anything()

    def _pass_member(self) -> int | None:
        end = self._scan.read(self.text)
        if end is None:
            return None
        self._note(self.text[: end - 1])
        self._first = self._quoting = False
        if self.text[end - 1] == "}":
            self.place = Place.TAIL
        self._scan = _Scan()
        return end

    def _note(self, member: str) -> None:
        key = _KEY.match(member)
        if key is None or self.loose:
            return
        name = read_json(key[1])
        child = self._arguments.child(name)
        self._arguments.enter(name)
        if len(member) < _LONGEST_HEADER:
            try:
                self._arguments.leave(child, write_json(read_json(member[key.end() :].strip(WHITESPACE))))
            except ValueError:
                return

    def quotable(self, marker: str) -> bool:
        """A marker that is a token of its own is text inside a string, which no grammar of JSON knows."""
        if self.place is not Place.MEMBER or self.loose or not self._scan.in_string:
            return False
        key = _KEY.match(self.text)
        if key is None or self.text[key.end() :].lstrip(WHITESPACE)[:1] != '"':
            return False
        return self._arguments.child(read_json(key[1])).takes_text

    def quote(self, marker: str) -> None:
        self.text += marker
        self._quoting = True
        self._scan.read(self.text)

    # What may come next.

    def piece(self, prefix: str) -> str | None:
        lark = Lark()
        match self.place:
            case Place.BEFORE:
                body = f"{self._parts(self.syntax.section)} {self._heads(lark)}"
            case Place.AFTER:
                more = "" if self.calls.single else f" | {self._heads(lark)}"
                body = lark.rule(f"/{GAP}/ {self.spell(self.syntax.section_end)} {ANY}{more}")
            case Place.TAIL:
                body = f"{self._parts(self.syntax.tail)} {ANY}"
            case Place.MEMBER:
                if self.loose:
                    return None
                if self._quoting and (key := _KEY.match(self.text)):
                    rest = f"/{_REST_OF_STRING}/ {self._separator(lark, read_json(key[1]))}"
                    return lark.text(f"{literal(prefix)} {rest}" if prefix else rest)
                body = self._members(lark)
        return lark.text(f"{literal(prefix)} {body}" if prefix else body)

    def _parts(self, parts: Sequence[str], names: str = "") -> str:
        return " ".join(
            f"/{GAP}{part[1:].replace('%s', names)}/" if part.startswith("/") else f"/{GAP}/ {self.spell(part)}"
            for part in parts
        )

    def _heads(self, lark: Lark) -> str:
        groups: dict[str, list[str]] = {}
        for name in self.calls.names:
            groups.setdefault(self._begun(name), []).append(name)
        heads = (
            f"{self._parts(syntax.head, one_of(names))} {first}"
            for syntax in self.syntaxes
            for first, names in groups.items()
        )
        return lark.rule(" | ".join(heads))

    def _begun(self, name: str) -> str:
        """What may stand behind the arguments' opening brace."""
        arguments = self.arguments(name)
        return ANY if arguments.free else self._ahead(arguments, end="}")

    def _ahead(self, arguments: Node, *, end: str) -> str:
        """The beginning of the next member, or `end`."""
        names = [pattern(write_string(name)) for name in _left(arguments)]
        options = [f'"{end}" {ANY}'] if end and arguments.complete else []
        if names:
            options.append(f"/{GAP}({'|'.join(names)})/ {ANY}")
        if arguments.welcomes_others:
            options.append(f'/{GAP}"/ {ANY}')
        return f"(/{GAP}/ ({' | '.join(options)}))" if options else f"/{GAP}/ /(?!)/"

    def _members(self, lark: Lark) -> str:
        """The next member with the comma or the brace behind it."""
        here = self._arguments
        options = []
        if here.complete and self._first:
            options.append(lark.rule(f'/{GAP}/ "}}" {self._parts(self.syntax.tail)} {ANY}'))
        for name, child in here.children():
            key = f"/{GAP}{pattern(write_string(name))}{GAP}:{GAP}/"
            options.append(f"{key} {self._value(lark, child)} {self._separator(lark, name)}")
        if here.welcomes_others:
            declared = [pattern(write_string(name)[1:-1]) for plain in here.plains for name in properties_of(plain)]
            key = r'"[^"\\\x00-\x1f]{0,64}"'
            other = lark.terminal(but(key, f'"({"|".join(declared)})"')) if declared else f"/{key}/"
            value = self._value(lark, here.child(""))
            options.append(f"/{GAP}/ {other} /{GAP}:{GAP}/ {value} {self._separator(lark, '')}")
        return lark.rule(" | ".join(options))

    def _value(self, lark: Lark, child: Node) -> str:
        root = child.schema.root
        options: list[str] = []
        for plain in [{}] if child.free else child.plains:
            if kinds_of(plain, root) and set(kinds_of(plain, root)) <= _NUMBERS:
                options += values(lark, plain, Schema([plain], root))
            else:
                options.append(lark.rule(f"%json {json_schema(plain, root)}"))
        return lark.rule(" | ".join(options) or '""')

    def _separator(self, lark: Lark, name: str) -> str:
        """What may stand behind the member: a comma if there are others, the brace if all that must be is there."""
        after = self._arguments.without(name)
        options = []
        if _left(after) or after.welcomes_others:
            options.append(f'"," {self._ahead(after, end="")}')
        if after.complete:
            options.append(f'"}}" {self._parts(self.syntax.tail)} {ANY}')
        return f"/{GAP}/ " + lark.rule(" | ".join(options))


def _left(arguments: Node) -> list[str]:
    return [name for name, _ in arguments.children()]


class _Scan:
    """Finds the comma or the brace that ends a member of an object, in text that grows."""

    def __init__(self) -> None:
        self._at = 0
        self._depth = 0
        self.in_string = False

    def read(self, text: str) -> int | None:
        """Where what follows the separator begins, if it has come."""
        while hit := (_QUOTE if self.in_string else _STEP).search(text, self._at):
            if hit[0] == "\\":
                if hit.end() == len(text):
                    self._at = hit.start()
                    return None
                self._at = hit.end() + 1
                continue
            self._at = hit.end()
            if hit[0] == '"':
                self.in_string = not self.in_string
            elif hit[0] in "{[":
                self._depth += 1
            elif not self._depth:
                return hit.end()
            elif hit[0] in "}]":
                self._depth -= 1
        self._at = len(text)
        return None
