"""The body of `POST /v1/chat/completions`, and what it comes down to."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from vllm_mlx.api.content import arguments_text, result_text, text_of, tool_of
from vllm_mlx.api.errors import invalid, unsupported
from vllm_mlx.api.fields import GenerationFields
from vllm_mlx.api.generation import GenerationRequest
from vllm_mlx.api.requests import Wire
from vllm_mlx.api.schemas import CONTENT_SCHEMA, FUNCTION_SCHEMA
from vllm_mlx.api.service import Service
from vllm_mlx.api.tools import CHOICE_NOTE, choice_of
from vllm_mlx.chat.conversation import Conversation, Message, ToolCall
from vllm_mlx.chat.template import RESERVED


class WireFunctionCall(Wire):
    """The function part of a tool call that the client sends back."""

    name: str = Field(min_length=1)
    arguments: Any = Field(
        None,
        description="A string with JSON, or an object.",
        json_schema_extra={"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "null"}]},
    )


class WireToolCall(Wire):
    """A tool call that the client sends back."""

    id: str | None = None
    type: Literal["function"] | None = None
    function: WireFunctionCall


class WireMessage(Wire):
    """A message of the history."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Any = Field(None, description="A string, null or a list of text parts.", json_schema_extra=CONTENT_SCHEMA)
    refusal: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    tool_calls: list[WireToolCall] | None = None
    function_call: WireFunctionCall | None = None
    tool_call_id: str | None = None


class WireTool(Wire):
    """A tool that the client offers. The function's object is the model's to read: name, description, parameters."""

    type: Literal["function"]
    function: dict[str, Any] = Field(json_schema_extra=FUNCTION_SCHEMA)


class WireThinking(Wire):
    """Whether the model thinks; adaptive: as it does by itself."""

    type: Literal["enabled", "disabled", "adaptive"]


class ChatCompletionRequest(GenerationFields):
    """The body of `POST /v1/chat/completions`."""

    messages: list[WireMessage] = Field(min_length=1)
    tools: list[WireTool] | None = None
    tool_choice: Any = Field(
        None,
        description=CHOICE_NOTE,
        json_schema_extra={"anyOf": [{"enum": ["none", "auto", "required"]}, {"type": "object"}, {"type": "null"}]},
    )
    parallel_tool_calls: bool | None = Field(None, description="false: the reply ends after its first call.")
    max_completion_tokens: int | None = Field(None, ge=1, lt=2**31, description="Goes before max_tokens.")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    modalities: list[str] | None = Field(None, description="Only text.")
    reasoning_effort: str | None = Field(None, description="none and minimal: no thinking, where the model can.")
    thinking: WireThinking | bool | None = Field(None, description="As MiniMax's own API has it.")
    enable_thinking: bool | None = None
    include_reasoning: bool | None = Field(None, description="false: thoughts are not sent.")
    thinking_token_budget: int | None = Field(None, ge=0, lt=2**31, description="A longer thought is closed.")
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    echo: bool | None = Field(None, description="The text of a last assistant message comes before the reply.")

    ignored: ClassVar[Mapping[str, str]] = {
        **GenerationFields.ignored,
        "store": "nothing is kept on this server",
        "safety_identifier": "a label for the caller's own books",
        "prompt_cache_key": "the prefix cache finds every prompt by itself",
        "prompt_cache_retention": "the prefix cache keeps what it has room for",
        "prompt_cache_options": "the prefix cache finds every prompt by itself",
        "service_tier": "there is one tier",
        "prediction": "a hint that changes no reply",
        "verbosity": "a hint that the model was not trained on",
        "reasoning_split": "thoughts are always apart from the content",
        "add_special_tokens": "the chat template writes them",
    }
    refused: ClassVar[Mapping[str, str]] = {
        **GenerationFields.refused,
        "audio": "the model writes text only",
        "chat_template": "the server's own is used; see --chat-template",
        "documents": "put them into a message",
        "function_call": "send tool_choice",
        "functions": "send tools",
        "moderation": "this server moderates nothing",
        "web_search_options": "this server has no web search",
    }


