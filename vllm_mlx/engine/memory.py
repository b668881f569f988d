"""What fits: a device's limit against weights, keys and values a token, and prefill's scratch.

A plan needs a model's config and the sizes of its weight files, not the weights. MLX is asked on a Mac only.
"""

import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_GB = 10**9
_METAL_SHARE = 0.75
"""What macOS lets Metal keep resident of a large machine's memory, unless told otherwise."""
_SYSTEM = 8 * _GB
"""What the rest of a Mac needs when its limit is raised."""
_MASK_SHARE = 128
"""Masks of sparse attention get one such part of the memory: on 512 GB chunks of 236 tokens after 150,000 of M3's."""


@dataclass(frozen=True, slots=True)
class Device:
    """A machine: its memory, and how much of that models may take, in bytes."""

    name: str
    memory: int
    limit: int
    metal: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """What a model takes, in bytes. `scratch` is for one prefill chunk; `context` is in tokens.

    `mask_per_pair` is what sparse attention takes in prefill for each pair of a query and a key.
    """

    weights: int
    kv_per_token: int
    scratch: int
    context: int
    mask_per_pair: int


def this_device() -> Device:
    """This machine. Its limit is Metal's recommended working set on a Mac, three quarters of the memory elsewhere."""
    if sys.platform == "darwin":
        import mlx.core as mx

        info = mx.device_info()
        memory = int(info["memory_size"])
        return Device(str(info["device_name"]), memory, int(info["max_recommended_working_set_size"]), metal=True)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    group = Path("/sys/fs/cgroup/memory.max")
    if group.exists() and (text := group.read_text().strip()).isdigit():
        memory = min(memory, int(text))
    return Device("CPU", memory, int(memory * _METAL_SHARE))


def mac(gigabytes: float) -> Device:
    """A Mac with so much memory, as macOS sets it up."""
    memory = int(gigabytes * 2**30)
    return Device(f"a Mac with {gigabytes:g} GB", memory, int(memory * _METAL_SHARE), metal=True)


def cost(config: Mapping[str, Any], weights: int, *, step_size: int, width: int | None = None) -> Cost:
    """From a model's config.json; `weights` as `weight_bytes` has them. `step_size`: tokens of a prefill chunk.

    `width` is the bytes of an activation, where the weights are there to tell.
    """
    text = config.get("text_config") or config
    width = width or _activation_bytes(config)
    heads = text.get("num_key_value_heads") or text["num_attention_heads"]
    head_dim = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    per_token = text["num_hidden_layers"] * heads * head_dim * 2 * width
    sparse = text.get("sparse_attention_config") or {}
    per_token += sum(sparse.get("sparse_attention_freq", ())) * sparse.get("sparse_index_dim", 0) * width
    context = int(text.get("max_position_embeddings") or 0)
    return Cost(weights, per_token, step_size * scratch_per_token(text, width), context, mask_per_pair(text))


