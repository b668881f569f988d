"""What a JSON Schema permits, as far as reading a value needs to know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from tool_parsers.json_text import Number

Kind = Literal["string", "integer", "number", "boolean", "object", "array", "null"]

_ALIASES: dict[str, Kind] = {
    "string": "string", "str": "string", "text": "string",
    "integer": "integer", "int": "integer",
    "number": "number", "float": "number", "double": "number",
    "boolean": "boolean", "bool": "boolean",
    "object": "object", "dict": "object", "map": "object",
    "array": "array", "list": "array", "tuple": "array",
    "null": "null", "none": "null",
}  # fmt: skip
_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Types:
    """The kinds that a value may have, in the order in which the schema declares them.

    `declared` False: the schema knows nothing of this value. No kinds at all: any kind will do.
    """

    kinds: tuple[Kind, ...] = ()
    declared: bool = True

    def permits(self, kind: Kind) -> bool:
        """Whether a value of this kind fits; undeclared and untyped values fit everything."""
        return not self.kinds or kind in self.kinds

    @property
    def only_string(self) -> bool:
        """The value can be sent on while it is being written."""
        return self.kinds == ("string",)


class Schema:
    """A view of one or several alternative schemas inside a document (`root`, for local `$ref`)."""

    __slots__ = ("_nodes", "_root", "_types")

    def __init__(self, nodes: Sequence[Any], root: Any) -> None:
        """`nodes` empty: not declared."""
        self._nodes = nodes
        self._root = root
        self._types: Types | None = None

    @classmethod
    def of_tool(cls, tool: Mapping[str, Any]) -> Schema:
        """The schema of a tool's arguments object."""
        function = tool.get("function")
        parameters = (function if isinstance(function, Mapping) else tool).get("parameters")
        return cls([parameters] if isinstance(parameters, Mapping) else [], parameters)

    @property
    def nodes(self) -> Sequence[Any]:
        """The alternatives."""
        return self._nodes

    @property
    def root(self) -> Any:
        """The document that references lead into."""
        return self._root

    def resolve(self, node: Mapping[str, Any]) -> Schema:
        """What a node's `$ref` refers to."""
        return self._alternatives([self._resolve(node.get("$ref"))])

    @property
    def members(self) -> dict[str, bool]:
        """The declared members, in order; whether each is required."""
        branches = self._branches()
        names = [key for members in _mappings(branches, "properties") for key in members]
        required = {key for node in self._nodes for key in _required(node)}
        return {key: key in required for key in dict.fromkeys([*names, *sorted(required)])}

    @property
    def open(self) -> bool:
        """Members of any name are welcome."""
        branches = self._branches()
        more = [branch["additionalProperties"] for branch in branches if "additionalProperties" in branch]
        if more:
            return any(node is True or isinstance(node, Mapping) for node in more)
        return not any("properties" in branch for branch in branches)

    @property
    def types(self) -> Types:
        """The kinds of all alternatives."""
        if self._types is None:
            known: dict[int, list[Kind]] = {}
            kinds = dict.fromkeys(kind for node in self._nodes for kind in self._kinds(node, _DEPTH, known))
            self._types = Types(tuple(kinds), declared=bool(self._nodes))
        return self._types

    def property(self, key: str) -> Schema:
        """The schema of a member: its declarations in all branches, else what additional members may be."""
        branches = self._branches()
        found = [members[key] for members in _mappings(branches, "properties") if key in members]
        if not found:
            found = [
                branch["additionalProperties"] for branch in branches if _is_schema(branch, "additionalProperties")
            ]
        return self._alternatives(found)

    def declares(self, key: str) -> bool:
        """Whether a member of this name is declared by name."""
        return any(key in members for members in _mappings(self._branches(), "properties"))

    def item(self, index: int) -> Schema:
        """The schema of an array's element: by position (`prefixItems`, or an older list in `items`), else `items`."""
        found: list[Any] = []
        for branch in self._branches():
            prefix = branch.get("prefixItems", branch.get("items"))
            if isinstance(prefix, list) and index < len(prefix):
                found.append(prefix[index])
            elif _is_schema(branch, "items"):
                found.append(branch["items"])
        return self._alternatives(found)

    def _alternatives(self, nodes: list[Any]) -> Schema:
        """Each once: the branches of a recursive schema would double with every step into it."""
        return Schema(list({id(node): node for node in nodes}.values()), self._root)

    def _branches(self) -> list[Mapping[str, Any]]:
        """The nodes and, inside them, every alternative and reference, each once."""
        found: dict[int, Mapping[str, Any]] = {}
        for node in self._nodes:
            self._collect(node, _DEPTH, found)
        return list(found.values())

    def _collect(self, node: Any, depth: int, found: dict[int, Mapping[str, Any]]) -> None:
        if not isinstance(node, Mapping) or depth == 0 or id(node) in found:
            return
        found[id(node)] = node
        if "$ref" in node:
            self._collect(self._resolve(node["$ref"]), depth - 1, found)
        for word in ("anyOf", "oneOf", "allOf"):
            members = node.get(word)
            for member in members if isinstance(members, list) else ():
                self._collect(member, depth - 1, found)

    def _kinds(self, node: Any, depth: int, known: dict[int, list[Kind]]) -> list[Kind]:
        """`known`: what was found for a node; nothing yet, while it is inside itself."""
        if not isinstance(node, Mapping) or depth == 0:
            return []
        if id(node) not in known:
            known[id(node)] = []
            known[id(node)] = list(dict.fromkeys(self._own_kinds(node, depth, known)))
        return known[id(node)]

    def _own_kinds(self, node: Mapping[str, Any], depth: int, known: dict[int, list[Kind]]) -> list[Kind]:
        found: list[Kind] = []
        if "$ref" in node:
            found += self._kinds(self._resolve(node["$ref"]), depth - 1, known)
        named = node.get("type")
        names = named if isinstance(named, list) else [named]
        own = [_ALIASES[name.lower()] for name in names if isinstance(name, str) and name.lower() in _ALIASES]
        found += own
        for word in ("anyOf", "oneOf", "allOf"):
            members = node.get(word)
            for member in members if isinstance(members, list) else ():
                found += self._kinds(member, depth - 1, known)
        if not own:
            found += _implied(node)
        if found and node.get("nullable") is True:
            found.append("null")
        return found

    def _resolve(self, reference: Any) -> Any:
        """Follows a local reference: a fragment, percent-decoded as UTF-8, then a JSON pointer (RFC 6901)."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        node = self._root
        pointer = unquote(reference[1:])
        if pointer and not pointer.startswith("/"):
            return None  # the name of an `$anchor`
        for step in pointer.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, Mapping) and step in node:
                node = node[step]
            elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
                node = node[int(step)]
            else:
                return None
        return node


def _implied(node: Mapping[str, Any]) -> Iterator[Kind]:
    """The kinds of a schema that names no type: those of its `enum` or `const`, else of its keywords."""
    members = list(node["enum"]) if isinstance(node.get("enum"), list) else []
    if "const" in node:
        members.append(node["const"])
    if members:
        yield from (_kind_of(member) for member in members)
        return
    if "properties" in node:
        yield "object"
    if "items" in node or "prefixItems" in node:
        yield "array"


def _kind_of(value: Any) -> Kind:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            # A schema read by `read_json` has its numbers as `Number`, a str.
            if not isinstance(value, Number):
                return "string"
            return "number" if set(value) & set(".eE") else "integer"
        case Mapping():
            return "object"
        case _:
            return "array"


def _is_schema(node: Mapping[str, Any], key: str) -> bool:
    return isinstance(node.get(key), Mapping)


def _mappings(branches: Iterable[Mapping[str, Any]], key: str) -> Iterator[Mapping[str, Any]]:
    return (branch[key] for branch in branches if isinstance(branch.get(key), Mapping))


def _required(node: Any) -> Iterator[str]:
    """The members that every value has, as far as the node and its `allOf` say."""
    if isinstance(node, Mapping):
        named = node.get("required")
        yield from (key for key in named if isinstance(key, str)) if isinstance(named, list) else ()
        members = node.get("allOf")
        for member in members if isinstance(members, list) else ():
            yield from _required(member)
