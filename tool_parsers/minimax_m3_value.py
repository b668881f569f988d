"""What an M3 element's text and children mean: typed JSON, and when a parameter of a call may leave.

Lists and mappings are written as child elements, and nothing but the schema tells an empty list from an empty
string, or a list of one from a mapping. So an element is read as a tree first and typed when it is whole.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

from tool_parsers.arguments import WHITESPACE, coerce
from tool_parsers.base import Call
from tool_parsers.json_text import write_string
from tool_parsers.schema import Schema, Types

STREAM_FROM = 256
"""A string this long is not one of several short ones that make a list: it leaves as it is written."""

Value = str | list[Any] | dict[str, Any]
"""JSON: text as it is, or a list or a mapping of values."""

_ITEM = "item"
_TEXT = "$text"
_DEEPEST_WRAP = 16


@dataclass(slots=True)
class Element:
    """An element as it was written: text and children in order. `schema` is the best guess while it is open."""

    key: str
    schema: Schema
    _parts: "list[list[str] | Element]" = field(default_factory=list)
    _children: int = 0
    _only_items: bool = True

    @property
    def is_leaf(self) -> bool:
        return not self._children

    @property
    def only_items(self) -> bool:
        """All children are called as a list's elements are."""
        return self._only_items

    def add_text(self, text: str) -> None:
        """More text; what was dropped between two texts does not divide them."""
        if self._parts and isinstance(self._parts[-1], list):
            self._parts[-1].append(text)
        else:
            self._parts.append([text])

    def add_child(self, child: "Element") -> None:
        self._parts.append(child)
        self._children += 1
        self._only_items = self._only_items and child.key == _ITEM

    @property
    def text(self) -> str:
        """The text, children left out."""
        return "".join(piece for part in self._parts if isinstance(part, list) for piece in part)

    def parts(self) -> "Iterable[str | Element]":
        """Children, and what text there is between them that is not blank."""
        for part in self._parts:
            if isinstance(part, Element):
                yield part
            elif (text := "".join(part)).strip(WHITESPACE):
                yield text

    def child_schema(self, key: str) -> Schema:
        """The schema of a child that begins now."""
        as_list = _is_list(self.schema.types, only_items=self._only_items and key == _ITEM)
        return self.schema.item(self._children) if as_list else self.schema.property(key)

    def may_have(self, key: str) -> bool:
        """Whether a child of this name can be meant, rather than markup of the same name."""
        return self.schema.types.permits("object") or self.schema.declares(key)


def _is_list(types: Types, *, only_items: bool) -> bool:
    """Whether an element with children is a list: the schema decides; where it does not, the children's names do."""
    array, mapping = types.permits("array"), types.permits("object")
    return only_items if array == mapping else array


_Reading = Generator[tuple[Element, Schema], Value, Value]


def value_of(element: Element, schema: Schema) -> Value:
    """An element's value. Its depth is the model's: no recursion."""
    stack = [_read(element, schema)]
    result: Value | None = None
    while True:
        try:
            # A generator's first value must be None.
            child = stack[-1].send(result)  # type: ignore[arg-type]
        except StopIteration as done:
            stack.pop()
            result = done.value
            if not stack:
                return done.value  # type: ignore[no-any-return]
        else:
            stack.append(_read(*child))
            result = None


def _read(element: Element, schema: Schema) -> _Reading:
    """Asks for the values of children by yielding them."""
    if element.is_leaf:
        return _leaf(element.text, schema)
    if _is_list(schema.types, only_items=element.only_items):
        items: list[Value] = []
        for part in element.parts():
            own = schema.item(len(items))
            items.append(_leaf(part, own) if isinstance(part, str) else (yield part, own))
        return items
    schemas: dict[str, Schema] = {}
    members: dict[str, list[Value]] = {}
    text: list[str] = []
    for part in element.parts():
        if isinstance(part, str):
            text.append(part)
            continue
        own = schemas.setdefault(part.key, schema.property(part.key))
        members.setdefault(part.key, []).append((yield part, own))
    result: dict[str, Value] = {key: together(values, schemas[key].types) for key, values in members.items()}
    if text:
        key = _TEXT
        while key in result:
            key = "$" + key
        result[key] = write_string("".join(text))
    return result


