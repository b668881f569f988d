"""`vllm-mlx serve`: a model behind the HTTP APIs."""

from typing import Any

import click

from vllm_mlx.cli._flags import FlagCommand, flags
from vllm_mlx.cli._values import Text
from vllm_mlx.config import EngineConfig, ServeConfig


@click.command(cls=FlagCommand, short_help="Serve a model to OpenAI and Anthropic clients.")
@click.argument("model", required=False, type=Text())
@click.option("--revision", type=Text(), metavar="NAME", help="Branch, tag or commit of a model from the hub.")
@flags(ServeConfig, EngineConfig)
def command(model: str | None, revision: str | None, **values: Any) -> None:
    """Serve MODEL to OpenAI and Anthropic clients.

    MODEL is a folder, a repository on the Hugging Face hub (ORGANISATION/NAME, downloaded when it is not in
    the cache), or `demo`, the built-in one. Without MODEL it is the MiniMax model in the cache, if there is one.
    """
    from pathlib import Path

    from vllm_mlx.api.app import create_app
    from vllm_mlx.api.record import Recorder
    from vllm_mlx.cli import _launch, _model
    from vllm_mlx.cli._listen import listen
    from vllm_mlx.engine.client import EngineClient

    _model.check(values)
    with listen(values["host"], values["port"], values["uds"]) as listener:
        config = _model.serve_config(_model.find(model, revision=revision, code=values["trust_remote_code"]), values)
        chat = _model.load_chat(config)
        engine = EngineClient(config.engine, stall_timeout=config.engine_stall_timeout)
        recorder = Recorder(Path(config.record), chat.vocabulary.bytes_of) if config.record else None
        _launch.run(create_app(config, chat, engine, recorder), config, chat, engine, listener)
