"""From the raw text of a parameter and its schema to JSON text, and from parameters to an arguments object.

The rules and their reasons: a string is verbatim, a number keeps its spelling, a declared type decides, and
what does not fit its type goes through as a string, so that the tool complains and the model tries again.
"""

import re

from tool_parsers.json_text import escape, read_json, write_json, write_string
from tool_parsers.schema import Kind, Types

WHITESPACE = " \t\r\n"
CONTAINERS: dict[str, Kind] = {"{": "object", "[": "array"}

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LOOSE_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?([eE][+-]?[0-9]+)?")


def coerce(text: str, types: Types, *, undeclared_as_text: bool = False, python_none: bool = False) -> str:
    """The JSON text of a parameter's value.

    Args:
        text: the exact characters between the tags.
        types: what the schema permits; undeclared values take their natural JSON value.
        undeclared_as_text: undeclared values stay the text that they are.
        python_none: the format's template prints null as `None`.
    """
    if not types.declared and undeclared_as_text:
        return write_string(text)
    trimmed = text.strip(WHITESPACE)
    if types.permits("null") and (trimmed == "null" or (python_none and trimmed == "None")):
        return "null"
    container = CONTAINERS.get(trimmed[:1])
    if container and types.permits(container) and (value := _container(trimmed, container)) is not None:
        return value
    if not types.kinds:
        return trimmed if _NUMBER.fullmatch(trimmed) or trimmed in ("true", "false") else write_string(text)
    for kind in types.kinds:
        if (value := _scalar(text, trimmed, kind)) is not None:
            return value
    return _last_resort(text, trimmed, types)


def _container(trimmed: str, kind: Kind) -> str | None:
    try:
        value = read_json(trimmed)
        return write_json(value) if isinstance(value, dict if kind == "object" else list) else None
    except ValueError:
        return None


def _scalar(text: str, trimmed: str, kind: Kind) -> str | None:
    match kind:
        case "string":
            return write_string(text)
        case "integer" | "number":
            number = read_number(trimmed)
            return number if number and (kind == "number" or is_integral(number)) else None
        case "boolean":
            return {"true": "true", "false": "false", "1": "true", "0": "false"}.get(trimmed.lower())
    return None


def _last_resort(text: str, trimmed: str, types: Types) -> str:
    if "integer" in types.kinds and (number := read_number(trimmed)):
        return number
    if "null" in types.kinds and "string" not in types.kinds and trimmed == "None":
        return "null"
    if not trimmed:
        for kind, empty in (("array", "[]"), ("object", "{}"), ("null", "null")):
            if kind in types.kinds:
                return empty
        return '""'
    return write_string(text)


def read_number(trimmed: str) -> str | None:
    """A declared number's JSON spelling: its own, or the smallest repair (`+3`, `007`, `5.`, `.5`); else None."""
    if _NUMBER.fullmatch(trimmed):
        return trimmed
    loose = _LOOSE_NUMBER.fullmatch(trimmed)
    if loose is None or not (loose[2] or loose[4]):
        return None
    sign, whole, point, fraction, exponent = loose.groups("")
    return "".join(
        ("-" if sign == "-" else "", whole.lstrip("0") or "0", f".{fraction or '0'}" if point else "", exponent)
    )


def is_integral(number: str) -> bool:
    """Whether a JSON number is a whole one: its exponent covers its non-zero fraction digits (`5.0`, `1e3`)."""
    mantissa, _, exponent = number.lower().lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).strip("0")
    if not digits:
        return True
    # The power of ten of the last non-zero digit; exponents can have any number of digits themselves.
    trailing = len(whole + fraction) - len((whole + fraction).rstrip("0"))
    shift = trailing - len(fraction)
    if len(exponent) > 18:
        return not exponent.startswith("-")
    return shift + int(exponent or "0") >= 0


class ObjectWriter:
    """An arguments object, slice by slice: each method returns the JSON text to send next.

    A repeated key is dropped if its value equals the one last written, else written again: JSON readers take the last.
    """

    def __init__(self) -> None:
        self._written: dict[str, str] = {}
        self._open: list[str] | None = None
        self._key = ""

    def __contains__(self, key: str) -> bool:
        return key in self._written

    def _lead(self, key: str) -> str:
        return f"{',' if self._written else '{'}{write_string(key)}:"

    def member(self, key: str, json: str) -> str:
        """A whole member."""
        if self._written.get(key) == json:
            return ""
        lead = self._lead(key)
        self._written[key] = json
        return lead + json

    def open_string(self, key: str) -> str:
        """Begins a string member that is sent as it is written."""
        self._key, self._open = key, []
        return self._lead(key) + '"'

    def string(self, text: str) -> str:
        """The next piece of the open string."""
        assert self._open is not None
        piece = escape(text)
        self._open.append(piece)
        return piece

    def close_string(self) -> str:
        """Ends the open string."""
        assert self._open is not None
        self._written[self._key] = '"' + "".join(self._open) + '"'
        self._open = None
        return '"'

    def close(self) -> str:
        """Ends the object."""
        return "}" if self._written else "{}"
