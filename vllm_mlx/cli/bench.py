"""`vllm-mlx bench`: what servers do, measured."""

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vllm_mlx.cli._values import Float

if TYPE_CHECKING:
    from vllm_mlx.bench.engine import Results

Progressed = Callable[[int, int], None]


@click.group(short_help="Measure servers: against raw mlx-lm, under load, in agent sessions.")
def command() -> None:
    """Measure servers."""
    # Servers that were started are ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@contextmanager
def _progress(quiet: bool) -> Iterator[Progressed]:
    """A bar on stderr; what a bench cannot do ends as a message."""
    from rich.console import Console
    from rich.progress import Progress

    from vllm_mlx.bench.http import BenchError

    with Progress(console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task("Measuring", total=None)
        try:
            yield lambda done, total: bar.update(task, completed=done, total=total)
        except BenchError as error:
            raise click.ClickException(str(error)) from error


@command.command()
@click.option("--rounds", default=8, show_default=True, type=click.IntRange(1), help="Interleaved rounds.")
@click.option(
    "--peer",
    "peers",
    multiple=True,
    metavar="NAME=COMMAND",
    help="Another OpenAI-compatible server in the same rounds; {model} and {port} in COMMAND are filled in.",
)
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Where models and logs are kept.")
@click.option("--seed", default=0, show_default=True, help="Of the prompts and the order of the rounds.")
@click.option("--json", "as_json", is_flag=True, help="Print all samples as JSON.")
def engine(rounds: int, peers: tuple[str, ...], folder: Path | None, seed: int, as_json: bool) -> None:
    """Serve random models and compare with raw mlx-lm, in interleaved rounds of random order."""
    import tempfile

    from vllm_mlx.bench.engine import measure

    # Random models have no format of their own; with one, calls can be measured too.
    serve = f"{sys.executable} -m vllm_mlx.cli serve {{model}} --port {{port}} --tool-call-parser minimax_m2"
    commands = {"vllm-mlx": f"{serve} --log-level warning"}
    for peer in peers:
        name, equals, words = peer.partition("=")
        if not equals or "{port}" not in words:
            raise click.UsageError(f"--peer {peer}: give NAME=COMMAND with {{model}} and {{port}} in it")
        commands[name] = words
    with tempfile.TemporaryDirectory() as temporary, _progress(as_json) as progress:
        target = folder or Path(temporary)
        target.mkdir(parents=True, exist_ok=True)
        results = asyncio.run(measure(commands, rounds=rounds, folder=target, seed=seed, progress=progress))
    if as_json:
        click.echo(json.dumps(results.samples))
    else:
        _show(results)


def _figure(value: float) -> str:
    """Three digits, but for large numbers, which are never written with an exponent."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _show(results: "Results") -> None:
    from rich.console import Console
    from rich.table import Table

    from vllm_mlx.bench.engine import verdicts

    names = sorted(results.samples, key=lambda name: (name != "raw", name != "vllm-mlx", name))
    table = Table("median", *names, title="tiny (sampled, and rows under a grammar: tiny-200k)")
    for measure in dict.fromkeys(measure for samples in results.samples.values() for measure in samples):
        values = [results.median(name, measure) for name in names]
        table.add_row(measure, *("" if value is None else _figure(value) for value in values))
    console = Console()
    console.print(table)
    goals = Table("measure", "over", "is", "must be", "", title="Targets")
    for target, value, reached in verdicts(results):
        must = f">= {target.low:g}" if target.low is not None else f"<= {target.high:g}"
        goals.add_row(target.measure, target.over or "", _figure(value), must, "" if reached else "missed")
    console.print(goals)


@command.command()
@click.option("--base-url", required=True, metavar="URL", help="For example http://127.0.0.1:8000/v1")
@click.option("--model", help="Model name; the first that the server lists by default.")
@click.option(
    "--concurrency", "levels", multiple=True, type=click.IntRange(1), default=(1, 2, 4, 8), show_default=True,
    help="Clients at the same time; may be given more than once.",
)  # fmt: skip
@click.option("--requests", default=4, show_default=True, type=click.IntRange(1), help="Requests of each client.")
@click.option("--words", default=100, show_default=True, type=click.IntRange(1), help="Words in a prompt.")
@click.option("--max-tokens", default=64, show_default=True, type=click.IntRange(1), help="Tokens of a reply.")
@click.option("--seed", default=0, show_default=True, help="Of the prompts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Write plots to this file.")
def serve(
    *,
    base_url: str,
    model: str | None,
    levels: tuple[int, ...],
    requests: int,
    words: int,
    max_tokens: int,
    seed: int,
    as_json: bool,
    svg: Path | None,
) -> None:
    """Put rising load on any OpenAI-compatible server: TTFT, inter-token latency, throughput."""
    from vllm_mlx.bench import load

    with _progress(as_json) as progress:
        measured = asyncio.run(
            load.measure(
                base_url.rstrip("/"),
                model=model or load.first_model(base_url.rstrip("/")),
                concurrencies=sorted(set(levels)),
                requests=requests,
                words=words,
                max_tokens=max_tokens,
                seed=seed,
                progress=progress,
            )
        )
    if svg:
        svg.write_text(load.as_svg(measured))
    if as_json:
        click.echo(load.as_json(measured))
        return
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    percentiles = [f"{what}\np{p}" for what in ("TTFT", "ITL") for p in (50, 95, 99)]
    caption = "TTFT: to the first token, ITL: between tokens; milliseconds"
    table = Table("clients", "tok/s", "req/s", *percentiles, caption=caption, box=SIMPLE)
    for level in measured:
        clients, _, *figures = asdict(level).values()
        table.add_row(str(clients), *map(_figure, figures))
    Console().print(table)


@command.command()
@click.option("--base-url", required=True, metavar="URL", help="For example http://127.0.0.1:8000/v1")
@click.option("--model", help="Model name; the first that the server lists by default.")
@click.option("--turns", default=20, show_default=True, type=click.IntRange(2), help="Requests of a tool loop.")
@click.option(
    "--pause", default=3.0, show_default=True, metavar="SECONDS", type=Float(0), help="Before the user's next message."
)
@click.option("--replay-calls", is_flag=True, help="Go on with made-up calls, for a model that makes none.")
@click.option(
    "--tool-choice", default="required", show_default=True, type=click.Choice(["required", "auto"]),
    help="auto: for a server that cannot be held to calls.",
)  # fmt: skip
@click.option(
    "--reference-url", metavar="URL", help="A vllm-mlx server of the same model, where this one has no /tokenize."
)
@click.option("--seed", default=0, show_default=True, help="Of everything.")
@click.option("--json", "as_json", is_flag=True, help="Print every turn as JSON.")
def agent(
    *,
    base_url: str,
    model: str | None,
    turns: int,
    pause: float,
    replay_calls: bool,
    tool_choice: str,
    reference_url: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Play agent sessions with tool calls: how much of each prompt is reused, and the time to the first token."""
    from vllm_mlx.bench import agent as sessions
    from vllm_mlx.bench.load import first_model

    url = base_url.rstrip("/")
    with _progress(as_json) as progress:
        played = asyncio.run(
            sessions.play(
                url,
                model=model or first_model(url),
                turns=turns,
                pause=pause,
                seed=seed,
                replayed=replay_calls,
                tool_choice=tool_choice,
                reference_url=reference_url.rstrip("/") if reference_url else None,
                progress=progress,
            )
        )
    if as_json:
        click.echo(json.dumps([asdict(turn) for turn in played]))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("client", "turn", "turns", "reused / reusable", "computed, median", "TTFT ms, median")
    for row in sessions.summary(played):
        share = "not told" if row.share is None else f"{100 * row.share:.2f}%"
        computed = "" if row.computed is None else _figure(row.computed)
        table.add_row(row.client, row.kind, str(row.turns), share, computed, _figure(row.ttft_ms))
    Console().print(table)
