"""Plans from config and index alone."""

import json

import pytest

from vllm_mlx.engine.memory import Device, cost, mac, plan, weight_bytes

M2 = {
    "model_type": "minimax", "num_hidden_layers": 62, "num_key_value_heads": 8, "num_attention_heads": 48,
    "head_dim": 128, "hidden_size": 3072, "intermediate_size": 1536, "num_experts_per_tok": 8,
    "max_position_embeddings": 196608, "torch_dtype": "bfloat16",
}  # fmt: skip
M3 = {
    "model_type": "minimax_m3_vl",
    "text_config": {
        "num_hidden_layers": 60, "num_key_value_heads": 4, "num_attention_heads": 64, "head_dim": 128,
        "hidden_size": 6144, "intermediate_size": 3072, "num_experts_per_tok": 4, "max_position_embeddings": 1048576,
        "sparse_attention_config": {"sparse_index_dim": 128, "sparse_attention_freq": [0] * 3 + [1] * 57},
    },
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(M2))
    index = {"metadata": {"total_size": 128_700_000_000}, "weight_map": {"a": "model-1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


def test_bytes_a_token():
    assert cost(M2, 0, step_size=1).kv_per_token == 248 * 1024
    assert cost(M3, 0, step_size=1).kv_per_token == 120 * 1024 + 57 * 128 * 2


@pytest.mark.parametrize("name", ["tiny", "tiny-m3"])
def test_bytes_a_token_are_those_of_the_real_caches(loaded_model, model_folder, name):
    import mlx.core as mx

    from vllm_mlx.engine import kv

    loaded = loaded_model(name)
    caches = loaded.make_caches()
    loaded.model(mx.array([[1, 2, 3]]), cache=caches)
    assert kv.token_bytes(caches) == plan(model_folder(name)).cost.kv_per_token


def test_a_plan_needs_no_weights(folder):
    fitting = plan(folder, device=mac(256), sequences=4)
    assert fitting.fits
    assert fitting.longest(1) == 196608
    assert fitting.longest(4) == fitting.tokens // 4
    assert fitting.tokens == (fitting.budget - 128_700_000_000 - fitting.cost.scratch) // (248 * 1024)
    assert fitting.advice() is None
    text = "\n".join(fitting.lines())
    assert "128.7 GB" in text
    assert "248 KiB" in text
    assert "196,608" in text


def test_what_does_not_fit_says_what_would(folder):
    small = plan(folder, device=mac(128))
    assert not small.fits
    assert "Does not fit" in "\n".join(small.lines())
    assert small.advice() is None
    middling = plan(folder, device=mac(192), context=100_000)
    assert not middling.fits
    assert f"iogpu.wired_limit_mb={-(-middling.wanted_bytes // 2**20)}" in middling.advice()
    raised = plan(folder, device=Device("Mac", mac(192).memory, middling.wanted_bytes, metal=True), context=100_000)
    assert raised.fits


@pytest.mark.parametrize(("heads", "index_heads"), [(64, 4), (16, 4), (8, 8)])
def test_masks_of_sparse_attention_take_what_is_planned(heads, index_heads):
    """mlx-lm's own mask, with M3's blocks, and a length that is no whole number of them."""
    import mlx.core as mx
    from mlx_lm.models.cache import KVCache
    from mlx_lm.models.minimax_m3_vl import Attention, TextArgs

    text = M3["text_config"] | {"hidden_size": 64, "num_attention_heads": heads, "head_dim": 16}
    sizes = {"sparse_num_index_heads": index_heads, "sparse_block_size": 128, "sparse_topk_blocks": 16}
    text["sparse_attention_config"] = text["sparse_attention_config"] | sizes | {"sparse_index_dim": 16}
    attention = Attention(TextArgs.from_dict(text), layer_idx=3)
    offset, chunk = 8000, 64
    cache = KVCache()
    cache.update_and_fetch(mx.zeros((1, 1, offset, 16)), mx.zeros((1, 1, offset, 0)))
    x = mx.ones((1, chunk, 64))
    mx.eval(attention.parameters(), cache.keys, x)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    mx.eval(attention._block_mask(x, "causal", offset, cache))
    planned = cost({"text_config": text}, 0, step_size=1).mask_per_pair * chunk * (offset + chunk)
    assert 0.3 * planned < mx.get_peak_memory() - before <= planned


def test_a_plan_counts_the_masks_of_sparse_attention(folder):
    assert plan(folder, device=mac(512)).mask_bytes == 0
    (folder / "config.json").write_text(json.dumps(M3))
    counted = plan(folder, device=mac(512))
    assert 4e9 < counted.mask_bytes < 4.5e9
    assert counted.mask_bytes == counted.chunk_pairs * counted.cost.mask_per_pair
    assert counted.kv_bytes == counted.budget - counted.cost.weights - counted.cost.scratch - counted.mask_bytes
    assert "4.3 GB for sparse attention" in "\n".join(counted.lines())
    # A whole chunk at the end of a short context needs less than the share.
    assert plan(folder, device=mac(512), context=4096).chunk_pairs == 2048 * 4096
    wanting = plan(folder, device=mac(256), context=500_000)
    raised = Device("Mac", mac(256).memory, wanting.wanted_bytes, metal=True)
    assert not wanting.fits
    assert plan(folder, device=raised, context=500_000).fits


def test_weights_are_counted_from_files_or_index(folder):
    assert weight_bytes(folder) == 128_700_000_000
    header = b'{"model.norm.weight":{"dtype":"F32"}}'
    (folder / "model-1.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(1000))
    assert weight_bytes(folder) == 1008 + len(header)
    assert plan(folder).cost.kv_per_token == 2 * 248 * 1024
    (folder / "model.safetensors.index.json").unlink()
    assert weight_bytes(folder) == 1008 + len(header)
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(ValueError, match="neither weights nor an index"):
        plan(folder)
