"""Streams: never silent for long, closed when the client leaves."""

import asyncio

import pytest

from vllm_mlx.api.sse import COMMENT, EventStream, frame

pytestmark = pytest.mark.anyio


class Client:
    """An ASGI client that keeps what it is sent, and leaves when it is told."""

    def __init__(self):
        self.sent = []
        self.gone = asyncio.Event()

    async def receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        self.sent.append(message)

    @property
    def body(self):
        return b"".join(message.get("body", b"") for message in self.sent)


class Frames:
    """A generator of frames that tells whether it was closed."""

    def __init__(self, *frames):
        self.frames = frames
        self.closed = False
        self.ended = False

    async def generate(self):
        try:
            for item in self.frames:
                if isinstance(item, bytes):
                    yield item
                else:
                    await item.wait()
        finally:
            self.ended = True

    def close(self):
        self.closed = True


def stream(frames, interval=60.0):
    return EventStream(frames.generate(), close=frames.close, interval=interval)


def test_frames_carry_json_and_a_name_where_there_is_one():
    assert frame({"a": "é\n"}) == 'data: {"a":"é\\n"}\n\n'.encode()
    assert frame([], "ping") == b"event: ping\ndata: []\n\n"


async def test_headers_and_a_comment_go_out_before_anything_is_there():
    client, never = Client(), asyncio.Event()
    frames = Frames(never, b"x")
    task = asyncio.create_task(stream(frames)({"type": "http"}, client.receive, client.send))
    while len(client.sent) < 2:
        await asyncio.sleep(0)
    headers = dict(client.sent[0]["headers"])
    assert client.sent[0]["status"] == 200
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert b"content-length" not in headers
    assert client.body == COMMENT
    never.set()
    await task
    assert client.body == COMMENT + b"x"
    assert [message.get("more_body") for message in client.sent[1:]] == [True, True, False]
    assert frames.closed


async def test_silence_is_broken_by_comments():
    client, later = Client(), asyncio.Event()
    task = asyncio.create_task(
        stream(Frames(b"a", later, b"b"), interval=0.01)({"type": "http"}, client.receive, client.send)
    )
    while client.body.count(COMMENT) < 4:
        await asyncio.sleep(0.01)
    later.set()
    await task
    assert client.body.replace(COMMENT, b"") == b"ab"
    assert all(message["body"] in (b"a", b"b", b"", COMMENT) for message in client.sent[1:])


async def test_a_client_that_leaves_closes_the_generator():
    client, never = Client(), asyncio.Event()
    frames = Frames(b"a", never)
    task = asyncio.create_task(stream(frames)({"type": "http"}, client.receive, client.send))
    while b"a" not in client.body:
        await asyncio.sleep(0)
    assert not frames.ended
    client.gone.set()
    await task
    assert frames.ended
    assert frames.closed


async def test_what_the_generator_stands_on_is_freed_even_if_it_never_began():
    client = Client()
    frames = Frames(b"a")

    async def broken(message):
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await stream(frames)({"type": "http"}, client.receive, broken)
    assert frames.closed
    assert not frames.ended
