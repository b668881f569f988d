"""JSON Schema of what wire types leave open, for the description of the API: unions of parts, blocks and items."""

from typing import Any

_STRING = {"type": "string"}
_ANYTHING: dict[str, Any] = {}
"""What comes back from any server, and need not be right."""
_NAME = {"type": "string", "minLength": 1}


def _object(**properties: Any) -> dict[str, Any]:
    """The schema of an object that has all of these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(*items: dict[str, Any], **bounds: int) -> dict[str, Any]:
    """The schema of a list of objects of these kinds."""
    return {"type": "array", "items": {"anyOf": list(items)}, **bounds}


_TEXT = _object(type={"const": "text"}, text=_STRING)
CONTENT_SCHEMA: dict[str, Any] = {"anyOf": [_STRING, {"type": "null"}, _list(_TEXT)]}
BLOCKS_SCHEMA: dict[str, Any] = {
    "anyOf": [
        _STRING,
        _list(
            _TEXT,
            _object(type={"const": "thinking"}, thinking=_ANYTHING, signature=_ANYTHING),
            _object(type={"const": "redacted_thinking"}, data=_ANYTHING),
            _object(type={"const": "tool_use"}, id=_STRING, name=_NAME, input={"type": "object"}),
            _object(type={"const": "tool_result"}, tool_use_id=_STRING, content=_STRING),
        ),
    ]
}
_ROLE = {"enum": ["user", "assistant", "system", "developer"]}
INPUT_SCHEMA: dict[str, Any] = {
    "anyOf": [
        _STRING,
        _list(
            _object(role=_ROLE, content=CONTENT_SCHEMA),
            _object(type={"const": "function_call"}, call_id=_NAME, name=_NAME, arguments=_STRING),
            _object(type={"const": "function_call_output"}, call_id=_NAME, output=_STRING),
            _object(type={"const": "reasoning"}, content=_list(_TEXT)),
            minItems=1,
        ),
    ]
}
FUNCTION_SCHEMA: dict[str, Any] = {"properties": {"name": _NAME}, "required": ["name"]}
FORMAT_SCHEMA: dict[str, Any] = {
    "properties": {"type": {"enum": ["text", "json_object", "json_schema"]}},
    "required": ["type"],
}
