"""Servers as users start them: the command in a process of its own, ended by its pid."""

import signal
import subprocess
import sys
import threading


class Running:
    """A `vllm-mlx` command that serves. `banner` is what it printed before the first request."""

    def __init__(self, args: tuple[str, ...], environ: dict[str, str]) -> None:
        command = [sys.executable, "-m", "vllm_mlx.cli", *args]
        self.process = subprocess.Popen(
            command,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self._errors: list[str] = []
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        assert self.process.stdout is not None
        self.banner = ""
        for line in self.process.stdout:
            self.banner += line
            if line.startswith("  curl "):
                break

    @property
    def url(self) -> str:
        """The base URL, with /v1."""
        assert "Base URL" in self.banner, self.errors
        return next(line.split()[-1] for line in self.banner.splitlines() if "Base URL" in line)

    @property
    def errors(self) -> str:
        """Standard error so far; all of it once the process has ended."""
        return "".join(self._errors)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signals it, and waits; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            self._errors.extend(stream)
