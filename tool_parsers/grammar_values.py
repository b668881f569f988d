"""What single values may be, for grammars: schemas without combinators, and regular expressions for scalars."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tool_parsers.arguments import coerce
from tool_parsers.grammar import GAP, pattern
from tool_parsers.json_text import write_json
from tool_parsers.schema import Kind, Schema

Plain = Mapping[str, Any]
"""A JSON Schema without references and combinators."""

ANY_TEXT = r"(?s:.*)"
INTEGER = r"-?(0|[1-9][0-9]{0,199})(\.0+)?([eE]\+?[0-9]{1,2})?"
NUMBER = r"-?(0|[1-9][0-9]{0,199})(\.[0-9]+)?([eE][+\-]?[0-9]{1,2})?"
"""Bounded, so that no reader of floats finds an infinite one."""

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_LENGTHS = ("minLength", "maxLength", "pattern")
_LONGEST = 1 << 20
_COMBINED = ("anyOf", "oneOf")
_BEYOND = frozenset(
    (
        *("not", "if", "then", "else", "patternProperties", "propertyNames", "uniqueItems"),
        *("dependentRequired", "dependentSchemas", "dependencies", "contains", "minContains", "maxContains"),
        *("minProperties", "maxProperties", "unevaluatedProperties", "unevaluatedItems"),
    )
)
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
    if found := sorted(_BEYOND & rest.keys()):
        raise ValueError(f"the keyword {found[0]} has no grammar")
    branches: list[Plain] = [rest]
    if "$ref" in node:
        branches = [_both(one, branch) for one in branches for branch in _flat(schema.resolve(node), schema, depth - 1)]
    for member in node["allOf"] if isinstance(node.get("allOf"), list) else ():
        branches = [_both(one, branch) for one in branches for branch in _flat(member, schema, depth - 1)]
    for word in _COMBINED:
        if isinstance(node.get(word), list):
            inner = [branch for member in node[word] for branch in _flat(member, schema, depth - 1)]
            branches = [_both(one, branch) for one in branches for branch in inner]
    yield from branches


def _both(one: Plain, other: Plain) -> Plain:
    """A schema that asks for both."""
    merged = dict(one)
    for key, value in other.items():
        if key not in merged or merged[key] == value:
            merged[key] = value
        elif key in ("properties", "$defs", "definitions"):
            merged[key] = {**merged[key], **value}
        elif key == "required":
            merged[key] = [*merged[key], *(name for name in value if name not in merged[key])]
        elif key not in ("title", "description", "default", "examples"):
            raise ValueError(f"two demands on {key} have no common grammar")
    return merged


def listed(plain: Plain) -> list[Any] | None:
    """The values that an `enum` or `const` lists."""
    if isinstance(plain.get("enum"), list):
        return list(plain["enum"])
    return [plain["const"]] if "const" in plain else None


def is_free_text(plain: Plain) -> bool:
    """Whether any text is a value."""
    return listed(plain) is None and not any(word in plain for word in _LENGTHS)


def text_of(plain: Plain) -> str:
    """A regular expression for a string's text. Raises `ValueError`."""
    if "pattern" in plain and not isinstance(plain["pattern"], str):
        raise ValueError("pattern must be a string")
    least, most = plain.get("minLength", 0), plain.get("maxLength")
    if "pattern" in plain:
        if "minLength" in plain or "maxLength" in plain:
            raise ValueError("pattern beside a length has no grammar")
        return _searched(plain["pattern"])
    if least or most is not None:
        if not isinstance(least, int) or not isinstance(most, int | None) or max(least, most or 0) > _LONGEST:
            raise ValueError("a length like this has no grammar")
        return f"(?s:.){{{least},{'' if most is None else most}}}"
    return ANY_TEXT


def _searched(text: str) -> str:
    """JSON Schema looks for a pattern anywhere in a string."""
    if "(?=" in text or "(?!" in text or "(?<" in text or re.search(r"\\[1-9bB]", text):
        raise ValueError(f"pattern {text!r} has no grammar")
    begins, ends = text.startswith("^"), bool(re.search(r"(?<!\\)(\\\\)*\$\Z", text))
    inner = text[begins : len(text) - ends]
    if (begins or ends) and _has_branches(inner):
        raise ValueError(f"pattern {text!r} has no grammar")
    inner = re.sub(r"\\.|/", lambda hit: "\\/" if hit[0] == "/" else hit[0], inner, flags=re.DOTALL)
    return f"{'' if begins else ANY_TEXT}({inner}){'' if ends else ANY_TEXT}"


def _has_branches(text: str) -> bool:
    """Whether a `|` stands outside groups."""
    depth = 0
    for hit in re.finditer(r"\\.|\[(?:\\.|[^\]\\])*\]|[()|]", text, re.DOTALL):
        depth += (hit[0] == "(") - (hit[0] == ")")
        if hit[0] == "|" and depth == 0:
            return True
    return False


def scalars(plain: Plain, schema: Schema, style: Style = PLAIN) -> Iterator[str]:
    """Regular expressions for the texts of a raw value that is no object, no array and no free text.

    `plain` is one of the alternatives of `schema`. Where a string may be meant as well, a text is read as the kind
    that is declared first, and white space around it counts.

    Raises:
        ValueError: there is none.
    """
    order = schema.types.kinds
    gap, around = style.around if "string" in order else GAP, style.around
    members = listed(plain)
    if members is not None:
        for member in members:
            text = member if type(member) is str else write_json(member)
            if coerce(text, schema.types) == write_json(member):
                texts = pattern(text) if type(member) is str else f"({'|'.join(_words(text, style))})"
                yield f"{around}{texts}{around}" if type(member) is str else f"{gap}{texts}{gap}"
        return
    for kind in kinds_of(plain, schema.root):
        if kind == "string":
            if not is_free_text(plain):
                yield f"{around}{text_of(plain)}{around}"
        elif kind == "null":
            yield f"{gap}({'|'.join(_words('null', style))}){gap}"
        elif "string" in order and order.index(kind) > order.index("string"):
            continue
        elif kind == "boolean":
            yield f"{gap}({'|'.join(word for text in ('true', 'false') for word in _words(text, style))}){gap}"
        elif kind in ("integer", "number") and not any(bound in plain for bound in _BOUNDS):
            yield f"{gap}{INTEGER if kind == 'integer' else NUMBER}{gap}"


def _words(text: str, style: Style) -> list[str]:
    """The spellings of a value that is no string."""
    other = _PYTHON.get(text) if style.python else None
    return [pattern(text), other] if other else [pattern(text)]


def kinds_of(plain: Plain, root: Any) -> tuple[Kind, ...]:
    """The kinds of a schema without combinators; none: all."""
    return Schema([plain], root).types.kinds


def json_kinds(plain: Plain, root: Any) -> Iterator[Kind]:
    """The kinds of a raw value that are best left to a JSON grammar."""
    if listed(plain) is None:
        for kind in kinds_of(plain, root):
            bounded = kind in ("integer", "number") and any(bound in plain for bound in _BOUNDS)
            if bounded or kind in ("object", "array"):
                yield kind


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