def decode(wire: ChatCompletionRequest, service: Service) -> GenerationRequest:
    """The request in internal terms. Raises `ApiError` for what cannot be served."""
    offered = tuple(tool_of(tool.function, f"tools[{i}].function") for i, tool in enumerate(wire.tools or ()))
    _check_formats(wire)
    messages = tuple(_message(message, f"messages[{i}]") for i, message in enumerate(wire.messages))
    conversation = Conversation(
        messages=messages,
        tools=offered,
        tool_choice=choice_of(
            wire.tool_choice, wire.parallel_tool_calls, offered, service.config.enable_auto_tool_choice
        ),
        template_kwargs=_template_kwargs(wire),
        add_generation_prompt=wire.add_generation_prompt is not False and not wire.continue_final_message,
        continue_final_message=bool(wire.continue_final_message),
    )
    common = wire.common()
    if wire.max_completion_tokens is not None:
        common["max_tokens"] = wire.max_completion_tokens
    return GenerationRequest(
        conversation=conversation,
        logprobs=(wire.top_logprobs or 0) if wire.logprobs else None,
        thinking_budget=wire.thinking_token_budget,
        echo=messages[-1].content if wire.echo and messages[-1].role == "assistant" else "",
        **common,
    )


def _check_formats(wire: ChatCompletionRequest) -> None:
    if wire.modalities and wire.modalities != ["text"]:
        raise unsupported("modalities", "the model writes text only")
    if wire.top_logprobs is not None and not wire.logprobs:
        raise invalid("top_logprobs is only allowed when logprobs is true", "top_logprobs")
    if wire.continue_final_message:
        if wire.add_generation_prompt:
            raise invalid("add_generation_prompt does not go with continue_final_message", "add_generation_prompt")
        if wire.messages[-1].role != "assistant":
            raise invalid("continue_final_message needs an assistant message at the end", "continue_final_message")


def _template_kwargs(wire: ChatCompletionRequest) -> dict[str, Any]:
    kwargs = wire.chat_template_kwargs or {}
    for name in RESERVED:
        if name in kwargs:
            raise invalid(f"chat_template_kwargs may not set '{name}'", "chat_template_kwargs")
    thinking = wire.thinking if isinstance(wire.thinking, bool | None) else {"type": wire.thinking.type}
    wishes = {"reasoning_effort": wire.reasoning_effort, "thinking": thinking, "enable_thinking": wire.enable_thinking}
    return {**{name: wish for name, wish in wishes.items() if wish is not None}, **kwargs}


def _message(message: WireMessage, param: str) -> Message:
    if message.role != "assistant":
        for name in ("tool_calls", "function_call"):
            if getattr(message, name):
                raise invalid(f"{param}.{name}: only an assistant message has tool calls", f"{param}.{name}")
    where = f"{param}.content"
    match message.role:
        case "assistant":
            text = text_of(message.content, where) or message.refusal or ""
            calls = tuple(_calls(message, param))
            return Message("assistant", text, reasoning=_reasoning(message), tool_calls=calls, name=message.name)
        case "tool" | "function":
            text = result_text(message.content, where)
            return Message("tool", text, tool_call_id=message.tool_call_id, name=message.name)
        case role:
            return Message(role, text_of(message.content, where), name=message.name)


def _calls(message: WireMessage, param: str) -> Iterator[ToolCall]:
    """An assistant's calls; the one of the older form has no id."""
    for i, call in enumerate(message.tool_calls or ()):
        yield _call(call.id, call.function, f"{param}.tool_calls[{i}].function")
    if message.function_call is not None:
        yield _call(None, message.function_call, f"{param}.function_call")


def _call(id: str | None, function: WireFunctionCall, param: str) -> ToolCall:
    return ToolCall(id or "", function.name, arguments_text(function.arguments, f"{param}.arguments"))


def _reasoning(message: WireMessage) -> str | None:
    """A thought under any of the names that clients send it back by."""
    texts = [detail.get("text") for detail in message.reasoning_details or ()]
    details = "".join(text for text in texts if isinstance(text, str))
    return message.reasoning_content or message.reasoning or details or None
