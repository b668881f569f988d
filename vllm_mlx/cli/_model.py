"""The model and the settings of a command line, or an error that says what there is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

import reasoning_parsers
import tool_parsers
from vllm_mlx import hub
from vllm_mlx.chat.model import ChatModel, ModelError
from vllm_mlx.cli._flags import settings
from vllm_mlx.config import EngineConfig, ServeConfig


def check_parsers(values: Mapping[str, Any]) -> None:
    """Refuses unknown parsers before anything slow happens.

    Raises:
        click.UsageError: with the parsers that there are.
    """
    for registry, name in ((tool_parsers, values["tool_call_parser"]), (reasoning_parsers, values["reasoning_parser"])):
        try:
            if name not in ("auto", "none"):
                registry.resolve(name)
        except KeyError as error:
            raise click.UsageError(f"{error.args[0]}; or auto, or none") from error


def serve_config(model: hub.Model, values: Mapping[str, Any]) -> ServeConfig:
    """The parsed flags as a server's settings.

    Raises:
        click.UsageError: an API key that is blank would let everyone in.
    """
    if not all(key.strip() for key in values["api_key"]):
        raise click.UsageError("--api-key is blank")
    engine = EngineConfig(model=str(model.path), **settings(EngineConfig, values))
    serve = settings(ServeConfig, values)
    serve["served_model_name"] = serve["served_model_name"] or (model.name,)
    return ServeConfig(engine=engine, **serve)


def find(spec: str | None, *, revision: str | None = None, code: bool = False) -> hub.Model:
    """The model that `spec` names; without one the MiniMax model of the cache, else the built-in one.

    Raises:
        click.UsageError: there is no such model, or the cache has several to choose from.
    """
    try:
        return hub.resolve(spec, revision=revision, code=code) if spec else _default()
    except hub.ModelNotFoundError as error:
        raise click.UsageError(str(error)) from error


def _default() -> hub.Model:
    models = hub.cached_minimax()
    if len(models) > 1:
        names = "\n".join(f"  {model.name}" for model in models)
        raise hub.ModelNotFoundError(f"no MODEL given, and the cache has several MiniMax models:\n{names}")
    if models:
        click.echo(f"No MODEL given: serving {models[0].name}, the MiniMax model in the Hugging Face cache.", err=True)
        return models[0]
    click.echo("No MODEL given and no MiniMax model in the Hugging Face cache: serving the built-in one.", err=True)
    return hub.built_in()


def load_chat(config: ServeConfig) -> ChatModel:
    """Tokenizer, template and parsers.

    Raises:
        click.UsageError: a parser or a template that there is not, with what there is.
    """
    try:
        return ChatModel.load(
            Path(config.engine.model),
            tool_call_parser=config.tool_call_parser,
            reasoning_parser=config.reasoning_parser,
            chat_template=config.chat_template,
            trust_remote_code=config.engine.trust_remote_code,
            restore_reasoning=config.restore_reasoning,
        )
    except ModelError as error:
        raise click.UsageError(str(error)) from error
