"""What may be written next in a call: small grammars, one for each place that a call passes.

One grammar over all orders of a tool's parameters would explode. A `CallGrammar` keeps the place instead: which tool,
which parameters are written, inside which value. At each place it gives a grammar from there to a little beyond the
next border, since tokens straddle borders; told what was written, it moves on.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tool_parsers.grammar_nodes import Node, arguments_of
from tool_parsers.grammar_schema import held
from tool_parsers.schema import Schema

Spell = Callable[[str], str]
"""How a marker is spelled in Lark: as a string, or as the token that it is."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Which calls a reply may make: of which tools, and whether it must stop after one."""

    names: tuple[str, ...]
    single: bool = False


class CallGrammar(ABC):
    """Follows the calls of one reply.

    `text` is what was written since the last border, `made` counts whole calls. `over`: nothing is asked of what
    follows, until `begins` says that another call does. `loose`: nothing is asked of the arguments at hand. `free`
    counts the calls that were begun and are not held to the whole of their schema; `why` is said of the last one.
    """

    trigger: ClassVar[str]
    """Without this in the text no call begins."""

    def __init__(self, tools: Sequence[Mapping[str, Any]], calls: Calls, spell: Spell) -> None:
        schemas = {name_of(tool): held(parameters_of(tool)) for tool in tools}
        self.schemas = {name: Schema([] if node is None else [node], node) for name, (node, _) in schemas.items()}
        self._lost = {name: lost for name, (_, lost) in schemas.items()}
        self.calls = calls
        self.spell = spell
        self.text = ""
        self.made = 0
        self.over = False
        self.loose = False
        self.free = 0
        self.why = ""
        self._name = ""
        self._counted = False

    def arguments(self, name: str) -> Node:
        """The arguments of a call of a tool, before anything of them is written."""
        try:
            return arguments_of(self.schemas.get(name, Schema([], None)))
        except ValueError:
            return anything()

    def _opens(self, name: str) -> Node:
        """The header of a call of `name` was read."""
        self.loose = self._counted = False
        self._name = name
        if lost := self._lost.get(name):
            self._count(f"{', '.join(lost)} cannot be held")
        arguments = self.arguments(name)
        if arguments.free:
            self.loosen("its schema has no grammar")
        return arguments

    def loosen(self, why: str) -> None:
        """The tool at hand has a schema that no grammar can express: nothing is asked of its parameters."""
        self.loose = True
        self._count(why)

    def _count(self, why: str) -> None:
        self.free += not self._counted
        self._counted = True
        self.why = f"{self._name}: {why}"

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


def anything() -> Node:
    """Arguments, or a value, of which nothing is asked."""
    return Node("", Schema([], None), free=True)


def name_of(tool: Mapping[str, Any]) -> str:
    """The function name of an OpenAI tool schema."""
    name = _function(tool).get("name")
    return name if isinstance(name, str) else ""


def parameters_of(tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The schema of an OpenAI tool's arguments, if it has one."""
    parameters = _function(tool).get("parameters")
    return parameters if isinstance(parameters, Mapping) else None


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    return function if isinstance(function, Mapping) else tool
