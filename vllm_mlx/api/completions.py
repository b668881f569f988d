"""`POST /v1/completions`: text goes on as the model writes it; no chat template, and nothing in it is parsed."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import orjson
from pydantic import Field

from tool_parsers.events import Event, Text
from vllm_mlx.api.answer import Codec, StreamEncoder
from vllm_mlx.api.errors import ApiError, completions_shape, invalid
from vllm_mlx.api.fields import GenerationFields
from vllm_mlx.api.generation import Finished, GenerationRequest, Job, Outcome, Token
from vllm_mlx.api.logprobs import text_logprobs_of
from vllm_mlx.api.service import Service
from vllm_mlx.api.sse import DONE, frame
from vllm_mlx.api.usage import usage_of
from vllm_mlx.chat.conversation import Conversation
from vllm_mlx.chat.model import Prompt

MOST_PROMPTS = 128

_TEXT: dict[str, Any] = {"type": "string", "minLength": 1}
_IDS: dict[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}


def _several(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1, "maxItems": MOST_PROMPTS}


class CompletionRequest(GenerationFields):
    """The body of `POST /v1/completions`."""

    prompt: Any = Field(
        description="A string, token ids, or a list of either.",
        json_schema_extra={"anyOf": [_TEXT, _IDS, _several(_TEXT), _several(_IDS)]},
    )
    echo: bool | None = Field(None, description="The prompt comes before the reply.")
    logprobs: int | None = Field(None, ge=0, le=20, description="Alternatives for each token.")
    add_special_tokens: bool | None = Field(None, description="false: no begin-of-text token before a string.")

    refused: ClassVar[Mapping[str, str]] = {
        **GenerationFields.refused,
        "suffix": "the model fills no gaps",
    }


def decode(wire: CompletionRequest, service: Service) -> GenerationRequest:
    """The request in internal terms. Raises `ApiError` for what cannot be served."""
    if wire.echo and wire.logprobs is not None:
        raise invalid("echo does not go with logprobs: the prompt's tokens are not scored", "echo")
    return GenerationRequest(
        conversation=Conversation(()),
        prompts=prompts_of(wire.prompt, wire.add_special_tokens is not False, service),
        logprobs=wire.logprobs,
        **wire.common(),
    )


def prompts_of(value: Any, special: bool, service: Service) -> tuple[Prompt, ...]:
    """Every prompt of a request; `special`: strings get the model's begin of text. Raises `ApiError`."""
    several = isinstance(value, list) and not _are_ids(value)
    if several and not 0 < len(value) <= MOST_PROMPTS:
        raise invalid(f"prompt: must be 1 to {MOST_PROMPTS} prompts", "prompt")
    named = [(f"prompt[{i}]", item) for i, item in enumerate(value)] if several else [("prompt", value)]
    return tuple(_prompt(item, param, special, service) for param, item in named)


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


def _prompt(value: Any, param: str, special: bool, service: Service) -> Prompt:
    if isinstance(value, str):
        ids = service.chat.encode(value, add_special=special)
        text = value
    elif _are_ids(value):
        ids = service.known_ids(value, param)
        text = service.chat.decode(ids)
    else:
        raise invalid(f"{param}: must be a string or a list of token ids", param)
    if not ids:
        raise invalid(f"{param}: must not be empty", param)
    return Prompt(text, ids, thinking_open=False, marked=text)


class CompletionStream(StreamEncoder):
    """Chunks of `text_completion`."""

    def __init__(self, job: Job, wire: CompletionRequest, service: Service) -> None:
        self._job = job
        self._wire = wire
        self._vocabulary = service.chat.vocabulary
        self._head = _head(job, service)
        self._before = orjson.dumps(self._head)[:-1]
        self._tokens: list[list[Token]] = [[] for _ in job.turns]
        self._offsets = [0] * len(job.turns)

    def start(self) -> bytes:
        if not self._wire.echo:
            return b""
        return b"".join(self._chunk(turn.choice, turn.prompt.text) for turn in self._job.turns)

    def tokens(self, choice: int, tokens: Sequence[Token]) -> bytes:
        self._tokens[choice] += tokens
        return b""

    def event(self, choice: int, event: Event) -> bytes:
        return self._chunk(choice, event.text) if isinstance(event, Text) else b""

    def finish(self, choice: int, finished: Finished) -> bytes:
        return self._chunk(choice, "", finished)

    def end(self) -> bytes:
        if not self._wire.wants_usage:
            return DONE
        return frame({**self._head, "choices": [], "usage": usage_of(self._job.usage)}) + DONE

    def error(self, error: ApiError) -> bytes:
        return frame(completions_shape(error)) + DONE

    def _chunk(self, choice: int, text: str, finished: Finished | None = None) -> bytes:
        tokens, self._tokens[choice] = self._tokens[choice], []
        logprobs = None
        if self._wire.logprobs is not None and tokens:
            logprobs = text_logprobs_of(tokens, self._vocabulary, self._offsets[choice])
            self._offsets[choice] += sum(map(len, logprobs["tokens"]))
        body = {"index": choice, "text": text, "logprobs": logprobs, **_ending(finished)}
        if self._wire.return_token_ids:
            body["token_ids"] = [token.id for token in tokens]
        after = b""
        if self._wire.wants_usage_always:
            after = b',"usage":' + orjson.dumps(usage_of(self._job.turns[choice].usage))
        return b'data: %b,"choices":[%b]%b}\n\n' % (self._before, orjson.dumps(body), after)


def whole(job: Job, wire: CompletionRequest, service: Service, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """A `text_completion` object."""
    choices = [_choice(job.turns[i].prompt, i, outcome, wire, service) for i, outcome in enumerate(outcomes)]
    return {**_head(job, service), "choices": choices, "usage": usage_of(job.usage)}


def _head(job: Job, service: Service) -> dict[str, Any]:
    return {"id": job.id, "object": "text_completion", "created": job.created, "model": service.names[0]}


def _ending(finished: Finished | None) -> dict[str, Any]:
    if finished is None:
        return {"finish_reason": None}
    return {"finish_reason": finished.reason, **({} if finished.stop is None else {"stop_reason": finished.stop})}


def _choice(prompt: Prompt, index: int, outcome: Outcome, wire: CompletionRequest, service: Service) -> dict[str, Any]:
    text = (prompt.text if wire.echo else "") + (outcome.reply.content or "")
    logprobs = None if wire.logprobs is None else text_logprobs_of(outcome.tokens, service.chat.vocabulary, 0)
    choice = {"index": index, "text": text, "logprobs": logprobs, **_ending(outcome.finished)}
    if wire.return_token_ids:
        choice |= {"token_ids": [token.id for token in outcome.tokens], "prompt_token_ids": prompt.ids}
    return choice


CODEC = Codec("cmpl-", CompletionRequest, decode, CompletionStream, whole, completions_shape)
