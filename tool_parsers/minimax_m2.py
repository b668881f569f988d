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
from collections.abc import Generator
from typing import ClassVar, Literal

from tool_parsers.arguments import CONTAINERS, WHITESPACE, coerce
from tool_parsers.base import Call, Grammar, ToolParser, Verdict
from tool_parsers.events import BlockEnd, BlockStart, Malformed
from tool_parsers.json_text import JsonScanner, Scan, read_json
from tool_parsers.scan import LONGEST_GAP, Lines, Markers, Source
from tool_parsers.schema import Types

OPEN = "<minimax:tool_call>"
CLOSE = "</minimax:tool_call>"
INVOKE = "<invoke"
INVOKE_END = "</invoke>"
PARAMETER = "<parameter"
PARAMETER_END = "</parameter>"
NAMESPACE = "]<]minimax[>["
"""M3's token before each tag; M2's vocabulary has it too. It never stands in visible text."""

# A tag longer than this is none: an unclosed quote must not hold back a whole file.
LONGEST_TAG = 1024

_WS = r"[ \t\r\n]*"
_ATTRS = re.compile(rf"""[ \t\r\n]+name{_WS}={_WS}(?:"([^"]*)"|'([^']*)'|([^\s>"'][^\s>]*)){_WS}>""")
_VALUE_SO_FAR = rf"""(?:"[^"]*(?:"{_WS})?|'[^']*(?:'{_WS})?|[^\s>"'][^\s>]*{_WS})"""
_ATTRS_SO_FAR = re.compile(rf"(?:[ \t\r\n]+(?:n(?:a(?:m(?:e{_WS}(?:={_WS}{_VALUE_SO_FAR}?)?)?)?)?)?)?")
_ANY_NAME = re.compile(rf"""\sname{_WS}={_WS}["']?([^"'>]*)""")

Tag = tuple[str | None, int]
"""A tag's name attribute (None: it has none) and its length."""


def read_tag(source: Source, head: str) -> Tag | Literal["wait", "cut"] | None:
    """The tag that begins with `head` at the place of reading; "cut": the text ended in it; None: no tag at all."""
    text, start = source.text, source.at + len(head)
    unfinished: Literal["wait", "cut"] = "cut" if source.ended else "wait"
    if start == len(text):
        return unfinished
    if text[start] not in WHITESPACE + ">":
        return None
    if whole := _ATTRS.match(text, start):
        return next(group for group in whole.groups() if group is not None).strip(), whole.end() - source.at
    unread = len(text) - start
    if unread <= LONGEST_TAG and _ATTRS_SO_FAR.fullmatch(text, start):
        return unfinished
    end = text.find(">", start)
    if end < 0:
        return unfinished if unread <= LONGEST_TAG else None
    named = _ANY_NAME.search(text, start, end)
    return (named[1].strip() if named else None), end + 1 - source.at


