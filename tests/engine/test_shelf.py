"""The cache around the step loop: restarts, reports, why a prompt missed."""

import pytest

from vllm_mlx.engine import segments
from vllm_mlx.engine.protocol import Cancel, Prewarm
from vllm_mlx.engine.store import KvStore


def text(seed: int, length: int) -> list[int]:
    return [(seed * 131 + 17 * i + (i * i) % 97) % 3000 for i in range(length)]


def settle(run) -> None:
    run.until_idle()
    while run.core.busy:
        run.core.tend()


@pytest.mark.parametrize("name", ["tiny", "tiny-m3"])
def test_after_a_restart_a_stored_session_goes_on_where_it_was(core_run, name, tmp_path):
    first = core_run(name, kv_store=str(tmp_path))
    prompt = text(1, 300)
    history = prompt + first.run("a", prompt, 20)
    settle(first)
    first.core.close()
    again = core_run(name, kv_store=str(tmp_path))
    turn = history + text(2, 40)
    reply = again.run("b", turn)
    # The reply's last token was drawn and never computed.
    assert again.deltas["b"][0].cached_tokens == len(history) - 1
    assert reply == core_run(name, enable_prefix_caching=False).run("x", turn)
    # Now it is in memory: nothing is read twice.
    again.run("c", turn)
    assert again.deltas["c"][0].cached_tokens == len(turn) - 1
    again.core.close()


def test_the_first_delta_says_why_the_cache_had_no_more(core_run):
    run = core_run()
    run.run("a", text(1, 100))
    miss = run.deltas["a"][0].miss
    assert (miss.kind, miss.at, miss.prompt) == ("unseen", 0, text(1, 100)[:16])
    other = text(1, 100)
    other[70] = 2999
    run.run("b", other)
    miss = run.deltas["b"][0].miss
    assert (miss.kind, miss.at) == ("differs", 70)
    assert (miss.cached[0], miss.prompt[0]) == (text(1, 100)[70], 2999)
    run.run("c", other)
    assert run.deltas["c"][0].miss is None
    assert all(delta.miss is None for delta in run.deltas["b"][1:])


def test_the_report_counts_what_is_stored(core_run):
    run = core_run()
    run.run("a", text(1, 100), 8)
    report = run.core._shelf.report()
    assert report.enabled
    assert [(r.base, r.tokens, r.lent) for r in report.runs] == [(0, 107, False)]
    assert report.bytes == report.runs[0].bytes <= report.limit
    assert [(lookup.id, lookup.prompt_tokens, lookup.cached_tokens) for lookup in report.lookups] == [("a", 100, 0)]
    off = core_run(enable_prefix_caching=False)
    off.run("a", text(1, 100))
    assert not off.core._shelf.report().enabled


def test_a_prompt_that_is_likely_to_come_is_prefilled_while_nobody_waits(core_run):
    run = core_run(max_prefill_stall_ms=20)
    history = text(1, 150) + run.run("a", text(1, 150), 60)
    coming = history[:170] + text(2, 120)
    run.core.handle(Prewarm(coming))
    while run.core.prewarms:
        run.core.tend()
    turn = coming + text(3, 20)
    reply = run.run("b", turn)
    assert run.deltas["b"][0].cached_tokens == len(coming)
    assert reply == core_run(enable_prefix_caching=False).run("x", turn)
    # The turn that it was guessed from is still there.
    run.run("c", [*history, 1])
    assert run.deltas["c"][0].cached_tokens == len(history) - 1


def test_any_request_stops_prefilling_ahead_and_keeps_what_was_done(core_run):
    run = core_run(max_prefill_stall_ms=1)
    run.core.handle(Prewarm(text(1, 400)))
    run.core.tend()
    run.core.tend()
    run.run("a", text(5, 10), 2)
    assert not run.core.prewarms
    run.run("b", text(1, 400), 2)
    assert 0 < run.deltas["b"][0].cached_tokens < 200


