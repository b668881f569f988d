"""The tree of stored runs, with keys and values that spell their tokens, so that every mix-up shows."""

import random
import time

import mlx.core as mx
import pytest
from mlx_lm.models.cache import CacheList

from vllm_mlx.engine import kv
from vllm_mlx.engine.attention import RowCache
from vllm_mlx.engine.prefix_cache import Lease, PrefixCache
from vllm_mlx.engine.tree import BLOCK, ends

LAYERS = 2


def make():
    """Like M3's: a plain layer and one with index keys and no values."""
    return [RowCache(), CacheList(RowCache(), RowCache())]


def compute(lease: Lease, tokens: list[int]) -> None:
    """Stands for prefill and decode: adds the keys and values of the tokens that are missing."""
    have = kv.length(lease.caches)
    new = mx.array(tokens[have:], mx.float32)[None, None, :, None]
    if not new.size:
        return
    lease.caches[0].update_and_fetch(new, -new)
    lease.caches[1].caches[0].update_and_fetch(2 * new, -2 * new)
    lease.caches[1].caches[1].update_and_fetch(3 * new, mx.zeros((1, 1, new.shape[2], 0)))


def spelled(caches) -> list[list[int]]:
    plain, (double, index) = caches[0], caches[1].caches
    leaves = [(plain.keys, 1), (plain.values, -1), (double.keys, 2), (double.values, -2), (index.keys, 3)]
    return [(array[0, 0, : plain.offset, 0] / factor).tolist() for array, factor in leaves]


def check(caches, tokens) -> None:
    assert all(spelling == list(tokens) for spelling in spelled(caches))


