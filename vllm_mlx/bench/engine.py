"""`bench engine`: servers beside raw mlx-lm on the same model, in interleaved rounds, so that noise hits all alike."""

import asyncio
import random
import statistics
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_mlx.bench import constrained
from vllm_mlx.bench.http import Stream, stream_chat
from vllm_mlx.bench.models import make_model
from vllm_mlx.bench.servers import Raw, Server, closing_all, quiet, settled

SAMPLED = {"temperature": 1.0, "top_p": 0.95, "top_k": 40}
_LONG = 1500
_TOKENS = 64
_REPLY = 2
"""Tokens of a reply that a next turn follows: a reply that is cut comes back as other tokens, so it is kept short."""
_MAIN = "vllm-mlx"

Samples = dict[str, list[float]]


@dataclass(slots=True)
class Results:
    """Samples by contender and measure; `raw` is mlx-lm itself."""

    samples: dict[str, Samples] = field(default_factory=dict)

    def add(self, name: str, measures: dict[str, float]) -> None:
        for measure, value in measures.items():
            self.samples.setdefault(name, {}).setdefault(measure, []).append(value)

    def median(self, name: str, measure: str) -> float | None:
        values = self.samples.get(name, {}).get(measure)
        return statistics.median(values) if values else None


def _text(rng: random.Random, length: int) -> str:
    """One token a character in the random models; never the same twice."""
    return "".join(rng.choices(string.ascii_lowercase, k=length))


def _body(server: Server, messages: list[dict[str, str]], max_tokens: int, sampling: dict[str, Any]) -> dict[str, Any]:
    return {"model": server.model, "messages": messages, "max_tokens": max_tokens, **sampling}


def _rate(times: list[list[float]], counts: list[int]) -> float:
    """Tokens a second once all rows decode; rows may carry more than one token a time."""
    begun, ended = max(row[0] for row in times), max(row[-1] for row in times)
    after = sum(count * sum(t > begun for t in row) / len(row) for row, count in zip(times, counts, strict=True) if row)
    return after / (ended - begun)