def test_what_was_guessed_is_evicted_first(core_run):
    run = core_run()
    run.run("a", text(1, 100), 4)
    run.core.handle(Prewarm(text(2, 100)))
    while run.core.prewarms:
        run.core.tend()
    cache = run.core._shelf.cache
    cache.shrink_to(int(cache.nbytes * 0.75))
    assert cache.match(text(1, 100))[0] == 100
    assert cache.match(text(2, 100))[0] < 100


def test_what_would_be_stored_twice_beside_a_guess_must_fit_too(core_run):
    run = core_run()
    run.run("a", text(1, 600), 4)
    cache = run.core._shelf.cache
    per_token = cache.nbytes // 603
    for limit, begun in ((603 + 250, False), (603 + 600, True)):
        cache.max_bytes = limit * per_token
        run.core.handle(Prewarm(text(1, 200) + text(2, 100)))
        assert run.core.prewarms
        run.core.tend()
        assert (cache.match(text(1, 200) + text(2, 100))[0] > 200) == begun
        assert cache.match(text(1, 600))[0] == 600
        while run.core.prewarms:
            run.core.tend()
        assert cache.nbytes <= cache.max_bytes


def test_the_last_sequences_to_end_can_still_be_cut(core_run):
    """For a `Finish` that crossed with the end; it is late by a few steps at most."""
    run = core_run(max_num_seqs=1)
    replies = [run.run(f"r{i}", text(i, 50), 20) for i in range(5)]
    for i, kept in ((0, 69), (3, 55), (4, 55)):
        run.finish(f"r{i}", 5)
        assert run.core._shelf.cache.match(text(i, 50) + replies[i])[0] == kept
    assert not run.core._shelf._ended.keys() - {"r3", "r4"}


def test_prefilling_ahead_can_be_turned_off(core_run):
    run = core_run(prewarm=False)
    run.core.handle(Prewarm(text(1, 400)))
    assert not run.core.prewarms


def stored(core_run, folder, *prompts: list[int]) -> None:
    """Puts these prompts on disk."""
    run = core_run(kv_store=str(folder))
    for number, prompt in enumerate(prompts):
        run.run(f"stored{number}", prompt, 1)
        settle(run)
    run.core.close()


def test_a_damaged_file_that_two_prompts_share_costs_its_tokens_only(core_run, tmp_path):
    prompt = text(1, 600)
    stored(core_run, tmp_path, prompt)
    run = core_run(kv_store=str(tmp_path))
    for file in tmp_path.rglob("*.safetensors"):
        file.write_bytes(b"")
    run.submit("runs", text(2, 20), 100)
    run.submit("a", [*prompt, 1], 4)
    run.submit("b", [*prompt, 2], 4)
    run.until_idle()
    assert run.ends == dict.fromkeys(("runs", "a", "b"), "length")
    assert run.deltas["a"][0].cached_tokens == 0
    assert run.tokens["b"] == core_run().run("x", [*prompt, 2], 4)
    run.core.close()


def test_an_error_of_the_disk_tier_turns_it_off_and_nothing_fails(core_run, tmp_path, monkeypatch, caplog):
    prompt = text(1, 600)
    stored(core_run, tmp_path, prompt)

    def broken(*_):
        raise ValueError("broken")

    for name in ("pump", "fetch"):
        with monkeypatch.context() as patch:
            patch.setattr(KvStore, name, broken)
            run = core_run(kv_store=str(tmp_path))
            run.submit("runs", text(2, 20), 100)
            run.steps(2)
            run.submit("a", [*prompt, 1], 4)
            run.core.tend()
            run.until_idle()
            assert run.ends == {"runs": "length", "a": "length"}
        assert "the store is off" in caplog.text
        assert run.core._shelf.report().store_bytes is None
        assert not run.core.busy
        caplog.clear()


