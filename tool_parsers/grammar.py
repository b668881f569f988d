"""What may be written next in a call: small grammars (llguidance's Lark), one for each place that a call passes.

One grammar over all orders of a tool's parameters would explode. A `CallGrammar` keeps the place instead: which tool,
which parameters are written, inside which value. At each place it gives a grammar from there to a little beyond the
next border, since tokens straddle borders; told what was written, it moves on.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tool_parsers.schema import Schema

Spell = Callable[[str], str]
"""How a marker is spelled in Lark: as a string, or as the token that it is."""

GAP = r"[ \t\r\n]{0,20}"
"""White space between tags, bounded: a model must not lose itself in it."""
ANY = r"/(?s:.*)/"


@dataclass(frozen=True, slots=True)
class Calls:
    """Which calls a reply may make: of which tools, and whether it must stop after one."""

    names: tuple[str, ...]
    single: bool = False


class Lark:
    """A grammar being written. Rules are named as they come."""

    def __init__(self) -> None:
        self._rules: list[str] = []
        self._names: dict[str, str] = {}

    def rule(self, body: str, attributes: str = "") -> str:
        """The name of a rule with this body."""
        key = attributes + body
        if key not in self._names:
            name = f"r{len(self._names)}"
            self._names[key] = name
            self._rules.append(f"{name}{attributes}: {body}")
        return self._names[key]

    def terminal(self, pattern: str, but: str) -> str:
        """The name of a terminal: what the one regular expression matches and the other does not."""
        key = f"{pattern} ~ {but}"
        if key not in self._names:
            name = self._names[key] = f"T{len(self._names)}"
            self._rules.append(f"{name}: /{pattern}/ & ~/{but}/")
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


def one_of(names: Iterable[str]) -> str:
    """One of several texts, as a part of a regular expression."""
    return "(" + "|".join(map(pattern, names)) + ")"


class CallGrammar(ABC):
    """Follows the calls of one reply.

    `text` is what was written since the last border, `made` counts whole calls. `over`: nothing is asked of what
    follows, until `begins` says that another call does.
    """

    trigger: ClassVar[str]
    """Without this in the text no call begins."""

    def __init__(self, tools: Sequence[Mapping[str, Any]], calls: Calls, spell: Spell) -> None:
        self.schemas = {name_of(tool): Schema.of_tool(tool) for tool in tools}
        self.calls = calls
        self.spell = spell
        self.text = ""
        self.made = 0
        self.over = False
        self.loose = False

    def loosen(self) -> None:
        """The tool at hand has a schema that no grammar can express: nothing is asked of its parameters."""
        self.loose = True

    @abstractmethod
    def begins(self, text: str, *, thinking: bool) -> bool | None:
        """Whether a call begins with the trigger that `text` begins with; None: more text must tell."""

    @abstractmethod
    def piece(self, prefix: str) -> str | None:
        """The grammar of what may follow, behind `prefix`, which was written before the border. None: anything."""

    def quotable(self, marker: str) -> bool:
        """Whether a marker that is a token of its own may be written here as text: no `piece` matches it."""
        return False

    def banned(self, marker: str) -> bool:
        """Whether such a marker may not be written here although there is no `piece`."""
        return False

    def quote(self, marker: str) -> None:
        """Such a marker was written. What follows begins anew, as behind a border."""
        raise AssertionError("nothing is quotable")

    def write(self, text: str) -> int | None:
        """More was written. If that passed a border: how much of `text` stands behind it, which is `self.text` now."""
        self.text += text
        moved = False
        while not self.over and (end := self._border()) is not None:
            self.text = self.text[end:]
            moved = True
        return len(self.text) if moved else None

    @abstractmethod
    def _border(self) -> int | None:
        """Where in `text` the next place begins, if it does; moves there."""


def name_of(tool: Mapping[str, Any]) -> str:
    """The function name of an OpenAI tool schema."""
    function = tool.get("function")
    name = (function if isinstance(function, Mapping) else tool).get("name")
    return name if isinstance(name, str) else ""
