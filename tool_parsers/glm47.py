"""GLM 4.5, 4.6 and 4.7: one tag a call, keys and raw values in pairs.

    Looking.                                             Text("Looking.")
    <tool_call>read_file                                 BlockStart(), CallStart(0, "read_file")
    <arg_key>path</arg_key>
    <arg_value>a.py</arg_value>                          ArgumentsDelta(0, '{"path":"a.py"')
    </tool_call>                                         ArgumentsDelta(0, '}'), CallEnd(0), BlockEnd()

4.7 writes no newlines between the tags. Strings are raw, everything else is JSON; nothing is escaped. All tags are
tokens of their own. A name counts as one when a key or the end of the call follows it.
"""

import re
from collections.abc import Sequence
from typing import ClassVar

from tool_parsers.arguments import coerce
from tool_parsers.base import Grammar, ToolSchema
from tool_parsers.grammar import CallGrammar, Calls, Spell, anything
from tool_parsers.grammar_nodes import Node, properties_of
from tool_parsers.grammar_values import values
from tool_parsers.lark import ANY, ANY_TEXT, GAP, Lark, but, literal, one_of, pattern
from tool_parsers.scan import Source
from tool_parsers.tagged import LONGEST_TAG, Head, HeadOr, TaggedParser, Tags
from tool_parsers.values import ValueTags

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
KEY = "<arg_key>"
KEY_END = "</arg_key>"
VALUE = "<arg_value>"
VALUE_END = "</arg_value>"

TAGS = (OPEN, CLOSE, KEY, KEY_END, VALUE, VALUE_END)

_CALL = re.compile(r"\s*<tool_call>\s*([^\s<]*)\s*(?=<arg_key>|</tool_call>)")
_PAIR = re.compile(r"\s*<arg_key>([^<]*)</arg_key>\s*<arg_value>")
_NAME = re.compile(r"\s*([^\s<]*)\s*")
_TEXT = re.compile(r"[^<]*")


class GlmGrammar(CallGrammar):
    """What may be written next in a call. All tags are tokens, so each place ends at one.

    None stands inside a value here: the parser finds the end of values that quote them, a grammar would not.
    """

    trigger: ClassVar[str] = OPEN

    def __init__(self, tools: Sequence[ToolSchema], calls: Calls, spell: Spell) -> None:
        super().__init__(tools, calls, spell)
        self._arguments: Node | None = None
        self._key = ""

    def begins(self, text: str, *, thinking: bool) -> bool | None:
        head = _CALL.match(text)
        if head is None:
            return None if "<" not in text[len(OPEN) :] and len(text) < LONGEST_TAG else False
        return head[1] in self.schemas if thinking else bool(head[1])

    def _border(self) -> int | None:
        if self._key:
            return self._leave_value()
        if self._arguments is None:
            head = _CALL.match(self.text)
            if head is None:
                return None
            self._arguments = self._opens(head[1])
            return head.end()
        if self.text.lstrip().startswith(CLOSE):
            self._arguments, self.over = None, True
            self.made += 1
            return self.text.index(CLOSE) + len(CLOSE)
        key = _PAIR.match(self.text)
        if key is None:
            return None
        self._key = key[1]
        return key.end()

    def _leave_value(self) -> int | None:
        end = self.text.find(VALUE_END)
        if end < 0 or self._arguments is None:
            return None
        child = self._arguments.child(self._key)
        self._arguments.enter(self._key)
        self._arguments.leave(child, coerce(self.text[:end], child.schema.types))
        self._key = ""
        return end + len(VALUE_END)

    def loosen(self, why: str) -> None:
        super().loosen(why)
        self._arguments = anything()

    def piece(self, prefix: str) -> str | None:
        lark = Lark()
        if self._arguments is None:
            body = f"/{GAP}/ {self.spell(OPEN)} {self._heads(lark)}"
        elif self._key:
            values = self._values(lark, self._arguments.child(self._key))
            after = self._follows(self._arguments.without(self._key))
            body = f"{values} {self.spell(VALUE_END)} /{GAP}/ {after} {ANY}"
        else:
            body = f"/{GAP}/ {self._next(lark, self._arguments)}"
        return lark.text(f"{literal(prefix)} {body}" if prefix else body)

    def _heads(self, lark: Lark) -> str:
        """The names that may be called, and the tag that each may have behind it."""
        groups: dict[str, list[str]] = {}
        for name in self.calls.names:
            groups.setdefault(self._follows(self.arguments(name)), []).append(name)
        return lark.rule(" | ".join(f"/{GAP}{one_of(names)}{GAP}/ {tag} {ANY}" for tag, names in groups.items()))

    def _follows(self, here: Node) -> str:
        """The tags that may come behind the name or a value."""
        more = here.free or here.welcomes_others or any(True for _ in here.children())
        tags = [KEY] * more + [CLOSE] * (here.free or here.complete)
        return f"({' | '.join(map(self.spell, tags))})"

    def _next(self, lark: Lark, here: Node) -> str:
        """The pairs that may come, each with its value, and the call's end."""
        pairs = [(f"/{pattern(name)}/", child) for name, child in here.children()]
        if here.welcomes_others or here.free:
            names = one_of([name for plain in here.plains for name in properties_of(plain)] or ["<"])
            pairs.append((lark.terminal(but(r"[^<>\n]{1,64}", names)), here.child("")))
        between = f"{self.spell(KEY_END)} /{GAP}/ {self.spell(VALUE)}"
        end = f"{self.spell(VALUE_END)} {ANY}"
        options = [f"{self.spell(KEY)} {key} {between} {self._values(lark, child)} {end}" for key, child in pairs]
        if here.complete or here.free:
            options.append(f"{self.spell(CLOSE)} {ANY}")
        return lark.rule(" | ".join(options))

    def _values(self, lark: Lark, child: Node) -> str:
        free = lark.terminal(but(ANY_TEXT, f"{ANY_TEXT}{one_of(TAGS)}{ANY_TEXT}"))
        found = [text for plain in child.plains for text in values(lark, plain, child.schema, free=free)]
        return lark.rule(" | ".join(dict.fromkeys([free] * child.free + found)))


