"""The asyncio side of the engine process: starts it, watches it, starts it again, and routes what it says.

Imports no MLX. A generation ends with `EngineError("died", ...)` when its engine process does; requests that come
while a new one starts are sent to it once it is ready.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from vllm_mlx.config import EngineConfig
from vllm_mlx.engine.interface import EngineError, HealthState
from vllm_mlx.engine.process import EngineProcess
from vllm_mlx.engine.protocol import (
    CacheReport,
    Cancel,
    Delta,
    EngineInfo,
    Failed,
    Fatal,
    Finish,
    Inspect,
    Prewarm,
    Progress,
    Ready,
    Reply,
    Request,
    Step,
    Submit,
    encode_frame,
)

_log = logging.getLogger("vllm_mlx.engine")
_LOAD_ATTEMPTS = 3
_END_GRACE = 2.0
_BACKOFF = 0.2
_LOADS = 2
"""A model may take so many times its first load to be loaded again, whatever the stall timeout."""

_Item = Delta | Progress | EngineError


class EngineClient:
    """The real engine, behind `interface.Engine`. Used from one event loop."""

    def __init__(self, config: EngineConfig, *, stall_timeout: float = 300.0) -> None:
        """`stall_timeout`: seconds without a reply after which an engine is ended and started anew, when it has work or
        loads the model again. How long the first load takes is for whoever waits for it to say.
        """
        self._config = config
        self._stall_timeout = stall_timeout
        self._health: HealthState = "starting"
        self._info: EngineInfo | None = None
        self._load_seconds = 0.0
        """Of the first load."""
        self._failure = ""
        self._generations: dict[str, ClientGeneration] = {}
        self._unsent: list[bytes] = []
        self._reports: deque[asyncio.Future[CacheReport]] = deque()
        self._process: EngineProcess | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._first_ready: asyncio.Future[None] | None = None

    @property
    def info(self) -> EngineInfo:
        assert self._info is not None, "start has not returned"
        return self._info

    @property
    def health(self) -> HealthState:
        return self._health

    @property
    def pid(self) -> int | None:
        """The engine process, while there is one."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        self._first_ready = asyncio.get_running_loop().create_future()
        self._supervisor = asyncio.create_task(self._supervise())
        try:
            await self._first_ready
        except EngineError:
            await self.close()
            raise

    async def close(self) -> None:
        if self._supervisor:
            self._supervisor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._supervisor
            self._supervisor = None
        await self._end_process()
        if self._health != "failed":
            self._health, self._failure = "failed", "the engine was closed"
        self._taken().fail(self._failure)

    def submit(self, request: Submit) -> "ClientGeneration":
        if self._health == "failed":
            raise EngineError("died", self._failure)
        if request.id in self._generations:
            raise EngineError("invalid", f"the id {request.id!r} is in use")
        generation = ClientGeneration(self, request.id)
        self._generations[request.id] = generation
        self.send(request)
        return generation

    def prewarm(self, prompt: list[int]) -> None:
        """Says that this prompt is likely to come: the engine prefills it while it has nothing else to do."""
        if self._health == "ready":
            self.send(Prewarm(prompt))

    async def cache_report(self) -> CacheReport:
        """What the prefix cache holds. Raises `EngineError` when no engine runs."""
        if self._health != "ready":
            raise EngineError("died", self._failure or "the engine is starting")
        report: asyncio.Future[CacheReport] = asyncio.get_running_loop().create_future()
        self._reports.append(report)
        self.send(Inspect())
        return await report

    def send(self, request: Request) -> None:
        """To the engine, now or once it is ready."""
        frame = encode_frame(request)
        if self._health == "ready" and self._process:
            self._process.write(frame)
        else:
            self._unsent.append(frame)

    def drop(self, id: str) -> bool:
        """Forgets a generation; False if it was over."""
        return self._generations.pop(id, None) is not None

    async def _end_process(self, grace: float = _END_GRACE) -> None:
        if self._process:
            await self._process.end(grace)
            self._process = None

    async def _supervise(self) -> None:
        """Keeps an engine process running until there is no point in it; then nobody is left waiting."""
        try:
            reason = await self._keep_running()
        except Exception as error:  # The border of the engine: who waits for it must hear of it.
            _log.exception("the engine cannot be watched any more")
            reason = f"the engine cannot be watched any more: {error!r}"
        self._give_up(reason)
        await self._end_process(0)

    async def _keep_running(self) -> str:
        """Why there is no engine any more."""
        failures = 0
        while True:
            life = await self._live()
            failures = failures + 1 if life.failed else 0
            if life.fatal or failures >= _LOAD_ATTEMPTS:
                return life.reason
            _log.error("%s; starting a new engine", life.reason)
            await asyncio.sleep(_BACKOFF * 4**failures)

    async def _live(self) -> "_Life":
        """Starts one engine process and stays with it to its end."""
        try:
            process = self._process = await EngineProcess.spawn(self._config, self._dispatch)
        except OSError as error:
            return _Life(f"no engine process can be started: {error}", failed=True)
        stall = await self._watch(process)
        # Requests that come from here on are the next engine's.
        self._health = "restarting" if self._info else "starting"
        doomed = self._taken() if process.was_ready else _Open({}, deque())
        reason = "the engine was closed"
        try:
            reason = process.fatal or stall or f"the engine process ended ({await process.exit_text()})"
        finally:
            doomed.fail(reason)
        # A process that hangs is not asked twice.
        await process.end(_END_GRACE if process.ended.is_set() else 0)
        idle = process.was_ready and not doomed.generations
        failed = not process.was_ready or (idle and not process.served)
        return _Life(reason, failed=failed, fatal=process.fatal is not None)

    async def _watch(self, process: EngineProcess) -> str | None:
        """Returns when the process has ended, or with a reason when it hangs."""
        loop = asyncio.get_running_loop()
        last_idle = loop.time()
        while not process.ended.is_set():
            # Not `wait_for`: up to Python 3.11 it can swallow the cancellation that `close` sends.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(1.0, self._stall_timeout / 4)):
                    await process.ended.wait()
            now = loop.time()
            if not process.was_ready:
                last_idle = now
                loading = now - process.started
                if self._info and loading > max(self._stall_timeout, _LOADS * self._load_seconds):
                    return f"the engine did not load the model again in {loading:.0f} s"
            elif not self._generations:
                last_idle = now
            quiet = now - max(last_idle, process.last_heard)
            if quiet > self._stall_timeout:
                return f"the engine made no step for {quiet:.0f} s"
        return None

    def _give_up(self, reason: str) -> None:
        self._health, self._failure = "failed", reason
        _log.error("no engine: %s", reason)
        self._taken().fail(reason)
        if self._first_ready and not self._first_ready.done():
            self._first_ready.set_exception(EngineError("died", reason))

    def _taken(self) -> "_Open":
        """What waits for an answer now; nothing does afterwards."""
        taken = _Open(self._generations, self._reports)
        self._generations, self._reports = {}, deque()
        return taken

    def _dispatch(self, process: EngineProcess, reply: Reply) -> None:
        match reply:
            case Step(deltas):
                for delta in deltas:
                    self._put(delta.id, delta, last=delta.finish is not None)
            case Progress(id):
                self._put(id, reply, last=False)
            case Failed(id, kind, message):
                self._put(id, EngineError(kind, message), last=True)
            case Ready(info):
                if self._info is None:
                    self._load_seconds = process.last_heard - process.started
                self._info = info
                self._health = "ready"
                for frame in self._unsent:
                    process.write(frame)
                self._unsent.clear()
                if self._first_ready and not self._first_ready.done():
                    self._first_ready.set_result(None)
            case Fatal(message):
                process.fatal = message
            case CacheReport():
                report = self._reports.popleft()
                if not report.done():
                    report.set_result(reply)

    def _put(self, id: str, item: _Item, *, last: bool) -> None:
        generation = self._generations.get(id)
        if generation is None:
            return
        if last:
            del self._generations[id]
        generation.put(item)


