"""Recorded output as an engine: the same interface as the real one, without a model."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_mlx.engine.interface import EngineError, HealthState
from vllm_mlx.engine.protocol import CacheReport, Delta, EngineInfo, FinishReason, Progress, Submit

RESTART_SECONDS = 0.2
"""How long a replay plays dead after `die_after`."""


@dataclass(frozen=True, slots=True)
class ReplayLine:
    """One recorded reply, a piece a step: bytes of text, or a token id.

    Times are milliseconds; `error_after`, `hang_after` and `die_after` count pieces. `path` and
    `request` say what it was the reply to, where that is known.
    """

    pieces: tuple[bytes | int, ...]
    finish_reason: FinishReason = "stop"
    prefill_ms: float = 0
    delay_ms: float = 0
    error_after: int | None = None
    hang_after: int | None = None
    die_after: int | None = None
    path: str | None = None
    request: Any = None


class ReplayEngine:
    """Answers each request with a line: one that was recorded for the same prompt, or else the next in order.

    When all lines have been played they begin anew.
    """

    def __init__(
        self,
        lines: Sequence[ReplayLine],
        info: EngineInfo,
        *,
        max_num_seqs: int = 8,
        stall_timeout: float = 300.0,
    ) -> None:
        assert lines
        self.info = info
        self.stall_timeout = stall_timeout
        self._lines = lines
        self._prompts: dict[int, tuple[int, ...]] = {}
        self._unplayed = set(range(len(lines)))
        self._max_num_seqs = max_num_seqs
        self._running: set[ReplayGeneration] = set()
        self._waiting: deque[ReplayGeneration] = deque()
        self._health: HealthState = "starting"

    @property
    def health(self) -> HealthState:
        return self._health

    def expect(self, line: int, prompt: Iterable[int]) -> None:
        """Plays this line, by its number from 0, for this prompt."""
        self._prompts[line] = tuple(prompt)

    async def start(self) -> None:
        """There is nothing to load."""
        self._health = "ready"

    async def close(self) -> None:
        """Ends what still runs."""
        self._health = "failed"
        self._fail_all("the replay was closed")

    def prewarm(self, prompt: list[int]) -> None:
        """There is nothing to prefill."""

    async def cache_report(self) -> CacheReport:
        return CacheReport(enabled=False, bytes=0, limit=0, runs=[], lookups=[])

    def submit(self, request: Submit) -> "ReplayGeneration":
        """While the engine plays dead a request waits, as it does for a real one that starts anew.

        Raises `EngineError` when the replay is closed.
        """
        if self._health == "failed":
            raise EngineError("died", "the replay was closed")
        generation = ReplayGeneration(self, self._take(request.prompt), request)
        self._waiting.append(generation)
        self._fill()
        return generation

    def release(self, generation: "ReplayGeneration") -> None:
        """Frees a slot, or a place in the queue."""
        self._running.discard(generation)
        if generation in self._waiting:
            self._waiting.remove(generation)
        self._fill()

    def die(self) -> None:
        """What a killed engine process looks like; another one is there after `RESTART_SECONDS`."""
        self._health = "restarting"
        self._fail_all("the engine process ended")
        asyncio.get_running_loop().call_later(RESTART_SECONDS, self._restarted)

    def _restarted(self) -> None:
        if self._health == "restarting":
            self._health = "ready"
            self._fill()

    def _fail_all(self, message: str) -> None:
        for generation in [*self._running, *self._waiting]:
            generation.fail(EngineError("died", message))

    def _fill(self) -> None:
        while self._health == "ready" and self._waiting and len(self._running) < self._max_num_seqs:
            generation = self._waiting.popleft()
            self._running.add(generation)
            generation.begin()

    def _take(self, prompt: Sequence[int]) -> ReplayLine:
        if not self._unplayed:
            self._unplayed = set(range(len(self._lines)))
        wanted = tuple(prompt)
        same = {line for line, recorded in self._prompts.items() if recorded == wanted}
        index = min(same & self._unplayed or same or self._unplayed)
        self._unplayed.discard(index)
        return self._lines[index]


class ReplayGeneration:
    """One line being played."""

    def __init__(self, engine: ReplayEngine, line: ReplayLine, request: Submit) -> None:
        self._engine = engine
        self._line = line
        self._request = request
        self._begun = asyncio.Event()
        self._stopped = asyncio.Event()
        self._error: EngineError | None = None

    def begin(self) -> None:
        """A slot is free for it."""
        self._begun.set()

    def fail(self, error: EngineError) -> None:
        """Ends it with an error."""
        self._error = error
        self.cancel()

    def finish(self, keep: int) -> None:
        """Stops it."""
        self.cancel()

    def cancel(self) -> None:
        """Frees its slot. Harmless after the end."""
        self._stopped.set()
        self._begun.set()
        self._engine.release(self)

    async def __aiter__(self) -> AsyncIterator[Delta | Progress]:
        try:
            await self._begun.wait()
            yield Progress(self._request.id, 0, len(self._request.prompt))
            await self._pause(self._line.prefill_ms)
            async for delta in self._play():
                yield delta
        finally:
            self._engine.release(self)

    async def _play(self) -> AsyncIterator[Delta]:
        line, request = self._line, self._request
        fails = (line.error_after, line.hang_after, line.die_after) != (None, None, None)
        tokens = 0
        for index, piece in enumerate(line.pieces):
            await self._mishap(index)
            await self._pause(line.delay_ms)
            finish = line.finish_reason if index == len(line.pieces) - 1 and not fails else None
            cached = None if index else 0
            if isinstance(piece, bytes):
                yield Delta(request.id, raw=piece, finish=finish, cached_tokens=cached)
                continue
            if piece in request.stop_ids:
                yield Delta(request.id, finish="stop", stop_id=piece, cached_tokens=cached)
                return
            tokens += 1
            if tokens == request.max_tokens:
                finish = "length"
            yield Delta(request.id, tokens=[piece], finish=finish, cached_tokens=cached)
            if finish:
                return
        if fails:
            await self._mishap(None)
        if not line.pieces:
            yield Delta(request.id, finish=line.finish_reason, cached_tokens=0)

    async def _mishap(self, played: int | None) -> None:
        """What the line says goes wrong after so many pieces; None: after the last, however many it asked for."""
        line = self._line

        def due(after: int | None) -> bool:
            return after is not None and played in (after, None)

        if due(line.error_after):
            raise EngineError("internal", "recorded error")
        if due(line.die_after):
            self._engine.die()
        if due(line.hang_after):
            await self._pause(self._engine.stall_timeout * 1000)
            self._engine.die()
        self._check()

    async def _pause(self, milliseconds: float) -> None:
        """Waits, unless it is stopped meanwhile."""
        if milliseconds:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(milliseconds / 1000):
                    await self._stopped.wait()
        else:
            await asyncio.sleep(0)
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._stopped.is_set():
            raise EngineError("internal", "the sequence was cancelled")
