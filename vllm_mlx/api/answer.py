"""The way of every generating request: decode, start, then encode as a stream or as a whole."""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tool_parsers.events import Event
from vllm_mlx.api.errors import ApiError, Shape, server_error
from vllm_mlx.api.generation import Finished, GenerationRequest, Job, Service
from vllm_mlx.api.requests import WireRequest, read_body
from vllm_mlx.api.sse import COMMENT, EventStream, disconnected
from vllm_mlx.chat.reply import Reply

log = logging.getLogger(__name__)

W = TypeVar("W", bound=WireRequest)


class StreamEncoder(Protocol):
    """One stream in a protocol's own frames. Every method returns the bytes to send, b"" for none."""

    def start(self) -> bytes:
        """Before anything was generated; nothing is known yet but the prompt."""
        ...

    def event(self, choice: int, event: Event) -> bytes: ...

    def finish(self, choice: int, finished: Finished) -> bytes: ...

    def end(self) -> bytes:
        """After the last choice has finished."""
        ...

    def error(self, error: ApiError) -> bytes:
        """Instead of everything that would have come: the stream closes after it."""
        ...


@dataclass(frozen=True, slots=True)
class Codec(Generic[W]):
    """A protocol: one way in and two ways out. `keep_alive` is sent while a stream is silent."""

    prefix: str
    wire: type[W]
    decode: Callable[[W, Service], GenerationRequest]
    stream: Callable[[Job, W, Service], StreamEncoder]
    whole: Callable[[Job, W, Service, list[tuple[Reply, Finished]]], dict[str, Any]]
    shape: Shape
    keep_alive: bytes = COMMENT


async def answer(http: Request, service: Service, codec: Codec[W]) -> Response:
    """Answers one request. Errors before the first byte are raised as `ApiError`, later ones end the stream."""
    body = await read_body(http)
    wire = codec.wire.read(body)
    request = codec.decode(wire, service)
    job = service.start(codec.prefix + secrets.token_hex(12), request)
    if service.recorder is not None:
        service.recorder.begin(http.url.path, body, job)
    if request.stream:
        frames = _frames(job, codec.stream(job, wire, service))
        interval = service.config.keep_alive_interval
        return EventStream(frames, close=job.close, interval=interval, keep_alive=codec.keep_alive)
    replies = await _unless_disconnected(http, job)
    if replies is None:
        return Response(status_code=499)
    return json_response(codec.whole(job, wire, service, replies))


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON body."""
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


async def _frames(job: Job, encoder: StreamEncoder) -> AsyncGenerator[bytes, None]:
    """A job's frames; the frames of one engine step are sent together."""
    try:
        yield encoder.start()
        async with aclosing(job.batches()) as batches:
            async for choice, batch in batches:
                yield b"".join(
                    encoder.finish(choice, event) if isinstance(event, Finished) else encoder.event(choice, event)
                    for event in batch
                )
        yield encoder.end()
    except ApiError as error:
        yield encoder.error(error)
    except Exception:
        log.exception("request %s failed", job.id)
        yield encoder.error(server_error("internal error; the server's log has the details", "internal_error"))


async def _unless_disconnected(http: Request, job: Job) -> list[tuple[Reply, Finished]] | None:
    """The whole replies, or None when the client has left before they were there."""
    replies = asyncio.ensure_future(job.replies())
    gone = asyncio.ensure_future(disconnected(http.receive))
    try:
        await asyncio.wait([replies, gone], return_when=asyncio.FIRST_COMPLETED)
        return replies.result() if replies.done() else None
    finally:
        gone.cancel()
        replies.cancel()
        await asyncio.gather(replies, gone, return_exceptions=True)
        job.close()
