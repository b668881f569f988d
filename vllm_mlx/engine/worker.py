"""The engine process: a socket on one side, the model on the other. Started by `client`, never by hand.

It is told its settings in the first frame, answers `Ready` or `Fatal`, and ends by itself when the socket closes.
"""

import gc
import logging
import select
import signal
import socket
import sys

from vllm_mlx.engine.protocol import Fatal, FrameReader, Ready, Reply, decode_request, decode_settings, encode_frame

_log = logging.getLogger("vllm_mlx.engine")
_PIECE = 1 << 20


class Channel:
    """The engine's end of the socket. Sending blocks, receiving does so only on demand."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = FrameReader()

    def receive(self, *, block: bool) -> list[bytes]:
        """The frames that have arrived; with `block`, waits until there is something. Raises EOFError at the end."""
        bodies: list[bytes] = []
        while select.select([self._connection], [], [], None if block and not bodies else 0)[0]:
            data = self._connection.recv(_PIECE)
            if not data:
                raise EOFError
            bodies += self._reader.feed(data)
        return bodies

    def send(self, reply: Reply) -> None:
        self._connection.sendall(encode_frame(reply))


def serve(channel: Channel) -> None:
    """Loads the model and continues sequences until the other side goes away."""
    (settings, *early) = channel.receive(block=True)
    config = decode_settings(settings)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s engine: %(message)s")
    from vllm_mlx.engine.core import Core
    from vllm_mlx.engine.loader import LoadError, load

    try:
        loaded = load(config)
    except LoadError as error:
        channel.send(Fatal(str(error)))
        return
    core = Core(loaded, config, channel.send)
    gc.collect()
    gc.freeze()
    channel.send(Ready(core.info))
    for body in early:
        core.handle(decode_request(body))
    while True:
        for body in channel.receive(block=not core.has_work):
            core.handle(decode_request(body))
        if not core.has_work:
            continue
        try:
            core.step()
        except Exception as error:  # The border of a step: what it broke is failed, the process goes on.
            if isinstance(error, OSError):
                raise
            _log.exception("a step failed")
            core.recover(error)


def main() -> None:
    # Ctrl-C ends the API process; this one follows when the socket closes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = socket.socket(fileno=int(sys.argv[1]))
    try:
        serve(Channel(connection))
    except (EOFError, ConnectionError, BrokenPipeError):
        return


if __name__ == "__main__":
    main()
