"""Crowds, people who leave, and memory that must come back."""

import random
from itertools import count

import mlx.core as mx
import pytest

from vllm_mlx.engine.protocol import Cancel


def text(seed: int, length: int) -> list[int]:
    return [(seed * 131 + 17 * i) % 3000 for i in range(length)]


def active(run) -> int:
    """Bytes in use, the cache apart."""
    run.core._shelf.cache.shrink_to(0)
    mx.synchronize()
    mx.clear_cache()
    return mx.get_active_memory()


def test_a_thousand_queued_requests_all_end(core_run):
    run = core_run(max_num_seqs=8, max_waiting_seqs=1000)
    for i in range(1010):
        run.submit(f"q{i}", [i], 1)
    assert {failure.kind for failure in run.failures.values()} == {"overloaded"}
    refused = len(run.failures)
    assert refused == 10
    run.until_idle()
    assert len(run.ends) == 1000
    assert len(run.run("after", text(1, 3), 2)) == 2


def test_two_hundred_leave_at_random_moments_and_memory_comes_back(core_run):
    rng = random.Random(5)
    run = core_run(max_num_seqs=6, prefill_step_size=32)
    run.run("warm", text(0, 20))
    before = active(run)
    here: list[str] = []
    for i in range(200):
        run.submit(f"d{i}", text(rng.randrange(5), rng.randrange(2, 90)), 400)
        here.append(f"d{i}")
        run.steps(rng.randrange(2))
        while here and rng.random() < 0.5:
            run.core.handle(Cancel(here.pop(rng.randrange(len(here)))))
    for id in here:
        run.core.handle(Cancel(id))
    assert not run.core.has_work
    assert not run.core._rows
    assert not run.core._decoder.rows
    run.core.step()
    assert active(run) <= before + 100_000
    expected = core_run(enable_prefix_caching=False).run("x", text(3, 40))
    assert run.run("after", text(3, 40)) == expected


def test_errors_in_steps_leave_nothing_behind(core_run):
    run = core_run()
    for i in range(4):
        run.run(f"warm{i}", text(i, 40))
    before = active(run)
    for round in range(5):
        for i in range(4):
            run.submit(f"e{round}-{i}", text(i, 40), 50)
        run.steps(3 + round)
        run.core.recover(RuntimeError("out of memory"))
    assert len(run.failures) == 20
    assert not run.core.has_work
    assert active(run) <= before + 100_000


@pytest.mark.parametrize("name", ["tiny", "tiny-m3"])
def test_what_was_stored_survives_a_prefill_that_fails(core_run, loaded_model, monkeypatch, name):
    """The error comes in the middle of a forward pass, when half of the layers have the tokens and half have not."""
    run = core_run(name, prefill_step_size=64)
    prompt = text(7, 200)
    run.run("before", prompt, 4)
    body = getattr(loaded_model(name).model, "language_model", loaded_model(name).model).model
    layer = type(body.layers[0])
    whole, calls = layer.__call__, count()
    longer = [*prompt, *text(8, 100)]
    expected = core_run(name, enable_prefix_caching=False).run("x", longer)
    run.submit("fails", longer)
    with monkeypatch.context() as patch:
        patch.setattr(layer, "__call__", lambda *given: 1 / 0 if next(calls) == 2 else whole(*given))
        with pytest.raises(ZeroDivisionError) as caught:
            run.steps(1)
    run.core.recover(caught.value)
    assert run.failures["fails"].kind == "internal"
    assert run.run("after", longer) == expected
    assert run.deltas["after"][0].cached_tokens >= len(prompt)
