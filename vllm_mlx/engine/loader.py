"""A model folder into memory, and what must be known of it."""

import importlib.metadata
import json
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.models.switch_layers import SwitchLinear

from vllm_mlx.config import EngineConfig
from vllm_mlx.engine import kv, memory
from vllm_mlx.engine.attention import own_caches
from vllm_mlx.engine.protocol import EngineInfo

_SPARE = 256 << 20


class LoadError(Exception):
    """The model cannot be served; the message is for the user."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in memory."""

    model: Any
    info: EngineInfo
    kv_per_token: int
    """Bytes."""
    kv_limit: int
    """Bytes that keys and values may take in all."""
    identity: bytes = b""
    """What its keys and values depend on besides the tokens, in short."""
    chunk_pairs: int | None = None
    """Pairs of a query and a key that a prefill pass may have, where attention makes masks."""

    def make_caches(self) -> list[Any]:
        """Empty caches for one row, one a layer."""
        return own_caches(make_prompt_cache(self.model))


def load(config: EngineConfig) -> LoadedModel:
    """Raises `LoadError` where the folder holds no model that can be served, or one that does not fit."""
    from mlx_lm.utils import load_model

    folder = Path(config.model)
    if not (folder / "config.json").is_file():
        raise LoadError(f"{folder} has no config.json: it is not a model folder")
    plan = _plan(folder, config)
    _set_limits(plan)
    try:
        model, described = load_model(folder, trust_remote_code=config.trust_remote_code)
    except (ValueError, FileNotFoundError, KeyError, TypeError, RuntimeError, json.JSONDecodeError) as error:
        raise LoadError(f"the model in {folder} does not load: {error}") from error
    if not plan.device.metal:
        _column_major(model)
    text = described.get("text_config") or described
    context = _context(text, config.max_model_len)
    info = EngineInfo(
        max_model_len=context,
        vocab_size=int(text["vocab_size"]),
        device=_device(),
        weight_bytes=sum(value.nbytes for _, value in tree_flatten(model.parameters())),
        kv_tokens=plan.tokens,
        plan=plan.lines(),
    )
    per_token = _kv_per_token(model, described)
    return LoadedModel(model, info, per_token, plan.kv_bytes, _identity(folder), plan.chunk_pairs)


def _set_limits(plan: memory.Plan) -> None:
    """Freed buffers are kept for one prefill chunk at most; on Metal what is in use stays resident."""
    mx.set_cache_limit(plan.cost.scratch + plan.mask_bytes + _SPARE)
    if plan.device.metal:
        mx.set_wired_limit(plan.device.limit)


def _column_major(model: Any) -> None:
    """Lays float32 matrices out by columns, values unchanged: MLX's BLAS for the CPU multiplies them twice as fast."""
    for module in model.modules():
        if type(module) in (nn.Linear, SwitchLinear) and module.weight.dtype == mx.float32:
            module.weight = mx.contiguous(module.weight.swapaxes(-1, -2)).swapaxes(-1, -2)
            mx.eval(module.weight)


def _identity(folder: Path) -> bytes:
    """A digest of the config, and of sizes and samples of the weights: reading them all would take minutes."""
    digest = blake2b(importlib.metadata.version("mlx-lm").encode(), digest_size=16)
    digest.update((folder / "config.json").read_bytes())
    for file in sorted(folder.glob("*.safetensors")):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with file.open("rb") as weights:
            for share in range(8):
                weights.seek(size * share // 8)
                digest.update(weights.read(65536))
    return digest.digest()


def _plan(folder: Path, config: EngineConfig) -> memory.Plan:
    try:
        plan = memory.plan(
            folder,
            utilization=config.gpu_memory_utilization,
            sequences=config.max_num_seqs,
            context=config.max_model_len,
            step_size=config.prefill_step_size,
        )
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise LoadError(f"the model in {folder} cannot be planned for: {error}") from error
    if not plan.fits:
        raise LoadError("\n".join(["the model does not fit this machine:", *plan.lines()]))
    return plan


def _kv_per_token(model: Any, described: dict[str, Any]) -> int:
    """Measured, which warms the model up as well; by the config where a cache says nothing of single tokens."""
    caches = own_caches(make_prompt_cache(model))
    mx.eval(model(mx.array([[0]]), cache=caches))
    if kv.cuttable(caches):
        return kv.token_bytes(caches)
    return memory.cost(described, 0, step_size=1).kv_per_token


def _context(text: dict[str, Any], wanted: int | None) -> int:
    own = text.get("max_position_embeddings")
    if own is None and wanted is None:
        raise LoadError("config.json does not say the model's context: give --max-model-len")
    if own is not None and wanted is not None and wanted > own:
        raise LoadError(f"--max-model-len {wanted} is more than the model's context of {own}")
    return int(wanted or own or 0)


def _device() -> str:
    if not mx.metal.is_available():
        return "cpu"
    return str(mx.device_info()["device_name"])
