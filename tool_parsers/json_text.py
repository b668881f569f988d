"""JSON that keeps what was written: number spellings, key order, non-ASCII text.

`json` alone cannot: floats lose `1.00` and 30 digits, `int()` refuses 4,301 digits. Numbers are read as
`Number`, a string, and written back as they were.
"""

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any


class Number(str):
    """A JSON number by its spelling."""

    __slots__ = ()


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_STRICT = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_refuse, strict=True)
_LENIENT = json.JSONDecoder(parse_float=Number, parse_int=Number, parse_constant=_refuse, strict=False)


def read_json(text: str, *, strict: bool = False) -> Any:
    """Reads one JSON value, numbers as `Number`. Repeated keys: the last value at the first position.

    Not strict means one thing: raw control characters may stand inside strings.

    Raises:
        ValueError: `text` is not JSON (NaN and Infinity are not), or is nested too deeply to read.
    """
    decoder = _STRICT if strict else _LENIENT
    try:
        return decoder.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


_encode_string = json.JSONEncoder(ensure_ascii=False).encode
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def write_string(text: str) -> str:
    """One JSON string: `\\n \\t \\r \\b \\f \\u00XX` for control characters, everything else as it is.

    A lone surrogate, which UTF-8 cannot carry, stays the escape that it was read from.
    """
    return without_surrogates(_encode_string(text))


def without_surrogates(text: str) -> str:
    """The text, lone surrogates as the escapes that they were read from."""
    return _LONE_SURROGATE.sub(lambda hit: f"\\u{ord(hit[0]):04x}", text)


def escape(text: str) -> str:
    """The inside of a JSON string; pieces escaped one by one join to the whole."""
    return write_string(text)[1:-1]


def write_json(value: Any, *, comma: str = ",", colon: str = ":") -> str:
    """Writes a value of `read_json`, compact by default; numbers in their own spelling.

    Raises:
        ValueError: nested too deeply to write.
    """
    out: list[str] = []
    try:
        _write(value, comma, colon, out)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return "".join(out)


def _write(value: Any, comma: str, colon: str, out: list[str]) -> None:
    if isinstance(value, Number):
        out.append(value)
    elif isinstance(value, str):
        out.append(write_string(value))
    elif isinstance(value, Mapping):
        separator = "{"
        for key, member in value.items():
            out += (separator, write_string(key if isinstance(key, str) else json.dumps(key)), colon)
            _write(member, comma, colon, out)
            separator = comma
        out.append("}" if separator == comma else "{}")
    elif isinstance(value, list | tuple):
        separator = "["
        for member in value:
            out.append(separator)
            _write(member, comma, colon, out)
            separator = comma
        out.append("]" if separator == comma else "[]")
    else:
        out.append(json.dumps(value, ensure_ascii=False, allow_nan=False))


class Scan(Enum):
    """Where a `JsonScanner` stands."""

    OPEN = 0
    COMPLETE = 1
    INVALID = 2


_PAIR = {"}": "{", "]": "["}
_STEP = re.compile(r'["{}\[\]]|[^\s,:0-9+\-.eEtrufalsn]')
_IN_STRING = re.compile(r'["\\\x00-\x1f]')
_QUOTE = re.compile(r'["\\]')


class JsonScanner:
    """Finds where an object, an array or a string ends, piece by piece, in time linear in the text.

    It checks what decides the end: brackets, strings, and that nothing else stands outside strings that JSON has
    no use for. Whether the text is JSON at all is for `read_json` to say.
    """

    def __init__(self, *, controls: bool = False) -> None:
        """`controls`: raw control characters may stand inside strings."""
        self.state = Scan.OPEN
        self._stack: list[str] = []
        self._in_string = False
        self._escaped = False
        self._stop = _QUOTE if controls else _IN_STRING

    def feed(self, text: str) -> int:
        """Reads on; returns how many characters belong to the value (less than all once it is complete or invalid)."""
        at = 0
        while at < len(text) and self.state is Scan.OPEN:
            at = self._string(text, at) if self._in_string else self._structure(text, at)
        return at

    def _string(self, text: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        hit = self._stop.search(text, at)
        if hit is None:
            return len(text)
        match hit.group():
            case '"':
                self._in_string = False
                if not self._stack:
                    self.state = Scan.COMPLETE
            case "\\":
                self._escaped = True
            case _:
                self.state = Scan.INVALID
                return hit.start()
        return hit.end()

    def _structure(self, text: str, at: int) -> int:
        hit = _STEP.search(text, at)
        if hit is None:
            return len(text)
        match hit.group():
            case '"':
                self._in_string = True
            case "{" | "[" as opener:
                self._stack.append(opener)
            case "}" | "]" as closer if self._stack and self._stack[-1] == _PAIR[closer]:
                self._stack.pop()
                if not self._stack:
                    self.state = Scan.COMPLETE
            case _:
                self.state = Scan.INVALID
                return hit.start()
        return hit.end()


class ControlEscaper:
    """Escapes raw control characters inside the strings of JSON text that comes in slices; the rest stays as it is."""

    _step = re.compile(r'"|\\|[\x00-\x1f]')

    def __init__(self) -> None:
        self._in_string = False
        self._escaped = False

    def feed(self, text: str) -> str:
        """The next slice, as JSON has it."""
        out: list[str] = []
        done = at = 0
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            hit = self._step.search(text, at)
            if hit is None:
                break
            at = hit.end()
            match hit.group():
                case '"':
                    self._in_string = not self._in_string
                case "\\":
                    self._escaped = self._in_string
                case control if self._in_string:
                    out += (text[done : hit.start()], escape(control))
                    done = at
        return "".join((*out, text[done:]))


class Members:
    """Finds where members of an object are whole, in JSON text that arrives in slices."""

    _step = re.compile(r'["{}\[\],]')
    _in_string = re.compile(r'["\\]')

    def __init__(self) -> None:
        self._depth = 0
        self._string = False
        self._escaped = False

    def feed(self, text: str) -> int:
        """Reads on; returns how many characters end with a whole member (0: what came before does; -1: none did)."""
        at, whole = 0, -1
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            hit = (self._in_string if self._string else self._step).search(text, at)
            if hit is None:
                break
            at = hit.end()
            match hit.group():
                case '"':
                    self._string = not self._string
                case "\\":
                    self._escaped = True
                case "{" | "[":
                    self._depth += 1
                case "," if self._depth > 1:
                    continue
                case ",":
                    whole = hit.start()
                case _:
                    self._depth -= 1
                    whole = at if not self._depth else whole
        return whole
