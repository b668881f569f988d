"""Events to the Responses API: a stream of items, and the same items as a whole."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import orjson

from tool_parsers.events import ArgumentsDelta, CallAborted, CallEnd, CallStart, Event, Reasoning, Text
from tool_parsers.json_text import write_json
from vllm_mlx.api.answer import StreamEncoder
from vllm_mlx.api.custom_input import CustomInput
from vllm_mlx.api.errors import ApiError
from vllm_mlx.api.generation import Finished, Job, Outcome, Token, Usage
from vllm_mlx.api.logprobs import logprobs_of
from vllm_mlx.api.response_tools import Origin
from vllm_mlx.api.sealed import seal
from vllm_mlx.api.service import Service
from vllm_mlx.api.sse import frame
from vllm_mlx.api.text_tokens import TextTokens

if TYPE_CHECKING:
    from vllm_mlx.api.responses import ResponsesRequest

Status = Literal["in_progress", "completed", "incomplete"]


class Envelope:
    """What is the same in every state of one response."""

    def __init__(self, job: Job, wire: "ResponsesRequest", service: Service) -> None:
        self._job = job
        self._wire = wire
        self._service = service
        self.sealed = "reasoning.encrypted_content" in (wire.include or ())
        tools = [
            {"parameters": None, "strict": None, **tool} if tool.get("type") == "function" else tool
            for tool in wire.tools or ()
        ]
        self._head = {
            "id": job.id,
            "object": "response",
            "created_at": job.created,
            "background": False,
            "instructions": wire.instructions,
            "max_output_tokens": wire.max_output_tokens,
            "metadata": wire.metadata or {},
            "model": service.names[0],
            "parallel_tool_calls": wire.parallel_tool_calls is not False,
            "previous_response_id": wire.previous_response_id,
            "reasoning": {"effort": wire.reasoning.effort if wire.reasoning else None, "summary": None},
            "service_tier": "default",
            "store": wire.store is not False,
            "temperature": wire.temperature,
            "text": {"format": orjson.Fragment(write_json((wire.text and wire.text.format) or {"type": "text"}))},
            # As the client wrote them: numbers in a schema keep their spelling.
            "tool_choice": orjson.Fragment(write_json(wire.tool_choice or "auto")),
            "tools": orjson.Fragment(write_json(tools)),
            "top_logprobs": wire.top_logprobs or 0,
            "top_p": wire.top_p,
            "truncation": wire.truncation or "disabled",
        }

    def response(
        self,
        status: Literal["in_progress", "completed", "incomplete", "failed"],
        output: Sequence[dict[str, Any]] = (),
        usage: Usage | None = None,
        error: ApiError | None = None,
    ) -> dict[str, Any]:
        """The response in a state."""
        return {
            **self._head,
            "status": status,
            "completed_at": int(time.time()) if status == "completed" else None,
            "error": None if error is None else {"code": error.code or "server_error", "message": error.message},
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "output": output,
            "usage": None if usage is None else _usage(usage),
        }

    def ended(self, finished: Finished, output: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The response at its end, which is kept if the client wants that."""
        response = self.response("incomplete" if finished.reason == "length" else "completed", output, finished.usage)
        if self._wire.store is not False:
            self._service.responses.put(self._job.id, orjson.dumps(response), self._wire.items, output)
        return response

    def reasoning(self, id: str, text: str, status: Status) -> dict[str, Any]:
        """A thought as an item."""
        content = [] if status == "in_progress" else [_reasoning_text(text)]
        item = {"id": id, "type": "reasoning", "summary": [], "content": content, "status": status}
        return {**item, "encrypted_content": seal(text)} if self.sealed and content else item

    def call(self, id: str, origin: Origin, call_id: str | None, value: str, status: Status) -> dict[str, Any]:
        """A call as an item; `value` is its arguments, or its input."""
        kind, key = ("custom_tool_call", "input") if origin.custom else ("function_call", "arguments")
        item = {"id": id, "type": kind, "call_id": call_id, "name": origin.name, key: value, "status": status}
        return item if origin.namespace is None else {**item, "namespace": origin.namespace}


@dataclass(slots=True)
class _Open:
    """The item that is being written."""

    kind: Literal["text", "reasoning", "call"]
    id: str
    pieces: list[str] = field(default_factory=list)
    origin: Origin = field(default_factory=lambda: Origin(""))
    call_id: str | None = None
    custom: CustomInput | None = None
    logprobs: list[dict[str, Any]] = field(default_factory=list)


