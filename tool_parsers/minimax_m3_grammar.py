"""What may be written next in a call of M3: each tag stands behind the namespace token, and values nest.

No regular expression matches the namespace token, so every place ends at one and at the tag behind it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, ClassVar

from tool_parsers.arguments import WHITESPACE, coerce
from tool_parsers.grammar import CallGrammar, Calls, Spell, anything
from tool_parsers.grammar_nodes import Node, properties_of
from tool_parsers.grammar_values import values
from tool_parsers.lark import ANY, ANY_TEXT, GAP, Lark, but, literal, one_of, pattern
from tool_parsers.minimax_m2 import NAMESPACE as NS
from tool_parsers.tag_grammar import quoted

_BLOCK = "tool_call"
_ITEM = "item"
_W = r"[ \t\r\n]{0,9}"
_TAG = re.compile(rf"{re.escape(NS)}[ \t\r\n]*<([^>]*)>")
_HEADER = re.compile(r"""invoke[ \t\r\n]+name[ \t\r\n]*=[ \t\r\n]*["']?\s*(.*?)\s*["']?""", re.DOTALL)
_KEPT = 256
"""A longer text is no member of a list of values."""
_SLASH = r"\/"
_OTHER = r"[^<>\/ \t\r\n=\"']{1,64}"
_LONGEST_HEADER = 1024


class Place(Enum):
    """Where in a call the text stands."""

    BEFORE = "before the block"
    HEAD = "before an invoke"
    INSIDE = "inside an invoke"
    AFTER = "behind an invoke"


class M3Grammar(CallGrammar):
    """Reads along with the tags and keeps the elements that are open."""

    trigger: ClassVar[str] = NS

    def __init__(self, tools: Sequence[Mapping[str, Any]], calls: Calls, spell: Spell) -> None:
        super().__init__(tools, calls, spell)
        self.place = Place.BEFORE
        self._stack: list[Node] = []
        self._leaf = ""
        self._wrapped = False

    def begins(self, text: str, *, thinking: bool) -> bool | None:
        rest = text[len(NS) :].lstrip(WHITESPACE)
        if rest.startswith(f"<{_BLOCK}>"):
            rest = rest[len(_BLOCK) + 2 :].lstrip(WHITESPACE)
            if not rest.startswith(NS):
                return None if NS.startswith(rest) else False
            rest = rest[len(NS) :].lstrip(WHITESPACE)
        elif f"<{_BLOCK}>".startswith(rest):
            return None
        head = rest[: len("<invoke ")].replace("\n", " ")
        if head != "<invoke ":
            return None if "<invoke ".startswith(head) else False
        if not thinking:
            return True
        if ">" not in rest:
            return None if len(rest) < _LONGEST_HEADER else False
        header = _HEADER.fullmatch(rest[1 : rest.index(">")])
        return header is not None and header[1] in self.schemas

    # Reading along.

    def _border(self) -> int | None:
        tag = _TAG.search(self.text)
        if tag is None:
            self._grow()
            return None
        self._leaf += self.text[: tag.start()]
        body = tag[1].strip(WHITESPACE)
        if header := _HEADER.fullmatch(body):
            self._enter_invoke(header[1])
        elif self.place is Place.INSIDE:
            self._inner(body)
        elif body == _BLOCK:
            self.place, self._wrapped = Place.HEAD, True
        elif body == f"/{_BLOCK}":
            self.over, self.place, self._wrapped = True, Place.BEFORE, False
        self._leaf = ""
        return tag.end()

    def _grow(self) -> None:
        """Text of a value; it may be long, so it is not kept."""
        at = self.text.find(NS)
        if at < 0 and self.place is Place.INSIDE:
            at = max(0, len(self.text) - len(NS))
        if at > 0 and len(self._leaf) < _KEPT:
            self._leaf += self.text[:at]
        if at > 0:
            self.text = self.text[at:]

    def _enter_invoke(self, name: str) -> None:
        self.place = Place.INSIDE
        self._stack = [self._opens(name)]

    def _inner(self, body: str) -> None:
        here = self._stack[-1]
        if not body.startswith("/"):
            here_child = self._child(body)
            here.enter(body)
            self._stack.append(here_child)
        elif len(self._stack) > 1:
            self._stack.pop()
            self._stack[-1].leave(here, coerce(self._leaf, here.schema.types))
        else:
            self.made += 1
            self._stack = []
            self.place = Place.AFTER if self._wrapped else Place.BEFORE
            self.over = not self._wrapped

    def _child(self, name: str) -> Node:
        return replace(anything(), key=name) if self.loose else self._stack[-1].child(name)

    def loosen(self, why: str) -> None:
        super().loosen(why)
        for element in self._stack:
            element.free = True

    @property
    def _is_text(self) -> bool:
        """Inside a value that any text is."""
        return len(self._stack) > 1 and self._stack[-1].kind is None and self._stack[-1].takes_text

    def quotable(self, marker: str) -> bool:
        return marker != NS and NS not in self.text and self._is_text

    def quote(self, marker: str) -> None:
        self._leaf += self.text + marker
        self.text = ""

    # What may come next.

    def piece(self, prefix: str) -> str | None:
        lark = Lark()
        ns = self.spell(NS)
        match self.place:
            case Place.BEFORE:
                block = f"/{_tag(_BLOCK)}{GAP}/ {ns} {self._heads(lark)}"
                body = f"/{GAP}/ {ns} {lark.rule(block)}"
            case Place.HEAD:
                body = f"/{GAP}/ {ns} {self._heads(lark)}"
            case Place.AFTER:
                more = "" if self.calls.single else f" | {self._heads(lark)}"
                end = f"/{_tag(_BLOCK, closes=True)}/ {ANY}"
                body = f"/{GAP}/ {ns} {lark.rule(end + more)}"
            case Place.INSIDE:
                body = self._element(lark, ns)
        return lark.text(f"{literal(prefix)} {body}" if prefix else body)

    def _heads(self, lark: Lark) -> str:
        names = quoted(list(self.calls.names))
        header = rf"{_W}<{_W}invoke[ \t\r\n]{{1,9}}name[ ]?=[ ]?{names}{_W}>"
        return lark.rule(f"/{header}{GAP}/ {self.spell(NS)} {ANY}")

    def _element(self, lark: Lark, ns: str) -> str:
        """What the innermost element may hold from here on, up to the next tag."""
        here = self._stack[-1]
        is_root = len(self._stack) == 1
        if is_root:
            close = f"/{_tag('invoke', closes=True)}{GAP}/ {f'{ns} ' if self._wrapped else ''}{ANY}"
        else:
            close = f"/{_tag(pattern(here.key), closes=True)}{GAP}/ {ns} {ANY}"
        inner = [f"/{_tag(pattern(name))}/ {self._content(lark, child)}" for name, child in here.children()]
        if here.free or here.welcomes_others:
            names = one_of([_BLOCK, "invoke", *(name for plain in here.plains for name in properties_of(plain))])
            other = lark.terminal(but(_tag(_OTHER), _tag(names)))
            inner.append(f"{other} {self._content(lark, here.child(''))}")
        options = []
        if here.kind is not None or here.free or is_root:
            if here.complete:
                inner.append(close)
        else:
            options += [f"{text} {ns} {close}" for text in self._texts(lark, here)]
        if inner:
            lead = ANY_TEXT if here.free and not is_root else GAP
            options.append(f"/{lead}/ {ns} {lark.rule(' | '.join(inner))}")
        return lark.rule(" | ".join(options))

    def _content(self, lark: Lark, child: Node) -> str:
        """The value behind an opening tag, as far as the next namespace token."""
        texts = [] if child.free else list(self._texts(lark, child))
        if child.nests:
            texts.append(f"/{ANY_TEXT if child.free else GAP}/")
        return f"{lark.rule(' | '.join(dict.fromkeys(texts)))} {self.spell(NS)} {ANY}"

    def _texts(self, lark: Lark, element: Node) -> Iterator[str]:
        """The texts that are a value by themselves."""
        for plain in element.plains:
            yield from values(lark, plain, element.schema)
        if element.may_be_empty:
            yield f"/{GAP}/"


def _tag(body: str, *, closes: bool = False) -> str:
    """A tag behind the namespace token, as a regular expression."""
    return f"{_W}<{_W}{_SLASH if closes else ''}{body}{_W}>"
