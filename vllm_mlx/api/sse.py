"""Server-sent events: a stream of frames that is never silent for long and ends when its client leaves."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

COMMENT = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


def frame(value: Any, event: str | None = None) -> bytes:
    """One event: its JSON on a `data:` line, after an `event:` line where the protocol names its events."""
    data = b"data: " + orjson.dumps(value) + b"\n\n"
    return data if event is None else b"event: " + event.encode() + b"\n" + data


async def disconnected(receive: Receive) -> None:
    """Returns when the client has left. The request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """Sends the frames of a generator as they come.

    The headers and one comment go out at once, and another comment whenever nothing was sent for
    `interval` seconds, so that no client and no proxy takes a long prefill for a dead server. When the client
    leaves, the generator is closed where it stands.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        *,
        close: Callable[[], None],
        interval: float,
        keep_alive: bytes = COMMENT,
    ) -> None:
        """`close` frees what the generator stands on, also when it was never begun."""
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.frames = frames
        self.close = close
        self.interval = interval
        self.keep_alive = keep_alive

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks: list[asyncio.Task[None]] = []
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._send(send, COMMENT)
            sending = asyncio.create_task(self._send_all(send))
            gone = asyncio.create_task(disconnected(receive))
            tasks = [sending, gone, asyncio.create_task(self._keep_alive(send))]
            await asyncio.wait([sending, gone], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await self.frames.aclose()
            self.close()
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _send(self, send: Send, body: bytes) -> None:
        self._sent_at = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": body, "more_body": True})

    async def _send_all(self, send: Send) -> None:
        async for body in self.frames:
            if body:
                await self._send(send, body)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _keep_alive(self, send: Send) -> None:
        now = asyncio.get_running_loop().time
        while True:
            silence = now() - self._sent_at
            if silence >= self.interval:
                await self._send(send, self.keep_alive)
            else:
                await asyncio.sleep(self.interval - silence)
