"""`vllm-mlx plan`: what fits, before anything is downloaded."""

from pathlib import Path

import click

from vllm_mlx.cli._values import Float, Int


@click.command(short_help="Say whether a model fits, and how much context.")
@click.argument("model")
@click.option("--context", metavar="N", type=Int(1), help="Context in tokens that must fit.")
@click.option("--max-num-seqs", default=8, show_default=True, type=Int(1), help="Sequences at the same time.")
@click.option(
    "--gpu-memory-utilization",
    default=0.9,
    show_default=True,
    type=Float(0.01, 1),
    help="Share of the device's limit that may be taken.",
)
@click.option("--memory-gb", metavar="GB", type=Float(1), help="Plan for a Mac with so much memory instead.")
@click.option("--revision", metavar="NAME", help="Branch, tag or commit of a model from the hub.")
def command(
    model: str,
    *,
    context: int | None,
    max_num_seqs: int,
    gpu_memory_utilization: float,
    memory_gb: float | None,
    revision: str | None,
) -> None:
    """Say what of MODEL fits this machine, from its config and index alone: no weights are downloaded.

    Exits with 1 if it does not fit.
    """
    from vllm_mlx import hub
    from vllm_mlx.engine import memory

    try:
        folder, weights = _described(model, revision)
        plan = memory.plan(
            folder,
            weights=weights,
            device=memory.mac(memory_gb) if memory_gb else None,
            utilization=gpu_memory_utilization,
            sequences=max_num_seqs,
            context=context,
        )
    except (hub.ModelNotFoundError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    click.echo("\n".join(plan.lines()))
    if not plan.fits:
        raise SystemExit(1)


def _described(spec: str, revision: str | None) -> tuple[Path, int | None]:
    """A folder with the model's config, and the bytes of its weights where only the hub knows them."""
    from vllm_mlx import hub
    from vllm_mlx.cli._model import is_local

    if is_local(spec, revision):
        return hub.resolve(spec).path, None
    from httpx2 import HTTPError
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import DryRunError

    try:
        files = snapshot_download(spec, revision=revision, allow_patterns=["*.safetensors"], dry_run=True)
        folder = snapshot_download(spec, revision=revision, allow_patterns=["config.json", "*.index.json"])
    except (HTTPError, OSError, DryRunError) as error:
        raise hub.ModelNotFoundError(f"{spec} cannot be looked up: {error.__cause__ or error}") from error
    if not (Path(folder) / "config.json").is_file():
        raise hub.ModelNotFoundError(f"{spec} has no config.json: it is not a model")
    return Path(folder), sum(file.file_size or 0 for file in files) or None
