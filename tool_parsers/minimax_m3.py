"""MiniMax M3: a namespace token before every tag, parameter names as tags, values as nested elements.

    Reading it now.                                Text("Reading it now.")
    NS<tool_call>                                  BlockStart()
    NS<invoke name="read_file">                    CallStart(0, "read_file")
    NS<path>a.pyNS</path>                          ArgumentsDelta(0, '{"path":"a.py"')
    NS<lines>NS<item>1NS</item>NS</lines>          ArgumentsDelta(0, ',"lines":[1]')
    NS</invoke>                                    ArgumentsDelta(0, '}'), CallEnd(0)
    NS</tool_call>                                 BlockEnd()

NS is `]<]minimax[>[`, one token of the vocabulary; only a tag right after it is structure, and everything else in a
value is text. The template writes no layout but a newline after some tags outside parameters.

    turn    = { text | block | invoke }
    block   = NS"<tool_call>" { ws | invoke | prose | stray } ( NS"</tool_call>" | end of text )
    invoke  = NS"<invoke name=…>" { ws | junk | element | elided }
              ( NS"</invoke>" | before NS"</tool_call>" | before NS"<invoke name=…>" )
    element = NS"<key>" { text | element } ( NS"</key>" | before the close of what is around it )
    elided  = NS text NS"</key>"                   ; some checkpoints leave out the first opening tag
"""

import re
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from tool_parsers.arguments import WHITESPACE
from tool_parsers.base import Call, Grammar, ToolParser, ToolSchema, Verdict
from tool_parsers.events import BlockEnd, BlockStart, Malformed, ParserEvent
from tool_parsers.grammar import CallGrammar, Calls, Spell
from tool_parsers.minimax_m2 import NAMESPACE as NS
from tool_parsers.minimax_m3_grammar import M3Grammar
from tool_parsers.minimax_m3_value import Element, Parameters
from tool_parsers.scan import LONGEST_GAP, Lines, Markers, Source

BLOCK = "tool_call"
INVOKE = "invoke"

# A tag longer than this is none: a lone "<" must not hold back a whole file.
LONGEST_TAG = 1024

_WS = r"[ \t\r\n]*"
_HEAD = rf"<{_WS}invoke[ \t\r\n]+name{_WS}={_WS}"
_HEADER = re.compile(rf"""{_HEAD}(?:"([^"]*)"|'([^']*)'|([^\s>"'][^\s>]*)){_WS}>""")
_QUOTED_SO_FAR = re.compile(rf"""{_HEAD}(?:"[^"]*(?:"{_WS})?|'[^']*(?:'{_WS})?)""")
_TAG = re.compile(r"<([^>]*)>")
_ATTRIBUTES = re.compile(r"invoke[ \t\r\n]+(.+)", re.DOTALL)
_ANY_NAME = re.compile(rf"""(?:^|\s)name{_WS}={_WS}["']?([^"']*)""")


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag and its namespace token. `tool` is the name in an invoke's header, "" where that has none; else None."""

    key: str
    length: int
    closes: bool = False
    tool: str | None = None

    def opens(self, key: str) -> bool:
        return self.key == key and not self.closes


_NAMESPACE = Markers((NS,))


def read_tag(source: Source, stops: Markers = _NAMESPACE) -> Tag | Literal["wait", "cut"] | None:
    """The tag whose namespace token stands at the place of reading; "cut": the text ended in it; None: it has none.

    No tag reaches over a marker of `stops`.
    """
    text = source.text
    unfinished: Literal["wait", "cut"] = "cut" if source.ended else "wait"
    start = source.past_gap(source.at + len(NS))
    if start - source.at > LONGEST_GAP:
        return None
    if start == len(text):
        return unfinished
    if text[start] != "<":
        return None
    window = text[start : start + LONGEST_TAG]
    full = len(window) == LONGEST_TAG
    if stop := stops.search(window):
        window, full = window[: stop.start()], True
    elif full or not source.ended:
        # The namespace token has a ">" of its own.
        window = window[: stops.held_from(window)]
    more_may_come = not full and not source.ended
    tag = None if more_may_come and _QUOTED_SO_FAR.fullmatch(window) else _tag(window, start - source.at)
    return tag or (None if full else unfinished)


