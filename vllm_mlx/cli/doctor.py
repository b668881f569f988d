"""`vllm-mlx doctor`: whether a model's tokenizer and template work with the parsers, and what is in the way here."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from vllm_mlx.chat.checks import Check

_STYLE = {"pass": "green", "warn": "yellow", "fail": "red", "info": "blue"}


@click.command(short_help="Check a model's template and tokenizer, and this machine.")
@click.argument("model", required=False)
@click.option("--tool-call-parser", default="auto", show_default=True, metavar="NAME", help="Parser of tool calls.")
@click.option("--reasoning-parser", default="auto", show_default=True, metavar="NAME", help="Parser of thoughts.")
@click.option("--chat-template", metavar="FILE", help="Chat template instead of the model's own.")
@click.option("--revision", metavar="NAME", help="Branch, tag or commit of a model from the hub.")
@click.option("--trust-remote-code", is_flag=True, help="Run tokenizer code from the model's folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    model: str | None,
    *,
    tool_call_parser: str,
    reasoning_parser: str,
    chat_template: str | None,
    revision: str | None,
    trust_remote_code: bool,
    as_json: bool,
) -> None:
    """Check MODEL (a folder, a repository of the hub, or `demo`) without its weights, and this environment.

    A conversation is written by the chat template, read by the parsers and written again. Exits with 1 if a check
    failed. Without MODEL only the environment is checked.
    """
    from vllm_mlx.chat.checks import checks
    from vllm_mlx.chat.model import ChatModel, ModelError
    from vllm_mlx.cli._environment import environment
    from vllm_mlx.cli._model import check_parsers

    check_parsers({"tool_call_parser": tool_call_parser, "reasoning_parser": reasoning_parser})
    found: list[Check] = []
    if model is not None:
        try:
            chat = ChatModel.load(
                _folder(model, revision, trust_remote_code),
                tool_call_parser=tool_call_parser,
                reasoning_parser=reasoning_parser,
                chat_template=chat_template,
                trust_remote_code=trust_remote_code,
            )
        except ModelError as error:
            raise click.ClickException(str(error)) from error
        found += checks(chat)
    found += environment()
    failed = any(check.status == "fail" for check in found)
    click.echo(_json(found, model, not failed) if as_json else "\n".join(_line(check) for check in found))
    if failed:
        raise SystemExit(1)


def _line(check: "Check") -> str:
    return f"{click.style(check.status.upper(), fg=_STYLE[check.status])}  {check.name}: {check.detail}"


def _json(found: list["Check"], model: str | None, ok: bool) -> str:
    rows = [{"name": check.name, "status": check.status, "detail": check.detail} for check in found]
    return json.dumps({"model": model, "ok": ok, "checks": rows}, indent=2, ensure_ascii=False)


def _folder(spec: str, revision: str | None, code: bool) -> Path:
    """The model's folder; of a repository, everything but the weights."""
    from vllm_mlx import hub
    from vllm_mlx.cli._model import check_revision

    check_revision(spec, revision)
    try:
        return hub.described(spec, revision=revision, patterns=[*hub.TEXTS, hub.CODE] if code else hub.TEXTS)
    except hub.ModelNotFoundError as error:
        raise click.ClickException(str(error)) from error
