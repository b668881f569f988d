"""The engine process: a socket on one side, the model on the other. Started by `client`, never by hand.

It is told its settings in the first frame, answers `Ready` or `Fatal`, and ends by itself when the socket closes.
"""

import gc
import importlib.util
import logging
import select
import signal
import socket
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from vllm_mlx.engine.protocol import Fatal, FrameReader, Ready, Reply, decode_request, decode_settings, encode_frame

if TYPE_CHECKING:
    from vllm_mlx.engine.core import Core

_log = logging.getLogger("vllm_mlx.engine")
_PIECE = 1 << 20
_POLL = 0.002


class ChannelError(Exception):
    """There is nobody at the other end of the socket."""


class Channel:
    """The engine's end of the socket. Sending blocks, receiving does so only on demand. Raises `ChannelError`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = FrameReader()

    def receive(self, timeout: float | None) -> list[bytes]:
        """The frames that have arrived, within `timeout` seconds (None: when they do)."""
        bodies: list[bytes] = []
        while select.select([self._connection], [], [], 0 if bodies else timeout)[0]:
            try:
                data = self._connection.recv(_PIECE)
            except OSError as error:
                raise ChannelError(str(error)) from error
            if not data:
                raise ChannelError("the socket was closed")
            bodies += self._reader.feed(data)
        return bodies

    def send(self, reply: Reply) -> None:
        try:
            self._connection.sendall(encode_frame(reply))
        except OSError as error:
            raise ChannelError(str(error)) from error


def _leave_out_tokenizers() -> None:
    """Lets mlx-lm's models be imported without what it does with text: that takes a second, and nothing here needs it.

    Its package imports everything, so it stays an empty one here; its loader only names the tokenizers' module.
    """
    spec = importlib.util.find_spec("mlx_lm")
    if spec is None:
        return
    sys.modules["mlx_lm"] = importlib.util.module_from_spec(spec)
    tokenizers = ModuleType("mlx_lm.tokenizer_utils")
    vars(tokenizers).update(TokenizerWrapper=None, load=None)
    sys.modules[tokenizers.__name__] = tokenizers


def serve(channel: Channel) -> None:
    """Loads the model and continues sequences until the other side goes away."""
    (settings, *early) = channel.receive(None)
    config = decode_settings(settings)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s engine: %(message)s")
    if not config.trust_remote_code:
        _leave_out_tokenizers()
    from vllm_mlx.engine.core import Core
    from vllm_mlx.engine.loader import LoadError, load

    try:
        core = Core(load(config), config, channel.send)
    except LoadError as error:
        channel.send(Fatal(str(error)))
        return
    gc.collect()
    gc.freeze()
    channel.send(Ready(core.info))
    for body in early:
        core.handle(decode_request(body))
    try:
        _run(core, channel)
    finally:
        core.close()


def _run(core: "Core", channel: Channel) -> None:
    while True:
        for body in channel.receive(_patience(core)):
            core.handle(decode_request(body))
        try:
            if core.has_work:
                core.step()
            core.tend()
        except ChannelError:
            raise
        except Exception as error:  # The border of a step: what it broke is failed, the process goes on.
            _log.exception("a step failed")
            core.recover(error)


def _patience(core: "Core") -> float | None:
    """Seconds to wait for a request before the next step."""
    if core.prewarms or (core.has_work and not core.waits):
        return 0
    return _POLL if core.has_work or core.busy else None


def main() -> None:
    # A signal to the whole group ends the API process; this one follows when the socket closes.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    connection = socket.socket(fileno=int(sys.argv[1]))
    try:
        serve(Channel(connection))
    except ChannelError as error:
        if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, ConnectionError):
            raise


if __name__ == "__main__":
    main()