def _tag(text: str, lead: int) -> Tag | None:
    """The tag that `text` begins with; its namespace token takes `lead` characters."""
    if header := _HEADER.match(text):
        name = next(group for group in header.groups() if group is not None)
        return Tag(INVOKE, lead + header.end(), tool=name.strip(WHITESPACE))
    tag = _TAG.match(text)
    if tag is None:
        return None
    body, length = tag[1].strip(WHITESPACE), lead + tag.end()
    if attributes := _ATTRIBUTES.fullmatch(body):
        named = _ANY_NAME.search(attributes[1])
        return Tag(INVOKE, length, tool=named[1].strip(WHITESPACE) if named else "")
    if body.startswith("/"):
        return Tag(body[1:].strip(WHITESPACE), length, closes=True)
    return Tag(body, length)


def _may_begin_call(text: str) -> bool:
    """Whether a call can begin with this namespace token and what has arrived after it, which is no whole tag."""
    rest = text[len(NS) :].lstrip(WHITESPACE)
    name = rest[1:].lstrip(WHITESPACE)
    return not rest or (
        rest[0] == "<" and any(name.startswith(word) or word.startswith(name) for word in (BLOCK, INVOKE))
    )


class MinimaxM3(ToolParser):
    """The M3 format (see the module)."""

    markers: ClassVar[tuple[str, ...]] = (NS,)
    reasoning: ClassVar[str | None] = "minimax_m3"

    @classmethod
    def speaks(cls, template: str) -> bool:
        return NS in template

    @classmethod
    def grammar(cls, tools: Sequence[ToolSchema], calls: Calls, spell: Spell) -> CallGrammar:
        return M3Grammar(tools, calls, spell)

    def judge(self, text: str, lines: Lines, *, ended: bool) -> Verdict | None:
        """A call begins here if the whole header of a declared tool follows, or the text ends before it could."""
        source = Source()
        source.push(text)
        source.ended = ended
        tag = read_tag(source)
        wrapped = isinstance(tag, Tag) and tag.opens(BLOCK) and tag.tool is None
        if isinstance(tag, Tag) and wrapped:
            place = source.past_gap(tag.length)
            if place - tag.length > LONGEST_GAP or not (text.startswith(NS, place) or NS.startswith(text[place:])):
                return Verdict("text", len(NS))
            source.at = place
            tag = read_tag(source) if text.startswith(NS, place) else "cut" if ended else "wait"
        match tag:
            case Tag(tool=str(name)) if name and self._declared(name) and (wrapped or self._schemas is not None):
                return Verdict("call")
            case "wait" if _may_begin_call(text[source.at :]):
                return None
            case "cut" if _may_begin_call(text[source.at :]):
                return Verdict("call")
        return Verdict("text", len(NS))

    def _turn(self) -> Grammar:
        yield from self._read(in_block=False)

    def _read(self, *, in_block: bool) -> Grammar:
        """Text and calls; in a block, up to its end."""
        while marker := (yield from self._until(self._text_markers, partial_is_text=not in_block)):
            if marker != NS:
                self._hand_back()
                yield
                continue
            while (tag := read_tag(self._source, self._text_markers)) == "wait":
                yield
            if tag == "cut":
                self._drop(len(self._source.text) - self._source.at, "tag cut short")
            elif tag is None:
                self._drop(len(NS), "namespace token without a tag")
            elif tag.tool or (in_block and tag.opens(INVOKE)):
                yield from self._invoke(tag, in_block=in_block)
            elif in_block and tag.closes and tag.key == BLOCK:
                self._source.take(tag.length)
                return
            elif tag.opens(BLOCK) and not in_block:
                yield from self._block(tag)
            else:
                self._drop(tag.length, "stray tag")
                if tag.closes and tag.key == BLOCK:
                    self._events.append(BlockEnd())

    def _drop(self, length: int, reason: str) -> None:
        self._source.take(length)
        self._events.append(Malformed(reason, length))

    def _block(self, tag: Tag) -> Grammar:
        self._source.take(tag.length)
        self._events.append(BlockStart())
        yield from self._read(in_block=True)
        self._events.append(BlockEnd())

    def _invoke(self, tag: Tag, *, in_block: bool) -> Grammar:
        self._source.take(tag.length)
        if not in_block:
            self._events.append(BlockStart())
        if tag.tool:
            call = Call(self._events, self._calls, tag.tool)
            self._calls += 1
        else:
            self._events.append(Malformed("invoke without a name", tag.length))
            call = Call([], 0, "")
        parameters = Parameters(call, self._schema(call.name))
        if (yield from Invoke(self._source, parameters, self._events).read()):
            call.end()
        else:
            call.abort("the text ended inside a call")
        if not in_block:
            self._events.append(BlockEnd())


