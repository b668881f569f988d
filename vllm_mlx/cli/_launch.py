"""Running the HTTP server: from a bound socket to a clean end."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import uvicorn
import uvloop
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from vllm_mlx.chat.model import ChatModel
from vllm_mlx.cli._banner import banner, warning
from vllm_mlx.config import ServeConfig
from vllm_mlx.engine.interface import Engine, EngineError

GRACE = 3
"""Seconds that open requests get to end after the first signal; then they end with an error in their own shape."""
KEEP_ALIVE = 65
"""Seconds that an idle connection stays open: longer than clients keep theirs."""

log = logging.getLogger(__name__)


def run(app: FastAPI, config: ServeConfig, chat: ChatModel, engine: Engine, listener: socket.socket) -> None:
    """Serves until SIGINT or SIGTERM; a second one does not wait for open requests.

    Raises:
        click.ClickException: the engine cannot start, with the reason.
    """
    logging.basicConfig(level=config.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.root.level))
    if text := warning(config):
        click.secho(text, fg="red", bold=True, err=True)
    for text in chat.warnings:
        click.secho(f"Warning: {text}.", fg="yellow", err=True)

    def ready() -> None:
        port = 0 if config.uds else listener.getsockname()[1]
        click.echo(banner(config, chat, engine.info, port))

    server = _Server(_uvicorn_config(app, config), ready)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(server, app, engine, listener))
    except EngineError as error:
        raise click.ClickException(f"the engine does not start: {error}") from error


def _uvicorn_config(app: FastAPI, config: ServeConfig) -> uvicorn.Config:
    return uvicorn.Config(
        _under(config.root_path.rstrip("/"), app),
        lifespan="off",
        log_config=None,
        access_log=config.log_level in ("debug", "info"),
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=2 * GRACE,
        ssl_certfile=config.ssl_certfile,
        ssl_keyfile=config.ssl_keyfile,
    )


def _under(root: str, app: ASGIApp) -> ASGIApp:
    """`app` for a proxy that shows it under `root`, whether the proxy takes that off the path or leaves it on."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(f"{root}/"):
            scope = {**scope, "path": scope["path"].removeprefix(root)}
        await app(scope, receive, send)

    return served if root else app


class _Server(uvicorn.Server):
    """Calls `ready` once it takes connections. Leaves signals to `_serve`, which has them from the start."""

    def __init__(self, settings: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(settings)
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


async def _serve(server: _Server, app: FastAPI, engine: Engine, listener: socket.socket) -> None:
    """Loads the model, then serves."""
    loop = asyncio.get_running_loop()
    loading = asyncio.current_task()
    assert loading is not None
    closing: list[asyncio.Task[None]] = []

    def close_engine() -> None:
        closing.append(loop.create_task(engine.close()))

    def stop() -> None:
        if not server.started:
            loading.cancel()
        elif server.should_exit:
            close_engine()
        else:
            log.info("stopping")
            server.should_exit = True
            loop.call_later(GRACE, close_engine)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        async with app.router.lifespan_context(app):
            await server.serve(sockets=[listener])
    except asyncio.CancelledError:
        click.echo("Stopped before the model was loaded.", err=True)
