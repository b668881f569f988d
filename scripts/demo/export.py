"""Write the checkpoint in mlx-lm's `minimax` layout: 8-bit groups with float32 scales.

(bfloat16 experts do not run on a CPU, and bfloat16 scales are four times slower there.)
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from .model import Config

GROUP = 64
END = "[e~["


def quantized(name: str, weight: np.ndarray) -> dict[str, np.ndarray]:
    """Affine 8-bit: value = scale * q + bias for each group of a row, four values a word."""
    groups = weight.reshape(*weight.shape[:-1], -1, GROUP)
    low, high = groups.min(-1), groups.max(-1)
    scales = np.maximum((high - low) / 255, 1e-8).astype(np.float32)
    values = np.clip(np.rint((groups - low[..., None]) / scales[..., None]), 0, 255).astype(np.uint8)
    packed = np.ascontiguousarray(values.reshape(weight.shape)).view(np.uint32)
    return {f"{name}.weight": packed, f"{name}.scales": scales, f"{name}.biases": low.astype(np.float32)}


def tensors(average: dict[str, torch.Tensor], config: Config) -> dict[str, np.ndarray]:
    weights = {name: tensor.float().numpy() for name, tensor in average.items()}
    out = quantized("model.embed_tokens", weights["embed_tokens"])
    out["model.norm.weight"] = weights["norm.weight"]
    for index in range(config.num_hidden_layers):
        here, there = f"layers.{index}", f"model.layers.{index}"
        for name in ("input_layernorm", "post_attention_layernorm", "self_attn.q_norm", "self_attn.k_norm"):
            out[f"{there}.{name}.weight"] = weights[f"{here}.{name}.weight"]
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            out |= quantized(f"{there}.self_attn.{name}", weights[f"{here}.self_attn.{name}"])
        moe = f"{here}.block_sparse_moe"
        out[f"{there}.block_sparse_moe.gate.weight"] = weights[f"{moe}.gate"]  # rounding would flip routes
        out[f"{there}.block_sparse_moe.e_score_correction_bias"] = weights[f"{moe}.bias"]
        for name in ("gate_proj", "up_proj", "down_proj"):
            out |= quantized(f"{there}.block_sparse_moe.switch_mlp.{name}", weights[f"{moe}.{name}"])
    return {name: np.ascontiguousarray(array) for name, array in out.items()}


def export(folder: Path, output: Path) -> None:
    """The averaged weights, the tokenizer and the settings, as a model folder."""
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    config = Config(**state["config"])
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    output.mkdir(parents=True, exist_ok=True)
    save_file(tensors(state["average"], config), output / "model.safetensors", {"format": "mlx"})
    shutil.copy(folder / "tokenizer.json", output / "tokenizer.json")
    for name, settings in files(config, ids["]~!b["], ids[END]).items():
        (output / name).write_text(json.dumps(settings, indent=2) + "\n")
    (output / "model.safetensors").chmod(0o644)
    size = sum(path.stat().st_size for path in output.iterdir() if path.is_file())
    trained = f"{state['seen'] / 1e6:.1f}M tokens, {state['seconds'] / 60:.0f} min"
    print(f"exported ({trained}) to {output}: {size / 1e6:.2f} MB")


def files(config: Config, begin: int, end: int) -> dict[str, dict[str, Any]]:
    """The JSON files beside the weights."""
    marks = {"bos_token_id": begin, "eos_token_id": end}
    return {
        "config.json": {
            "architectures": ["MiniMaxM2ForCausalLM"],
            "model_type": "minimax",
            **config.exported(),
            "shared_intermediate_size": 0,
            "scoring_func": "sigmoid",
            "use_qk_norm": True,
            "tie_word_embeddings": True,
            **marks,
            "quantization": {"group_size": GROUP, "bits": 8},
        },
        "generation_config.json": {**marks, "do_sample": True, "temperature": 1.0, "top_p": 0.95, "top_k": 40},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "]~!b[",
            "eos_token": END,
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": config.max_position_embeddings,
        },
    }
