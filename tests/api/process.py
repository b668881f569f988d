"""A server in its own process, on a free port, that ends with its test, or by itself after a while."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass

LIFETIME = 900
MAIN = f"""
import os, threading
timer = threading.Timer({LIFETIME}, os._exit, [9])
timer.daemon = True
timer.start()
from vllm_mlx.cli import main
if __name__ == "__main__":
    main()
"""


@dataclass
class Server:
    url: str
    """With /v1."""
    pid: int

    @property
    def root(self):
        return self.url.removesuffix("/v1")

    def engine_pid(self):
        """The engine: the child process that runs Python."""
        listed = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,command="], capture_output=True, text=True, check=True
        ).stdout
        children = [line.split(maxsplit=2) for line in listed.splitlines()]
        found = [
            int(pid)
            for pid, parent, command in children
            if int(parent) == self.pid and "python" in command and "resource_tracker" not in command
        ]
        assert len(found) == 1, found
        return found[0]


@contextmanager
def running(*arguments):
    """Runs `vllm-mlx ...`; yields a `Server` once it says where it listens."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *map(str, arguments), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    log = []
    try:
        for line in process.stdout:
            log.append(line)
            if found := re.search(r"http://\S+/v1", line):
                break
        else:
            raise AssertionError("the server did not start:\n" + "".join(log))
        rest = threading.Thread(target=log.extend, args=(process.stdout,), daemon=True)
        rest.start()
        yield Server(found.group(), process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        sys.stdout.write("".join(log))


def replay_file(folder, *lines):
    """A replay file; a line that is no object is its output."""
    file = folder / "replay.jsonl"
    rows = [line if isinstance(line, dict) else {"output": line} for line in lines]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file
