"""What the formats share whose arguments are JSON already: the model's own text is passed on as it comes.

Only two things are ever changed: raw control characters inside strings, which JSON forbids, are escaped, and an
object that came as a JSON string is taken out of it.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Generator
from typing import Any, ClassVar

from tool_parsers.arguments import WHITESPACE
from tool_parsers.base import Call, Grammar
from tool_parsers.blocks import LONGEST_HEADER, BlockParser
from tool_parsers.events import BlockStart, CallEnd, Malformed
from tool_parsers.json_text import ControlEscaper, JsonScanner, Scan, read_json, without_surrogates
from tool_parsers.scan import Markers

_SCALAR = re.compile(r"[-+.\w]*")


class JsonCall(Call):
    """A call whose slices are the model's own JSON text."""

    def end(self) -> None:
        self._events.append(CallEnd(self._index))


class JsonParser(BlockParser):
    """Reads JSON out of calls."""

    def _start(self, name: str, id: str | None = None) -> JsonCall:
        call = JsonCall(self._events, self._calls, name, id)
        self._calls += 1
        return call

    def _arguments(self, send: Callable[[str], None], *ends: str) -> Generator[None, None, bool]:
        """Reads and sends an arguments object; none (one of `ends` stands there) is an empty one.

        False: it is no object, or the text ended in it.
        """
        match (yield from self._skip_gap()):
            case "{":
                return (yield from self._json(send)) is not None
            case '"':
                text = yield from self._json(lambda piece: None)
                inner = None if text is None else unwrapped(text)
                send(inner or "")
                return inner is not None
            case "":
                return False
        if (yield from self._at("null")):
            self._source.take(len("null"))
        elif not ends or not (yield from self._at(*ends)):
            return False
        send("{}")
        return True

    def _json(self, send: Callable[[str], None]) -> Generator[None, None, str | None]:
        """Reads the object, array or string that stands next, and sends it piece by piece; None: it is not JSON."""
        source = self._source
        scanner, escaper = JsonScanner(controls=True), ControlEscaper()
        pieces: list[str] = []
        while scanner.state is Scan.OPEN:
            if source.at == len(source.text):
                if source.ended:
                    return None
                yield
            pieces.append(escaper.feed(source.take(scanner.feed(source.text[source.at :]))))
            send(pieces[-1])
        text = "".join(pieces)
        return text if scanner.state is Scan.COMPLETE and parsed(text) is not None else None

    def _scalar(self) -> Generator[None, None, str | None]:
        """Reads past a number or a word; None: there is none."""
        source = self._source
        while True:
            word = _SCALAR.match(source.text, source.at)
            assert word is not None
            if word.end() < len(source.text) or source.ended:
                return source.take(len(word[0])) or None
            if len(word[0]) > LONGEST_HEADER:
                return None
            yield

    def _drop_brackets(self) -> Grammar:
        """Brackets that close more than was open."""
        while (yield from self._at("}", "]")):
            self._source.at = self._source.past_gap(self._source.at) + 1


class SectionParser(JsonParser):
    """A section of calls: `SECTION { CALL header ARGUMENTS json CALL_END } SECTION_END`, each a token of its own.

    A call outside a section is a call too.
    """

    section: ClassVar[str]
    section_end: ClassVar[str]
    call: ClassVar[str]
    arguments: ClassVar[str]
    call_end: ClassVar[str]

    @abstractmethod
    def _named(self, header: str) -> Generator[None, None, tuple[str, str | None]]:
        """The name and the id that a header gives; "" is no name."""

    def _structure(self, marker: str) -> Grammar:
        if marker == self.section:
            yield from self._block(marker)
        elif marker == self.call:
            self._events.append(BlockStart())
            yield from self._call()
            self._end_block()
        elif marker == self.section_end:
            self._stray_closer(marker)
        else:
            self._drop(marker)

    def _block_body(self) -> Grammar:
        markers = Markers((*self.markers, *self._escapes))
        while marker := (yield from self._until(markers, partial_is_text=False)):
            if marker in self._escapes:
                self._hand_back()
                yield
            elif marker == self.section_end:
                self._source.take(len(marker))
                return
            elif marker == self.call:
                yield from self._call()
            else:
                self._drop(marker)

    def _call(self) -> Grammar:
        """One call; at the place of reading stands its opener."""
        self._source.take(len(self.call))
        header = yield from self._header()
        if header is None:
            return
        if self._source.starts_with(self.arguments):
            self._source.take(len(self.arguments))
        name, id = yield from self._named(header)
        if name:
            call = self._start(name, id)
            if (yield from self._body(call)):
                call.end()
                yield from self._drop_brackets()
            else:
                call.abort("the text ended inside a call" if self._source.ended else "arguments that are no object")
                yield from self._discard_until(Markers((self.call, self.call_end, self.section_end)))
        else:
            length = yield from self._discard_until(Markers((self.call, self.call_end, self.section_end)))
            self._events.append(Malformed("call without a name", length))
        if (yield from self._at(self.call_end)):
            self._source.at = self._source.past_gap(self._source.at) + len(self.call_end)

    def _header(self) -> Generator[None, None, str | None]:
        """What stands before the arguments, or before the end of a call without any; None: no header."""
        source, markers = self._source, Markers(self.markers)
        while (hit := markers.search(source.text, source.at)) is None:
            unread = len(source.text) - source.at
            if source.ended:
                source.rest()
            if source.ended or unread > LONGEST_HEADER:
                self._events.append(Malformed("call cut short", unread))
                return None
            yield
        header = source.take(hit.start() - source.at)
        if hit.group() in (self.arguments, self.call_end):
            return header
        self._events.append(Malformed("call without arguments", len(header)))
        return None

    def _body(self, call: JsonCall, *ends: str) -> Generator[None, None, bool]:
        """The arguments, which are missing where one of `ends` or the call's end stands."""
        return (yield from self._arguments(call.send, *ends, self.call_end, self.call, self.section_end))


def parsed(text: str) -> Any:
    """The value of JSON text; None: it is `null`, or no JSON."""
    try:
        return read_json(text, strict=True)
    except ValueError:
        return None


def unwrapped(text: str) -> str | None:
    """The text of the JSON object inside a JSON string; an empty string stands for an empty object."""
    inner = parsed(text)
    assert isinstance(inner, str)
    inner = ControlEscaper().feed(without_surrogates(inner).strip(WHITESPACE)) or "{}"
    return inner if isinstance(parsed(inner), dict) else None
