"""How large a chunk of a prompt may be."""

import pytest

from vllm_mlx.engine.prefill import ChunkSizer, prefill
from vllm_mlx.engine.protocol import Prewarm


@pytest.mark.parametrize("rate", [100.0, 3000.0])
def test_chunks_keep_to_the_stall_though_each_costs_more_than_the_last(rate):
    """Attention looks at more keys with every chunk. The first one is a guess, and a small one."""
    sizer = ChunkSizer(2048, 0.2)
    assert sizer.size(0.2) <= 64
    sizer.ran(1500, 1500 / rate)
    for _ in range(20):
        tokens = sizer.size(0.2)
        seconds = tokens / rate
        assert seconds <= 0.2 or tokens == 16
        sizer.ran(tokens, seconds)
        rate *= 0.92


def test_a_short_chunk_says_little():
    sizer = ChunkSizer(2048, 0.2)
    sizer.ran(1000, 1.0)
    before = sizer.size(0.2)
    sizer.ran(1, 0.05)
    assert sizer.size(0.2) >= 0.95 * before


def test_nobody_waits_for_a_whole_chunk():
    sizer = ChunkSizer(512, 0.2)
    sizer.ran(100, 1.0)
    assert sizer.size(None) == 512
    assert sizer.size(0.2) < 100


def test_chunks_of_sparse_attention_shrink_as_the_context_grows():
    sizer = ChunkSizer(2048, 0.2, chunk_pairs=10_000_000)
    for offset in (0, 5000, 100_000, 1_000_000):
        (count,) = sizer.within([(offset, 2048)])
        assert count == 2048 or count * (offset + count) <= 10_000_000 < (count + 1) * (offset + count + 1)
    assert sizer.within([(20_000_000, 2048)]) == [1]


def test_prompts_in_one_pass_share_the_pairs():
    sizer = ChunkSizer(2048, 0.2, chunk_pairs=10_000)
    assert sizer.within([(90, 10), (90, 10), (0, 50)]) == [10, 10, 50]
    assert sizer.within([(990, 8), (0, 100), (0, 10)]) == [8]
    assert sizer.within([(20_000, 1), (5, 1)]) == [1]
    assert ChunkSizer(2048, 0.2).within([(10**6, 2048), (5, 3)]) == [2048, 3]


def test_no_pass_of_sparse_attention_has_more_pairs_than_planned(core_run, monkeypatch):
    passes = []

    def noted(model, parts):
        passes.append(sum(len(tokens) * (caches[0][0].offset + len(tokens)) for caches, tokens in parts))
        return prefill(model, parts)

    monkeypatch.setattr("vllm_mlx.engine.core.prefill", noted)
    prompts = [[(seed * 7 + i * i) % 3000 for i in range(400 * seed)] for seed in (1, 2, 3)]
    run = core_run("tiny-m3", limits={"chunk_pairs": 20_000})
    for number, prompt in enumerate(prompts):
        run.submit(str(number), prompt, 3)
    run.until_idle()
    assert len(run.ends) == 3
    assert max(passes) <= 20_000
    assert run.tokens["2"] == core_run("tiny-m3").run("x", prompts[2], 3)


def test_prefilling_ahead_keeps_to_the_bound_too(core_run, monkeypatch):
    passes = []

    def noted(model, parts):
        passes.extend(len(tokens) * (caches[0][0].offset + len(tokens)) for caches, tokens in parts)
        return prefill(model, parts)

    monkeypatch.setattr("vllm_mlx.engine.prewarm.prefill", noted)
    run = core_run("tiny-m3", limits={"chunk_pairs": 8_000}, max_prefill_stall_ms=10_000)
    run.core.handle(Prewarm([i * i % 3000 for i in range(600)]))
    while run.core.prewarms:
        run.core.tend()
    assert len(passes) > 20
    assert max(passes) <= 8_000
