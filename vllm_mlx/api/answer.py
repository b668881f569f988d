"""The way of every generating request: decode, start, then encode as a stream or as a whole."""

import asyncio
import logging
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson
from starlette.requests import Request
from starlette.responses import Response

from tool_parsers.events import Event
from vllm_mlx.api.errors import ApiError, Shape, server_error, shape_of
from vllm_mlx.api.generation import Finished, GenerationRequest, Job, Outcome, Token
from vllm_mlx.api.requests import WireRequest, read_body
from vllm_mlx.api.service import Service
from vllm_mlx.api.sse import COMMENT, EventStream, disconnected

log = logging.getLogger(__name__)

W = TypeVar("W", bound=WireRequest)


class StreamEncoder(ABC):
    """One stream in a protocol's own frames. Every method returns the bytes to send, b"" for none."""

    def start(self) -> bytes:
        """Before anything was generated; nothing is known yet but the prompt."""
        return b""

    def tokens(self, choice: int, tokens: Sequence[Token]) -> bytes:
        """The tokens of a step, before its events; only for a request that wants them."""
        del choice, tokens
        return b""

    @abstractmethod
    def event(self, choice: int, event: Event) -> bytes:
        """One event of a reply."""

    @abstractmethod
    def finish(self, choice: int, finished: Finished) -> bytes:
        """After the last event of a choice."""

    @abstractmethod
    def end(self) -> bytes:
        """After the last choice has finished."""

    @abstractmethod
    def error(self, error: ApiError) -> bytes:
        """Instead of everything that would have come: the stream closes after it."""


@dataclass(frozen=True, slots=True)
class Codec(Generic[W]):
    """A protocol: one way in and two ways out. `keep_alive` is sent while a stream is silent."""

    prefix: str
    wire: type[W]
    decode: Callable[[W, Service], GenerationRequest]
    stream: Callable[[Job, W, Service], StreamEncoder]
    whole: Callable[[Job, W, Service, Sequence[Outcome]], dict[str, Any]]
    shape: Shape
    keep_alive: bytes = COMMENT


async def answer(http: Request, service: Service, codec: Codec[W]) -> Response:
    """Answers one request. Errors before the first byte are raised as `ApiError`, later ones end the stream."""
    body = await read_body(http, service.config.max_request_bytes)
    wire = codec.wire.read(body)
    request = codec.decode(wire, service)
    job = await service.start(codec.prefix + secrets.token_hex(12), request)
    if service.recorder is not None:
        service.recorder.begin(http.url.path, body, job)
    if request.stream:
        return stream_response(job, codec.stream(job, wire, service), service, codec.keep_alive)
    outcomes = await unless_disconnected(http, job)
    return gone() if outcomes is None else json_response(codec.whole(job, wire, service, outcomes))


def stream_response(job: Job, encoder: StreamEncoder, service: Service, keep_alive: bytes = COMMENT) -> Response:
    """A job as a stream of events."""
    interval = service.config.keep_alive_interval
    return EventStream(_frames(job, encoder), close=job.close, interval=interval, keep_alive=keep_alive)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON body."""
    return Response(orjson.dumps(value), status, headers, media_type="application/json")


def error_response(path: str, error: ApiError) -> Response:
    """An error in the shape of the route at `path`."""
    return json_response(shape_of(path)(error), error.status, error.headers)


def gone() -> Response:
    """For a client that has left; the status is for the log."""
    return Response(status_code=499)


async def _frames(job: Job, encoder: StreamEncoder) -> AsyncGenerator[bytes, None]:
    """A job's frames; the frames of one engine step are sent together."""
    try:
        yield encoder.start()
        async with aclosing(job.batches()) as batches:
            async for batch in batches:
                choice = batch.choice
                frames = [encoder.tokens(choice, batch.tokens)] if batch.tokens else []
                frames += [encoder.event(choice, event) for event in batch.events]
                if batch.finished is not None:
                    frames.append(encoder.finish(choice, batch.finished))
                yield b"".join(frames)
        yield encoder.end()
    except ApiError as error:
        yield encoder.error(error)
    except Exception:
        log.exception("request %s failed", job.id)
        yield encoder.error(server_error("internal error; the server's log has the details", "internal_error"))


async def unless_disconnected(http: Request, job: Job) -> list[Outcome] | None:
    """The whole replies, or None when the client has left before they were there."""
    outcomes = asyncio.create_task(job.outcomes())
    left = asyncio.create_task(disconnected(http.receive))
    try:
        await asyncio.wait([outcomes, left], return_when=asyncio.FIRST_COMPLETED)
        return outcomes.result() if outcomes.done() else None
    finally:
        left.cancel()
        outcomes.cancel()
        await asyncio.gather(outcomes, left, return_exceptions=True)
        job.close()
