"""`POST /v1/chat/completions`: the OpenAI chat API."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import orjson
from pydantic import Field

from tool_parsers.events import ArgumentsDelta, CallStart, Event, Reasoning, Text
from vllm_mlx.api.answer import Codec
from vllm_mlx.api.content import arguments_text, text_of, tool_of
from vllm_mlx.api.errors import ApiError, invalid, openai_shape, unsupported
from vllm_mlx.api.generation import Finished, GenerationRequest, Job, Service, Usage
from vllm_mlx.api.requests import Wire, WireRequest
from vllm_mlx.api.sse import DONE, frame
from vllm_mlx.api.tools import choice_of
from vllm_mlx.chat.conversation import Conversation, Message, ToolCall
from vllm_mlx.chat.reply import Reply, ReplyCall


class WireFunctionCall(Wire):
    """The function part of a tool call that the client sends back."""

    name: str = Field(min_length=1)
    arguments: Any = Field(None, description="A string with JSON, or an object.")


class WireToolCall(Wire):
    """A tool call that the client sends back."""

    id: str | None = None
    type: Literal["function"] | None = None
    function: WireFunctionCall


class WireMessage(Wire):
    """A message of the history."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Any = Field(None, description="A string, null or a list of text parts.")
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    tool_calls: list[WireToolCall] | None = None
    tool_call_id: str | None = None


class WireTool(Wire):
    """A tool that the client offers. The function's object is the model's to read: name, description, parameters."""

    type: Literal["function"]
    function: dict[str, Any]


class StreamOptions(Wire):
    """What a stream carries beside the reply."""

    include_usage: bool | None = None


class ChatCompletionRequest(WireRequest):
    """The body of `POST /v1/chat/completions`."""

    messages: list[WireMessage] = Field(min_length=1)
    model: str | None = None
    tools: list[WireTool] | None = None
    tool_choice: Any = Field(None, description="none, auto, required, or an object that names a function.")
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    n: int | None = Field(None, ge=1, le=128)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    response_format: dict[str, Any] | None = None

    ignored: ClassVar[Mapping[str, str]] = {
        "store": "nothing is kept on this server",
        "metadata": "a label for the caller's own books",
        "user": "a label for the caller's own books",
        "safety_identifier": "a label for the caller's own books",
        "prompt_cache_key": "the prefix cache finds every prompt by itself",
        "prompt_cache_retention": "the prefix cache keeps what it has room for",
        "prompt_cache_options": "the prefix cache finds every prompt by itself",
        "service_tier": "there is one tier",
        "prediction": "a hint that changes no reply",
        "verbosity": "a hint that this model was not trained on",
        "reasoning_split": "thoughts are always apart from the content",
    }
    refused: ClassVar[Mapping[str, str]] = {
        "audio": "the model writes text only",
        "functions": "send tools",
        "function_call": "send tool_choice",
        "web_search_options": "this server has no web search",
    }


def decode(wire: ChatCompletionRequest, service: Service) -> GenerationRequest:
    """The request in internal terms. Raises `ApiError` for what cannot be served."""
    if wire.stream_options is not None and not wire.stream:
        raise invalid("stream_options is only allowed when stream is true", "stream_options")
    offered = tuple(tool_of(tool.function, f"tools[{i}].function") for i, tool in enumerate(wire.tools or ()))
    automatic = service.config.enable_auto_tool_choice
    choice = choice_of(wire.tool_choice, wire.parallel_tool_calls, offered, automatic)
    # Without a choice there is nothing to offer: tools that may not be called stay out of the prompt.
    tools = () if choice.mode == "none" else offered
    kwargs = dict(wire.chat_template_kwargs or {})
    if wire.reasoning_effort is not None:
        kwargs.setdefault("reasoning_effort", wire.reasoning_effort)
    if (wire.response_format or {}).get("type", "text") != "text":
        raise unsupported("response_format", "only the type 'text' is")
    return GenerationRequest(
        conversation=Conversation(
            messages=tuple(_message(message, f"messages[{i}]") for i, message in enumerate(wire.messages)),
            tools=tools,
            tool_choice=choice,
            template_kwargs=kwargs,
        ),
        model=wire.model,
        stream=bool(wire.stream),
        n=wire.n or 1,
        max_tokens=wire.max_completion_tokens or wire.max_tokens,
        sampling=sampling(wire),
        stop=stop_strings(wire.stop),
    )


def _message(message: WireMessage, param: str) -> Message:
    if message.role != "assistant":
        if message.tool_calls:
            raise invalid(f"{param}.tool_calls: only an assistant message has tool calls", f"{param}.tool_calls")
        content = text_of(message.content, f"{param}.content")
        return Message(message.role, content, tool_call_id=message.tool_call_id, name=message.name)
    calls = tuple(
        ToolCall(
            call.id or "",
            call.function.name,
            arguments_text(call.function.arguments, f"{param}.tool_calls[{i}].function.arguments"),
        )
        for i, call in enumerate(message.tool_calls or ())
    )
    content = text_of(message.content, f"{param}.content")
    return Message("assistant", content, reasoning=_reasoning(message), tool_calls=calls, name=message.name)


