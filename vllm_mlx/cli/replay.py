"""`vllm-mlx replay`: recorded output behind the HTTP APIs, without a model."""

from dataclasses import fields
from typing import Any

import click

from vllm_mlx.cli._flags import FlagCommand, flags
from vllm_mlx.cli._values import Text
from vllm_mlx.config import EngineConfig, ServeConfig

_OF_THE_ENGINE = ("max_num_seqs", "max_model_len", "max_waiting_seqs", "trust_remote_code")
"""What a replay does of what an engine is told; a flag that does nothing is none."""
_NOT_OF_A_REPLAY = ("record", *(item.name for item in fields(EngineConfig) if item.name not in _OF_THE_ENGINE))


@click.command(cls=FlagCommand, short_help="Serve recorded output instead of a model.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--model", type=Text(), metavar="MODEL", help="Whose tokenizer and chat template are used.  [default: the built-in]"
)
@flags(ServeConfig, EngineConfig, without=_NOT_OF_A_REPLAY)
def command(file: str, model: str | None, **values: Any) -> None:
    """Serve the replies in FILE to OpenAI and Anthropic clients, instead of a model's.

    FILE has one JSON object a line, as `serve --record` writes them: a request that was recorded gets its own
    reply, any other the next one. A line needs only `output`: raw text, or a list of text pieces, token ids,
    or {"b64": ...} for bytes that are not whole characters. It may have `finish_reason`, `prefill_ms`,
    `delay_ms` (a piece), and, counted in pieces, `error_after`, `hang_after` and `die_after`.
    """
    from pathlib import Path

    from vllm_mlx import hub
    from vllm_mlx.api.app import create_app
    from vllm_mlx.api.playback import ReplayError, read_lines, replay_engine
    from vllm_mlx.cli import _launch, _model
    from vllm_mlx.cli._listen import listen

    _model.check(values)
    try:
        lines = read_lines(Path(file))
    except ReplayError as error:
        raise click.UsageError(str(error)) from error
    with listen(values["host"], values["port"], values["uds"]) as listener:
        found = _model.find(model or hub.BUILT_IN, code=values["trust_remote_code"])
        config = _model.serve_config(found, {**values, "prewarm": False})
        chat = _model.load_chat(config)
        try:
            engine = replay_engine(lines, config, chat)
        except ReplayError as error:
            raise click.UsageError(f"{file}, {error}") from error
        _launch.run(create_app(config, chat, engine), config, chat, engine, listener)
