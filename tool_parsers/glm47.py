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
from typing import ClassVar

from tool_parsers.base import Grammar
from tool_parsers.scan import Source
from tool_parsers.tagged import LONGEST_TAG, Head, HeadOr, TaggedParser, Tags
from tool_parsers.values import ValueTags

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
KEY = "<arg_key>"
KEY_END = "</arg_key>"
VALUE = "<arg_value>"
VALUE_END = "</arg_value>"

_NAME = re.compile(r"\s*([^\s<]*)\s*")
_TEXT = re.compile(r"[^<]*")


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
