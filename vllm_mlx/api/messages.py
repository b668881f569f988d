"""`POST /v1/messages` and `/v1/messages/count_tokens`: the Anthropic API."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from vllm_mlx.api.answer import Codec
from vllm_mlx.api.constraints import answer_of
from vllm_mlx.api.errors import anthropic_shape, invalid
from vllm_mlx.api.generation import GenerationRequest
from vllm_mlx.api.messages_in import conversation_of
from vllm_mlx.api.messages_out import MessageStream, whole
from vllm_mlx.api.requests import Wire, WireRequest
from vllm_mlx.api.schemas import BLOCKS_SCHEMA, CONTENT_SCHEMA
from vllm_mlx.api.service import Service
from vllm_mlx.api.sse import frame


class WireMessage(Wire):
    """A turn of the history."""

    role: Literal["user", "assistant", "system"]
    content: Any = Field(None, description="A string or a list of blocks.", json_schema_extra=BLOCKS_SCHEMA)


class WireThinking(Wire):
    """Whether the model thinks, how much, and whether the client wants to see it.

    adaptive and between_tools leave the first to the model.
    """

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: int | None = Field(None, ge=1, lt=2**31)
    display: str | None = None


class WireToolChoice(Wire):
    """Which tool is called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class WireOutputConfig(Wire):
    """How much effort, and in which form."""

    effort: str | None = None
    format: dict[str, Any] | None = None


class CountTokensRequest(WireRequest):
    """The body of `POST /v1/messages/count_tokens`: what makes a prompt."""

    messages: list[WireMessage] = Field(min_length=1)
    model: str | None = None
    system: Any = Field(None, description="A string or a list of text blocks.", json_schema_extra=CONTENT_SCHEMA)
    tools: list[dict[str, Any]] | None = None
    tool_choice: WireToolChoice | None = None
    thinking: WireThinking | None = Field(None, description="adaptive and between_tools: as the model does by itself.")
    output_config: WireOutputConfig | None = None

    opaque: ClassVar[frozenset[str]] = frozenset({"input", "input_schema"})
    ignored: ClassVar[Mapping[str, str]] = {
        "cache_control": "the prefix cache finds every prompt by itself",
        "context_management": "the client's history is taken as it comes",
        "diagnostics": "nothing is reported",
        "inference_geo": "there is one place",
        "metadata": "a label for the caller's own books",
        "service_tier": "there is one tier",
        "speed": "there is one speed",
        "user_profile_id": "a label for the caller's own books",
        "betas": "a header's business",
        "anthropic_version": "a header's business",
        "anthropic_beta": "a header's business",
    }
    refused: ClassVar[Mapping[str, str]] = {
        "container": "nothing runs on this server",
        "mcp_servers": "this server calls no others",
        "output_format": "send output_config.format",
    }


class MessagesRequest(CountTokensRequest):
    """The body of `POST /v1/messages`."""

    max_tokens: int = Field(ge=1, lt=2**31, description="Not 0: a prompt is prefilled for a reply of a token at least.")
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, lt=2**31)


def decode(wire: MessagesRequest, service: Service) -> GenerationRequest:
    """The request in internal terms. Raises `ApiError` for what cannot be served."""
    if "" in (wire.stop_sequences or ()):
        raise invalid("stop_sequences: a stop string must not be empty", "stop_sequences")
    sampling: dict[str, Any] = {
        name: value for name in ("temperature", "top_p") if (value := getattr(wire, name)) is not None
    }
    if wire.top_k is not None:
        sampling["top_k"] = max(wire.top_k, 0)
    return GenerationRequest(
        conversation=conversation_of(wire, service.config.enable_auto_tool_choice),
        model=wire.model,
        stream=bool(wire.stream),
        max_tokens=wire.max_tokens,
        sampling=sampling,
        stop=tuple(wire.stop_sequences or ()),
        answer=answer_of(wire.output_config.format if wire.output_config else None, "output_config.format"),
        thinking_budget=wire.thinking.budget_tokens if wire.thinking else None,
        call_prefix="toolu_",
    )


def count_tokens(wire: CountTokensRequest, service: Service) -> dict[str, int]:
    """How many tokens the prompt of a request would have."""
    service.check_model(wire.model)
    prompt = service.render(conversation_of(wire, service.config.enable_auto_tool_choice))
    return {"input_tokens": len(prompt.ids)}


CODEC = Codec(
    "msg_",
    MessagesRequest,
    decode,
    MessageStream,
    whole,
    anthropic_shape,
    keep_alive=frame({"type": "ping"}, "ping"),
)
