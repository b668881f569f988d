"""`POST /v1/responses`, and the routes under it: a prompt's length, and what is kept of a response."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from tool_parsers.json_text import write_json
from vllm_mlx.api.answer import Codec
from vllm_mlx.api.constraints import answer_of
from vllm_mlx.api.errors import invalid, not_found, responses_shape, unsupported
from vllm_mlx.api.generation import GenerationRequest
from vllm_mlx.api.requests import Wire, WireRequest
from vllm_mlx.api.response_items import input_page
from vllm_mlx.api.response_store import Item, StoredResponse
from vllm_mlx.api.response_tools import ToolSet, tool_set
from vllm_mlx.api.responses_in import additional_tools, items_of, messages_of
from vllm_mlx.api.responses_out import ResponseStream, whole
from vllm_mlx.api.schemas import INPUT_SCHEMA
from vllm_mlx.api.service import Service
from vllm_mlx.api.tools import CHOICE_NOTE, choice_of, note_not_included
from vllm_mlx.chat.conversation import Conversation, Message

INCLUDED = ("reasoning.encrypted_content", "message.output_text.logprobs")
"""What `include` can add here."""


class WireReasoning(Wire):
    """How much the model thinks."""

    effort: str | None = None

    ignored: ClassVar[Mapping[str, str]] = {
        "summary": "thoughts are sent as they are",
        "generate_summary": "thoughts are sent as they are",
    }


class WireText(Wire):
    """The form of the reply."""

    format: dict[str, Any] | None = None

    ignored: ClassVar[Mapping[str, str]] = {"verbosity": "a hint that the model was not trained on"}


class ResponsesRequest(WireRequest):
    """The body of `POST /v1/responses`."""

    input: Any = Field(None, description="A string or a list of items.", json_schema_extra=INPUT_SCHEMA)
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: Any = Field(None, description=CHOICE_NOTE)
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = Field(None, ge=1, lt=2**31)
    stream: bool | None = None
    store: bool | None = None
    include: list[str] | None = Field(None, description=f"{', '.join(INCLUDED)}.")
    top_logprobs: int | None = Field(None, ge=0, le=20, description="With message.output_text.logprobs.")
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    reasoning: WireReasoning | None = None
    text: WireText | None = None
    truncation: Literal["auto", "disabled"] | None = Field(
        None, description="auto: the oldest turns of an input that does not fit are left out."
    )
    metadata: dict[str, str] | None = None

    _items: list[Item] = PrivateAttr(default_factory=list)
    _tool_set: ToolSet = PrivateAttr(default_factory=ToolSet)

    ignored: ClassVar[Mapping[str, str]] = {
        "client_metadata": "a label for the caller's own books",
        "context_management": "the client's history is taken as it comes",
        "max_tool_calls": "counts calls of hosted tools, and there are none",
        "personality": "a hint that the model was not trained on",
        "prompt_cache_key": "the prefix cache finds every prompt by itself",
        "prompt_cache_options": "the prefix cache finds every prompt by itself",
        "prompt_cache_retention": "the prefix cache keeps what it has room for",
        "safety_identifier": "a label for the caller's own books",
        "service_tier": "there is one tier",
        "stream_options": "nothing is padded",
        "user": "a label for the caller's own books",
    }
    refused: ClassVar[Mapping[str, str]] = {
        "background": "a response is made while its client waits",
        "conversation": "send previous_response_id",
        "moderation": "nothing is moderated",
        "prompt": "no prompts are stored on this server",
    }

    @property
    def wants_logprobs(self) -> bool:
        """Whether visible text comes with the log-probabilities of its tokens."""
        return "message.output_text.logprobs" in (self.include or ())

    @property
    def items(self) -> list[Item]:
        """What `input` and the response before it come down to, once it is decoded."""
        return self._items

    @property
    def tool_set(self) -> ToolSet:
        """The tools that are offered, once the request is decoded."""
        return self._tool_set


def decode(wire: ResponsesRequest, service: Service) -> GenerationRequest:
    """The request in internal terms. Raises `ApiError` for what cannot be served."""
    if wire.top_logprobs and not wire.wants_logprobs:
        raise invalid("top_logprobs needs message.output_text.logprobs in include", "top_logprobs")
    for name in set(wire.include or ()) - {*INCLUDED}:
        note_not_included(name)
    items = items_of(wire.input, wire.previous_response_id, service.responses)
    if not items:
        raise invalid("input: must not be empty", "input")
    wire._items = [item for _, item in items]
    tools = wire._tool_set = tool_set([("tools", wire.tools or ()), *additional_tools(items)])
    automatic = service.config.enable_auto_tool_choice
    kwargs: dict[str, Any] = {}
    if wire.reasoning is not None and wire.reasoning.effort is not None:
        kwargs["reasoning_effort"] = wire.reasoning.effort
    instructions = [Message("system", wire.instructions)] if wire.instructions else []
    sampling = {name: value for name in ("temperature", "top_p") if (value := getattr(wire, name)) is not None}
    return GenerationRequest(
        conversation=Conversation(
            messages=(*instructions, *messages_of(items, tools)),
            tools=tools.tools,
            tool_choice=choice_of(wire.tool_choice, wire.parallel_tool_calls, tools.tools, automatic, tools.name_of),
            template_kwargs=kwargs,
        ),
        model=wire.model,
        stream=bool(wire.stream),
        max_tokens=wire.max_output_tokens,
        drop_turns=wire.truncation == "auto",
        sampling=sampling,
        logprobs=(wire.top_logprobs or 0) if wire.wants_logprobs else None,
        answer=answer_of(wire.text.format if wire.text else None, "text.format"),
    )


def count_tokens(request: GenerationRequest, service: Service) -> dict[str, Any]:
    """The body of `POST /v1/responses/input_tokens`: how many tokens the prompt of a request would have."""
    service.check_model(request.model)
    prompt = service.render(service.shortened(request).conversation)
    return {"object": "response.input_tokens", "input_tokens": len(prompt.ids)}


def stored(service: Service, id: str, query: Mapping[str, str]) -> bytes:
    """The body of `GET /v1/responses/{id}`. Raises `ApiError`."""
    if query.get("stream", "").lower() in ("true", "1"):
        raise unsupported("stream", "the events of a response are not kept; it is here as a whole")
    return _found(service, id).body


def input_items(service: Service, id: str, query: Mapping[str, str]) -> bytes:
    """The body of `GET /v1/responses/{id}/input_items`, numbers as the client wrote them. Raises `ApiError`."""
    return write_json(input_page(id, _found(service, id).input, query)).encode()


def _found(service: Service, id: str) -> StoredResponse:
    found = service.responses.get(id)
    if found is None:
        raise _unknown(id)
    return found


def delete(service: Service, id: str) -> dict[str, Any]:
    """The body of `DELETE /v1/responses/{id}`. Raises `ApiError` 404."""
    if not service.responses.delete(id):
        raise _unknown(id)
    return {"id": id, "object": "response.deleted", "deleted": True}


def _unknown(id: str) -> Exception:
    return not_found(f"Response with id '{id}' not found", "response_id", "response_not_found")


CODEC = Codec("resp_", ResponsesRequest, decode, ResponseStream, whole, responses_shape)
