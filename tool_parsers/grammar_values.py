"""What single values may be, for grammars: schemas without combinators, and regular expressions for scalars."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tool_parsers.arguments import coerce
from tool_parsers.grammar_schema import LENGTHS
from tool_parsers.json_text import write_json
from tool_parsers.lark import ANY_TEXT, GAP, Lark, pattern
from tool_parsers.schema import Kind, Schema

Plain = Mapping[str, Any]
"""A JSON Schema without references and combinators, of those that `held` makes."""

INTEGER = r"-?(0|[1-9][0-9]{0,199})(\.0+)?([eE]\+?[0-9]{1,2})?"
NUMBER = r"-?(0|[1-9][0-9]{0,199})(\.[0-9]+)?([eE][+\-]?[0-9]{1,2})?"
"""Bounded, so that no reader of floats finds an infinite one."""

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COMBINED = ("anyOf", "oneOf")
_PYTHON = {"true": "True", "false": "False", "null": "None"}
_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Style:
    """How a format writes scalars: what may stand around a text, and whether words may be Python's."""

    around: str = ""
    python: bool = False


PLAIN = Style()


def alternatives(schema: Schema) -> list[Plain]:
    """The schemas of which a value must fit one; none: any value will do.

    Raises:
        ValueError: a keyword has no grammar.
    """
    return [plain for node in schema.nodes for plain in _flat(node, schema, _DEPTH)]


def _flat(node: Any, schema: Schema, depth: int) -> Iterator[Plain]:
    if not isinstance(node, Mapping):
        if node is True:
            yield {}
        return
    if depth == 0:
        raise ValueError("a schema refers to itself without end")
    rest = {key: value for key, value in node.items() if key not in ("$ref", "allOf", *_COMBINED)}
    branches: list[Plain] = [rest]
    if "$ref" in node:
        inner = [branch for target in schema.resolve(node).nodes for branch in _flat(target, schema, depth - 1)]
        branches = [_both(one, branch) for one in branches for branch in inner]
    for member in node["allOf"] if isinstance(node.get("allOf"), list) else ():
        branches = [_both(one, branch) for one in branches for branch in _flat(member, schema, depth - 1)]
    for word in _COMBINED:
        if isinstance(node.get(word), list):
            inner = [branch for member in node[word] for branch in _flat(member, schema, depth - 1)]
            branches = [_both(one, branch) for one in branches for branch in inner]
    yield from branches


_MERGED: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("properties", "$defs", "definitions"), lambda one, other: {**one, **other}),
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems"), min),
    **dict.fromkeys(("title", "description", "default", "examples"), lambda one, other: one),
    "required": lambda one, other: list(dict.fromkeys([*one, *other])),
    "enum": lambda one, other: [value for value in one if value in other],
}
"""What two demands are together, by keyword."""


def _both(one: Plain, other: Plain) -> Plain:
    """A schema that asks for both."""
    merged = dict(one)
    for key, value in other.items():
        if key not in merged or merged[key] == value:
            merged[key] = value
        elif key in _MERGED:
            merged[key] = _MERGED[key](merged[key], value)
        else:
            raise ValueError(f"two demands on {key} have no common grammar")
    return merged


def listed(plain: Plain) -> list[Any] | None:
    """The values that an `enum` or `const` lists."""
    if isinstance(plain.get("enum"), list):
        return list(plain["enum"])
    return [plain["const"]] if "const" in plain else None


def is_free_text(plain: Plain) -> bool:
    """Whether any text is a value."""
    return listed(plain) is None and not any(word in plain for word in ("pattern", *LENGTHS))


