"""Items of the Responses API to the internal conversation."""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from tool_parsers.json_text import write_json
from vllm_mlx.api.content import arguments_text, result_text, text_of
from vllm_mlx.api.custom_input import PARAMETER
from vllm_mlx.api.errors import invalid, not_found
from vllm_mlx.api.response_store import Item, ResponseStore
from vllm_mlx.api.response_tools import ToolSet
from vllm_mlx.api.sealed import unseal
from vllm_mlx.api.tools import note_left_out
from vllm_mlx.chat.conversation import Message, Role, ToolCall

log = logging.getLogger(__name__)

_ROLES: dict[str, Role] = {"user": "user", "system": "system", "developer": "developer"}


Placed = tuple[str, Item]
"""An item, and where it stands in the request."""


def items_of(input: Any, previous: str | None, store: ResponseStore) -> list[Placed]:
    """All items that a request comes down to: those of the response before it, then its own, references resolved.

    Raises:
        ApiError: 404 when the previous response is not known (any more).
    """
    items: list[Placed] = []
    if previous is not None:
        stored = store.get(previous)
        if stored is None:
            raise not_found(
                f"Previous response with id '{previous}' not found: send the whole input",
                "previous_response_id",
                "previous_response_not_found",
            )
        items += [("previous_response_id", item) for item in stored.history]
    if input is None:
        return items
    if isinstance(input, str):
        return [*items, ("input", {"type": "message", "role": "user", "content": input})]
    if not isinstance(input, list):
        raise invalid("input: must be a string or a list of items", "input")
    for i, item in enumerate(input):
        param = f"input[{i}]"
        if not isinstance(item, dict):
            raise invalid(f"{param}: must be an object", param)
        if _kind(item) != "item_reference":
            items.append((param, item))
        elif isinstance(item.get("id"), str) and (known := store.item(item["id"])) is not None:
            items.append((param, known))
        else:
            log.warning("input[%d]: the item %.100r is not known here (any more) and is left out", i, item.get("id"))
    return items


def _kind(item: Item) -> Any:
    """The type of an item. A message may be without, and so may a reference, which then has an id and nothing else."""
    kind = item.get("type")
    if kind is not None:
        return kind
    return "message" if "role" in item else "item_reference" if "id" in item and item.keys() <= {"id", "type"} else None


def additional_tools(items: Sequence[Placed]) -> Iterator[tuple[str, list[Any]]]:
    """The lists of tools that stand between the messages, and where. Raises `ApiError`."""
    for param, item in items:
        if item.get("type") == "additional_tools":
            tools = item.get("tools")
            if not isinstance(tools, list):
                raise invalid(f"{param}.tools: must be a list of tools", f"{param}.tools")
            yield f"{param}.tools", tools


def messages_of(items: Sequence[Placed], tools: ToolSet) -> list[Message]:
    """The turns that items make up: what an assistant gave in one reply is one message. Raises `ApiError`."""
    turns = _Turns(tools)
    for param, item in items:
        turns.add(item, param)
    turns.close()
    return turns.messages


class _Turns:
    """Gathers the items of an assistant's reply until another's item comes."""

    def __init__(self, tools: ToolSet) -> None:
        self.messages: list[Message] = []
        self._tools = tools
        self._thoughts: list[str] = []
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []
        self._last = ""

    def add(self, item: Item, param: str) -> None:
        kind = _kind(item)
        if not isinstance(kind, str):
            raise invalid(f"{param}.type: must be a string", f"{param}.type")
        match kind:
            case "message":
                self._message(item, param)
            case "reasoning":
                self._thoughts.append(_thought(item))
            case "function_call":
                arguments = arguments_text(item.get("arguments"), f"{param}.arguments")
                self._call(item, arguments, param)
            case "custom_tool_call":
                arguments = write_json({PARAMETER: text_of(item.get("input"), f"{param}.input")})
                self._call(item, arguments, param)
            case "function_call_output" | "custom_tool_call_output":
                self.close()
                call = _string(item, "call_id", param)
                self.messages.append(
                    Message("tool", result_text(item.get("output"), f"{param}.output"), tool_call_id=call)
                )
            case "additional_tools":
                return
            case _:
                note_left_out(kind)
                return
        self._last = kind

    def close(self) -> None:
        """The assistant's turn, if one is open, is over."""
        if self._thoughts or self._texts or self._calls:
            reasoning = "".join(self._thoughts) or None
            content = "".join(self._texts)
            self.messages.append(Message("assistant", content, reasoning=reasoning, tool_calls=tuple(self._calls)))
        self._thoughts, self._texts, self._calls = [], [], []

    def _message(self, item: Item, param: str) -> None:
        role = item.get("role")
        text = text_of(item.get("content"), f"{param}.content")
        if role == "assistant":
            if self._last == "message":
                self.close()
            self._texts.append(text)
            return
        if not isinstance(role, str) or role not in _ROLES:
            raise invalid(f"{param}.role: must be user, assistant, system or developer", f"{param}.role")
        self.close()
        self.messages.append(Message(_ROLES[role], text))

    def _call(self, item: Item, arguments: str, param: str) -> None:
        namespace = item.get("namespace")
        name = self._tools.name_of(_string(item, "name", param), namespace if isinstance(namespace, str) else None)
        self._calls.append(ToolCall(_string(item, "call_id", param), name, arguments))


def _string(item: Item, field: str, param: str) -> str:
    value = item.get(field)
    if not isinstance(value, str) or not value:
        raise invalid(f"{param}.{field}: must be a string that is not empty", f"{param}.{field}")
    return value


def _thought(item: Item) -> str:
    """The text of a reasoning item: its content, else what was packed for the client, else its summary."""
    sealed = item.get("encrypted_content")
    return (
        _texts(item.get("content"))
        or unseal(sealed if isinstance(sealed, str) else None)
        or _texts(item.get("summary"))
    )


def _texts(parts: Any) -> str:
    texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    return "".join(text for text in texts if isinstance(text, str))