class MinimaxM2(ToolParser):
    """The M2 format (see the module)."""

    markers: ClassVar[tuple[str, ...]] = (OPEN, CLOSE, INVOKE)
    newlines_before: ClassVar[int] = 1
    reasoning: ClassVar[str | None] = "minimax_m2"

    _in_block = Markers((OPEN, CLOSE, INVOKE, INVOKE_END, PARAMETER, PARAMETER_END))
    _in_invoke = Markers((INVOKE, INVOKE_END, PARAMETER, CLOSE))
    _quoted = 0

    @classmethod
    def speaks(cls, template: str) -> bool:
        return OPEN in template and NAMESPACE not in template

    def judge(self, text: str, lines: Lines, *, ended: bool) -> Verdict | None:
        if text.startswith(CLOSE):
            self._quoted, quoted = max(0, self._quoted - 1), self._quoted
            return Verdict("text" if quoted else "drop", len(CLOSE))
        if text.startswith(INVOKE):
            return self._judge_bare(text, lines, ended=ended)
        verdict = self._judge_opener(text, ended=ended)
        if verdict is not None and verdict.kind == "text":
            self._quoted += 1
        return verdict

    def _judge_opener(self, text: str, *, ended: bool) -> Verdict | None:
        """A block begins here if the whole header of a declared tool follows, or the text ends before it could."""
        source = Source()
        source.push(text[len(OPEN) :].lstrip(WHITESPACE))
        cut = Verdict("call") if ended else None
        if INVOKE.startswith(source.text):
            return cut
        if not source.starts_with(INVOKE):
            return Verdict("text", len(OPEN))
        match read_tag(source, INVOKE):
            case "wait":
                return cut
            case (str(name), _) if name and self._declared(name):
                return Verdict("call")
        return Verdict("text", len(OPEN))

    def _judge_bare(self, text: str, lines: Lines, *, ended: bool) -> Verdict | None:
        source = Source()
        source.push(text)
        source.ended = ended
        bare = self._bare(source, lines)
        return None if bare is None else Verdict("call") if bare else Verdict("text", len(INVOKE))

    def _bare(self, source: Source, lines: Lines) -> bool | None:
        """Whether an invoke without a wrapper begins at the place of reading."""
        if not lines.blank or lines.fenced:
            return False
        tag = read_tag(source, INVOKE)
        if tag == "wait":
            return None
        if tag is None or tag == "cut" or not tag[0] or self._schemas is None or not self._declared(tag[0]):
            return False
        place = source.at + tag[1]
        if (end := source.follows(place, INVOKE_END)) is not False:
            return end
        if (parameter := source.follows(place, PARAMETER)) is not True:
            return parameter
        inner = Source()
        inner.push(source.text[place:].lstrip(WHITESPACE))
        inner.ended = source.ended
        name = read_tag(inner, PARAMETER)
        return None if name == "wait" else isinstance(name, tuple) and name[0] is not None

    def _turn(self) -> Grammar:
        while marker := (yield from self._until(self._text_markers)):
            if marker in self._escapes:
                self._hand_back()
                yield
            elif marker == OPEN:
                yield from self._block()
            elif marker == CLOSE:
                self._drop(CLOSE)
                self._events.append(BlockEnd())
            else:
                yield from self._maybe_bare()

    def _maybe_bare(self) -> Grammar:
        while (bare := self._bare(self._source, self._lines)) is None:
            yield
        if not bare:
            self._emit_text(self._source.take(len(INVOKE)))
            return
        self._events.append(BlockStart())
        yield from self._invoke()
        self._events.append(BlockEnd())
        self._lines.restart()

    def _block(self) -> Grammar:
        self._source.take(len(OPEN))
        self._events.append(BlockStart())
        yield from self._block_body()
        self._events.append(BlockEnd())
        self._lines.restart()

    def _block_body(self) -> Grammar:
        markers = Markers((OPEN, CLOSE, INVOKE, INVOKE_END, PARAMETER, PARAMETER_END, *self._escapes))
        while marker := (yield from self._until(markers, partial_is_text=False)):
            if marker in self._escapes:
                self._hand_back()
                yield
            elif marker == CLOSE:
                self._source.take(len(CLOSE))
                return
            elif marker == INVOKE:
                yield from self._invoke()
            elif marker == PARAMETER:
                yield from self._stray_parameter()
            else:
                self._drop(marker)

    def _drop(self, marker: str) -> None:
        self._source.take(len(marker))
        self._events.append(Malformed(f"stray {marker}", len(marker)))

    def _stray_parameter(self) -> Grammar:
        if tag := (yield from self._tag_in_block(PARAMETER)):
            self._source.take(tag[1])
            self._events.append(Malformed(f"stray {PARAMETER}>", tag[1]))

    def _tag_in_block(self, head: str) -> Generator[None, None, Tag | None]:
        """The tag at the place of reading; without one, its characters are text, or a tag that the end cut."""
        tag = yield from self._tag(head)
        if isinstance(tag, tuple):
            return tag
        if tag == "cut":
            self._events.append(Malformed("tag cut short", len(self._source.rest())))
        else:
            self._emit_text(self._source.take(len(head)))
        return None

    def _tag(self, head: str) -> Generator[None, None, Tag | Literal["cut"] | None]:
        while (tag := read_tag(self._source, head)) == "wait":
            yield
        return tag

    def _invoke(self) -> Grammar:
        """One invoke; at the place of reading stands "<invoke"."""
        tag = yield from self._tag_in_block(INVOKE)
        if tag is None:
            return
        name, length = tag
        self._source.take(length)
        if not name:
            self._events.append(Malformed("invoke without a name", length))
            yield from self._parameters(None)
            return
        call = Call(self._events, self._calls, name)
        self._calls += 1
        if (yield from self._parameters(call)):
            call.end()
        else:
            call.abort("the text ended inside a call")

    def _parameters(self, call: Call | None) -> Generator[None, None, bool]:
        """Everything up to the invoke's end; False: the text ended first. Without a call, all is read and dropped."""
        source = self._source
        while True:
            hit = self._in_invoke.search(source.text, source.at)
            if hit is None:
                held = self._in_invoke.held_from(source.text)
                source.at = max(source.at, held)
                if source.ended:
                    source.rest()
                    return False
                yield
                continue
            source.at = hit.start()
            match hit.group():
                case "</invoke>":
                    source.take(len(INVOKE_END))
                    return True
                case "</minimax:tool_call>":
                    return True
                case "<invoke":
                    after = source.text[hit.end() : hit.end() + 1]
                    if not after and not source.ended:
                        yield
                    elif after and after in WHITESPACE + ">":
                        return True
                    else:
                        source.take(len(INVOKE))
                case _:
                    tag = yield from self._tag(PARAMETER)
                    if tag == "cut":
                        source.rest()
                    elif tag is None or tag[0] is None:
                        source.take(len(PARAMETER))
                    else:
                        source.take(tag[1])
                        if not (yield from self._parameter(call, tag[0])):
                            return False

    def _parameter(self, call: Call | None, key: str) -> Generator[None, None, bool]:
        types = self._schema(call.name).property(key).types if call else Types()
        streamed = call if call and types.only_string and key not in call.arguments else None
        value = _Value(self._source, streamed)
        if streamed:
            streamed.send(streamed.arguments.open_string(key))
        if not (yield from value.read(types)):
            return False
        if streamed:
            streamed.send(streamed.arguments.close_string())
        elif call:
            call.send(call.arguments.member(key, coerce(value.text, types)))
        return True


