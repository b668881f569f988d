"""Events to Anthropic messages: a stream of blocks, and the same blocks as a whole."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import orjson

from tool_parsers.events import ArgumentsDelta, CallAborted, CallEnd, CallStart, Event, Reasoning, Text
from vllm_mlx.api.answer import StreamEncoder
from vllm_mlx.api.errors import ApiError, anthropic_shape
from vllm_mlx.api.generation import Finished, Job, Outcome, Usage
from vllm_mlx.api.sealed import seal, signature
from vllm_mlx.api.service import Service
from vllm_mlx.api.sse import frame
from vllm_mlx.chat.reply import Part, ReplyCall

if TYPE_CHECKING:
    from vllm_mlx.api.messages import MessagesRequest

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessageStream(StreamEncoder):
    """Blocks one after the other. A call that was cut never gets its `content_block_stop`: no client runs it."""

    def __init__(self, job: Job, wire: "MessagesRequest", service: Service) -> None:
        self._job = job
        self._service = service
        self._hidden = _hidden(wire)
        self._open: Literal["text", "thinking", "tool_use"] | None = None
        self._index = -1
        self._thought: list[str] = []

    def start(self) -> bytes:
        message = {**_message(self._job, self._service), "stop_reason": None, "stop_sequence": None}
        usage = _usage(Usage(self._job.prompt_tokens, 0, 0, 0))
        return _frame({"type": "message_start", "message": {**message, "content": [], "usage": usage}})

    def event(self, choice: int, event: Event) -> bytes:
        del choice
        match event:
            case Text(text):
                return self._begin("text", {"text": ""}) + self._delta({"type": "text_delta", "text": text})
            case Reasoning(text):
                begun = self._begin("thinking", {"thinking": "", "signature": ""})
                self._thought.append(text)
                return begun if self._hidden else begun + self._delta({"type": "thinking_delta", "thinking": text})
            case CallStart(_, name, id):
                return self._stop() + self._begin("tool_use", {"id": id, "name": name, "input": {}})
            case ArgumentsDelta(_, json):
                return self._delta({"type": "input_json_delta", "partial_json": json})
            case CallEnd():
                return self._stop()
            case CallAborted():
                self._open = None
        return b""

    def finish(self, choice: int, finished: Finished) -> bytes:
        del choice
        return self._stop() + _frame(
            {
                "type": "message_delta",
                "delta": _ending(finished, self._service),
                "usage": _usage(finished.usage),
            }
        )

    def end(self) -> bytes:
        return _frame({"type": "message_stop"})

    def error(self, error: ApiError) -> bytes:
        return _frame(anthropic_shape(error))

    def _begin(self, kind: Literal["text", "thinking", "tool_use"], empty: dict[str, Any]) -> bytes:
        """Opens a block, unless one of its kind is open."""
        if self._open == kind:
            return b""
        stopped = self._stop()
        self._open = kind
        self._index += 1
        block = {"type": kind, **empty}
        return stopped + _frame({"type": "content_block_start", "index": self._index, "content_block": block})

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _frame({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _stop(self) -> bytes:
        if self._open is None:
            return b""
        signed = b""
        if self._open == "thinking":
            word = _signature("".join(self._thought), self._hidden)
            signed = self._delta({"type": "signature_delta", "signature": word})
            self._thought.clear()
        self._open = None
        return signed + _frame({"type": "content_block_stop", "index": self._index})


def whole(job: Job, wire: "MessagesRequest", service: Service, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """A `message` object."""
    (outcome,) = outcomes
    hidden = _hidden(wire)
    blocks = [block for part in outcome.reply.parts if (block := _block(part, hidden))]
    return {
        **_message(job, service),
        "content": blocks,
        **_ending(outcome.finished, service),
        "usage": _usage(outcome.finished.usage),
    }


def _block(part: Part, hidden: bool) -> dict[str, Any] | None:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Reasoning(text):
            return {"type": "thinking", "thinking": "" if hidden else text, "signature": _signature(text, hidden)}
        case ReplyCall(_, name, arguments, id):
            # As the model wrote it: numbers keep their spelling.
            return {"type": "tool_use", "id": id, "name": name, "input": orjson.Fragment(arguments)}
    return None


def _frame(value: dict[str, Any]) -> bytes:
    return frame(value, value["type"])


def _message(job: Job, service: Service) -> dict[str, Any]:
    return {"id": job.id, "type": "message", "role": "assistant", "model": service.names[0]}


def _hidden(wire: "MessagesRequest") -> bool:
    """The client does not want to see thoughts; the signature carries them."""
    return wire.thinking is not None and wire.thinking.display == "omitted"


def _signature(thought: str, hidden: bool) -> str:
    return seal(thought) if hidden else signature(thought)


def _ending(finished: Finished, service: Service) -> dict[str, Any]:
    """Why the reply ended: at a limit it is the client's, or the context's where that left less room."""
    if finished.reason == "stop" and isinstance(finished.stop, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": finished.stop}
    reason = _STOP_REASONS[finished.reason]
    if finished.reason == "length" and finished.usage.total >= service.max_model_len:
        reason = "model_context_window_exceeded"
    return {"stop_reason": reason, "stop_sequence": None}


def _usage(usage: Usage) -> dict[str, Any]:
    """Disjoint numbers: the prompt's tokens are either read from the cache or input."""
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
        "service_tier": "standard",
    }