@dataclass(frozen=True, slots=True)
class _Life:
    """How an engine process ended: `failed` if it was of no use, `fatal` if every next one would be so too."""

    reason: str
    failed: bool
    fatal: bool = False


@dataclass(frozen=True, slots=True)
class _Open:
    """Who waits for an engine."""

    generations: "dict[str, ClientGeneration]"
    reports: "deque[asyncio.Future[CacheReport]]"

    def fail(self, reason: str) -> None:
        for generation in self.generations.values():
            generation.put(EngineError("died", reason))
        for report in self.reports:
            if not report.done():
                report.set_exception(EngineError("died", reason))


class ClientGeneration:
    """One sequence in the engine process."""

    def __init__(self, client: EngineClient, id: str) -> None:
        self._client = client
        self._id = id
        self._items: asyncio.Queue[_Item] = asyncio.Queue()
        self._over = False

    def put(self, item: _Item) -> None:
        self._items.put_nowait(item)

    async def __aiter__(self) -> AsyncIterator[Delta | Progress]:
        try:
            while not self._over:
                item = await self._items.get()
                if isinstance(item, EngineError):
                    self._over = True
                    raise item
                self._over = self._over or (isinstance(item, Delta) and item.finish is not None)
                yield item
        finally:
            self.cancel()

    def finish(self, keep: int) -> None:
        # Also after the engine's own end: tokens past `keep` must leave its cache.
        self._over = True
        self._client.drop(self._id)
        self._client.send(Finish(self._id, keep))

    def cancel(self) -> None:
        self._over = True
        if self._client.drop(self._id):
            self._client.send(Cancel(self._id))