class Invoke:
    """Reads one invoke, from after its header to its end."""

    def __init__(self, source: Source, parameters: Parameters, events: list[ParserEvent]) -> None:
        self._source = source
        self._parameters = parameters
        self._events = events
        self._stack: list[Element] = []
        self._open: Counter[str] = Counter()
        self._elided: Element | None = None

    def read(self) -> Generator[None, None, bool]:
        """False: the text ended first."""
        source = self._source
        while (yield from self._text()):
            while (tag := read_tag(source)) == "wait":
                yield
            if tag == "cut":
                source.rest()
                return False
            if tag is None:
                self._no_tag()
            elif self._ends_invoke(tag):
                if tag.key == INVOKE and tag.closes:
                    source.take(tag.length)
                while self._stack:
                    self._close()
                self._parameters.close()
                return True
            elif tag.closes:
                self._closing_tag(tag)
            elif tag.key == BLOCK and not self._may_have_block_key():
                yield from self._stray_block(tag)
            else:
                self._opening_tag(tag)
        return False

    def _text(self) -> Generator[None, None, bool]:
        """Reads up to the next namespace token; False: the text ended."""
        source = self._source
        while (place := source.text.find(NS, source.at)) < 0:
            unread = source.rest()
            if source.ended:
                return False
            held = _NAMESPACE.held_from(unread)
            self._add(unread[:held])
            source.unread(unread[held:])
            yield
        self._add(source.take(place - source.at))
        return True

    def _add(self, text: str) -> None:
        """Text of the innermost element; outside of all it is junk."""
        if text and self._stack:
            self._stack[-1].add_text(text)
            if len(self._stack) == 1:
                self._parameters.grow(text)
        elif text and self._elided is not None:
            self._elided.add_text(text)

    def _ends_invoke(self, tag: Tag) -> bool:
        """An element may be called like the markup around it: then its close is its own."""
        return tag.tool is not None or (tag.closes and tag.key in (INVOKE, BLOCK) and not self._open[tag.key])

    def _no_tag(self) -> None:
        """A namespace token alone: text in a value, else perhaps a value whose opening tag was left out."""
        source = self._source
        if self._stack:
            self._add(source.take(len(NS)))
            return
        source.take(len(NS))
        follows = source.text[source.past_gap(source.at) :][:1]
        self._elided = None if follows == "<" else Element("", self._parameters.schema)

    def _may_have_block_key(self) -> bool:
        if self._stack:
            return self._stack[-1].may_have(BLOCK)
        return self._parameters.schema.declares(BLOCK)

    def _stray_block(self, tag: Tag) -> Grammar:
        """A block's opening tag where no such key is expected is dropped, with the newline that the template writes."""
        source = self._source
        source.take(tag.length)
        self._elided = None
        self._events.append(Malformed("stray tag", tag.length))
        while source.at == len(source.text) and not source.ended:
            yield
        if source.starts_with("\n"):
            source.take(1)

    def _opening_tag(self, tag: Tag) -> None:
        self._source.take(tag.length)
        self._elided = None
        parent = self._stack[-1] if self._stack else None
        schema = parent.child_schema(tag.key) if parent else self._parameters.schema.property(tag.key)
        element = Element(tag.key, schema)
        if parent is None:
            self._parameters.begin(element)
        elif len(self._stack) == 1:
            self._parameters.nest()
        self._stack.append(element)
        self._open[tag.key] += 1

    def _closing_tag(self, tag: Tag) -> None:
        """Closes the innermost element of that name, and all inside it."""
        self._source.take(tag.length)
        if self._open[tag.key]:
            while self._close() != tag.key:
                pass
        elif self._elided is not None:
            element, self._elided = self._elided, None
            element.key, element.schema = tag.key, self._parameters.schema.property(tag.key)
            self._parameters.begin(element)
            self._parameters.grow(element.text)
            self._parameters.end(element)
        else:
            self._events.append(Malformed("stray tag", tag.length))

    def _close(self) -> str:
        element = self._stack.pop()
        self._open[element.key] -= 1
        if self._stack:
            self._stack[-1].add_child(element)
        else:
            self._parameters.end(element)
        return element.key
