"""Running the HTTP server: the socket before the model, the banner after it, a clean end."""

import asyncio
import errno
import ipaddress
import json
import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import click
import uvicorn
from fastapi import FastAPI

from vllm_mlx import __version__
from vllm_mlx.chat.model import ChatModel
from vllm_mlx.config import ServeConfig
from vllm_mlx.engine.interface import Engine, EngineError

GRACE = 3
"""Seconds that open streams get to end after the first signal."""
KEEP_ALIVE = 65
"""Seconds that an idle connection stays open: longer than clients keep theirs."""


def listen(host: str, port: int) -> socket.socket:
    """Takes the address before anything slow happens.

    Raises:
        click.ClickException: it is in use, or is not this machine's.
    """
    where = f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise click.ClickException(f"cannot listen on {where}: {error.strerror}") from error
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise click.ClickException(f"{where} is in use; choose another port with --port") from error
        raise click.ClickException(f"cannot listen on {where}: {error.strerror}") from error
    return listener


def run(app: FastAPI, config: ServeConfig, chat: ChatModel, engine: Engine, listener: socket.socket) -> None:
    """Serves until SIGINT or SIGTERM; a second one does not wait for open streams.

    Raises:
        click.ClickException: the engine cannot start, with its reason.
    """
    logging.basicConfig(level=config.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if not _is_loopback(config.host):
        click.secho(
            f"WARNING: {config.host} lets everyone who can reach this machine use the model: no API key is set.",
            fg="red",
            bold=True,
            err=True,
        )
    try:
        asyncio.run(_serve(app, config, chat, engine, listener))
    except EngineError as error:
        raise click.ClickException(f"the engine does not start: {error}") from error


class _Server(uvicorn.Server):
    """Leaves signals to `_serve`, which has them from the start."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(app: FastAPI, config: ServeConfig, chat: ChatModel, engine: Engine, listener: socket.socket) -> None:
    settings = uvicorn.Config(
        app,
        lifespan="off",
        log_config=None,
        access_log=config.log_level in ("debug", "info"),
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
    )
    server = _Server(settings)
    loading = asyncio.current_task()
    assert loading is not None

    def stop(number: signal.Signals) -> None:
        if server.started:
            server.handle_exit(number, None)
        else:
            loading.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        async with app.router.lifespan_context(app):
            click.echo(banner(config, chat, engine, listener.getsockname()[1]))
            await server.serve(sockets=[listener])
    except asyncio.CancelledError:
        click.echo("Stopped before the model was loaded.", err=True)


def banner(config: ServeConfig, chat: ChatModel, engine: Engine, port: int) -> str:
    """What is served where, and a command that tries it."""
    host = config.host
    if host in ("0.0.0.0", "::", ""):
        host = "127.0.0.1"
    base = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
    name = config.served_model_name[0]
    body = json.dumps({"model": name, "messages": [{"role": "user", "content": "Hello"}]})
    quoted = body.replace("'", "'\\''")
    rows = {
        "Base URL": base,
        "Model": f"{', '.join(config.served_model_name)} ({engine.info.device})",
        "Context": f"{engine.info.max_model_len:,} tokens",
        "Tool call parser": chat.tool_call_parser or "none: the chat template writes no format that is known",
        "Reasoning parser": chat.reasoning_parser or "none",
    }
    lines = [f"vllm-mlx {__version__}", *(f"  {label + ':':<18}{value}" for label, value in rows.items())]
    return "\n".join(
        [*lines, "Try it:", f"  curl {base}/chat/completions -H 'Content-Type: application/json' -d '{quoted}'"]
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
