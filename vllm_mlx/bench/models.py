"""Makes the models that are measured and tested: random weights in MiniMax's architectures, a tokenizer, a template.

*tiny* has 4.0M parameters; *tiny-200k* is the same with MiniMax's real vocabulary; *small* has 64M; *tiny-m3* has M3's
sparse attention and dense first layer. Weights are drawn from a fixed seed, so a model is the same wherever it is made.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a random model."""

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 4
    head_dim: int = 32
    experts: int = 8
    intermediate: int = 128
    vocab: int = 8192
    context: int = 196608
    sparse: bool = False


SHAPES = {
    "tiny": Shape(),
    "tiny-200k": Shape(vocab=200064),
    "tiny-m3": Shape(sparse=True),
    "tiny-deep": Shape(hidden=64, layers=16, heads=2, kv_heads=2, intermediate=32, experts=4, vocab=1024),
    "small": Shape(hidden=512, layers=8, heads=8, kv_heads=8, head_dim=64, intermediate=416, experts=8, vocab=16384),
}
_SPECIAL = ("[BOS]", "[TURN]", "[END]")
_TEMPLATE = (
    "{{ '[BOS]' }}{% for m in messages %}{{ '[TURN]' + ('ai' if m.role == 'assistant' else m.role) + '\\n' }}"
    "{{ m.content or '' }}{{ m.tool_calls | tojson if m.tool_calls else '' }}{{ '[END]\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[TURN]ai\\n' }}{% endif %}"
)


def make_model(name: str, folder: Path) -> Path:
    """Writes the named model (a key of `SHAPES`) below `folder`, unless it is there; returns its own folder."""
    target = folder / name
    if (target / "config.json").exists():
        return target
    shape = SHAPES[name]
    special = {"bos_token": _SPECIAL[0], "eos_token": _SPECIAL[2]}
    return write_model(shape, _tokenizer(shape.vocab), _TEMPLATE, special, target)


def write_model(shape: Shape, tokenizer: Tokenizer, template: str, special: dict[str, str], target: Path) -> Path:
    """Random weights under any tokenizer with at most `shape.vocab` tokens; `special` names them by role."""
    target.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(target / "tokenizer.json"))
    described = {"tokenizer_class": "PreTrainedTokenizerFast", **special, "chat_template": template}
    (target / "tokenizer_config.json").write_text(json.dumps(described))
    stop = tokenizer.encode(special["eos_token"], add_special_tokens=False).ids[0]
    config = (_m3_config if shape.sparse else _m2_config)(shape, stop)
    _write_weights(config, target)
    (target / "generation_config.json").write_text(json.dumps({"eos_token_id": stop}))
    (target / "config.json").write_text(json.dumps(config, indent=2))
    return target


def _m2_config(shape: Shape, stop: int) -> dict[str, Any]:
    return {
        "model_type": "minimax",
        "architectures": ["MiniMaxM2ForCausalLM"],
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.context,
        "num_experts_per_tok": 2,
        "num_local_experts": shape.experts,
        "shared_intermediate_size": 0,
        "num_hidden_layers": shape.layers,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5000000,
        "rotary_dim": shape.head_dim // 2,
        "vocab_size": shape.vocab,
        "eos_token_id": stop,
    }


def _m3_config(shape: Shape, stop: int) -> dict[str, Any]:
    text = _m2_config(shape, stop) | {
        "model_type": "minimax_m3_text",
        "dense_intermediate_size": 2 * shape.intermediate,
        "shared_intermediate_size": shape.intermediate,
        "moe_layer_freq": [0] + [1] * (shape.layers - 1),
        "num_key_value_heads": 2,
        "sparse_attention_config": {
            "sparse_num_index_heads": 2,
            "sparse_index_dim": 16,
            "sparse_block_size": 16,
            "sparse_topk_blocks": 4,
            "sparse_local_block": 1,
            "sparse_attention_freq": [0] + [1] * (shape.layers - 1),
        },
    }
    return {"model_type": "minimax_m3_vl", "text_config": text, "vocab_size": shape.vocab, "eos_token_id": stop}


def _write_weights(config: dict[str, Any], target: Path) -> None:
    import importlib

    import mlx.core as mx
    from mlx.utils import tree_flatten

    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    model = module.Model(module.ModelArgs.from_dict(config))
    weights = {}
    for index, (name, value) in enumerate(sorted(tree_flatten(model.parameters()))):
        key = mx.random.key(index)
        if value.ndim == 1:
            # Norms near one: what is measured is the engine, but a norm of noise would saturate the model.
            around = 0.0 if "bias" in name or _adds_one(config) else 1.0
            weights[name] = around + 0.1 * mx.random.normal(value.shape, key=key)
        else:
            weights[name] = mx.random.normal(value.shape, key=key) * value.shape[-1] ** -0.5
    mx.save_safetensors(str(target / "model.safetensors"), weights, {"format": "mlx"})


def _adds_one(config: dict[str, Any]) -> bool:
    """Whether the model's norms add one to their weight (M3)."""
    return bool(config["model_type"] == "minimax_m3_vl")


def _tokenizer(vocab: int) -> Tokenizer:
    """Bytes, the turn tokens from id 256 on, then fillers, so that every id of the vocabulary is some text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {token: index for index, token in enumerate(alphabet)}
    for index in range(len(alphabet) + len(_SPECIAL), vocab):
        ids[f"Ġw{index}"] = index
    tokenizer = Tokenizer(models.BPE(vocab=ids | {s: 256 + i for i, s in enumerate(_SPECIAL)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in _SPECIAL])
    return tokenizer