class _Rounds:
    """What one contender is asked in a round. Prompts are new each time, so that nothing is cached by accident."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def prompts(self, count: int, length: int) -> list[list[int]]:
        return [[self.rng.randrange(64, 90) for _ in range(length)] for _ in range(count)]

    async def server(self, server: Server) -> dict[str, float]:
        measures: dict[str, float] = {}
        for streams in (1, 4, 8):
            await quiet(server)
            measures |= await self._decode(server, streams, {"temperature": 0}, f"decode {streams}")
        await quiet(server)
        measures |= await self._repeated(server)
        await quiet(server)
        measures |= await self._joining(server)
        await quiet(server)
        return measures

    async def sampled(self, server: Server) -> dict[str, float]:
        measures = await self._decode(server, 8, SAMPLED, "sampled 8")
        return measures | (await constrained.measure(server, self.rng) if server.name == _MAIN else {})

    async def _decode(self, server: Server, streams: int, sampling: dict[str, Any], label: str) -> dict[str, float]:
        cpu = server.cpu()
        bodies = [
            _body(server, [{"role": "user", "content": _text(self.rng, 32)}], _TOKENS, sampling) for _ in range(streams)
        ]
        replies = await asyncio.gather(*(stream_chat(server.base_url, body) for body in bodies))
        counts = [reply.usage.get("completion_tokens", len(reply.times)) for reply in replies]
        measures = {
            f"{label} tok/s": _rate([reply.times for reply in replies], counts),
            f"{label} CPU ms/token": 1000 * (server.cpu() - cpu) / sum(counts),
        }
        if streams == 1:
            measures["last token to [DONE] ms"] = 1000 * (replies[0].done - replies[0].times[-1])
        return measures

    async def _repeated(self, server: Server) -> dict[str, float]:
        """The same prompt twice, then the turn that follows."""
        messages = [{"role": "user", "content": _text(self.rng, _LONG)}]
        body = _body(server, messages, _REPLY, {"temperature": 0})
        cold = await stream_chat(server.base_url, body)
        again = await stream_chat(server.base_url, body)
        more = {"role": "assistant", "content": again.text}, {"role": "user", "content": _text(self.rng, 100)}
        turn = await stream_chat(server.base_url, _body(server, [*messages, *more], _REPLY, {"temperature": 0}))
        return {
            "TTFT 1.5k cold ms": 1000 * cold.ttft,
            "TTFT 1.5k again ms": 1000 * again.ttft,
            "TTFT agent turn ms": 1000 * turn.ttft,
        }

    async def _joining(self, server: Server) -> dict[str, float]:
        def short(length: int = 50) -> dict[str, Any]:
            return _body(server, [{"role": "user", "content": _text(self.rng, length)}], 8, {"temperature": 0})

        alone = await stream_chat(server.base_url, short())
        stream = Stream(0)
        running = asyncio.create_task(stream_chat(server.base_url, short() | {"max_tokens": 200}, stream))
        await _tokens(stream, running, 20)
        joined = await stream_chat(server.base_url, short())
        await _tokens(stream, running, len(stream.times) + 10)
        before = len(stream.times)
        await stream_chat(server.base_url, short(_LONG))
        longest = max(stream.gaps[before - 1 :], default=0.0)
        await running
        return {
            "TTFT short alone ms": 1000 * alone.ttft,
            "TTFT short joining ms": 1000 * joined.ttft,
            "stall when 1.5k joins ms": 1000 * (longest - statistics.median(stream.gaps)),
        }

    def raw(self, raw: Raw) -> dict[str, float]:
        measures: dict[str, float] = {}
        for streams in (1, 4, 8):
            measures |= self._raw_decode(raw, streams, None, f"decode {streams}")
        (long,) = self.prompts(1, _LONG)
        (turn,) = self.prompts(1, _LONG + _REPLY + 120)
        for label, prompt, known in (
            ("1.5k cold", long, 0),
            ("1.5k again", long, _LONG - 1),
            ("agent turn", turn, _LONG + _REPLY),
        ):
            answer = raw.run(prompts=[prompt], max_tokens=2, known=known)
            measures[f"TTFT {label} ms"] = 1000 * answer["times"][0][0]
        return measures

    def raw_sampled(self, raw: Raw) -> dict[str, float]:
        sampling = {"temp": 1.0, "top_p": 0.95, "top_k": 40}
        return self._raw_decode(raw, 8, sampling, "sampled 8")

    def _raw_decode(self, raw: Raw, streams: int, sampling: dict[str, Any] | None, label: str) -> dict[str, float]:
        answer = raw.run(prompts=self.prompts(streams, 40), max_tokens=_TOKENS, sampling=sampling)
        counts = [len(row) for row in answer["times"]]
        return {
            f"{label} tok/s": _rate(answer["times"], counts),
            f"{label} CPU ms/token": 1000 * answer["cpu"] / sum(counts),
        }


async def _tokens(stream: Stream, running: "asyncio.Task[Stream]", count: int) -> None:
    while len(stream.times) < count and not running.done():
        await asyncio.sleep(0.002)


async def measure(
    commands: dict[str, str], *, rounds: int, folder: Path, seed: int, progress: Callable[[int, int], None]
) -> Results:
    """Runs all contenders on *tiny* and *tiny-200k*. `commands` by name; `progress(done, total)` after each visit."""
    results = Results()
    visits = 2 * rounds * (len(commands) + 1)
    done = 0
    for name in ("tiny", "tiny-200k"):
        model = make_model(name, folder)
        plays = _Rounds(seed)
        with closing_all([]) as open_things:
            raw = Raw(model)
            open_things.append(raw)
            servers = []
            for label, command in commands.items():
                server = Server(label, command, model, log=folder / f"{label}-{name}.log")
                open_things.append(server)
                servers.append(server)
                if name == "tiny":
                    results.add(label, await _at_rest(server, model))
            for _ in range(rounds):
                contenders: list[Server | None] = [None, *servers]
                plays.rng.shuffle(contenders)
                for contender in contenders:
                    if contender is None:
                        results.add("raw", plays.raw(raw) if name == "tiny" else plays.raw_sampled(raw))
                    else:
                        play = plays.server if name == "tiny" else plays.sampled
                        results.add(contender.name, await play(contender))
                    done += 1
                    progress(done, visits)
    return results


async def _at_rest(server: Server, model: Path) -> dict[str, float]:
    first = await stream_chat(server.base_url, _body(server, [{"role": "user", "content": "hello"}], 1, {}))
    await quiet(server)
    weights = sum(file.stat().st_size for file in model.glob("*.safetensors"))
    return {
        "start to first reply s": first.done - server.started,
        "idle CPU %": 100 * await settled(server, 3),
        "idle memory above the model MB": (server.memory() - weights) / 1e6,
    }


@dataclass(frozen=True, slots=True)
class Target:
    """A measure and what the main server must reach: at least (`low`) or at most (`high`) that many of raw's or ours.

    `over` names what the median is divided by: a contender (`raw`: the same measure of it), or another of our measures.
    """

    measure: str
    over: str | None
    low: float | None = None
    high: float | None = None


TARGETS = (
    Target("decode 1 tok/s", "raw", low=0.95),
    Target("decode 4 tok/s", "raw", low=0.92),
    Target("decode 8 tok/s", "raw", low=0.92),
    Target("decode 8 CPU ms/token", "raw", high=1.10),
    Target("sampled 8 tok/s", "raw", low=3.0),
    Target("JSON row tok/s", "free row tok/s", low=0.85),
    Target("call row tok/s", "free row tok/s", low=0.85),
    Target("free beside JSON a row tok/s", "free 4 a row tok/s", low=0.98),
    Target("TTFT short joining ms", "TTFT short alone ms", high=1.5),
    Target("stall when 1.5k joins ms", None, high=300),
    Target("TTFT 1.5k again ms", "raw", high=1.3),
    Target("TTFT agent turn ms", "raw", high=1.15),
    Target("last token to [DONE] ms", None, high=2),
    Target("start to first reply s", None, high=2.5),
    Target("idle CPU %", None, high=0.5),
    Target("idle memory above the model MB", None, high=250),
)


def verdicts(results: Results) -> list[tuple[Target, float, bool]]:
    """Each target that was measured, the main server's figure for it, and whether it is reached."""
    found = []
    for target in TARGETS:
        value = results.median(_MAIN, target.measure)
        if value is None:
            continue
        if target.over is not None:
            other = (
                results.median("raw", target.measure) if target.over == "raw" else results.median(_MAIN, target.over)
            )
            if not other:
                continue
            value /= other
        reached = (target.low is None or value >= target.low) and (target.high is None or value <= target.high)
        found.append((target, value, reached))
    return found
