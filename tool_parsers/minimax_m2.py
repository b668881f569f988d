"""MiniMax M2, M2.1, M2.5 and M2.7: XML-like blocks with raw values.

    Reading it now.                               Text("Reading it now.")
    <minimax:tool_call>                           BlockStart()
    <invoke name="read_file">                     CallStart(0, "read_file")
    <parameter name="path">a.py</parameter>       ArgumentsDelta(0, '{"path":"a.py"')
    <parameter name="limit">20</parameter>        ArgumentsDelta(0, ',"limit":20')
    </invoke>                                     ArgumentsDelta(0, '}'), CallEnd(0)
    </minimax:tool_call>                          BlockEnd()

The chat template writes string values raw, everything else as JSON, and escapes nothing. So only what follows a
closing tag tells whether it is one (`_Value`). The block tags are tokens of their own; `<invoke` and `<parameter`
are ordinary text.

    turn      = { text | block | bare }
    block     = OPEN { ws | invoke | prose | stray } ( CLOSE | end of text )
    invoke    = "<invoke" attrs ">" { ws | junk | parameter } ( "</invoke>" | before CLOSE | before "<invoke" )
    parameter = "<parameter" attrs ">" value "</parameter>"
    bare      = an invoke of a declared tool alone at the start of a line, outside code fences, with a body
"""

import re
from collections.abc import Generator, Sequence
from typing import ClassVar

from tool_parsers.arguments import WHITESPACE
from tool_parsers.base import Grammar, ToolSchema
from tool_parsers.grammar import CallGrammar, Calls, Spell
from tool_parsers.scan import LONGEST_GAP, Lines, Source
from tool_parsers.tag_grammar import TagGrammar, TagSyntax
from tool_parsers.tagged import LONGEST_TAG, Head, HeadOr, PlainTagsParser, Tags
from tool_parsers.values import Value, ValueTags

OPEN = "<minimax:tool_call>"
CLOSE = "</minimax:tool_call>"
INVOKE = "<invoke"
INVOKE_END = "</invoke>"
PARAMETER = "<parameter"
PARAMETER_END = "</parameter>"
NAMESPACE = "]<]minimax[>["
"""M3's token before each tag; M2's vocabulary has it too. It never stands in visible text."""

_WS = r"[ \t\r\n]*"
_ATTRS = re.compile(rf"""[ \t\r\n]+name{_WS}={_WS}(?:"([^"]*)"|'([^']*)'|([^\s>"'][^\s>]*)){_WS}>""")
_VALUE_SO_FAR = rf"""(?:"[^"]*(?:"{_WS})?|'[^']*(?:'{_WS})?|[^\s>"'][^\s>]*{_WS})"""
_NAME_SO_FAR = rf"[ \t\r\n]+(?:n(?:a(?:m(?:e{_WS}(?:={_WS}{_VALUE_SO_FAR}?)?)?)?)?)?"
_ATTRS_SO_FAR = re.compile(_NAME_SO_FAR)
_NAMED = re.compile(rf"[ \t\r\n]+name{_WS}=")
_ANY_NAME = re.compile(rf"""\sname{_WS}={_WS}["']?([^"'>]*)""")


class _Value(Value):
    """Here an opener and a follower count only if they go on like tags."""

    def _opens(self, opener: str) -> Generator[None, None, bool]:
        source = self._source
        after = source.at + len(opener)
        if after == len(source.text) and not source.ended:
            yield
            after = source.at + len(opener)
        return source.text[after : after + 1] in (*WHITESPACE, ">")

    def _structure_follows(self, at: int) -> bool | None:
        source = self._source
        if (plain := super()._structure_follows(at)) is not True:
            return plain
        place = source.past_gap(at)
        for head in (INVOKE, PARAMETER):
            if source.text.startswith(head, place):
                rest = source.text[place + len(head) : place + len(head) + LONGEST_GAP]
                return _continues(rest, named=head == PARAMETER, ended=source.ended)
        return True


def _continues(rest: str, *, named: bool, ended: bool) -> bool | None:
    """Whether a tag goes on like this: white space (and a name attribute) must follow."""
    if not rest:
        return False if ended else None
    if not named:
        return rest[0] in WHITESPACE + ">"
    if _NAMED.match(rest):
        return True
    return None if not ended and len(rest) < LONGEST_GAP and _ATTRS_SO_FAR.fullmatch(rest) else False


