"""The cache around the step loop: restarts, reports, why a prompt missed."""

import pytest


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
