"""The step loop on a real (random) model, in this process."""

import mlx.core as mx
import pytest

from vllm_mlx.engine.protocol import Cancel, Sampling, Thinking

PROMPTS = {f"p{i}": [(7 * i + 3 * j) % 4000 for j in range(3 + 17 * i)] for i in range(6)}


@pytest.mark.parametrize("name", ["tiny", "tiny-m3"])
def test_greedy_output_is_the_same_alone_in_a_batch_and_joined_late(core_run, name):
    alone = {id: core_run(name).run(id, prompt) for id, prompt in PROMPTS.items()}
    together = core_run(name)
    for id, prompt in PROMPTS.items():
        together.submit(id, prompt)
    together.until_idle()
    late = core_run(name, max_num_seqs=3)
    for id, prompt in PROMPTS.items():
        late.submit(id, prompt)
        late.steps(4)
    late.until_idle()
    assert together.tokens == alone
    assert late.tokens == alone


def test_greedy_output_is_mlx_lms(core_run, loaded_model):
    model = loaded_model("tiny").model
    for id, prompt in PROMPTS.items():
        tokens = list(prompt)
        for _ in range(8):
            tokens.append(mx.argmax(model(mx.array([tokens]))[0, -1]).item())
        assert core_run().run(id, prompt, 8) == tokens[len(prompt) :]


def test_seeds_give_the_same_tokens_in_any_company(core_run):
    sampling = Sampling(temperature=1, top_p=0.95, top_k=40, seed=11)
    alone = core_run().run("a", PROMPTS["p2"], sampling=sampling)
    run = core_run()
    for id, prompt in PROMPTS.items():
        run.submit(f"x{id}", prompt, sampling=Sampling(temperature=0.7, presence_penalty=0.5))
    run.steps(3)
    assert run.run("a", PROMPTS["p2"], sampling=sampling) == alone
    assert core_run().run("a", PROMPTS["p2"], sampling=Sampling(temperature=1, top_k=40, seed=12)) != alone


def test_no_more_run_than_there_are_slots_and_all_end(core_run):
    run = core_run(max_num_seqs=2)
    for id, prompt in PROMPTS.items():
        run.submit(id, prompt, 5)
    while run.core.has_work:
        run.steps(1)
        assert len(run.core._decoder.rows) <= 2
    assert {len(tokens) for tokens in run.tokens.values()} == {5}
    assert set(run.ends.values()) == {"length"}


def test_stop_ids_end_and_are_not_among_the_tokens(core_run):
    natural = core_run().run("a", PROMPTS["p1"])
    stop = natural[5]
    before = natural[: natural.index(stop)]
    run = core_run()
    assert run.run("a", PROMPTS["p1"], stop_ids=[stop]) == before
    assert run.ends["a"] == "stop"
    assert run.deltas["a"][-1].stop_id == stop
    longer = core_run().run("a", PROMPTS["p1"], stop_ids=[stop], min_tokens=8)
    assert len(longer) >= 8
    assert stop not in longer


def test_cancel_frees_the_slot_by_the_next_step(core_run):
    run = core_run(max_num_seqs=1)
    run.submit("a", PROMPTS["p1"], 1000)
    run.submit("b", PROMPTS["p2"], 4)
    run.steps(5)
    assert "b" not in run.tokens
    count = len(run.tokens["a"])
    run.core.handle(Cancel("a"))
    run.until_idle()
    assert len(run.tokens["a"]) == count
    assert run.ends == {"b": "length"}


@pytest.mark.parametrize("after", [0, 1, 2, 3, 6])
def test_finish_and_cancel_at_any_moment_leave_the_others_alone(core_run, after):
    expected = core_run().run("b", PROMPTS["p3"])
    run = core_run()
    run.submit("a", PROMPTS["p2"], 500)
    run.submit("b", PROMPTS["p3"])
    run.submit("c", PROMPTS["p4"], 500)
    run.steps(after)
    run.finish("a", 1)
    run.core.handle(Cancel("c"))
    run.until_idle()
    assert run.tokens["b"] == expected
    assert "a" not in run.ends


def test_log_probabilities_come_with_their_tokens(core_run):
    run = core_run()
    run.submit("plain", PROMPTS["p1"])
    run.run("asked", PROMPTS["p2"], logprobs=2)
    assert all(delta.logprobs is None for delta in run.deltas["plain"])
    for delta in run.deltas["asked"]:
        (entry,) = delta.logprobs
        assert entry.top[0] == (delta.tokens[0], pytest.approx(entry.logprob))
        assert entry.top[0][1] >= entry.top[1][1]


def test_a_thought_that_uses_up_its_budget_is_closed(core_run):
    tokens = core_run().run("a", PROMPTS["p1"], thinking=Thinking(True, [70, 71], 4))
    assert tokens[4:6] == [70, 71]


def test_a_running_stream_goes_on_while_a_long_prompt_is_prefilled(core_run):
    run = core_run(max_prefill_stall_ms=20)
    run.submit("stream", PROMPTS["p1"], 400)
    run.steps(5)
    run.submit("long", [i % 5000 for i in range(1500)], 2)
    while "long" not in run.tokens:
        before = len(run.tokens["stream"])
        run.steps(1)
        assert len(run.tokens["stream"]) > before
    done = [progress.done for progress in run.progress["long"]]
    assert done == sorted(done)
    assert len(done) > 4


def test_an_error_in_a_step_fails_what_is_in_flight_and_nothing_else(core_run, monkeypatch):
    run = core_run(max_num_seqs=2)
    expected = core_run().run("c", PROMPTS["p3"])
    for id in ("a", "b"):
        run.submit(id, PROMPTS["p1"], 100)
    run.submit("c", PROMPTS["p3"])
    run.steps(4)
    with monkeypatch.context() as patch:
        patch.setattr(run.core._decoder, "draw", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError) as caught:
            run.steps(1)
    run.core.recover(caught.value)
    assert {id: failure.kind for id, failure in run.failures.items()} == {"a": "internal", "b": "internal"}
    run.until_idle()
    assert run.tokens["c"] == expected


def test_a_model_that_gives_no_numbers_fails_the_request_that_met_it(core_run, loaded_model):
    run = core_run()
    embedding = loaded_model("tiny").model.model.embed_tokens
    healthy = embedding.weight
    embedding.weight = mx.where(mx.arange(healthy.shape[0])[:, None] == 4999, mx.nan, healthy)
    try:
        run.submit("good", PROMPTS["p1"])
        run.submit("bad", [1, 2, 4999])
        run.until_idle()
    finally:
        embedding.weight = healthy
    assert run.failures["bad"].kind == "internal"
    assert run.ends == {"good": "length"}
    assert run.tokens["good"] == core_run().run("x", PROMPTS["p1"])


def test_short_prompts_that_come_together_decode_together(core_run):
    """A burst costs about as many steps as one request, not one more for each."""
    run = core_run(max_prefill_stall_ms=5000)
    run.run("warm", PROMPTS["p5"], 2)
    for i in range(8):
        run.submit(f"b{i}", [i, *PROMPTS["p1"]], 6)
    steps = 0
    while run.core.has_work:
        run.steps(1)
        steps += 1
    assert steps <= 10