def test_a_sequence_that_cannot_be_admitted_fails_alone(core_run, monkeypatch):
    run = core_run()
    run.submit("runs", text(1, 20), 100)
    run.steps(2)
    gate = run.core._shelf.gate
    monkeypatch.setattr(run.core._shelf, "gate", lambda s, running: 1 / 0 if s.submit.id == "a" else gate(s, running))
    run.submit("a", text(2, 20))
    run.submit("b", text(3, 20))
    run.until_idle()
    assert {id: failure.kind for id, failure in run.failures.items()} == {"a": "internal"}
    assert run.ends == {"runs": "length", "b": "length"}


class Reads:
    """The files that were read from disk, in order."""

    def __init__(self, monkeypatch) -> None:
        self.paths: list = []
        read = segments.read

        def counted(path):
            self.paths.append(path)
            return read(path)

        monkeypatch.setattr(segments, "read", counted)

    def finished(self, run) -> int:
        """How many there were, once no read is on its way."""
        run.core._shelf._store._reader.submit(int).result()
        return len(self.paths)


def test_one_file_at_a_time_is_read_for_whoever_comes_next(core_run, loaded_model, tmp_path, monkeypatch):
    """Six long sessions come back where there is room for one: what is read is within the limit but for one file."""
    prompts = [text(seed, 1500) for seed in range(6)]
    stored(core_run, tmp_path, *(prompt[:end] for prompt in prompts for end in (800, 1500)))
    reads = Reads(monkeypatch)
    limit = loaded_model("tiny").kv_per_token * 1700
    run = core_run(kv_store=str(tmp_path), max_num_seqs=2, limits={"kv_limit": limit})
    for number, prompt in enumerate(prompts):
        run.submit(f"a{number}", [*prompt, 1], 2)
    for count in (1, 2):
        run.steps(1)
        assert reads.finished(run) == count
        assert run.core._shelf.cache.nbytes <= limit
    run.until_idle()
    assert [run.deltas[f"a{number}"][0].cached_tokens for number in range(6)] == [1500] * 6
    assert len(reads.paths) == 12
    run.core.close()


def test_whoever_goes_first_is_read_for_first(core_run, tmp_path, monkeypatch):
    prompts = [text(seed, 600) for seed in range(2)]
    stored(core_run, tmp_path, *(prompt[:end] for prompt in prompts for end in (300, 600)))
    reads = Reads(monkeypatch)
    run = core_run(kv_store=str(tmp_path), max_num_seqs=1)
    run.submit("later", [*prompts[0], 1], 2, priority=1)
    run.steps(1)
    assert reads.finished(run) == 1
    run.submit("first", [*prompts[1], 1], 2)
    run.until_idle()
    assert list(run.ends) == ["first", "later"]
    assert [run.deltas[id][0].cached_tokens for id in run.ends] == [600, 600]
    run.core.close()


def test_who_leaves_while_it_is_read_for_holds_up_nobody(core_run, tmp_path):
    prompts = [text(seed, 600) for seed in range(2)]
    stored(core_run, tmp_path, *prompts)
    run = core_run(kv_store=str(tmp_path))
    run.submit("leaves", [*prompts[0], 1], 2)
    run.submit("stays", [*prompts[1], 1], 2)
    run.steps(1)
    run.core.handle(Cancel("leaves"))
    run.until_idle()
    assert run.deltas["stays"][0].cached_tokens == 600
    run.core.close()


def test_what_there_is_no_room_for_is_not_read(core_run, loaded_model, tmp_path, monkeypatch):
    prompt = text(1, 1500)
    stored(core_run, tmp_path, *(prompt[:end] for end in (500, 1000, 1500)))
    reads = Reads(monkeypatch)
    run = core_run(kv_store=str(tmp_path), limits={"kv_limit": loaded_model("tiny").kv_per_token * 2200})
    run.submit("runs", text(2, 500), 500)
    run.steps(2)
    store, cache = run.core._shelf._store, run.core._shelf.cache
    fetch = store.fetch(prompt, 0)
    cache.max_bytes = loaded_model("tiny").kv_per_token * 1100
    while not store.advance(fetch, cache):
        reads.finished(run)
    assert len(reads.paths) == 2
    assert cache.match(prompt)[0] == 1000
    run.core.close()
