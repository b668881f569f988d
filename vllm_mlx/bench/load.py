"""`bench serve`: any OpenAI-compatible server under rising load: TTFT, inter-token latency, throughput."""

import asyncio
import json
import random
import string
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from vllm_mlx.bench.http import BenchError, Stream, stream_chat
from vllm_mlx.bench.plot import Series, chart


@dataclass(frozen=True, slots=True)
class Level:
    """What so many clients at the same time got. Times in milliseconds, rates a second."""

    concurrency: int
    requests: int
    tokens_per_second: float
    requests_per_second: float
    ttft_p50: float
    ttft_p95: float
    ttft_p99: float
    itl_p50: float
    itl_p95: float
    itl_p99: float


def percentile(values: Sequence[float], share: float) -> float:
    """Of at least one value, by the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def first_model(base_url: str) -> str:
    """The name of the first model that a server lists. Raises `BenchError`."""
    try:
        with urllib.request.urlopen(f"{base_url}/models", timeout=10) as reply:
            return str(json.load(reply)["data"][0]["id"])
    except (OSError, urllib.error.URLError, LookupError, ValueError) as error:
        raise BenchError(f"{base_url}/models does not answer with models: {error}") from error


async def measure(
    base_url: str,
    *,
    model: str,
    concurrencies: Sequence[int],
    requests: int,
    words: int,
    max_tokens: int,
    seed: int,
    progress: Callable[[int, int], None],
) -> list[Level]:
    """One level after the other; each has `requests` requests for each of its clients. Raises `BenchError`."""
    rng = random.Random(seed)
    total = sum(requests * concurrency for concurrency in concurrencies)
    done = 0

    def body() -> dict[str, Any]:
        text = " ".join("".join(rng.choices(string.ascii_lowercase, k=rng.randint(2, 9))) for _ in range(words))
        return {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": max_tokens}

    async def client() -> list[Stream]:
        nonlocal done
        replies = []
        for _ in range(requests):
            replies.append(await stream_chat(base_url, body()))
            done += 1
            progress(done, total)
        return replies

    levels = []
    for concurrency in concurrencies:
        started = time.perf_counter()
        clients = await asyncio.gather(*(client() for _ in range(concurrency)))
        seconds = time.perf_counter() - started
        levels.append(_level(concurrency, [reply for replies in clients for reply in replies], seconds))
    return levels


def _level(concurrency: int, replies: list[Stream], seconds: float) -> Level:
    ttfts = [1000 * reply.ttft for reply in replies]
    gaps = [1000 * gap for reply in replies for gap in reply.gaps] or [0.0]
    tokens = sum(reply.usage.get("completion_tokens", len(reply.times)) for reply in replies)
    shares = (0.5, 0.95, 0.99)
    return Level(
        concurrency,
        len(replies),
        tokens / seconds,
        len(replies) / seconds,
        *(percentile(ttfts, share) for share in shares),
        *(percentile(gaps, share) for share in shares),
    )


def as_json(levels: Sequence[Level]) -> str:
    return json.dumps([asdict(level) for level in levels], indent=2)


def as_svg(levels: Sequence[Level]) -> str:
    """Throughput, TTFT and inter-token latency over concurrency."""
    over = [float(level.concurrency) for level in levels]
    return chart(
        over,
        "concurrent clients",
        [
            ("tokens/s", [Series("throughput", [level.tokens_per_second for level in levels])]),
            (
                "time to first token, ms",
                [Series(f"p{p}", [getattr(level, f"ttft_p{p}") for level in levels]) for p in (50, 95, 99)],
            ),
            (
                "inter-token latency, ms",
                [Series(f"p{p}", [getattr(level, f"itl_p{p}") for level in levels]) for p in (50, 95, 99)],
            ),
        ],
    )