def check_tree(cache: PrefixCache) -> None:
    for run in cache.nodes():
        tokens = [token for part, end in ends(run.path(), run.end) for token in part.tokens[: end - part.base]]
        assert list(cache.chain(tokens))[run.base // BLOCK :] == run.hashes
        assert all(child.parent is run and run.base < child.base <= run.end for child in run.children)
        if not run.lent:
            check(run.caches, run.tokens)
    runs = list(cache.nodes())
    assert set(map(id, cache._index.values())) <= set(map(id, runs))


def play(cache: PrefixCache, prompt: list[int], reply: list[int]) -> int:
    """One request from beginning to end; returns the tokens that it did not need to compute."""
    lease = cache.take(prompt)
    check(lease.caches, prompt[: lease.length]) if lease.length else None
    compute(lease, prompt[:-1])
    cache.share(lease, prompt[:-1])
    compute(lease, prompt + reply)
    check(lease.caches, prompt + reply)
    cache.give(lease, prompt + reply, len(prompt + reply))
    check_tree(cache)
    return lease.length


def sequence(seed: int, length: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(1000) for _ in range(length)]


def big() -> PrefixCache:
    return PrefixCache(make, max_bytes=1 << 40)


def held(cache: PrefixCache) -> int:
    return sum(len(run.tokens) for run in cache.nodes())


def test_a_linear_conversation_is_stored_once_and_reused_to_the_last_token():
    cache, history = big(), []
    for turn in range(20):
        prompt = history + sequence(turn, 45)
        assert play(cache, prompt, sequence(1000 + turn, 20)) == len(history)
        history = prompt + sequence(1000 + turn, 20)
        assert held(cache) == len(history)


def test_the_same_prompt_again_leaves_one_token_to_compute():
    cache, prompt = big(), sequence(1, 200)
    play(cache, prompt, [])
    assert play(cache, prompt, []) == 199


def test_a_row_takes_the_stored_arrays_over():
    cache, prompt = big(), sequence(1, 300)
    play(cache, prompt, [])
    (run,) = cache.nodes()
    caches = run.caches
    lease = cache.take([*prompt, 1, 2])
    assert lease.caches is caches
    assert cache.nbytes == 0


def idle(length: int, limit: int) -> tuple[PrefixCache, list[int], int]:
    """A cache for `limit` tokens with one conversation in it, that, and the bytes of a token."""
    cache, conversation = big(), sequence(1, length)
    play(cache, conversation, [])
    per_token = kv.token_bytes(next(cache.nodes()).caches)
    cache.max_bytes = limit * per_token
    return cache, conversation, per_token


@pytest.mark.parametrize(
    ("limit", "shared", "found"),
    [
        (6000, 640, 2000),
        (3600, 640, 2000),
        (2700, 640, 2000),
        (2100, 32, 2000),
        # Another copy does not fit: the conversation gives its end.
        (2300, 640, 1600),
        (2000, 640, 1300),
        (2000, 32, 1700),
    ],
)
def test_a_small_request_leaves_the_conversation_that_begins_like_it_alone(limit, shared, found):
    cache, conversation, per_token = idle(2000, limit)
    small = conversation[:shared] + sequence(2, 60)
    lease = cache.take(small)
    assert lease.length == shared
    assert kv.nbytes(lease.caches) < (shared + 200) * per_token
    assert cache.nbytes + shared * per_token <= cache.max_bytes
    check(lease.caches, small[:shared])
    check_tree(cache)
    assert found <= cache.match(conversation)[0] <= min(2000, found + 100)
    compute(lease, small)
    cache.give(lease, small, len(small))
    check_tree(cache)
    assert cache.match(small)[0] == len(small)


def test_turns_of_a_conversation_and_of_a_small_one_beside_it_copy_the_small_one_only():
    cache, conversation, per_token = idle(2000, 6000)
    small = conversation[:100] + sequence(2, 60)
    for turn in range(3):
        small = small + sequence(10 + turn, 40)
        assert kv.nbytes(cache.take(small).caches) < 400 * per_token
        play(cache, small, [])
        (root,) = (run for run in cache.nodes() if run.parent is None)
        lease = cache.take([*conversation, 1])
        assert (lease.length, lease.caches) == (2000, root.caches)
        cache.give(lease, conversation, 2000)
        check_tree(cache)
    assert held(cache) == len(conversation) + len(small) - 100


def test_others_go_before_the_end_of_a_conversation_that_a_small_request_begins_like():
    cache, conversation, _ = idle(2000, 2900)
    play(cache, sequence(5, 500), [])
    play(cache, conversation[:640] + sequence(2, 60), [])
    assert cache.match(conversation)[0] == 2000
    assert cache.match(sequence(5, 500))[0] < 500


def test_of_an_end_that_was_written_anew_what_fits_is_kept():
    cache, conversation, _ = idle(2000, 2400)
    assert play(cache, conversation[:1500] + sequence(2, 60), []) == 1500
    assert 1500 < cache.match(conversation)[0] < 2000
    cache.take(conversation)
    assert cache.last_miss.kind == "evicted"


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ([*sequence(1, 300), 1], 0),
        (sequence(1, 200) + sequence(2, 40), 100),
        (sequence(1, 100) + sequence(2, 40), 100),
        (sequence(2, 100), 0),
    ],
)
def test_what_a_prompt_would_copy_is_known_before(prompt, tokens):
    cache = big()
    play(cache, sequence(1, 300), [])
    assert cache.copies(prompt) == tokens


