"""`vllm-mlx parse`: raw model text to reasoning, content and tool calls, without a model; or checks of case files."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from vllm_mlx.cli._cases import Case, Setup


class _Split(click.ParamType[Any]):
    name = "N|every"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == "every" or (isinstance(value, str) and value.isascii() and value.isdigit() and int(value) > 0):
            return int(value) if value != "every" else value
        raise click.BadParameter(f"{value!r} is neither a number of characters nor `every`", ctx, param)


@click.command(short_help="Parse raw model text, or check case files.")
@click.argument("file", default="-", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--tool-call-parser", default="minimax_m2", show_default=True, metavar="NAME", help="Or none.")
@click.option("--reasoning-parser", default="minimax_m2", show_default=True, metavar="NAME", help="Or none.")
@click.option(
    "--tools", type=click.Path(exists=True, dir_okay=False), metavar="FILE", help="JSON list of OpenAI tool schemas."
)
@click.option(
    "--thinking-open/--no-thinking-open",
    default=None,
    help="Whether the prompt left a thought open.  [default: as the template of the reasoning parser's model does]",
)
@click.option(
    "--split",
    type=_Split(),
    metavar="N|every",
    help="Feed pieces of N characters; `every`: whole, one character at a time, and at every two-way cut.",
)
@click.option(
    "--cases",
    "cases",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE.jsonl",
    help="Check the cases of a file instead; may be given more than once.",
)
def command(
    *,
    file: str,
    tool_call_parser: str,
    reasoning_parser: str,
    tools: str | None,
    thinking_open: bool | None,
    split: int | str | None,
    cases: tuple[str, ...],
) -> None:
    """Parse the raw model text in FILE (or standard input) and print reasoning, content and tool calls as JSON.

    With --cases, read cases instead, each with the parsers of its family, and print what differs.
    """
    if cases:
        _check(cases, split)
    setup = _setup(tool_call_parser, reasoning_parser, tools, thinking_open)
    text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    _parse(setup, text.decode("utf-8", "replace"), split)


def _setup(tool: str, reasoning: str, tools: str | None, thinking_open: bool | None) -> "Setup":
    import reasoning_parsers
    import tool_parsers
    from vllm_mlx.cli._cases import THINKING_OPEN, Setup

    try:
        tool_name = None if tool == "none" else tool_parsers.resolve(tool)
        reasoning_name = None if reasoning == "none" else reasoning_parsers.resolve(reasoning)
    except KeyError as error:
        raise click.UsageError(f"--tool-call-parser, --reasoning-parser: {error.args[0]}") from error
    if thinking_open is None:
        thinking_open = reasoning_name in THINKING_OPEN
    return Setup(tool_name, reasoning_name, _tools(tools), thinking_open)


def _tools(file: str | None) -> list[dict[str, Any]] | None:
    """A list of tools, or a request that has one."""
    if file is None:
        return None
    try:
        tools = json.loads(Path(file).read_text(encoding="utf-8"))
    except ValueError as error:
        raise click.UsageError(f"{file} is not JSON: {error}") from error
    tools = tools.get("tools") if isinstance(tools, dict) else tools
    if not isinstance(tools, list) or not all(isinstance(tool, dict) and "function" in tool for tool in tools):
        raise click.UsageError(f'{file} has no list of OpenAI tools ({{"type": "function", "function": ...}})')
    return tools


def _parse(setup: "Setup", text: str, split: int | str | None) -> None:
    from vllm_mlx.cli._cases import cuttings

    replies = [(pieces, setup.read(pieces)) for pieces in cuttings(text, split)]
    _, reply = replies[0]
    calls = [{"name": call.name, "arguments": call.arguments} for call in reply.tool_calls]
    click.echo(_json({"reasoning": reply.reasoning, "content": reply.content, "tool_calls": calls}, indent=2))
    for pieces, other in replies:
        if other != reply:
            raise click.ClickException(f"cut as {_json(pieces)} the text gives {other}")
    if reply.aborted:
        click.echo("A tool call was cut short and is left out.", err=True)


def _check(files: tuple[str, ...], split: int | str | None) -> None:
    """Prints every case that fails and how many passed; exits."""
    from vllm_mlx.cli._cases import read_cases

    passed = failed = 0
    for file in files:
        try:
            cases = list(read_cases(Path(file)))
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        for case in cases:
            difference = _difference(case, split)
            passed, failed = (passed, failed + 1) if difference else (passed + 1, failed)
            if difference:
                click.echo(f"{case.id}\n{difference}")
    click.echo(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def _difference(case: "Case", split: int | str | None) -> str | None:
    """The first way to cut the text that gives something else than is expected."""
    from vllm_mlx.cli._cases import cuttings

    for pieces in cuttings(case.text, split):
        try:
            got = case.got(pieces)
        except KeyError as error:
            return f"  {error.args[0]}"
        if got != case.expect:
            cut = f"  cut      {_json(pieces)}\n" if len(pieces) > 1 else ""
            return f"{cut}  expected {_json(case.expect)}\n  got      {_json(got)}"
    return None


def _json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)