class ResponseStream(StreamEncoder):
    """Items one after the other. A call that was cut never gets its `output_item.done`: no client runs it."""

    def __init__(self, job: Job, wire: "ResponsesRequest", service: Service) -> None:
        self._envelope = Envelope(job, wire, service)
        self._tools = wire.tool_set
        self._vocabulary = service.chat.vocabulary
        self._tokens = TextTokens(self._vocabulary)
        self._number = -1
        self._index = -1
        self._open: _Open | None = None
        self._output: list[dict[str, Any]] = []
        self._finished: Finished | None = None

    def start(self) -> bytes:
        response = self._envelope.response("in_progress")
        return self._frame("created", response=response) + self._frame("in_progress", response=response)

    def tokens(self, choice: int, tokens: Sequence[Token]) -> bytes:
        del choice
        self._tokens.feed(tokens)
        return b""

    def event(self, choice: int, event: Event) -> bytes:
        del choice
        match event:
            case Text(text):
                return self._text("text", text)
            case Reasoning(text):
                return self._text("reasoning", text)
            case CallStart(_, name, id):
                return self._close("completed") + self._begin_call(self._tools.origin(name), id)
            case ArgumentsDelta(_, json):
                return self._arguments(json)
            case CallEnd():
                self._tokens.drop()
                return self._close("completed")
            case CallAborted():
                self._open = None
        return b""

    def finish(self, choice: int, finished: Finished) -> bytes:
        del choice
        self._finished = finished
        return self._close("incomplete" if finished.reason == "length" else "completed")

    def end(self) -> bytes:
        response = self.ended()
        return self._frame(response["status"], response=response)

    def ended(self) -> dict[str, Any]:
        """The response, once it has finished."""
        assert self._finished is not None
        return self._envelope.ended(self._finished, self._output)

    def error(self, error: ApiError) -> bytes:
        told = self._frame("error", code=error.code, message=error.message, param=error.param)
        response = self._envelope.response("failed", self._output, error=error)
        return told + self._frame("failed", response=response)

    def _text(self, kind: Literal["text", "reasoning"], text: str) -> bytes:
        begun = b""
        if self._open is None or self._open.kind != kind:
            begun = self._close("completed")
            self._open = _Open(kind, new_id("msg" if kind == "text" else "rs"))
            begun += self._added(self._item(self._open, "in_progress"))
            begun += self._part("content_part.added", part=_part(kind, "", []))
        self._open.pieces.append(text)
        logprobs = logprobs_of(self._tokens.take(text), self._vocabulary)["content"]
        if kind == "text":
            self._open.logprobs += logprobs
            return begun + self._part("output_text.delta", delta=text, logprobs=logprobs)
        return begun + self._part("reasoning_text.delta", delta=text)

    def _begin_call(self, origin: Origin, call_id: str | None) -> bytes:
        custom = CustomInput() if origin.custom else None
        self._open = _Open("call", new_id("ctc" if custom else "fc"), origin=origin, call_id=call_id, custom=custom)
        return self._added(self._item(self._open, "in_progress"))

    def _arguments(self, json: str) -> bytes:
        call = self._open
        assert call is not None
        return self._value(call, json if call.custom is None else call.custom.feed(json))

    def _value(self, call: _Open, piece: str) -> bytes:
        if not piece:
            return b""
        call.pieces.append(piece)
        return self._part(f"{_call_event(call)}.delta", indexed=False, delta=piece)

    def _close(self, status: Status) -> bytes:
        """Ends the item that is open, if one is."""
        item = self._open
        if item is None:
            return b""
        frames = b""
        if item.kind == "call":
            if item.custom is not None:
                frames = self._value(item, item.custom.finish())
            key = "arguments" if item.custom is None else "input"
            frames += self._part(f"{_call_event(item)}.done", indexed=False, **{key: "".join(item.pieces)})
        else:
            text = "".join(item.pieces)
            if item.kind == "text":
                frames = self._part("output_text.done", text=text, logprobs=item.logprobs)
            else:
                frames = self._part("reasoning_text.done", text=text)
            frames += self._part("content_part.done", part=_part(item.kind, text, item.logprobs))
        done = self._item(item, status)
        self._output.append(done)
        self._open = None
        return frames + self._frame("output_item.done", output_index=self._index, item=done)

    def _item(self, item: _Open, status: Status) -> dict[str, Any]:
        value = "".join(item.pieces)
        if item.kind == "text":
            return message(item.id, value, item.logprobs, status)
        if item.kind == "reasoning":
            return self._envelope.reasoning(item.id, value, status)
        return self._envelope.call(item.id, item.origin, item.call_id, value, status)

    def _added(self, item: dict[str, Any]) -> bytes:
        self._index += 1
        return self._frame("output_item.added", output_index=self._index, item=item)

    def _part(self, name: str, *, indexed: bool = True, **fields: Any) -> bytes:
        """An event of the open item; `indexed`: of its only content part."""
        assert self._open is not None
        where: dict[str, Any] = {"item_id": self._open.id, "output_index": self._index}
        if indexed:
            where["content_index"] = 0
        return self._frame(name, **where, **fields)

    def _frame(self, name: str, **fields: Any) -> bytes:
        self._number += 1
        kind = name if name == "error" else f"response.{name}"
        return frame({"type": kind, "sequence_number": self._number, **fields}, kind)


def whole(job: Job, wire: "ResponsesRequest", service: Service, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """A `response` object: what a stream ends with."""
    (outcome,) = outcomes
    stream = ResponseStream(job, wire, service)
    for batch in outcome.batches:
        stream.tokens(0, batch.tokens)
        for event in batch.events:
            stream.event(0, event)
    stream.finish(0, outcome.finished)
    return stream.ended()


def message(id: str, text: str, logprobs: list[dict[str, Any]], status: Status) -> dict[str, Any]:
    """Visible text as an item."""
    content = [] if status == "in_progress" else [_output_text(text, logprobs)]
    return {"id": id, "type": "message", "role": "assistant", "content": content, "status": status}


def new_id(kind: str) -> str:
    """An id that no other item has."""
    return f"{kind}_{secrets.token_hex(16)}"


def _call_event(call: _Open) -> str:
    return "function_call_arguments" if call.custom is None else "custom_tool_call_input"


def _part(kind: str, text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return _output_text(text, logprobs) if kind == "text" else _reasoning_text(text)


def _output_text(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def _reasoning_text(text: str) -> dict[str, Any]:
    return {"type": "reasoning_text", "text": text}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.total,
    }