def scratch_per_token(text: Mapping[str, Any], width: int) -> int:
    """Bytes that a token in prefill needs for a while: a layer's inputs, experts and outputs, twice over."""
    hidden = text["hidden_size"]
    inner = text.get("num_experts_per_tok", 1) * (3 * text.get("intermediate_size", 4 * hidden) + hidden)
    heads = text["num_attention_heads"] * (text.get("head_dim") or hidden // text["num_attention_heads"])
    return int(2 * width * (4 * hidden + inner + 4 * heads))


def mask_per_pair(text: Mapping[str, Any]) -> int:
    """Bytes of all that mlx-lm's block mask of M3 makes for a query and a key, (heads, chunk, context) each.

    A bool for each query head; for each index head scores in float32, those that a query may look at, a copy of them
    cut into blocks, and two bools; and the causal bool. MLX on the CPU has up to three quarters of it at the same time.
    """
    sparse = text.get("sparse_attention_config")
    if not sparse:
        return 0
    heads: int = text["num_attention_heads"]
    index_heads: int = sparse.get("sparse_num_index_heads") or text.get("num_key_value_heads") or heads
    return heads + (3 * 4 + 2) * index_heads + 1


def weight_bytes(folder: Path) -> int | None:
    """The size of a model folder's weights, from its files or, where they are not there yet, its index."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        described: dict[str, Any] = json.loads(index.read_text())
        total: int | None = described.get("metadata", {}).get("total_size")
        files: list[Path] = [folder / name for name in set(described["weight_map"].values())]
        if all(file.is_file() for file in files):
            return sum(file.stat().st_size for file in files)
        return total
    shards = list(folder.glob("model*.safetensors"))
    return sum(file.stat().st_size for file in shards) if shards else None


def norm_bytes(folder: Path) -> int | None:
    """Bytes of a number in the norms of a folder's weights, which is what activations have; None without weights."""
    for file in sorted(folder.glob("model*.safetensors")):
        with file.open("rb") as weights:
            length = min(int.from_bytes(weights.read(8), "little"), 1 << 27)
            header: dict[str, Any] = json.loads(weights.read(length))
        for name, entry in header.items():
            if name.endswith("norm.weight"):
                return 4 if entry["dtype"] == "F32" else 2
    return None


def _activation_bytes(config: Mapping[str, Any]) -> int:
    text = config.get("text_config") or {}
    kind = config.get("torch_dtype") or config.get("dtype") or text.get("torch_dtype") or text.get("dtype")
    return 4 if kind == "float32" else 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What fits on a device. Tokens are of keys and values, of all sequences together."""

    device: Device
    cost: Cost
    utilization: float
    sequences: int
    context: int | None = None
    """What the user wants, if anything."""
    step_size: int = 2048
    """Tokens of a prefill chunk, at most."""

    @property
    def chunk_pairs(self) -> int | None:
        """Pairs of a query and a key that sparse attention's masks have room for in prefill; None: it has no masks."""
        per_pair = self.cost.mask_per_pair
        if not per_pair:
            return None
        share = self.device.memory // _MASK_SHARE // per_pair
        context = self.context or self.cost.context
        return min(share, self.step_size * context) if context else share

    @property
    def mask_bytes(self) -> int:
        return (self.chunk_pairs or 0) * self.cost.mask_per_pair

    @property
    def budget(self) -> int:
        """Bytes for everything."""
        return int(self.device.limit * self.utilization)

    @property
    def kv_bytes(self) -> int:
        """What is left for keys and values; negative if the weights alone do not fit."""
        return self.budget - self.cost.weights - self.cost.scratch - self.mask_bytes

    @property
    def tokens(self) -> int:
        return max(0, self.kv_bytes // self.cost.kv_per_token)

    def longest(self, sequences: int) -> int:
        """The longest context that so many sequences can have at the same time."""
        return min(self.cost.context or self.tokens, self.tokens // sequences)

    @property
    def fits(self) -> bool:
        wanted = self.context or min(self.cost.context or 1, 1024)
        return self.longest(1) >= wanted

    @property
    def wanted_bytes(self) -> int:
        """What the device's limit must be for the context that is wanted (the model's own, if none is)."""
        tokens = self.context or self.cost.context or 1
        needed = self.cost.weights + self.cost.scratch + self.mask_bytes + tokens * self.cost.kv_per_token
        return math.ceil(needed / self.utilization) + 1

    def advice(self) -> str | None:
        """How a Mac can be made to hold what is wanted, where it cannot now."""
        wanted = self.wanted_bytes
        if not self.device.metal or wanted <= self.device.limit or wanted > self.device.memory - _SYSTEM:
            return None
        return f"sudo sysctl iogpu.wired_limit_mb={-(-wanted // 2**20)}"

    def lines(self) -> list[str]:
        """For people."""
        cost, device = self.cost, self.device
        masks = f", and {_size(self.mask_bytes)} for sparse attention's masks" if self.mask_bytes else ""
        lines = [
            f"Device: {device.name}, {_size(device.memory)}; models may take {_size(self.budget)} of it",
            f"Weights: {_size(cost.weights)}; prefill scratch: {_size(cost.scratch)}{masks}",
            f"KV cache: {cost.kv_per_token / 1024:.4g} KiB a token; room for {self.tokens:,} tokens",
        ]
        if self.tokens:
            lines.append(f"Longest safe context: {self.longest(1):,} tokens")
            if self.sequences > 1:
                each = self.longest(self.sequences)
                lines.append(f"  with {self.sequences} sequences at the same time: {each:,} each")
        if not self.fits:
            wanted = f"a context of {self.context:,} tokens" if self.context else "this model"
            lines.append(f"Does not fit: {wanted} needs a limit of {_size(self.wanted_bytes)}")
        if advice := self.advice():
            lines.append(f"For {self.context or cost.context:,} tokens, raise the limit: {advice}")
        return lines


def plan(
    folder: Path,
    *,
    weights: int | None = None,
    device: Device | None = None,
    utilization: float = 0.9,
    sequences: int = 1,
    context: int | None = None,
    step_size: int = 2048,
) -> Plan:
    """What fits of the model whose config.json and index (or weights, unless their bytes are given) are in `folder`.

    Raises:
        ValueError: the folder does not say how large the weights are.
    """
    config = json.loads((folder / "config.json").read_text())
    weights = weight_bytes(folder) if weights is None else weights
    if weights is None:
        raise ValueError(f"{folder} has neither weights nor an index that gives their size")
    costs = cost(config, weights, step_size=step_size, width=norm_bytes(folder))
    return Plan(device or this_device(), costs, utilization, sequences, context, step_size)


def _size(count: int) -> str:
    return f"{count / _GB:.1f} GB" if count >= _GB / 10 else f"{count / 10**6:.1f} MB"
