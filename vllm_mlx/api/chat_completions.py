"""`POST /v1/chat/completions`: how replies look in the OpenAI chat API."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from tool_parsers.events import ArgumentsDelta, CallStart, Event, Reasoning, Text
from vllm_mlx.api.answer import Codec, StreamEncoder
from vllm_mlx.api.chat_request import ChatCompletionRequest, decode
from vllm_mlx.api.errors import ApiError, openai_shape
from vllm_mlx.api.generation import Finished, Job, Outcome, Token
from vllm_mlx.api.logprobs import logprobs_of
from vllm_mlx.api.service import Service
from vllm_mlx.api.sse import DONE, frame
from vllm_mlx.api.usage import usage_of
from vllm_mlx.chat.reply import ReplyCall

_REASONING_KEYS = {
    "reasoning": ("reasoning",),
    "reasoning_content": ("reasoning_content",),
    "both": ("reasoning", "reasoning_content"),
}


class ChatStream(StreamEncoder):
    """Chunks. All but a delta itself is the same for every chunk of a choice, and written once."""

    def __init__(self, job: Job, wire: ChatCompletionRequest, service: Service) -> None:
        self._job = job
        self._wire = wire
        self._vocabulary = service.chat.vocabulary
        self._head = {
            "id": job.id,
            "object": "chat.completion.chunk",
            "created": job.created,
            "model": service.names[0],
        }
        opening = orjson.dumps(self._head)[:-1]
        self._before = [b'data: %b,"choices":[{"index":%d,"delta":' % (opening, turn.choice) for turn in job.turns]
        self._begun = [False] * len(job.turns)
        self._answered = [False] * len(job.turns)
        """Whether there was text or a call: until then a choice's content is null, as in a whole reply."""
        self._tokens: list[list[Token]] = [[] for _ in job.turns]
        keys = _REASONING_KEYS[service.config.reasoning_field]
        self._reasoning_keys = () if wire.include_reasoning is False else keys

    def tokens(self, choice: int, tokens: Sequence[Token]) -> bytes:
        """They go out with the next chunk: the text of a token may still be held back."""
        self._tokens[choice] += tokens
        return b""

    def event(self, choice: int, event: Event) -> bytes:
        match event:
            case Text(text):
                return self._chunk(choice, {"content": text})
            case Reasoning(text) if self._reasoning_keys:
                return self._chunk(choice, dict.fromkeys(self._reasoning_keys, text))
            case CallStart(index, name, id):
                call = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
                return self._chunk(choice, {"tool_calls": [call]})
            case ArgumentsDelta(index, json):
                return self._chunk(choice, {"tool_calls": [{"index": index, "function": {"arguments": json}}]})
        return b""

    def finish(self, choice: int, finished: Finished) -> bytes:
        return self._chunk(choice, {} if self._answered[choice] else {"content": ""}, finished)

    def end(self) -> bytes:
        if not self._wire.wants_usage:
            return DONE
        return frame({**self._head, "choices": [], "usage": usage_of(self._job.usage)}) + DONE

    def error(self, error: ApiError) -> bytes:
        return frame(openai_shape(error)) + DONE

    def _chunk(self, choice: int, delta: Mapping[str, Any], finished: Finished | None = None) -> bytes:
        first = b""
        if not self._begun[choice]:
            self._begun[choice] = True
            ids = {"prompt_token_ids": self._job.prompt.ids} if self._wire.return_token_ids else {}
            first = self._written(choice, {"role": "assistant", "content": "" if "content" in delta else None}, {}, ids)
        self._answered[choice] |= not delta.keys().isdisjoint(("content", "tool_calls"))
        beside: dict[str, Any] = {}
        if self._tokens[choice]:
            beside = self._beside(self._tokens[choice])
            self._tokens[choice] = []
        if finished is not None:
            beside["finish_reason"] = finished.reason
            if finished.stop is not None:
                beside["stop_reason"] = finished.stop
        return first + self._written(choice, delta, beside, {})

    def _beside(self, tokens: Sequence[Token]) -> dict[str, Any]:
        beside: dict[str, Any] = {}
        if self._wire.logprobs:
            beside["logprobs"] = logprobs_of(tokens, self._vocabulary)
        if self._wire.return_token_ids:
            beside["token_ids"] = [token.id for token in tokens]
        return beside

    def _written(self, choice: int, delta: Mapping[str, Any], beside: Mapping[str, Any], top: dict[str, Any]) -> bytes:
        """A chunk: `beside` are fields of the choice, `top` those of the chunk."""
        if self._wire.wants_usage_always:
            top["usage"] = usage_of(self._job.turns[choice].usage)
        if not beside and not top:
            return self._before[choice] + orjson.dumps(delta) + b',"logprobs":null,"finish_reason":null}]}\n\n'
        fields = orjson.dumps({"logprobs": None, "finish_reason": None, **beside})[1:-1]
        after = b"," + orjson.dumps(top)[1:-1] if top else b""
        return b"%b%b,%b}]%b}\n\n" % (self._before[choice], orjson.dumps(delta), fields, after)


def whole(job: Job, wire: ChatCompletionRequest, service: Service, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """A `chat.completion` object."""
    completion = {
        "id": job.id,
        "object": "chat.completion",
        "created": job.created,
        "model": service.names[0],
        "choices": [_choice(index, outcome, wire, service) for index, outcome in enumerate(outcomes)],
        "usage": usage_of(job.usage),
    }
    return {**completion, "prompt_token_ids": job.prompt.ids} if wire.return_token_ids else completion


def _choice(index: int, outcome: Outcome, wire: ChatCompletionRequest, service: Service) -> dict[str, Any]:
    reply, finished = outcome.reply, outcome.finished
    content = reply.content if reply.content is not None or reply.tool_calls else ""
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    thought = None if wire.include_reasoning is False else reply.reasoning
    message.update(dict.fromkeys(_REASONING_KEYS[service.config.reasoning_field], thought))
    if reply.tool_calls:
        message["tool_calls"] = [_call(call) for call in reply.tool_calls]
    logprobs = logprobs_of(outcome.tokens, service.chat.vocabulary) if wire.logprobs else None
    choice = {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finished.reason}
    if finished.stop is not None:
        choice["stop_reason"] = finished.stop
    if wire.return_token_ids:
        choice["token_ids"] = [token.id for token in outcome.tokens]
    return choice


def _call(call: ReplyCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


CODEC = Codec("chatcmpl-", ChatCompletionRequest, decode, ChatStream, whole, openai_shape)
