"""Message content as clients spell it, to the one string that the conversation holds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tool_parsers.json_text import Number, read_json, write_json
from vllm_mlx.api.errors import ApiError, invalid
from vllm_mlx.chat.conversation import Tool

_TEXT_TYPES = ("text", "input_text", "output_text", "refusal")

MAX_DEPTH = 64
"""How deep a call's arguments may be nested: everything that walks them recurses."""


def text_of(content: Any, param: str) -> str:
    """A string, null or a list of text parts, as one string: parts are joined with nothing between them.

    Raises:
        ApiError: `param` names the part that is not text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(f"{param}: must be a string, null or a list of parts", param)
    return "".join(part_text(part, f"{param}[{index}]") for index, part in enumerate(content))


def part_text(part: Any, param: str) -> str:
    """One part as text. Raises as `text_of` does."""
    match part:
        case {"type": "document", "source": {"type": "text", "data": str(data)}}:
            return data
        case {"type": "document", "source": {"type": "content", "content": str(content)}}:
            return content
        case {"type": "document", "source": {"type": "content", "content": [*content]}}:
            return "".join(_texts(content, f"{param}.source.content"))
        case {"type": "search_result", "title": str(title), "source": str(source), "content": [*content]}:
            return "\n".join([title, source, *_texts(content, f"{param}.content")])
    return _text(part, param)


def _texts(parts: Sequence[Any], param: str) -> Iterator[str]:
    return (_text(part, f"{param}[{index}]") for index, part in enumerate(parts))


def _text(part: Any, param: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise invalid(f"{param}: a part must be an object with a type", param)
    if kind not in _TEXT_TYPES:
        raise not_text(kind, param)
    text = part.get("refusal" if kind == "refusal" else "text")
    if not isinstance(text, str):
        raise invalid(f"{param}.text: must be a string", f"{param}.text")
    return text


def result_text(content: Any, param: str) -> str:
    """A tool's result as `text_of` reads it, but what is no text leaves a note: the model must not invent it.

    A client sends back what its tool gave; it cannot send something else, as it could of a user's words.
    """
    if not isinstance(content, list):
        return text_of(content, param)
    return "".join(_result_part(part, f"{param}[{index}]") for index, part in enumerate(content))


def _result_part(part: Any, param: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "tool_reference":
        return f"[tool: {part.get('tool_name')}]"
    try:
        return part_text(part, param)
    except ApiError:
        if not isinstance(kind, str) or kind in _TEXT_TYPES:
            raise
        return f"[{kind.removeprefix('input_').removesuffix('_url')} left out: this model reads text only]"


def not_text(kind: str, param: str) -> ApiError:
    """The refusal of an image, a sound, a file."""
    return invalid(f"{param}: parts of type '{kind}' are not supported: this model reads text only", param)


def arguments_text(arguments: Any, param: str) -> str:
    """A tool call's arguments as the JSON text of an object.

    A client may send back what an earlier turn cut or glued together. That call and its result stay in the
    history: text that is no JSON object, or nested beyond use, becomes the one argument `arguments`.
    """
    if isinstance(arguments, dict):
        return write_json(arguments)
    if arguments is None:
        return "{}"
    if not isinstance(arguments, str) or isinstance(arguments, Number):
        raise invalid(f"{param}: must be a string with JSON or an object", param)
    try:
        value = read_json(arguments) if arguments.strip() else None
    except ValueError:
        value = arguments
    if value is None:
        return "{}"
    usable = isinstance(value, dict) and not _deeper(value, MAX_DEPTH)
    return arguments if usable else write_json({"arguments": arguments})


def _deeper(value: Any, limit: int) -> bool:
    """Whether objects and arrays are nested in each other more than `limit` times."""
    level = [value]
    for _ in range(limit):
        members = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [item for inner in members for item in inner]
        if not level:
            return False
    return True


def tool_of(function: Mapping[str, Any], param: str) -> Tool:
    """A function that the client offers, as it was sent. Raises `ApiError` for what no model could call."""
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise invalid(f"{param}.name: must be a string that is not empty", f"{param}.name")
    if not isinstance(function.get("description"), str | None):
        raise invalid(f"{param}.description: must be a string", f"{param}.description")
    if not isinstance(function.get("parameters"), dict | None):
        raise invalid(f"{param}.parameters: must be a JSON schema, an object", f"{param}.parameters")
    return Tool(name, function)
