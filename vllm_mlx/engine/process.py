"""One engine process as asyncio sees it: spawned, written to, listened to, ended."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable
from typing import cast

from vllm_mlx.config import EngineConfig
from vllm_mlx.engine.protocol import FrameReader, Ready, Reply, Step, decode_reply, encode_settings

_EXIT_GRACE = 2.0


class EngineProcess(asyncio.Protocol):
    """One engine process and its socket."""

    def __init__(self, dispatch: Callable[["EngineProcess", Reply], None]) -> None:
        self._dispatch = dispatch
        self._reader = FrameReader()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._child: asyncio.subprocess.Process | None = None
        self.ended = asyncio.Event()
        self.fatal: str | None = None
        self.was_ready = False
        self.served = False
        self.started = self.last_heard = self._loop.time()

    @classmethod
    async def spawn(cls, config: EngineConfig, dispatch: Callable[["EngineProcess", Reply], None]) -> "EngineProcess":
        """Raises `OSError` where there can be no more processes or sockets."""
        process = cls(dispatch)
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as failing:
            failing.callback(ours.close)
            with theirs:
                process._child = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "vllm_mlx.engine.worker",
                    str(theirs.fileno()),
                    pass_fds=[theirs.fileno()],
                    stdin=asyncio.subprocess.DEVNULL,
                )
            await process._loop.create_unix_connection(lambda: process, sock=ours)
            failing.pop_all()
        process.write(encode_settings(config))
        return process

    @property
    def pid(self) -> int:
        assert self._child
        return self._child.pid

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.last_heard = self._loop.time()
        for body in self._reader.feed(data):
            reply = decode_reply(body)
            self.was_ready = self.was_ready or isinstance(reply, Ready)
            self.served = self.served or isinstance(reply, Step)
            self._dispatch(self, reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def write(self, frame: bytes) -> None:
        if self._transport and not self._transport.is_closing():
            self._transport.write(frame)

    async def exit_text(self) -> str:
        """How the process ended, once its socket has closed."""
        assert self._child
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_GRACE):
                await self._child.wait()
        code = self._child.returncode
        if code is None:
            return "it closed its socket"
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    async def end(self, grace: float) -> None:
        """Closes the socket, which ends the process; kills it when it does not follow in `grace` seconds."""
        assert self._child
        if self._transport:
            self._transport.close()
        try:
            async with asyncio.timeout(grace):
                await self._child.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._child.kill()
            await self._child.wait()