def test_a_conversation_in_very_many_pieces_is_brought_together():
    cache, tokens = big(), sequence(1, 1200 * BLOCK)
    whole = cache.take(tokens)
    compute(whole, tokens)
    hashes, run = list(cache.chain(tokens)), None
    for base in range(0, len(tokens), BLOCK):
        part = kv.piece(whole.caches, base, base + BLOCK)
        cache.adopt(run, base, tokens[base : base + BLOCK], part, [hashes[base // BLOCK]])
        run = cache.match(tokens[: base + BLOCK])[1]
    lease = cache.take([*tokens, 1])
    assert lease.length == len(tokens)
    check(lease.caches, tokens)
    cache.give(lease, tokens, len(tokens))
    assert len(list(cache.nodes())) == 1
    check_tree(cache)


def test_branches_share_their_beginning_and_both_stay():
    cache, system = big(), sequence(1, 300)
    left, right = system + sequence(2, 200), system + sequence(3, 250)
    play(cache, left, [])
    assert play(cache, right, []) == 300
    assert held(cache) == 300 + 200 + 250
    for branch in (left, right, left):
        assert play(cache, [*branch, 7, 8, 9], []) >= len(branch)
    assert held(cache) == 300 + 203 + 253


def test_a_branch_of_a_branch_comes_back_whole():
    cache = big()
    a = sequence(1, 100)
    b, c = a + sequence(2, 100), a + sequence(3, 100)
    d = b[:150] + sequence(4, 100)
    e = d[:170] + sequence(5, 77)
    for prompt in (b, c, d, e):
        play(cache, prompt, [])
    assert held(cache) == 100 + 100 + 100 + 100 + 77
    for prompt in (b, c, d, e):
        assert play(cache, [*prompt, 1], []) == len(prompt)


def test_a_running_row_can_be_copied_from_while_its_run_grows():
    cache, system = big(), sequence(1, 200)
    first = cache.take(system)
    compute(first, system)
    cache.share(first, system[:-1])
    second = cache.take(system[:150] + sequence(2, 50))
    assert second.length == 150
    check(second.caches, system[:150])
    compute(first, system + sequence(3, 90))
    check(second.caches, system[:150])
    compute(second, system[:150] + sequence(2, 50))
    cache.give(second, system[:150] + sequence(2, 50), 200)
    cache.give(first, system + sequence(3, 90), 290)
    check_tree(cache)
    assert held(cache) == 290 + 50


def test_an_aborted_prefill_is_kept():
    cache, prompt = big(), sequence(1, 500)
    lease = cache.take(prompt)
    compute(lease, prompt[:333])
    cache.give(lease, prompt[:333], 333)
    assert cache.take(prompt).length == 333


def test_what_is_not_trusted_is_forgotten_with_what_hangs_on_it():
    cache, a = big(), sequence(1, 200)
    play(cache, a + sequence(2, 100), [])
    play(cache, a + sequence(3, 100), [])
    lease = cache.take([*a, *sequence(3, 100), 5])
    cache.drop(lease)
    check_tree(cache)
    assert held(cache) == 0
    assert cache.take(a).length == 0


def test_the_least_recently_used_leaf_goes_first():
    cache, system = big(), sequence(1, 320)
    branches = [system + sequence(10 + i, 320) for i in range(4)]
    for branch in branches:
        play(cache, branch, [])
    play(cache, [*branches[0], 1], [])
    cache.shrink_to(int(cache.nbytes * 0.75))
    check_tree(cache)
    kept = [cache.match(branch)[0] for branch in branches]
    assert kept[0] == kept[3] == 640
    assert kept[1] == 320
    cache.take(branches[1])
    assert cache.last_miss.kind == "evicted"
    cache.shrink_to(0)
    assert list(cache.nodes()) == [run for run in cache.nodes() if run.lent]


@pytest.mark.parametrize(
    ("limit", "kept"), [(640, 640), (639, 544), (500, 480), (400, 384), (100, 96), (32, 32), (31, 0), (0, 0)]
)
def test_the_last_leaf_loses_no_more_than_its_end(limit, kept):
    cache, tokens, per_token = idle(640, 640)
    assert cache.shrink_to(limit * per_token) == kept * per_token == cache.nbytes
    check_tree(cache)
    assert cache.match(tokens)[0] == kept
    cache.take(tokens)
    assert (cache.last_miss.kind if kept < 640 else "evicted") == "evicted"


def test_spare_buffers_go_before_tokens():
    cache, tokens, per_token = idle(640, 2000)
    lease = cache.take([*tokens, 1])
    kv.reserve(lease.caches, 680)
    cache.give(lease, tokens, 640)
    assert cache.nbytes > 640 * per_token
    assert cache.shrink_to(640 * per_token) == 640 * per_token
    assert cache.match(tokens)[0] == 640


def test_a_miss_says_where_and_what():
    cache, prompt = big(), sequence(1, 200)
    cache.take(prompt)
    assert cache.last_miss.kind == "unseen"
    play(cache, prompt, [])
    other = [*prompt[:150], 2000, *prompt[151:]]
    cache.take(other)
    miss = cache.last_miss
    assert (miss.kind, miss.at) == ("differs", 150)
    assert miss.cached[:2] == prompt[150:152]
    assert miss.prompt[:2] == [2000, prompt[151]]


def test_tokens_that_ran_on_are_cut_off():
    cache, prompt = big(), sequence(1, 100)
    play(cache, prompt, sequence(2, 40))
    cache.cut(prompt + sequence(2, 40), 110)
    check_tree(cache)
    assert held(cache) == 110
    assert play(cache, prompt + sequence(2, 10) + [1, 2], []) == 110


def test_salt_keeps_models_apart():
    prompt = sequence(1, 100)
    one, other = (PrefixCache(make, max_bytes=1 << 30, salt=salt) for salt in (b"a", b"b"))
    assert list(one.chain(prompt)) != list(other.chain(prompt))


@pytest.mark.parametrize("seed", range(6))
def test_random_traffic_never_gives_a_row_anothers_keys(seed):
    """Random prompts over a small tree of texts, several rows at once, ended, aborted, dropped, under little memory."""
    rng = random.Random(seed)
    cache = PrefixCache(make, max_bytes=rng.choice([20_000, 60_000, 1 << 30]))
    texts, open_rows = [sequence(seed, 400)], []
    for _ in range(150):
        if rng.random() < 0.5 or not open_rows:
            base = rng.choice(texts)
            text = base[: rng.randrange(1, len(base))] + sequence(rng.randrange(10**6), rng.randrange(0, 120))
            texts.append(text)
            lease = cache.take(text)
            if lease.length:
                check(lease.caches, text[: lease.length])
            open_rows.append((lease, text))
        else:
            lease, text = open_rows.pop(rng.randrange(len(open_rows)))
            if rng.random() < 0.3:
                done = rng.randrange(lease.length, len(text) + 1)
                compute(lease, text[:done])
                cache.give(lease, text[:done], done)
            elif rng.random() < 0.1:
                cache.drop(lease)
            else:
                compute(lease, text[:-1])
                cache.share(lease, text[:-1])
                if rng.random() < 0.5:
                    open_rows.append((lease, text))
                    continue
                longer = text + sequence(rng.randrange(10**6), rng.randrange(0, 60))
                compute(lease, longer)
                cache.give(lease, longer, len(longer))
                texts.append(longer)
        check_tree(cache)
        assert cache.nbytes <= cache.max_bytes
    for lease, text in open_rows:
        compute(lease, text)
        check(lease.caches, text)


def test_lookup_is_linear():
    """Twice the prompt hashes twice the blocks; nothing is compared with nothing else."""
    cache = big()
    for length in (64 * BLOCK, 128 * BLOCK):
        prompt = sequence(1, length)
        play(cache, prompt, [])
        assert len(list(cache.chain(prompt))) == length // BLOCK


def test_a_long_prompt_that_diverges_is_looked_up_quickly(record_property):
    cache, prompt = big(), sequence(1, 131072)
    play(cache, prompt, [])
    started = time.perf_counter()
    count, _ = cache.match([*prompt[:131000], 5000, *prompt[131001:]])
    record_property("seconds", time.perf_counter() - started)
    assert count == 131000


def test_what_a_copied_row_computes_can_be_copied_too_and_is_stored_once():
    cache, system = big(), sequence(1, 200)
    main = cache.take(system)
    compute(main, system)
    cache.share(main, system[:-1])
    task = system[:-1] + sequence(2, 100)
    first = cache.take([*task, 5])
    assert first.length == 199
    compute(first, task)
    cache.share(first, task)
    second = cache.take([*task, 6])
    assert second.length == len(task)
    check(second.caches, task)
    for lease, tokens in ((first, [*task, 5]), (second, [*task, 6]), (main, system)):
        compute(lease, tokens)
        cache.give(lease, tokens, len(tokens))
        check_tree(cache)
    assert held(cache) == 200 + 101