def _leaf(text: str, schema: Schema) -> Value:
    """The value of bare text. Where only a list will do, it is a list of one."""
    value: Value = coerce(text, schema.types, undeclared_as_text=True)
    assert isinstance(value, str)
    wraps = 0
    while value[0] == '"' and text.strip(WHITESPACE) and _only_array(schema.types) and wraps < _DEEPEST_WRAP:
        wraps += 1
        schema = schema.item(0)
        value = coerce(text, schema.types, undeclared_as_text=True)
    if value[0] == "[":
        # The elements stay one piece of text: a list can be joined to another without being read.
        value = [value[1:-1]] if len(value) > 2 else []
    for _ in range(wraps):
        value = [value]
    return value


def _only_array(types: Types) -> bool:
    return "array" in types.kinds and set(types.kinds) <= {"array", "null"}


def together(values: list[Value], types: Types) -> Value:
    """The value of a key that was written so many times: several are a list; lists are joined where one is expected."""
    if len(values) == 1:
        return values[0]
    if "array" not in types.kinds:
        return list(values)
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


def write(value: Value) -> str:
    """Compact JSON text. No recursion."""
    out: list[str] = []
    todo: list[Value] = [value]
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            out.append(value)
        else:
            todo += reversed([*_pieces(value)])
    return "".join(out)


def _pieces(value: list[Value] | dict[str, Value]) -> Iterable[Value]:
    if isinstance(value, list):
        yield "["
        for place, item in enumerate(value):
            if place:
                yield ","
            yield item
        yield "]"
    else:
        for place, (key, member) in enumerate(value.items()):
            yield f"{',' if place else '{'}{write_string(key)}:"
            yield member
        yield "}"


class Parameters:
    """The parameters of one call: sends each as soon as no repeat of its tag can change it.

    A tag that is repeated means a list. So a parameter waits for the next tag; a long string does not; and a text
    that may be one element of a list holds back itself and all after it, since its repeats may come anywhere. A
    repeat of a key that was sent is sent as the same key again: JSON readers take the last.
    """

    def __init__(self, call: Call, schema: Schema) -> None:
        self.schema = schema
        self._call = call
        self._held: dict[str, list[Value]] = {}
        self._waits = False
        self._growing: Element | None = None
        self._size = 0
        self._streams = False

    def begin(self, element: Element) -> None:
        """A parameter's tag opened."""
        if element.key not in self._held and not self._waits:
            self._send()
        sent_or_held = self._held or element.key in self._call.arguments
        self._growing = element if element.schema.types.only_string and not sent_or_held else None
        self._size = 0

    def grow(self, text: str) -> None:
        """More text of the open parameter."""
        if self._streams:
            self._call.send(self._call.arguments.string(text))
        elif self._growing is not None:
            self._size += len(text)
            if self._size >= STREAM_FROM:
                self._streams = True
                arguments = self._call.arguments
                self._call.send(arguments.open_string(self._growing.key) + arguments.string(self._growing.text))

    def nest(self) -> None:
        """A child opens in the open parameter: it is no string, whatever was expected."""
        self._end_stream()
        self._growing = None

    def end(self, element: Element) -> None:
        """The open parameter closed."""
        if self._streams:
            self._end_stream()
            return
        self._held.setdefault(element.key, []).append(value_of(element, element.schema))
        self._waits = self._waits or (element.is_leaf and element.schema.types.permits("array"))

    def close(self) -> None:
        """The invoke closed: no more repeats."""
        self._send()

    def _end_stream(self) -> None:
        if self._streams:
            self._call.send(self._call.arguments.close_string())
            self._streams = False

    def _send(self) -> None:
        for key, values in self._held.items():
            value = together(values, self.schema.property(key).types)
            self._call.send(self._call.arguments.member(key, write(value)))
        self._held.clear()
