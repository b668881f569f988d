"""How large a chunk of a prompt may be."""

import pytest

from vllm_mlx.engine.prefill import ChunkSizer


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
