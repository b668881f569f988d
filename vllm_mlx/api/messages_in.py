"""Anthropic messages to the internal conversation."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tool_parsers.json_text import Number
from vllm_mlx.api.content import arguments_text, part_text, result_text, text_of, tool_of
from vllm_mlx.api.errors import invalid
from vllm_mlx.api.sealed import unseal
from vllm_mlx.api.tools import choice_of, note_hosted, note_left_out
from vllm_mlx.chat.conversation import Conversation, Message, Tool, ToolCall, ToolChoice

if TYPE_CHECKING:
    from vllm_mlx.api.messages import CountTokensRequest, WireMessage

_BILLING = "x-anthropic-billing-header:"
"""Begins a line of the client's own that may differ from request to request."""
_RESULT_TYPE = "tool_result"


def conversation_of(wire: "CountTokensRequest", automatic: bool) -> Conversation:
    """What the model reads. `automatic`: it may call tools without being told to. Raises `ApiError`."""
    read = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(wire.tools or ())]
    offered = tuple(tool for tool in read if tool is not None)
    messages = [Message("system", system)] if (system := _system(wire.system)) else []
    for i, message in enumerate(wire.messages):
        messages += _messages(message, f"messages[{i}]")
    kwargs: dict[str, Any] = {}
    if wire.thinking is not None and wire.thinking.type in ("enabled", "disabled"):
        kwargs["thinking"] = {"type": wire.thinking.type}
    if wire.output_config is not None and wire.output_config.effort is not None:
        kwargs["reasoning_effort"] = wire.output_config.effort
    last = messages[-1] if messages else None
    return Conversation(
        messages=tuple(messages),
        tools=offered,
        tool_choice=_choice(wire, offered, automatic),
        template_kwargs=kwargs,
        # A reply goes on where the client has begun it.
        continue_final_message=last is not None and last.role == "assistant" and not last.tool_calls,
    )


def _system(system: Any) -> str:
    """The system text without the billing line that some clients put first."""
    if isinstance(system, list):
        blocks = enumerate(system)
        text = "".join(part_text(block, f"system[{i}]") for i, block in blocks if not _is_billing(block))
    else:
        text = text_of(system, "system")
    return text.partition("\n")[2] if text.startswith(_BILLING) else text


def _is_billing(block: Any) -> bool:
    text = block.get("text") if isinstance(block, dict) else None
    return isinstance(text, str) and text.startswith(_BILLING) and "\n" not in text.strip()


def _tool(tool: Mapping[str, Any], param: str) -> Tool | None:
    """A tool as the model reads it; what the client keeps beside it stays out of the prompt."""
    kind = tool.get("type")
    if kind not in (None, "custom"):
        note_hosted(str(kind))
        return None
    function = {"name": tool.get("name")}
    if tool.get("description") is not None:
        function["description"] = tool["description"]
    schema = tool.get("input_schema")
    if not isinstance(schema, dict):
        raise invalid(f"{param}.input_schema: must be a JSON schema, an object", f"{param}.input_schema")
    strict = {"strict": True} if tool.get("strict") is True else {}
    return tool_of({**function, "parameters": schema, **strict}, param)


def _choice(wire: "CountTokensRequest", tools: Sequence[Tool], automatic: bool) -> ToolChoice:
    choice = wire.tool_choice
    if choice is None:
        return choice_of(None, None, tools, automatic)
    if choice.type == "tool" and not choice.name:
        raise invalid("tool_choice.name: is required", "tool_choice.name")
    wish = {"any": "required", "tool": {"type": "function", "function": {"name": choice.name}}}.get(
        choice.type, choice.type
    )
    return choice_of(wish, not choice.disable_parallel_tool_use, tools, automatic)


def _messages(message: "WireMessage", param: str) -> list[Message]:
    """One wire message; a user's may be several of ours: tool results come before the text beside them."""
    content, where = message.content, f"{param}.content"
    if content is None:
        raise invalid(f"{where}: is required", where, "missing_required_parameter")
    if message.role == "assistant":
        return [_assistant(content, where)]
    if message.role == "system" or not isinstance(content, list):
        return [Message(message.role, text_of(content, where))]
    results: list[Message] = []
    texts: list[str] = []
    for i, block in enumerate(content):
        if _type(block, f"{where}[{i}]") == _RESULT_TYPE:
            results.append(_result(block, f"{where}[{i}]"))
        else:
            texts.append(part_text(block, f"{where}[{i}]"))
    return [*results, Message("user", "".join(texts))] if texts or not results else results


def _type(block: Any, param: str) -> str:
    if isinstance(block, str):
        return "text"
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str):
        raise invalid(f"{param}: a block must be an object with a type", param)
    return kind


def _result(block: Mapping[str, Any], param: str) -> Message:
    text = result_text(block.get("content"), f"{param}.content")
    if block.get("is_error") is True:
        text = f"[error]\n{text}" if text else "[error]"
    call = block.get("tool_use_id")
    if not isinstance(call, str):
        raise invalid(f"{param}.tool_use_id: must be a string", f"{param}.tool_use_id")
    return Message("tool", text, tool_call_id=call)


def _assistant(content: Any, param: str) -> Message:
    if not isinstance(content, list):
        return Message("assistant", text_of(content, param))
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for i, block in enumerate(content):
        where = f"{param}[{i}]"
        match _type(block, where):
            case "text":
                texts.append(part_text(block, where))
            case "thinking":
                thought, word = _string(block, "thinking", where), _string(block, "signature", where)
                thoughts.append(thought or unseal(word) or "")
            case "redacted_thinking":
                thoughts.append(unseal(_string(block, "data", where)) or "")
            case "tool_use":
                calls.append(_call(block, where))
            case kind:
                note_left_out(kind)
    return Message("assistant", "".join(texts), reasoning="".join(thoughts) or None, tool_calls=tuple(calls))


def _call(block: Mapping[str, Any], param: str) -> ToolCall:
    name = _string(block, "name", param)
    if not name:
        raise invalid(f"{param}.name: must be a string that is not empty", f"{param}.name")
    return ToolCall(_string(block, "id", param) or "", name, arguments_text(block.get("input"), f"{param}.input"))


def _string(block: Mapping[str, Any], field: str, param: str) -> str | None:
    """A field that is a string where it is there. Raises `ApiError`."""
    value = block.get(field)
    if not isinstance(value, str | None) or isinstance(value, Number):
        raise invalid(f"{param}.{field}: must be a string", f"{param}.{field}")
    return value
