"""Little memory: rows give way to each other, the cache gives way to rows, and the limit is never passed."""

import random

import mlx.core as mx
import pytest

from vllm_mlx.engine import kv
from vllm_mlx.engine.protocol import Cancel

PER_TOKEN = 4 * 4 * 32 * 2 * 4
"""Of *tiny*: layers, heads, head_dim, keys and values, float32."""


def text(seed: int, length: int) -> list[int]:
    return [(seed * 131 + 17 * i + (i * i) % 97) % 3000 for i in range(length)]


def held(run) -> int:
    """Bytes of all keys and values, rows' and stored ones'."""
    core = run.core
    return sum(kv.nbytes(row.caches) for row in core._rows.values()) + core._shelf.cache.nbytes


def step_within(run, limit: int) -> None:
    run.steps(1)
    assert held(run) <= limit


def test_the_context_is_what_memory_holds(core_run):
    run = core_run(limits={"kv_limit": 2000 * PER_TOKEN})
    longest = run.core.info.max_model_len
    assert 1800 < longest < 2000
    run.submit("big", text(1, longest), 1)
    assert run.failures["big"].kind == "too_long"
    assert str(longest) in run.failures["big"].message
    run.submit("just", text(1, longest - 4), 4)
    while run.core.has_work:
        step_within(run, 2000 * PER_TOKEN)
    assert run.ends == {"just": "length"}


@pytest.mark.parametrize("seed", range(2))
def test_fifty_mixed_requests_in_little_memory(core_run, seed):
    """Long and short, shared and not, cancelled in between: each ends right, or with a clear error."""
    rng = random.Random(seed)
    limit = 600 * PER_TOKEN
    run = core_run(limits={"kv_limit": limit}, max_num_seqs=6)
    asked, cancelled = {}, set()
    for i in range(50):
        shared = text(7, rng.choice([0, 0, 100, 200]))
        asked[f"r{i}"] = shared + text(100 + i, rng.choice([3, 20, 80, 200, 700])), rng.choice([2, 5, 20, 80])
    waiting = list(asked)
    while waiting or run.core.has_work:
        for id in waiting[: rng.randrange(4)]:
            run.submit(id, *asked[id])
            waiting.remove(id)
        if rng.random() < 0.03 and run.tokens:
            id = rng.choice(list(run.tokens))
            if id not in run.ends:
                run.core.handle(Cancel(id))
                cancelled.add(id)
        step_within(run, limit)
    for id, (prompt, max_tokens) in asked.items():
        if len(prompt) + max_tokens > run.core.info.max_model_len:
            assert run.failures[id].kind == "too_long"
        elif id not in cancelled:
            assert run.ends[id] == "length", run.failures.get(id)
            assert len(run.tokens[id]) == max_tokens
    fresh = core_run(enable_prefix_caching=False)
    for id in rng.sample([id for id in run.ends if id not in cancelled], 3):
        assert fresh.run(id, *asked[id]) == run.tokens[id], id


def test_growth_puts_the_youngest_back_and_it_ends_as_if_nothing_had_happened(core_run):
    limit = 700 * PER_TOKEN
    run = core_run(limits={"kv_limit": limit})
    prompts = {id: text(i, 40) for i, id in enumerate(("old", "young"))}
    for id, prompt in prompts.items():
        run.submit(id, prompt, 420)
    put_back = False
    while run.core.has_work:
        step_within(run, limit)
        put_back = put_back or any(s.submit.id == "young" and s.generated for s in run.core._scheduler.waiting)
    assert put_back
    # It resumed from what the older row had left room for.
    lookup = run.core._shelf._lookups[-1]
    assert lookup.id == "young"
    assert 100 < lookup.cached_tokens < 40 + 420 // 2
    for id, prompt in prompts.items():
        assert run.tokens[id] == core_run().run(id, prompt, 420)
        assert run.deltas[id][0].cached_tokens == 0


def test_parallel_prompts_with_one_beginning_compute_it_once(core_run):
    run = core_run(prefill_step_size=128)
    system = text(1, 700)
    for i in range(5):
        run.submit(f"s{i}", system + text(50 + i, 40), 3)
    run.until_idle()
    assert [run.deltas[f"s{i}"][0].cached_tokens for i in range(5)] == [0, 700, 700, 700, 700]
    fresh = core_run(enable_prefix_caching=False)
    for i in range(5):
        assert fresh.run(f"s{i}", system + text(50 + i, 40), 3) == run.tokens[f"s{i}"]


def test_a_linear_session_peaks_at_little_more_than_its_final_keys(core_run):
    """20 turns on 16 layers. Scores of this backend's attention are not keys and values: prompts are kept short."""
    run = core_run("tiny-deep", prefill_step_size=16)
    history: list[int] = []
    mx.synchronize()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    for turn in range(20):
        prompt = [t % 1000 for t in history + text(turn, 60)]
        history = prompt + run.run(f"t{turn}", prompt, 12)
    final = run.core._shelf.cache.nbytes
    assert run.deltas["t19"][0].cached_tokens >= len(history) - 12 - 60 - 1
    assert mx.get_peak_memory() - before < 1.15 * final + 1_000_000
