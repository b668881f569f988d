"""Processes that are measured: started, waited for, their CPU and memory read, ended by their own pid."""

import asyncio
import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vllm_mlx.bench.http import BenchError

_START_TIMEOUT = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """An OpenAI-compatible server in a session of its own.

    `command` is a shell-like command in which `{model}` and `{port}` are filled in.
    """

    def __init__(self, name: str, command: str, model: Path, *, log: Path) -> None:
        self.name = name
        port = free_port()
        self.base_url = f"http://127.0.0.1:{port}/v1"
        words = [word.format(model=model, port=port) for word in shlex.split(command)]
        self._log = log.open("w")
        self.started = time.perf_counter()
        self._process = subprocess.Popen(words, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        while True:
            with contextlib.suppress(OSError, urllib.error.URLError):
                with urllib.request.urlopen(f"{self.base_url}/models", timeout=2) as reply:
                    self.model = self._first_model(reply.read())
                return
            if self._process.poll() is not None:
                raise BenchError(f"{self.name} ended at its start; see {self._log.name}")
            if time.perf_counter() - self.started > _START_TIMEOUT:
                raise BenchError(f"{self.name} does not answer after {_START_TIMEOUT:.0f} s; see {self._log.name}")
            time.sleep(0.05)

    def _first_model(self, reply: bytes) -> str:
        try:
            models = json.loads(reply)["data"]
            return str(models[0]["id"]) if models else "default_model"
        except (ValueError, LookupError, TypeError):
            raise BenchError(f"{self.name} does not list its models at /v1/models; see {self._log.name}") from None

    def cpu(self) -> float:
        """CPU seconds of the process and its children until now."""
        return sum(_usage(pid)[0] for pid in _family(self._process.pid))

    def memory(self) -> int:
        """Resident bytes of the process and its children."""
        return sum(_usage(pid)[1] for pid in _family(self._process.pid))

    def close(self) -> None:
        """Ends the session's processes."""
        family = _family(self._process.pid)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            for pid in family:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()


class Raw:
    """`bench.raw` as a process."""

    def __init__(self, model: Path) -> None:
        words = [sys.executable, "-m", "vllm_mlx.bench.raw", str(model)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise BenchError("raw mlx-lm ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def run(self, **command: Any) -> dict[str, Any]:
        """One command, as `bench.raw` describes them."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(10)


async def quiet(server: Server, patience: float = 10.0) -> None:
    """Waits until a server does nothing any more: what it does ahead for the next turn must not fall into a measure."""
    for _ in range(int(patience / 0.25)):
        before = server.cpu()
        await asyncio.sleep(0.25)
        if server.cpu() - before <= 0.01:
            return


async def settled(server: Server, seconds: float = 1.0) -> float:
    """The share of one core that an idle server takes."""
    before = server.cpu()
    await asyncio.sleep(seconds)
    return (server.cpu() - before) / seconds


def _family(pid: int) -> list[int]:
    """A process and its descendants."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listing.splitlines())}
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


def _usage(pid: int) -> tuple[float, int]:
    """CPU seconds and resident bytes of one process; zeros when it is gone."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        if stat.exists():
            fields = stat.read_text().rsplit(")", 1)[1].split()
            ticks = int(fields[11]) + int(fields[12])
            return ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        words = ["ps", "-o", "time=,rss=", "-p", str(pid)]
        clock, resident = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
        return 0.0, 0
    seconds = 0.0
    for part in clock.replace("-", ":").split(":"):
        seconds = seconds * 60 + float(part)
    return seconds, int(resident) * 1024


@contextlib.contextmanager
def closing_all(things: list[Any]) -> Iterator[list[Any]]:
    """Closes whatever was added, last first."""
    try:
        yield things
    finally:
        for thing in reversed(things):
            thing.close()
