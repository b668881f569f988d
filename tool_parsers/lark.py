"""Small grammars in llguidance's Lark: how they are written."""

import json
import re
from collections.abc import Iterable

GAP = r"[ \t\r\n]{0,20}"
"""White space between tags, bounded: a model must not lose itself in it."""
ANY_TEXT = r"(?s:.*)"
ANY = f"/{ANY_TEXT}/"


class Lark:
    """A grammar being written. Rules are named as they come."""

    def __init__(self) -> None:
        self._rules: list[str] = []
        self._names: dict[str, str] = {}

    def rule(self, body: str, attributes: str = "") -> str:
        """The name of a rule with this body."""
        return self._named("r", body, attributes)

    def terminal(self, body: str) -> str:
        """The name of a terminal with this body, in which `&` is both and `~` is not."""
        return self._named("T", body)

    def _named(self, letter: str, body: str, attributes: str = "") -> str:
        key = letter + attributes + body
        if key not in self._names:
            name = self._names[key] = f"{letter}{len(self._names)}"
            self._rules.append(f"{name}{attributes}: {body}")
        return self._names[key]

    def text(self, start: str) -> str:
        """The whole grammar."""
        return "\n".join(["%llguidance {}", f"start: {start}", *self._rules, ""])


def literal(text: str) -> str:
    """Text as a Lark string."""
    return json.dumps(text, ensure_ascii=False)


def pattern(text: str) -> str:
    """Text as a part of a regular expression between slashes."""
    escaped = re.sub(r"([\\.^$*+?{}\[\]|()/])", r"\\\1", text)
    return escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def one_of(texts: Iterable[str]) -> str:
    """One of several texts, as a part of a regular expression."""
    return "(" + "|".join(map(pattern, texts)) + ")"


def but(pattern: str, other: str) -> str:
    """What the one regular expression matches and the other does not, as the body of a terminal."""
    return f"/{pattern}/ & ~/{other}/"
