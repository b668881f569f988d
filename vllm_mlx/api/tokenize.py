"""`POST /tokenize` and `/detokenize`: what the model reads, as vLLM's routes of the same names say it."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from vllm_mlx.api.chat_request import ChatCompletionRequest, decode
from vllm_mlx.api.errors import invalid
from vllm_mlx.api.requests import WireRequest
from vllm_mlx.api.service import Service


def _of_chat() -> Any:
    return Field(None, description="As in a chat completion.")


class TokenizeRequest(WireRequest):
    """The body of `POST /tokenize`: a prompt, or the fields of a chat request that make one."""

    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool | None = Field(None, description="With prompt; with messages the chat template has them.")
    return_token_strs: bool | None = None
    messages: Any = _of_chat()
    tools: Any = _of_chat()
    tool_choice: Any = _of_chat()
    reasoning_effort: Any = _of_chat()
    thinking: Any = _of_chat()
    enable_thinking: Any = _of_chat()
    chat_template_kwargs: Any = _of_chat()
    add_generation_prompt: Any = _of_chat()
    continue_final_message: Any = _of_chat()

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["prompt"]}, {"required": ["messages"]}]})
    ignored: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (*ChatCompletionRequest.model_fields, *ChatCompletionRequest.ignored), "no part of a prompt"
    )


class DetokenizeRequest(WireRequest):
    """The body of `POST /detokenize`."""

    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0)]]


def tokenize(body: Any, service: Service) -> dict[str, Any]:
    """The token ids of a text, or of a conversation's prompt. Raises `ApiError`."""
    wire = TokenizeRequest.read(body)
    service.check_model(wire.model)
    if (wire.prompt is None) == ("messages" not in body):
        raise invalid("either prompt or messages must be there, and not both", "prompt")
    if wire.prompt is None:
        ids = service.render(decode(ChatCompletionRequest.read(body), service).conversation).ids
    else:
        ids = service.chat.encode(wire.prompt, add_special=wire.add_special_tokens is not False)
    answer = {"count": len(ids), "max_model_len": service.max_model_len, "tokens": ids}
    if wire.return_token_strs:
        vocabulary = service.chat.vocabulary
        answer["token_strs"] = [vocabulary.bytes_of(id).decode(errors="replace") for id in ids]
    return answer


def detokenize(body: Any, service: Service) -> dict[str, Any]:
    """The text of token ids, control tokens included. Raises `ApiError`."""
    wire = DetokenizeRequest.read(body)
    service.check_model(wire.model)
    return {"prompt": service.chat.decode(service.known_ids(wire.tokens, "tokens"))}
