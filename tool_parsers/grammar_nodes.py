"""What an object or a list of a call may still become, while its members are being written."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tool_parsers.arguments import coerce
from tool_parsers.grammar_values import Plain, alternatives, is_free_text, kinds_of, listed
from tool_parsers.json_text import write_json
from tool_parsers.schema import Kind, Schema

_ITEM = "item"


@dataclass(slots=True, eq=False)
class Node:
    """An element that is open; the arguments of a call are one without a tag.

    `plains` are the alternatives that what was written still fits; `free`: any value will do.
    """

    key: str
    schema: Schema
    plains: list[Plain] = field(default_factory=list)
    free: bool = False
    done: set[str] = field(default_factory=set)
    items: int = 0
    kind: Kind | None = None
    """What it is, once it has a child."""

    def of(self, kind: Kind) -> list[Plain]:
        """The alternatives of a kind."""
        return [plain for plain in self.plains if kind in kinds_of(plain, self.schema.root)]

    def children(self) -> Iterator[tuple[str, "Node"]]:
        """The names of the children that may come next, and what each then is."""
        if self.kind != "array":
            names = dict.fromkeys(name for plain in self.of("object") for name in properties_of(plain))
            yield from ((name, self.child(name)) for name in names if name not in self.done)
        if self.kind != "object" and any(
            self.items < plain.get("maxItems", self.items + 1) for plain in self.of("array")
        ):
            yield _ITEM, self.child(_ITEM)

    @property
    def welcomes_others(self) -> bool:
        """Whether a child may have a name that is not declared."""
        return self.kind != "array" and any(is_open(plain) for plain in self.of("object"))

    def child(self, name: str) -> "Node":
        """A child of that name. Raises `ValueError` for a schema without a grammar."""
        if self.free:
            return Node(name, Schema([], None), free=True)
        objects = self.of("object") if self.kind != "array" else []
        nodes = [properties_of(plain)[name] for plain in objects if name in properties_of(plain)]
        if not nodes and any(map(is_open, objects)):
            more = [plain.get("additionalProperties", True) for plain in objects if is_open(plain)]
            nodes = [node if isinstance(node, Mapping) else {} for node in more]
        if not nodes:
            found = [Schema([plain], self.schema.root).item(self.items) for plain in self.of("array")]
            nodes = [node for schema in found for node in schema.nodes]
        return opened(name, Schema(nodes, self.schema.root))

    def enter(self, name: str) -> None:
        """A child of that name has begun."""
        if self.free:
            return
        if self.kind is None:
            mine = any(name in properties_of(plain) or is_open(plain) for plain in self.of("object"))
            self.kind = "object" if mine else "array"
        self.plains = self.of(self.kind)
        if self.kind == "array":
            self.items += 1
            return
        self.done.add(name)
        self.plains = [plain for plain in self.plains if name in properties_of(plain) or is_open(plain)]

    def without(self, name: str) -> "Node":
        """What this would be behind a child of that name."""
        after = replace(self, done=set(self.done))
        after.enter(name)
        return after

    def leave(self, child: "Node", value: str) -> None:
        """A child has ended; `value` is its JSON. Alternatives of which it is no value are out."""
        if child.kind is None and self.kind == "object":
            self.plains = [plain for plain in self.plains if self._may_be(plain, child.key, value)] or self.plains

    def _may_be(self, plain: Plain, name: str, value: str) -> bool:
        if name not in properties_of(plain):
            return True
        lists = [listed(one) for one in alternatives(Schema([properties_of(plain)[name]], self.schema.root))]
        return not lists or any(one is None or value in map(write_json, one) for one in lists)

    @property
    def complete(self) -> bool:
        """Whether it may end behind its children."""
        if self.free:
            return True
        whole = any(self.done.issuperset(plain.get("required", ())) for plain in self.of("object"))
        enough = any(self.items >= plain.get("minItems", 0) for plain in self.of("array"))
        return (whole and self.kind != "array") or (enough and self.kind != "object")

    @property
    def may_be_empty(self) -> bool:
        """Whether no text and no children are a value."""
        match coerce("", self.schema.types):
            case "[]":
                return any(not plain.get("minItems") for plain in self.of("array"))
            case "{}":
                return any(not plain.get("required") for plain in self.of("object"))
            case value:
                return value == "null"

    @property
    def takes_text(self) -> bool:
        """Whether it may be any text."""
        return self.free or any(
            is_free_text(plain) and "string" in kinds_of(plain, self.schema.root) for plain in self.plains
        )

    @property
    def nests(self) -> bool:
        return self.free or bool(self.of("object") or self.of("array"))


def opened(name: str, schema: Schema) -> Node:
    """An element that begins. Raises `ValueError` for a schema without a grammar."""
    plains = alternatives(schema)
    free = not plains or any(not kinds_of(plain, schema.root) and listed(plain) is None for plain in plains)
    return Node(name, schema, plains, free)


def arguments_of(schema: Schema) -> Node:
    """The arguments of a call. Raises `ValueError` for a schema without a grammar."""
    plains: list[Plain] = [{"type": "object", **plain} for plain in alternatives(schema) or [{}]]
    return Node("", schema, plains, kind="object")


def properties_of(plain: Plain) -> Mapping[str, Any]:
    """The declared members by name, those that only `required` names too."""
    found = plain.get("properties")
    named = dict.fromkeys(plain.get("required", ()), True)
    return {**named, **found} if isinstance(found, Mapping) else named


def is_open(plain: Plain) -> bool:
    """Whether members of any name are welcome."""
    more = plain.get("additionalProperties")
    return more is True or isinstance(more, Mapping) or (more is None and "properties" not in plain)