class Glm47(TaggedParser):
    """The GLM format (see the module)."""

    tags: ClassVar[Tags] = Tags(invoke=(OPEN,), invoke_end=(CLOSE,), parameter=(KEY,), parameter_end=(VALUE_END,))
    value_tags: ClassVar[ValueTags] = ValueTags(
        openers=(f"{KEY_END}{VALUE}", f"{KEY_END}\n{VALUE}"),
        closers=(VALUE_END,),
        followers=(KEY, CLOSE, OPEN),
        wrappers=((OPEN, CLOSE),),
        ends=(CLOSE,),
        after_ends=(OPEN,),
    )
    markers: ClassVar[tuple[str, ...]] = (OPEN, CLOSE, KEY, KEY_END, VALUE, VALUE_END)
    hidden: ClassVar[tuple[str, ...]] = markers
    openers: ClassVar[tuple[str, ...]] = (OPEN,)
    closers: ClassVar[tuple[str, ...]] = (CLOSE,)
    reasoning: ClassVar[str | None] = "glm45"

    @classmethod
    def speaks(cls, template: str) -> bool:
        return KEY in template and VALUE in template

    @classmethod
    def grammar(cls, tools: Sequence[ToolSchema], calls: Calls, spell: Spell) -> CallGrammar:
        return GlmGrammar(tools, calls, spell)

    def _structure(self, marker: str) -> Grammar:
        if marker == CLOSE:
            self._stray_closer(marker)
        else:
            yield from super()._structure(marker)

    def _read_head(self, source: Source, tag: str) -> HeadOr:
        head = self._read_call(source) if tag == OPEN else self._read_key(source)
        return "cut" if head == "wait" and source.ended else head

    def _read_call(self, source: Source) -> HeadOr:
        """A name and what must follow it."""
        text, start = source.text, source.at + len(OPEN)
        name = _NAME.match(text, start, start + LONGEST_TAG)
        assert name is not None
        head = Head(name[1], name.end() - source.at)
        if text.startswith(KEY, name.end()):
            return head
        if name[1] and text.startswith(CLOSE, name.end()):
            return head
        if name[1] and text.startswith(OPEN, name.end()) and self._declared(name[1]):
            return head
        rest = text[name.end() : name.end() + len(CLOSE)]
        return "wait" if any(tag.startswith(rest) for tag in (KEY, CLOSE, OPEN)) else None

    def _read_key(self, source: Source) -> HeadOr:
        """A key, up to where its value begins; its closing tag may be missing."""
        text, start = source.text, source.at + len(KEY)
        key = _TEXT.match(text, start, start + LONGEST_TAG)
        assert key is not None
        place = key.end()
        if text.startswith(KEY_END, place):
            place = source.past_gap(place + len(KEY_END))
        elif KEY_END.startswith(text[place:]):
            return "wait"
        if text.startswith(VALUE, place):
            return Head(key[0].strip(), place + len(VALUE) - source.at)
        return "wait" if VALUE.startswith(text[place:]) else None
