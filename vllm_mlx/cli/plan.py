"""`vllm-mlx plan`: what fits, before anything is downloaded."""

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
    from vllm_mlx.cli._model import check_revision
    from vllm_mlx.engine import memory

    check_revision(model, revision)
    try:
        plan = memory.plan(
            hub.described(model, revision=revision, patterns=["config.json", "*.index.json"]),
            weights=hub.weight_bytes(model, revision=revision),
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