def _reasoning(message: WireMessage) -> str | None:
    """A thought under any of the names that clients send it back by."""
    if message.reasoning_content is not None:
        return message.reasoning_content
    if message.reasoning is not None:
        return message.reasoning
    texts = [detail.get("text") for detail in message.reasoning_details or ()]
    return "".join(text for text in texts if isinstance(text, str)) or None


def sampling(wire: ChatCompletionRequest) -> dict[str, Any]:
    """The sampling parameters that the client set, by the engine's names."""
    names = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
    found = {name: value for name in names if (value := getattr(wire, name)) is not None}
    if wire.top_k is not None:
        found["top_k"] = max(wire.top_k, 0)
    if wire.seed is not None and wire.seed >= 0:
        found["seed"] = wire.seed
    if wire.logit_bias:
        found["logit_bias"] = {_token_id(key): bias for key, bias in wire.logit_bias.items()}
    return found


def _token_id(key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) <= 9):
        raise invalid(f"logit_bias: '{key:.50}' is not a token id", "logit_bias")
    return int(key)


def stop_strings(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """The stop strings; an empty one would stop before the first character and is refused."""
    found = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if "" in found:
        raise invalid("stop: a stop string must not be empty", "stop")
    return found


def usage_of(usage: Usage) -> dict[str, Any]:
    """The usage object of chat and text completions."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


_REASONING_KEYS = {
    "reasoning": ("reasoning",),
    "reasoning_content": ("reasoning_content",),
    "both": ("reasoning", "reasoning_content"),
}


class ChatStream:
    """Chunks. All but a delta itself is the same for every chunk of a choice, and written once."""

    def __init__(self, job: Job, wire: ChatCompletionRequest, service: Service) -> None:
        self._head = {
            "id": job.id,
            "object": "chat.completion.chunk",
            "created": job.created,
            "model": service.names[0],
        }
        opening = orjson.dumps(self._head)[:-1]
        self._before = [
            b'data: %b,"choices":[{"index":%d,"delta":' % (opening, choice) for choice in range(len(job.turns))
        ]
        self._begun = [False] * len(job.turns)
        self._usage: Usage | None = None
        self._wants_usage = wire.stream_options is not None and bool(wire.stream_options.include_usage)
        self._reasoning_keys = _REASONING_KEYS[service.config.reasoning_field]

    def start(self) -> bytes:
        return b""

    def event(self, choice: int, event: Event) -> bytes:
        match event:
            case Text(text):
                return self._chunk(choice, {"content": text})
            case Reasoning(text):
                return self._chunk(choice, dict.fromkeys(self._reasoning_keys, text))
            case CallStart(index, name, id):
                call = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
                return self._chunk(choice, {"tool_calls": [call]})
            case ArgumentsDelta(index, json):
                return self._chunk(choice, {"tool_calls": [{"index": index, "function": {"arguments": json}}]})
        return b""

    def finish(self, choice: int, finished: Finished) -> bytes:
        self._usage = finished.usage if self._usage is None else self._usage + finished.usage
        stop = b"" if finished.stop is None else b',"stop_reason":' + orjson.dumps(finished.stop)
        return self._role(choice) + b'%b{},"logprobs":null,"finish_reason":"%b"%b}]}\n\n' % (
            self._before[choice],
            finished.reason.encode(),
            stop,
        )

    def end(self) -> bytes:
        if not self._wants_usage:
            return DONE
        assert self._usage is not None
        return frame({**self._head, "choices": [], "usage": usage_of(self._usage)}) + DONE

    def error(self, error: ApiError) -> bytes:
        return frame(openai_shape(error)) + DONE

    def _role(self, choice: int) -> bytes:
        if self._begun[choice]:
            return b""
        self._begun[choice] = True
        return self._chunk(choice, {"role": "assistant", "content": ""})

    def _chunk(self, choice: int, delta: Mapping[str, Any]) -> bytes:
        return self._role(choice) + b'%b%b,"logprobs":null,"finish_reason":null}]}\n\n' % (
            self._before[choice],
            orjson.dumps(delta),
        )


def whole(
    job: Job, wire: ChatCompletionRequest, service: Service, replies: list[tuple[Reply, Finished]]
) -> dict[str, Any]:
    """A `chat.completion` object."""
    del wire
    usages = [finished.usage for _, finished in replies]
    return {
        "id": job.id,
        "object": "chat.completion",
        "created": job.created,
        "model": service.names[0],
        "choices": [_choice(index, reply, finished, service) for index, (reply, finished) in enumerate(replies)],
        "usage": usage_of(sum(usages[1:], usages[0])),
    }


def _choice(index: int, reply: Reply, finished: Finished, service: Service) -> dict[str, Any]:
    content = reply.content if reply.content is not None or reply.tool_calls else ""
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    message.update(dict.fromkeys(_REASONING_KEYS[service.config.reasoning_field], reply.reasoning))
    if reply.tool_calls:
        message["tool_calls"] = [_call(call) for call in reply.tool_calls]
    choice = {"index": index, "message": message, "logprobs": None, "finish_reason": finished.reason}
    return choice if finished.stop is None else {**choice, "stop_reason": finished.stop}


def _call(call: ReplyCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


CODEC = Codec("chatcmpl-", ChatCompletionRequest, decode, ChatStream, whole, openai_shape)
