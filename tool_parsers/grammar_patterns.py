"""JSON Schema's `pattern` (ECMAScript's regular expressions) for llguidance: searched for anywhere, so written out."""

import re

from tool_parsers.lark import pattern

_TOKEN = re.compile(
    r"(?P<escape>\\(?:u\{?[0-9a-fA-F]{4,6}\}?|x\{[0-9a-fA-F]+\}|x[0-9a-fA-F]{2}|[pP]\{[^}]*\}|.))"
    r"|(?P<quantifier>(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??)"
    r"|(?P<open>\((?:\?:)?(?!\?))|(?P<set>\[\^?)|(?P<other>.)",
    re.DOTALL,
)
_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_"}
_KEPT = frozenset("nrtfvsSDW")
_ANYTHING = r"[\s\S]*"
_SPECIAL_IN_SETS = frozenset("[]^-&~\\")


def searched(text: str) -> str:
    """The same pattern, written as one that matches a whole text: `^(...)$`. Written again it means the same.

    Raises:
        ValueError: it looks around, or back, or anchors in its middle.
    """
    return f"^({'|'.join(map(_whole, _Reader(text).branches()))})$"


def _whole(branch: str) -> str:
    begins, ends = branch.startswith("^"), branch.endswith("$")
    return f"{'' if begins else _ANYTHING}{branch.removeprefix('^').removesuffix('$')}{'' if ends else _ANYTHING}"


class _Reader:
    """Translates piece by piece. An anchor is a bare `^` or `$`: the character itself comes out escaped."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def branches(self) -> list[str]:
        """The alternatives outside groups."""
        found: list[list[str]] = [[]]
        while hit := _TOKEN.match(self._text, self._at):
            self._at = hit.end()
            if hit[0] == "|" and not self._depth:
                found.append([])
            else:
                found[-1].append(self._piece(hit, first=not found[-1]))
        return ["".join(branch) for branch in found]

    def _piece(self, hit: re.Match[str], *, first: bool) -> str:
        match hit.lastgroup:
            case "escape":
                return self._escape(hit[0][1:], in_set=False)
            case "quantifier":
                return hit[0] if len(hit[0]) == 1 else hit[0].removesuffix("?")
            case "open":
                self._depth += 1
                return "("
            case "set":
                return self._set(hit[0])
        match hit[0]:
            case "(":
                raise self._refused
            case ")":
                self._depth -= 1
                return ")"
            case "^" | "$":
                at_end = self._at == len(self._text) or self._text[self._at] == "|"
                if self._depth or not (first if hit[0] == "^" else at_end):
                    raise self._refused
                return hit[0]
            case "." | "|":
                return hit[0]
        return _character(hit[0])

    def _set(self, opening: str) -> str:
        parts = [opening]
        while hit := _TOKEN.match(self._text, self._at):
            self._at += 1
            if hit[0] == "]":
                return "".join([*parts, "]"])
            if hit.lastgroup == "escape":
                self._at = hit.end()
                parts.append(self._escape(hit[0][1:], in_set=True))
            else:
                character = self._text[self._at - 1]
                parts.append(f"\\{character}" if character in "[&~" else _character(character, bare="-^"))
        raise self._refused

    def _escape(self, name: str, *, in_set: bool) -> str:
        if name in _CLASSES:
            return _CLASSES[name] if in_set else f"[{_CLASSES[name]}]"
        if name in _KEPT or (name[0] in "pP" and len(name) > 1):
            return f"\\{name}"
        if name[0] in "ux" and len(name) > 1:
            return f"\\x{{{name[1:].strip('{}')}}}"
        if name.isalnum():
            raise self._refused
        return f"\\{name}" if in_set and name in _SPECIAL_IN_SETS else _character(name)

    @property
    def _refused(self) -> ValueError:
        return ValueError(f"pattern {self._text!r} has no grammar")


def _character(text: str, bare: str = "") -> str:
    return text if text in bare else pattern(text)
