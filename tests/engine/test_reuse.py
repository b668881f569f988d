"""A turn costs its new tokens, and gives what it would have given without the cache."""

import pytest

from vllm_mlx.engine.loader import LoadedModel
from vllm_mlx.engine.protocol import Cancel, EngineInfo


def text(seed: int, length: int) -> list[int]:
    return [(seed * 131 + 17 * i + (i * i) % 97) % 3000 for i in range(length)]


def cached(run, id: str) -> int:
    return run.deltas[id][0].cached_tokens


def llama() -> LoadedModel:
    from mlx_lm.models import llama as module

    args = module.ModelArgs(
        model_type="llama", hidden_size=64, num_hidden_layers=2, intermediate_size=64, num_attention_heads=4,
        num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=3000, head_dim=16,
    )  # fmt: skip
    return LoadedModel(module.Model(args), EngineInfo(8192, 3000, "cpu", 0), 1024, 1 << 30)


def mamba() -> LoadedModel:
    from mlx_lm.models import mamba as module

    args = module.ModelArgs(
        model_type="mamba", vocab_size=3000, hidden_size=32, intermediate_size=64, state_size=8, num_hidden_layers=2,
        conv_kernel=4, use_bias=False, use_conv_bias=True, time_step_rank=2,
    )  # fmt: skip
    return LoadedModel(module.Model(args), EngineInfo(8192, 3000, "cpu", 0), 1024, 1 << 30)


@pytest.fixture(scope="session")
def any_model(loaded_model):
    others = {"llama": llama(), "mamba": mamba()}
    return lambda name: others.get(name) or loaded_model(name)


@pytest.fixture
def any_run(any_model, run_on):
    return lambda name, **settings: run_on(any_model(name), **settings)


@pytest.mark.parametrize("name", ["tiny", "tiny-m3", "llama", "mamba"])
def test_a_conversation_reuses_all_that_it_has_and_says_the_same(any_run, name):
    run, fresh = any_run(name), any_run(name, enable_prefix_caching=False)
    prompt = text(1, 120)
    for turn in range(4):
        id = f"t{turn}"
        reply = run.run(id, prompt)
        assert reply == fresh.run(id, prompt)
        assert cached(fresh, id) == 0
        # The last token of a reply is drawn, never computed.
        assert cached(run, id) == (len(prompt) - 34 if turn else 0)
        prompt = prompt + reply + text(2 + turn, 33)
    assert run.run("in company", prompt, 30) == fresh.run("in company", prompt, 30)


@pytest.mark.parametrize("name", ["tiny", "tiny-m3", "llama"])
def test_branches_and_parallel_rows_say_what_they_would_say_alone(any_run, name):
    run, fresh = any_run(name), any_run(name, enable_prefix_caching=False)
    system = text(1, 150)
    prompts = {f"b{i}": system + text(10 + i, 20 + 9 * i) for i in range(6)}
    run.run("first", system)
    for id, prompt in prompts.items():
        run.submit(id, prompt)
        run.steps(2)
    run.until_idle()
    for id, prompt in prompts.items():
        assert run.tokens[id] == fresh.run(id, prompt), id
        if name != "llama":
            # In mlx-lm's padded batch a running row cannot be copied from.
            assert cached(run, id) == 150


@pytest.mark.parametrize("name", ["tiny", "llama", "mamba"])
def test_rows_of_every_kind_join_and_leave(any_run, name):
    fresh = {f"r{i}": any_run(name).run("x", text(i, 5 + 20 * i), 4 + 3 * i) for i in range(6)}
    run = any_run(name, max_num_seqs=3)
    for i in range(6):
        run.submit(f"r{i}", text(i, 5 + 20 * i), 4 + 3 * i)
        run.steps(i)
    run.until_idle()
    assert run.tokens == fresh


def test_an_aborted_prefill_costs_its_rest(core_run):
    run = core_run(prefill_step_size=64)
    run.submit("a", text(1, 400))
    run.steps(4)
    run.core.handle(Cancel("a"))
    run.run("b", text(1, 400))
    assert cached(run, "b") == 256


def test_what_ran_on_after_the_end_is_not_stored(core_run):
    run = core_run()
    prompt = text(1, 100)
    reply = run.run("a", prompt, 20)
    run.finish("a", 5)
    run.run("b", prompt + reply + text(2, 40))
    assert cached(run, "b") == 105
    run.submit("c", text(3, 100), 50)
    run.steps(20)
    reply = list(run.tokens["c"])
    run.finish("c", 7)
    run.run("d", text(3, 100) + reply + text(4, 40))
    assert cached(run, "d") == 107


def test_off_means_off(core_run):
    run = core_run(enable_prefix_caching=False)
    for id in ("a", "b"):
        run.run(id, text(1, 200))
        assert cached(run, id) == 0
