"""Tool schemas as grammars can hold them: what no grammar expresses is left out, so that the rest is held."""

from collections.abc import Iterator, Mapping
from typing import Any

from tool_parsers.grammar_patterns import searched

BEYOND = frozenset(
    (
        *("not", "if", "then", "else", "patternProperties", "propertyNames", "uniqueItems"),
        *("dependentRequired", "dependentSchemas", "dependencies", "contains", "minContains", "maxContains"),
        *("minProperties", "maxProperties", "unevaluatedProperties", "unevaluatedItems"),
    )
)
LENGTHS = ("minLength", "maxLength")
_LONGEST = 1 << 20
_NOTHING: dict[str, Any] = {"uniqueItems": False, "propertyNames": {"type": "string"}, "minProperties": 0}
"""Values at which a keyword asks for nothing."""
FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
"""Those that are held in JSON. A format says what a text is about; by default no validator asks for more."""
_ASIDE = ("$schema", "$id")
_BY_NAME = ("properties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "additionalItems")


def held(schema: Any) -> tuple[Any, list[str]]:
    """A schema that permits the same or more, with patterns as `searched` writes them, and which keywords it lacks."""
    lost: dict[str, None] = {}
    return _held(schema, lost), list(lost)


def _held(node: Any, lost: dict[str, None]) -> Any:
    if not isinstance(node, Mapping):
        return node
    result = dict(_members(node, lost))
    if "patternProperties" in node:
        result["additionalProperties"] = True
    return result


def _members(node: Mapping[str, Any], lost: dict[str, None]) -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if key in BEYOND:
            if _NOTHING.get(key, node) != value:
                lost[key] = None
        elif key == "pattern":
            try:
                yield key, searched(value)
            except (ValueError, TypeError):
                lost[key] = None
        elif key in LENGTHS and not (type(value) is int and 0 <= value <= _LONGEST):
            lost[key] = None
        elif key in _ASIDE or (key == "format" and value not in FORMATS):
            continue
        elif key in _BY_NAME and isinstance(value, Mapping):
            yield key, {name: _held(member, lost) for name, member in value.items()}
        elif key in _LISTS and isinstance(value, list):
            yield key, [_held(member, lost) for member in value]
        elif key in _SINGLE:
            yield key, _held(value, lost)
        else:
            yield key, value
