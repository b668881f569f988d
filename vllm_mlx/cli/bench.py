"""`vllm-mlx bench`: what the engine costs beside raw mlx-lm."""

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from vllm_mlx.bench.engine import Results


@click.group(short_help="Measure servers: against raw mlx-lm, under load, in agent sessions.")
def command() -> None:
    """Measure servers."""


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

    from rich.progress import Progress

    from vllm_mlx.bench.engine import measure
    from vllm_mlx.bench.http import BenchError

    commands = {"vllm-mlx": f"{sys.executable} -m vllm_mlx.cli serve {{model}} --port {{port}} --log-level warning"}
    for peer in peers:
        name, equals, words = peer.partition("=")
        if not equals or "{port}" not in words:
            raise click.UsageError(f"--peer {peer}: give NAME=COMMAND with {{model}} and {{port}} in it")
        commands[name] = words
    with tempfile.TemporaryDirectory() as temporary, Progress(transient=True, disable=as_json) as bar:
        task = bar.add_task("Rounds", total=None)
        target = folder or Path(temporary)
        target.mkdir(parents=True, exist_ok=True)
        try:
            results = asyncio.run(
                measure(
                    commands,
                    rounds=rounds,
                    folder=target,
                    seed=seed,
                    progress=lambda done, total: bar.update(task, completed=done, total=total),
                )
            )
        except BenchError as error:
            raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(json.dumps(results.samples))
    else:
        _show(results)


def _show(results: "Results") -> None:
    from rich.console import Console
    from rich.table import Table

    from vllm_mlx.bench.engine import verdicts

    names = sorted(results.samples, key=lambda name: (name != "raw", name != "vllm-mlx", name))
    table = Table("median", *names, title="tiny (sampled: tiny-200k)")
    for measure in dict.fromkeys(measure for samples in results.samples.values() for measure in samples):
        values = [results.median(name, measure) for name in names]
        table.add_row(measure, *("" if value is None else f"{value:.4g}" for value in values))
    console = Console()
    console.print(table)
    goals = Table("measure", "over", "is", "must be", "", title="Targets")
    for target, value, reached in verdicts(results):
        must = f">= {target.low:g}" if target.low is not None else f"<= {target.high:g}"
        goals.add_row(target.measure, target.over or "", f"{value:.3g}", must, "" if reached else "missed")
    console.print(goals)
