"""The row-by-row step gives what mlx-lm's own forward pass gives."""

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from vllm_mlx.engine.attention import RowCache, row_forward, rows_prefill
from vllm_mlx.engine.prefill import prefill


def prefilled(loaded, length: int, key: int):
    tokens = mx.random.randint(0, loaded.info.vocab_size, (1, length), key=mx.random.key(key))
    caches, reference = loaded.make_caches(), make_prompt_cache(loaded.model)
    for each in (caches, reference):
        loaded.model(tokens, cache=each)
    return caches, reference


@pytest.mark.parametrize("name", ["tiny", "tiny-m3"])
def test_rows_of_any_length_decode_as_each_would_alone(loaded_model, name):
    """M3's budget is 4 blocks of 16 keys: rows below it, on its edge and far above it."""
    loaded = loaded_model(name)
    rows = [prefilled(loaded, length, length) for length in (3, 63, 64, 65, 250, 256, 300)]
    forward = row_forward(loaded.model)
    tokens = [5 + row for row in range(len(rows))]
    for _ in range(20):
        logits = forward(mx.array(tokens), [caches for caches, _ in rows])
        for row, (_, reference) in enumerate(rows):
            expected = loaded.model(mx.array([[tokens[row]]]), cache=reference)[0, -1]
            assert mx.abs(logits[row] - expected).max().item() < 1e-3
            assert mx.argmax(logits[row]).item() == mx.argmax(expected).item()
        tokens = mx.argmax(logits, axis=-1).tolist()


@pytest.mark.parametrize("name", ["tiny", "tiny-m3"])
def test_prompts_in_one_pass_give_what_each_gives_alone(loaded_model, name):
    """Rows that are empty, that hold something, and that get one token, below and above M3's budget."""
    loaded = loaded_model(name)
    rows = [(*prefilled(loaded, held, held), new) for held, new in ((1, 40), (64, 1), (80, 3), (250, 90))]
    rows.append((loaded.make_caches(), make_prompt_cache(loaded.model), 100))
    tokens = [mx.random.randint(0, 8000, (new,), key=mx.random.key(new)).tolist() for *_, new in rows]
    prefill(loaded.model, [(caches, new) for (caches, _, _), new in zip(rows, tokens, strict=True)])
    for (caches, reference, _), new in zip(rows, tokens, strict=True):
        loaded.model(mx.array([new]), cache=reference)
        expected, given = (loaded.model(mx.array([[7]]), cache=each)[0, -1] for each in (reference, caches))
        assert mx.abs(given - expected).max().item() < 1e-3
        assert mx.argmax(given).item() == mx.argmax(expected).item()


def test_other_architectures_have_no_row_step():
    class Other:
        model_type = "llama"

    assert row_forward(Other()) is None
    assert rows_prefill(Other()) is None


def test_buffers_grow_by_a_part_and_keep_what_they_hold():
    cache, pieces = RowCache(), []
    for index, length in enumerate([1, 255, 1, 700, 1, 3000]):
        piece = mx.random.normal((1, 2, length, 4), key=mx.random.key(index))
        pieces.append(piece)
        keys, values = cache.update_and_fetch(piece, -piece)
        expected = mx.concatenate(pieces, axis=2)
        assert mx.array_equal(keys, expected)
        assert mx.array_equal(values, -expected)
        assert cache.keys.shape[2] <= cache.offset + cache.offset // 32 + 256


def test_a_reserve_makes_one_buffer_for_a_whole_prompt():
    cache = RowCache()
    cache.reserve = 2000
    capacities = set()
    for _ in range(20):
        cache.update_and_fetch(mx.zeros((1, 1, 100, 4)), mx.zeros((1, 1, 100, 4)))
        capacities.add(cache.keys.shape[2])
    assert len(capacities) == 1