class _Value:
    """One parameter's value: reads to its end and past its closing tag.

    A closing tag ends the value iff structure follows it and no opener inside the value waits for it. Since that can
    fail only in files about this very format, a block that ends without such an end (rule 3 below) gives the
    first closing tag that structure followed a second chance.

    With a `call`, the text is sent on as soon as it is certain to be the value's.
    """

    _markers = Markers((PARAMETER, PARAMETER_END, INVOKE_END, OPEN, CLOSE))

    def __init__(self, source: Source, call: Call | None) -> None:
        self._source = source
        self._call = call
        self._held: list[str] = []
        self._depth = 0
        self._wrappers = 0
        self._candidate: int | None = None

    @property
    def text(self) -> str:
        """The value, as far as it was not sent on."""
        return "".join(self._held)

    def read(self, types: Types) -> Generator[None, None, bool]:
        """False: the text ended inside the value."""
        if types.permits("object") or types.permits("array"):
            done = yield from self._json(types)
            if done is not None:
                return done
        while not (yield from self._step()):
            if self._source.ended and self._source.at == len(self._source.text):
                self._send()
                return False
        self._send()
        return True

    def _json(self, types: Types) -> Generator[None, None, bool | None]:
        """An object or array ends where its JSON ends, if the closing tag follows. None: it was something else."""
        source = self._source
        while not (lead := source.text[source.at :].lstrip(WHITESPACE)):
            if source.ended:
                return None
            yield
        kind = CONTAINERS.get(lead[0])
        if kind is None or not types.permits(kind):
            return None
        self._held.append(source.take(len(source.text) - source.at - len(lead)))
        scanner = JsonScanner()
        while scanner.state is Scan.OPEN:
            if source.at == len(source.text):
                if source.ended:
                    return False
                yield
            self._held.append(source.take(scanner.feed(source.text[source.at :])))
        if scanner.state is Scan.COMPLETE and _is_json(self.text):
            while (end := source.follows(source.at, PARAMETER_END)) is None:
                yield
            if end:
                source.at = source.text.index(PARAMETER_END, source.at) + len(PARAMETER_END)
                return True
        source.unread(self.text)
        self._held.clear()
        return None

    def _step(self) -> Generator[None, None, bool]:
        """Reads up to the next marker and past it; True: the value has ended."""
        source = self._source
        hit = self._markers.search(source.text, source.at)
        if hit is None:
            held = len(source.text) if source.ended else self._markers.held_from(source.text)
            self._keep(held - source.at)
            if not source.ended:
                yield
            return False
        self._keep(hit.start() - source.at)
        match hit.group():
            case "</parameter>":
                return (yield from self._closer())
            case "</invoke>":
                return (yield from self._invoke_end())
            case "<parameter":
                if hit.end() == len(source.text) and not source.ended:
                    yield
                self._depth += source.text[source.at + len(PARAMETER) :][:1] in tuple(WHITESPACE + ">")
            case "<minimax:tool_call>":
                self._wrappers += 1
            case _:
                self._wrappers = max(0, self._wrappers - 1)
        self._keep(len(hit.group()))
        return False

    def _keep(self, count: int) -> None:
        """Reads on; while the end is open to doubt, nothing is sent."""
        if count:
            self._held.append(self._source.take(count))
        if self._call and not self._depth and self._candidate is None:
            self._send(spare_newline=True)

    def _send(self, *, spare_newline: bool = False) -> None:
        """Sends what is held; one newline is spared, since a missing closing tag would make it layout."""
        if self._call is None or not self._held:
            return
        text = self.text
        spared = "\n" if spare_newline and text.endswith("\n") else ""
        text = text[: len(text) - len(spared)]
        self._held = [spared] if spared else []
        if text:
            self._call.send(self._call.arguments.string(text))

    def _closer(self) -> Generator[None, None, bool]:
        """Rules 1 and 2: a closer inside an open element belongs to it; one that structure follows is the end."""
        while (end := self._structure_follows()) is None:
            yield
        if end and not self._depth:
            self._source.take(len(PARAMETER_END))
            return True
        if end and self._candidate is None:
            self._candidate = len(self.text)
        self._depth = max(0, self._depth - 1)
        self._keep(len(PARAMETER_END))
        return False

    def _structure_follows(self) -> bool | None:
        """Whether another parameter, the end of the invoke or block, or the end of the text follows the closer."""
        source = self._source
        after = source.at + len(PARAMETER_END)
        if (plain := source.follows(after, INVOKE_END, CLOSE, INVOKE, PARAMETER)) is not True:
            return plain if not source.ended else plain or not source.text[after:].strip(WHITESPACE)
        place = source.past_gap(after)
        for head in (INVOKE, PARAMETER):
            if source.text.startswith(head, place):
                rest = source.text[place + len(head) : place + len(head) + LONGEST_GAP]
                return _continues(rest, parameter=head == PARAMETER, ended=source.ended)
        return True

    def _invoke_end(self) -> Generator[None, None, bool]:
        """Rule 3: an invoke's end and the block's end prove that the value ended before."""
        source = self._source
        while (end := source.follows(source.at + len(INVOKE_END), CLOSE)) is None:
            yield
        if not end or self._wrappers:
            self._keep(len(INVOKE_END))
            return False
        text = self.text
        if self._candidate is not None:
            source.unread(text[self._candidate + len(PARAMETER_END) :])
            text = text[: self._candidate]
        else:
            text = text.removesuffix("\n")
        self._held = [text]
        return True


_NAME_SO_FAR = re.compile(rf"[ \t\r\n]+(?:n(?:a(?:m(?:e{_WS})?)?)?)?")
_NAME = re.compile(rf"[ \t\r\n]+name{_WS}=")


def _continues(rest: str, *, parameter: bool, ended: bool) -> bool | None:
    """Whether "<invoke" or "<parameter" begins a tag here: white space (and a name attribute) must follow."""
    if not rest:
        return False if ended else None
    if not parameter:
        return rest[0] in WHITESPACE + ">"
    if _NAME.match(rest):
        return True
    return None if not ended and _NAME_SO_FAR.fullmatch(rest) else False


def _is_json(text: str) -> bool:
    try:
        read_json(text, strict=True)
    except ValueError:
        return False
    return True
