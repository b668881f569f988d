"""Several processes that train one model: at this size, twice as fast as one process with as many threads."""

from __future__ import annotations

from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor


def join(rank: int, count: int, folder: Path) -> None:
    """Meet the other workers; the calls below then wait for all of them."""
    meeting = dist.FileStore(str(folder / "meeting"), count)
    dist.init_process_group("gloo", store=meeting, rank=rank, world_size=count)


def rank() -> int:
    return dist.get_rank()


def count() -> int:
    return dist.get_world_size()


def total(tensors: list[Tensor]) -> None:
    """Replace each tensor by its sum over the workers."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.all_reduce(flat)
    at = 0
    for tensor in tensors:
        tensor.copy_(flat[at : at + tensor.numel()].view_as(tensor))
        at += tensor.numel()


def share(length: int) -> slice:
    """This worker's part of so many things."""
    return slice(length * rank() // count(), length * (rank() + 1) // count())