def values(
    lark: Lark,
    plain: Plain,
    schema: Schema,
    *,
    style: Style = PLAIN,
    free: str = f"/{ANY_TEXT}/",
    end: str = "",
) -> Iterator[str]:
    """What a raw value may be, as Lark, with what must stand behind it (`end`, a regular expression).

    `plain` is one of the alternatives of `schema`; `free` stands for any text with the end. Where a string may be
    meant as well, a text is read as the kind that is declared first, and white space around it counts.
    """
    order = schema.types.kinds
    gap, around = style.around if "string" in order else GAP, style.around
    members = listed(plain)
    if members is not None:
        for text, is_string in _members(members, schema, style):
            yield f"/{around}{text}{around}{end}/" if is_string else f"/{gap}{text}{gap}{end}/"
        return
    for kind in kinds_of(plain, schema.root) or ("string",):
        if kind == "string":
            yield free if is_free_text(plain) else _lexeme(lark, plain, around, around + end)
        elif kind == "null":
            yield f"/{gap}({'|'.join(_words('null', style))}){gap}{end}/"
        elif kind in ("object", "array"):
            yield _json(lark, plain, kind, schema.root, end)
        elif "string" in order and order.index(kind) > order.index("string"):
            continue
        elif kind == "boolean":
            yield f"/{gap}({'|'.join(word for text in ('true', 'false') for word in _words(text, style))}){gap}{end}/"
        elif any(bound in plain for bound in _BOUNDS):
            yield _json(lark, plain, kind, schema.root, end)
        else:
            yield f"/{gap}{INTEGER if kind == 'integer' else NUMBER}{gap}{end}/"


def _members(members: list[Any], schema: Schema, style: Style) -> Iterator[tuple[str, bool]]:
    """The texts of listed values, as regular expressions, and whether each is a string's."""
    for member in members:
        text = member if type(member) is str else write_json(member)
        if coerce(text, schema.types) == write_json(member):
            is_string = type(member) is str
            yield pattern(text) if is_string else f"({'|'.join(_words(text, style))})", is_string


def _json(lark: Lark, plain: Plain, kind: Kind, root: Any, end: str) -> str:
    inner = lark.rule(f"%json {json_schema({**plain, 'type': kind}, root)}")
    return f"/{GAP}/ {inner} /{GAP}{end}/"


def _lexeme(lark: Lark, plain: Plain, before: str, after: str) -> str:
    """A string's text between two regular expressions."""
    length = f"(?s:.){{{plain.get('minLength', 0)},{plain.get('maxLength', '')}}}"
    if "pattern" not in plain:
        return f"/{before}{length}{after}/"
    text = plain["pattern"].removeprefix("^").removesuffix("$")
    if not any(word in plain for word in LENGTHS):
        return f"/{before}{text}{after}/"
    first, last = (f"/{part}/" if part else "" for part in (before, after))
    return lark.terminal(f"{first} (/{text}/ & /{length}/) {last}".strip())


def _words(text: str, style: Style) -> list[str]:
    """The spellings of a value that is no string."""
    other = _PYTHON.get(text) if style.python else None
    return [pattern(text), other] if other else [pattern(text)]


def kinds_of(plain: Plain, root: Any) -> tuple[Kind, ...]:
    """The kinds of a schema without combinators; none: all."""
    return Schema([plain], root).types.kinds


def json_schema(plain: Plain, root: Any) -> str:
    """A schema as llguidance's `%json` takes it, with all that it refers to."""
    node: dict[str, Any] = {key: value for key, value in plain.items() if key not in ("$defs", "definitions")}
    if "$ref" in json.dumps(plain):
        node = {**_rebased(node), "$defs": {"root": _rebased(root)}}
    return json.dumps({**node, "x-guidance": JSON_OPTIONS}, ensure_ascii=False)


JSON_OPTIONS = {
    "json_allow_general_unicode_escapes": True,
    "coerce_one_of": True,
    "whitespace_pattern": r"[ ]?|\r?\n[ \t]{0,40}",
}
"""Escapes are as free as our JSON reader is; a model must not lose itself in white space."""


def _rebased(node: Any) -> Any:
    """The same schema one level down: references into the document go through `#/$defs/root`."""
    if isinstance(node, Mapping):
        return {
            key: f"#/$defs/root{value[1:]}"
            if key == "$ref" and isinstance(value, str) and value.startswith("#")
            else _rebased(value)
            for key, value in node.items()
        }
    return [_rebased(item) for item in node] if isinstance(node, list) else node
