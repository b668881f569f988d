"""The model and the settings of a command line, or an error that says what there is."""

import ssl
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


def check(values: Mapping[str, Any]) -> None:
    """Refuses what the machine does not have of a command line's parsed values, before anything slow happens.

    Raises:
        click.UsageError: an unknown parser, with those that there are; a file that cannot be used.
    """
    check_parsers(values)
    if record := values.get("record"):
        _try_file("--record", record, "a")
    _check_tls(values["ssl_certfile"], values["ssl_keyfile"])


def check_parsers(values: Mapping[str, Any]) -> None:
    """Refuses unknown parsers. Raises `click.UsageError` with those that there are."""
    for registry, name in ((tool_parsers, "tool_call_parser"), (reasoning_parsers, "reasoning_parser")):
        try:
            if values[name] not in ("auto", "none"):
                registry.resolve(values[name])
        except KeyError as error:
            raise click.UsageError(f"--{name.replace('_', '-')}: {error.args[0]}; or auto, or none") from error


def check_revision(spec: str, revision: str | None) -> None:
    """Refuses a revision of what has none. Raises `click.UsageError`."""
    if revision is not None and hub.is_local(spec):
        raise click.UsageError(f"--revision {revision}: {spec} is no repository on the hub")


def _check_tls(certificate: str | None, key: str | None) -> None:
    if certificate is None:
        if key is not None:
            raise click.UsageError("--ssl-keyfile needs --ssl-certfile")
        return
    _try_file("--ssl-certfile", certificate)
    if key is not None:
        _try_file("--ssl-keyfile", key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        given = f"--ssl-certfile {certificate}" + (f" --ssl-keyfile {key}" if key else "")
        raise click.UsageError(f"{given}: not a certificate and its key (PEM): {error.reason}") from error


def _try_file(flag: str, path: str, mode: str = "r") -> None:
    try:
        open(path, mode).close()
    except OSError as error:
        raise click.UsageError(f"{flag} {path}: {error.strerror}") from error


def serve_config(model: hub.Model, values: Mapping[str, Any]) -> ServeConfig:
    """The parsed flags as a server's settings."""
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
        if spec is None:
            return _default()
        check_revision(spec, revision)
        return hub.resolve(spec, revision=revision, code=code)
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