class M2Grammar(TagGrammar):
    """What may be written next in a block."""

    trigger: ClassVar[str] = OPEN
    syntax: ClassVar[TagSyntax] = TagSyntax(
        open=OPEN,
        close=CLOSE,
        invoke=r"<invoke[ \t\r\n]{1,9}name[ ]?=[ ]?%s[ \t\r\n]{0,9}>",
        invoke_start=INVOKE,
        invoke_end=INVOKE_END,
        parameter=r"<parameter[ \t\r\n]{1,9}name[ ]?=[ ]?%s[ \t\r\n]{0,9}>",
        parameter_end=PARAMETER_END,
        parameter_start=PARAMETER,
        inner=r"<parameter(?=[ \t\r\n>])",
    )

    def begins(self, text: str, *, thinking: bool) -> bool | None:
        """Behind a wrapper, the beginning of an invoke; in a thought, its whole header with a declared name."""
        source = Source()
        source.push(text[len(OPEN) :].lstrip(WHITESPACE))
        if not thinking:
            return source.follows(0, f"{INVOKE} ", f"{INVOKE}\n", f"{INVOKE}>")
        verdict = MinimaxM2([{"name": name} for name in self.schemas]).judge(text, Lines(), ended=False)
        return None if verdict is None else verdict.kind == "call"


class MinimaxM2(PlainTagsParser):
    """The M2 format (see the module)."""

    tags: ClassVar[Tags] = Tags((OPEN,), (CLOSE,), (INVOKE,), (INVOKE_END,), (PARAMETER,), (PARAMETER_END,))
    value_tags: ClassVar[ValueTags] = ValueTags(
        openers=(PARAMETER,),
        closers=(PARAMETER_END,),
        followers=(PARAMETER, INVOKE_END, INVOKE, CLOSE),
        wrappers=((OPEN, CLOSE),),
        ends=(INVOKE_END,),
        after_ends=(CLOSE,),
    )
    value_class: ClassVar[type[Value]] = _Value
    markers: ClassVar[tuple[str, ...]] = (OPEN, CLOSE, INVOKE)
    openers: ClassVar[tuple[str, ...]] = (OPEN,)
    closers: ClassVar[tuple[str, ...]] = (CLOSE,)
    hidden: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)
    newlines_before: ClassVar[int] = 1
    reasoning: ClassVar[str | None] = "minimax_m2"
    undeclared_as_text: ClassVar[bool] = False

    @classmethod
    def speaks(cls, template: str) -> bool:
        return OPEN in template and NAMESPACE not in template

    @classmethod
    def grammar(cls, tools: Sequence[ToolSchema], calls: Calls, spell: Spell) -> CallGrammar:
        return M2Grammar(tools, calls, spell)

    def _has_body(self, source: Source, at: int) -> bool | None:
        if (follows := super()._has_body(source, at)) is not True:
            return follows
        body = Source()
        body.push(source.text[source.past_gap(at) :])
        body.ended = source.ended
        if body.starts_with(INVOKE_END):
            return True
        head = self._read_head(body, PARAMETER)
        return None if head == "wait" else isinstance(head, Head)

    def _no_head(self, tag: str) -> Grammar:
        """A parameter tag without a name is markup all the same."""
        source = self._source
        end = source.text.find(">", source.at, source.at + LONGEST_TAG)
        if tag == PARAMETER and end >= 0 and source.text[source.at + len(tag)] in WHITESPACE + ">":
            yield from self._stray(source.text[source.at : end + 1])
        else:
            yield from super()._no_head(tag)

    def _another(self, tag: str) -> Generator[None, None, bool]:
        source = self._source
        while source.at + len(tag) == len(source.text) and not source.ended:
            yield
        after = source.at + len(tag)
        return source.text[after : after + 1] in (*WHITESPACE, ">")

    def _read_head(self, source: Source, tag: str) -> HeadOr:
        # What is beyond the longest tag is not looked at, so that the same is found however the text is cut.
        text, start = source.text, source.at + len(tag)
        limit = start + LONGEST_TAG
        if start < len(text) and text[start] not in WHITESPACE + ">":
            return None
        if whole := _ATTRS.match(text, start, limit):
            name = next(group for group in whole.groups() if group is not None)
            return Head(name.strip(), whole.end() - source.at)
        end = text.find(">", start, limit)
        if len(text) < limit and (len(text) == start or end < 0 or _ATTRS_SO_FAR.fullmatch(text, start)):
            return "cut" if source.ended else "wait"
        if end < 0:
            return None
        named = _ANY_NAME.search(text, start, end)
        if named is None and tag == PARAMETER:
            return None
        return Head(named[1].strip() if named else "", end + 1 - source.at)
