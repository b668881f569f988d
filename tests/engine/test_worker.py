"""The engine process's loop: what ends it, and what does not."""

import socket

import pytest

from vllm_mlx.engine import worker
from vllm_mlx.engine.protocol import Fatal
from vllm_mlx.engine.worker import Channel, ChannelError


class FailingCore:
    """A core whose step raises `error`, once; then the other side of the socket goes away."""

    has_work, prewarms, waits, busy = True, False, False, False

    def __init__(self, error: Exception, other: socket.socket) -> None:
        self._error = error
        self._other = other
        self.recovered: list[Exception] = []

    def step(self) -> None:
        raise self._error

    def tend(self) -> None: ...

    def recover(self, error: Exception) -> None:
        self.recovered.append(error)
        self._other.close()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("out of memory")])
def test_an_error_of_a_step_ends_no_process_whatever_its_kind(error):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        core = FailingCore(error, theirs)
        with pytest.raises(ChannelError):
            worker._run(core, Channel(ours))
    assert core.recovered == [error]


def test_a_step_that_cannot_send_ends_the_process():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours)
        core = FailingCore(RuntimeError(), theirs)
        core.step = lambda: (theirs.close(), [channel.send(Fatal("x" * 1_000_000)) for _ in range(2)])
        with pytest.raises(ChannelError):
            worker._run(core, channel)
    assert core.recovered == []
