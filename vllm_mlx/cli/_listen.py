"""The socket that a server listens on, taken before anything slow happens."""

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click


@contextmanager
def listen(host: str, port: int, uds: str | None) -> Iterator[socket.socket]:
    """A bound socket: TCP, or a Unix socket at `uds`. Closed, and the Unix socket removed, at the end.

    Raises:
        click.ClickException: the address is in use, or is not this machine's.
    """
    try:
        listener = _bind_unix(uds) if uds else _bind_tcp(host, port)
    except (OSError, UnicodeError) as error:
        raise click.ClickException(_reason(error, host, port, uds)) from error
    with listener:
        yield listener
    if uds:
        Path(uds).unlink(missing_ok=True)


def _reason(error: OSError | UnicodeError, host: str, port: int, uds: str | None) -> str:
    where = uds or f"{host}:{port}"
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EADDRINUSE:
        return f"{where} is in use; choose another with --{'uds' if uds else 'port'}"
    words = getattr(error, "strerror", None) or str(error)
    flag = "uds" if uds else "port" if number in (errno.EACCES, errno.EPERM) else "host"
    return f"--{flag}: cannot listen on {where}: {words}"


def _bind_tcp(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return _bind(socket.socket(family, kind, protocol), address)


def _bind_unix(path: str) -> socket.socket:
    if Path(path).is_socket():
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(path) == 0:
                raise OSError(errno.EADDRINUSE, "a server listens there")
        Path(path).unlink()
    return _bind(socket.socket(socket.AF_UNIX), path)


def _bind(listener: socket.socket, address: object) -> socket.socket:
    try:
        if listener.family != socket.AF_UNIX:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)  # type: ignore[arg-type]
    except OSError:
        listener.close()
        raise
    return listener
