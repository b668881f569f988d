"""A streaming HTTP client that costs little: it shares the machine with the servers that it measures."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


class BenchError(Exception):
    """A server did not answer as it should; the message is for the user."""


@dataclass(slots=True)
class Stream:
    """One streamed reply. Times are seconds of `time.perf_counter`, one a chunk that carried output."""

    started: float
    times: list[float] = field(default_factory=list)
    reasoning: str = ""
    content: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    finish: str | None = None
    done: float = 0.0

    @property
    def text(self) -> str:
        return self.reasoning + self.content

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens that the server says it did not compute; None if it does not say."""
        details = self.usage.get("prompt_tokens_details")
        return int(details.get("cached_tokens") or 0) if details else None

    @property
    def ttft(self) -> float:
        """Seconds to the first token."""
        return self.times[0] - self.started

    @property
    def gaps(self) -> list[float]:
        """Seconds between tokens."""
        return [b - a for a, b in zip(self.times, self.times[1:], strict=False)]


@asynccontextmanager
async def _posted(url: str, body: dict[str, Any]) -> AsyncIterator[tuple[int, asyncio.StreamReader]]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    try:
        data = json.dumps(body).encode()
        head = (
            f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + data)
        await writer.drain()
        status = int((await reader.readline()).split()[1])
        while (await reader.readline()).strip():
            pass
        yield status, reader
    finally:
        writer.close()


async def stream_chat(base_url: str, body: dict[str, Any], seen: Stream | None = None) -> Stream:
    """Plays one streamed chat completion. `seen` is filled while the reply comes. Raises `BenchError`."""
    result = seen or Stream(0)
    result.started = time.perf_counter()
    request = body | {"stream": True, "stream_options": {"include_usage": True}}
    try:
        async with _posted(f"{base_url}/chat/completions", request) as (status, reader):
            if status != 200:
                raise BenchError(f"{base_url} answered {status}: {(await reader.read())[:500]!r}")
            while line := await reader.readline():
                _read(line, result)
    except OSError as error:
        raise BenchError(f"{base_url} does not answer: {error}") from error
    if not result.times:
        raise BenchError(f"{base_url} sent no token")
    return result


def _read(line: bytes, result: Stream) -> None:
    # A chunked body's own size lines fall between the events and are no `data`.
    if not line.startswith(b"data:"):
        return
    data = line[5:].strip()
    if data == b"[DONE]":
        result.done = time.perf_counter()
        return
    event = json.loads(data)
    if "error" in event:
        raise BenchError(f"error in the stream: {event['error']}")
    result.usage = event.get("usage") or result.usage
    for choice in event.get("choices", ()):
        delta = choice.get("delta", {})
        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
        content = delta.get("content") or ""
        calls = delta.get("tool_calls") or ()
        # A reply of tokens that nobody sees (a lone end, half a character) counts from its finish.
        if reasoning or content or calls or (choice.get("finish_reason") and not result.times):
            result.times.append(time.perf_counter())
        result.reasoning += reasoning
        result.content += content
        for call in calls:
            _add_call(result.calls, call)
        result.finish = choice.get("finish_reason") or result.finish


def _add_call(calls: list[dict[str, Any]], delta: dict[str, Any]) -> None:
    while len(calls) <= delta["index"]:
        calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call, function = calls[delta["index"]], delta.get("function") or {}
    call["id"] = delta.get("id") or call["id"]
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


async def post_json(url: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """The JSON answer, or None where the server has no such route."""
    async with _posted(url, body) as (status, reader):
        data = await reader.read()
    if status != 200:
        return None
    found: dict[str, Any] = json.loads(data[data.index(b"{") : data.rindex(b"}") + 1])
    return found
