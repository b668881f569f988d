"""The input of a custom tool, out of the arguments of the one-string function that the model is offered for it."""

import json
import re
from typing import Any

from tool_parsers.json_text import Number, read_json, write_json

PARAMETER = "input"
"""The function's one parameter."""

_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_LONGEST_HEAD = 64
_HIGH = r"u[dD][89abAB][0-9a-fA-F]{2}"
_LOW = r"u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = rf"\\(?:[^u]|u(?:[0-9a-cA-CefEF][0-9a-fA-F]|[dD][0-7])[0-9a-fA-F]{{2}}|{_HIGH}\\{_LOW}|{_LOW})"
_LONE = rf"\\{_HIGH}(?=[^\\]|\\(?:[^u]|u(?:[^dD]|[dD][^c-fC-F])))"
_DECIDED = re.compile(rf'(?:[^"\\]++|{_ESCAPE}|{_LONE})*')
"""What of a string's inside can be read whatever follows."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class CustomInput:
    """Takes slices of a call's arguments, gives the text of the input as it comes.

    Arguments that do not begin with the input are taken whole: their input if they have one, else all of it.
    """

    def __init__(self) -> None:
        self._held = ""
        self._in_value = False
        self._whole: list[str] | None = None
        self._done = False

    def feed(self, json_slice: str) -> str:
        """The text that this slice adds."""
        if self._done:
            return ""
        if self._whole is not None:
            self._whole.append(json_slice)
            return ""
        self._held += json_slice
        if not self._in_value:
            head = _HEAD.match(self._held)
            if head is None:
                if len(self._held) > _LONGEST_HEAD:
                    self._whole, self._held = [self._held], ""
                return ""
            self._in_value, self._held = True, self._held[head.end() :]
        decided = _DECIDED.match(self._held)
        assert decided is not None
        rest = self._held[decided.end() :]
        self._done = rest.startswith('"')
        self._held = rest
        return _text(json.loads(f'"{decided.group()}"', strict=False))

    def finish(self) -> str:
        """The call has ended: the rest."""
        if self._in_value:
            return ""
        text = "".join(self._whole or ()) + self._held
        arguments: Any = read_json(text)
        value = arguments.get(PARAMETER)
        return _text(value if isinstance(value, str) and not isinstance(value, Number) else write_json(arguments))


def _text(value: str) -> str:
    """Half a pair is no text."""
    return _SURROGATE.sub("\ufffd", value)
