"""The disk tier: what was stored comes back, whatever happened in between; what is damaged does not."""

import os
import random
import time

import pytest
from test_prefix_cache import check, check_tree, compute, make, sequence

from vllm_mlx.engine.prefix_cache import PrefixCache
from vllm_mlx.engine.store import Fetch, KvStore


def store_at(folder, salt=b"model", max_bytes=1 << 30) -> KvStore:
    return KvStore(folder, max_bytes=max_bytes, salt=salt, make=make)


def big() -> PrefixCache:
    return PrefixCache(make, max_bytes=1 << 40)


def keep(cache: PrefixCache, store: KvStore, tokens: list[int]) -> None:
    lease = cache.take(tokens)
    compute(lease, tokens)
    cache.give(lease, tokens, len(tokens))
    store.offer(tokens)
    while store.busy:
        store.pump(cache)
        time.sleep(0.001)


def delivered(store: KvStore, fetch: Fetch, cache: PrefixCache) -> None:
    while not store.advance(fetch, cache):
        fetch.blobs.exception()


def fetched(store: KvStore, cache: PrefixCache, tokens: list[int]) -> int:
    """How many tokens a row gets whose prompt these are."""
    fetch = store.fetch(tokens, cache.match(tokens)[0])
    if fetch:
        delivered(store, fetch, cache)
    check_tree(cache)
    lease = cache.take(tokens)
    if lease.length:
        check(lease.caches, tokens[: lease.length])
    return lease.length


def files(folder) -> list:
    return sorted(folder.rglob("*.safetensors"))


def test_a_session_survives_a_restart(tmp_path):
    cache, store, tokens = big(), store_at(tmp_path), []
    for turn in range(5):
        tokens = tokens + sequence(turn, 333)
        keep(cache, store, tokens)
    assert len(files(tmp_path)) == 5
    sizes = sum(file.stat().st_size for file in files(tmp_path))
    assert sizes < 1.5 * cache.nbytes
    store.close()
    assert fetched(store_at(tmp_path), big(), [*tokens, 7]) == len(tokens)


def test_a_long_prompt_is_written_in_pieces(tmp_path):
    cache, store, tokens = big(), store_at(tmp_path), sequence(1, 5000)
    keep(cache, store, tokens)
    assert len(files(tmp_path)) == 3
    assert fetched(store_at(tmp_path), big(), [*tokens, 7]) == 5000


def test_what_is_stored_is_not_written_again(tmp_path):
    cache, store, tokens = big(), store_at(tmp_path), sequence(1, 900)
    keep(cache, store, tokens)
    before = [(file, file.stat().st_mtime_ns) for file in files(tmp_path)]
    for known in (tokens, tokens[:-1], tokens[:500], [*tokens[:895], 3, 4, 5]):
        keep(cache, store, known)
    assert [(file, file.stat().st_mtime_ns) for file in files(tmp_path)] == before


def test_what_is_left_of_a_conversation_that_was_cut_back_is_written(tmp_path):
    cache, store, tokens = big(), store_at(tmp_path), sequence(1, 900)
    lease = cache.take(tokens)
    compute(lease, tokens)
    cache.give(lease, tokens, 900)
    store.offer(tokens)
    cache.shrink_to(cache.nbytes // 2)
    left = cache.match(tokens)[0]
    assert left > 400
    while store.busy:
        store.pump(cache)
        time.sleep(0.001)
    assert fetched(store_at(tmp_path), big(), tokens) == left


def test_branches_share_their_files(tmp_path):
    cache, store, system = big(), store_at(tmp_path), sequence(1, 640)
    left, right = system + sequence(2, 300), system + sequence(3, 300)
    keep(cache, store, system)
    keep(cache, store, left)
    keep(cache, store, right)
    assert len(files(tmp_path)) == 3
    again = store_at(tmp_path)
    cache = big()
    assert fetched(again, cache, [*left, 1]) == 940
    assert fetched(again, cache, [*right, 1]) == 940


def test_only_what_the_cache_lacks_is_read(tmp_path):
    cache, store, tokens = big(), store_at(tmp_path), []
    for turn in range(3):
        tokens = tokens + sequence(turn, 200)
        keep(cache, store, tokens)
    partly = big()
    lease = partly.take(tokens[:250])
    compute(lease, tokens[:250])
    partly.give(lease, tokens[:250], 250)
    assert store.fetch(tokens, 600) is None
    assert [file.base for file in store.fetch(tokens, 250).files] == [200, 400]
    assert fetched(store, partly, [*tokens, 1]) == 600


def damage(path, rng) -> None:
    data = bytearray(path.read_bytes())
    kind = rng.randrange(4)
    if kind == 0:
        path.write_bytes(data[: rng.randrange(len(data))])
    elif kind == 1:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    elif kind == 2:
        path.write_bytes(b"")
    else:
        path.write_bytes(os.urandom(500))


@pytest.mark.parametrize("seed", range(20))
def test_damage_costs_what_is_damaged_and_never_gives_wrong_keys(tmp_path, seed):
    rng = random.Random(seed)
    cache, store, tokens = big(), store_at(tmp_path), []
    for turn in range(4):
        tokens = tokens + sequence(turn, 100)
        keep(cache, store, tokens)
    store.close()
    victim = rng.choice(files(tmp_path))
    damage(victim, rng)
    again = store_at(tmp_path)
    for _ in range(2):
        got = fetched(again, big(), [*tokens, 1])
        assert got in (0, 100, 200, 300)
    assert fetched(store_at(tmp_path), big(), [*tokens, 1]) == got
    keep(cache, again, tokens)
    assert fetched(store_at(tmp_path), big(), [*tokens, 1]) == 400


def test_half_written_and_foreign_files_are_removed_and_other_models_apart(tmp_path):
    cache, store = big(), store_at(tmp_path)
    keep(cache, store, sequence(1, 100))
    (store.folder / "abc.partial").write_bytes(b"x" * 100)
    (store.folder / "notes.txt").write_text("mine")
    other = store_at(tmp_path, salt=b"other")
    assert other.fetch(sequence(1, 100), 0) is None
    again = store_at(tmp_path)
    assert [path.name for path in again.folder.iterdir()] == [path.name for path in files(tmp_path)]
    assert fetched(again, big(), [*sequence(1, 100), 1]) == 100


def test_the_oldest_ends_go_when_the_disk_share_is_used_up(tmp_path):
    cache, store = big(), store_at(tmp_path, max_bytes=60_000)
    conversations = [sequence(seed, 400) for seed in range(8)]
    for tokens in conversations:
        keep(cache, store, tokens)
        assert sum(file.stat().st_size for file in files(tmp_path)) <= 60_000
    assert store.fetch(conversations[0], 0) is None
    assert fetched(store, big(), [*conversations[-1], 1]) == 400


def test_a_full_disk_costs_the_store_and_nothing_else(tmp_path, monkeypatch, caplog):
    cache, store, tokens = big(), store_at(tmp_path), sequence(1, 200)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("vllm_mlx.engine.segments.os.replace", full)
        keep(cache, store, tokens)
    assert files(tmp_path) == []
    assert list(store.folder.iterdir()) == []
    assert "No space left" in caplog.text
    keep(cache, store, tokens)
    assert fetched(store_at(tmp_path), big(), [*tokens, 1]) == 200


def test_a_file_that_two_rows_share_can_be_damaged_for_both(tmp_path):
    cache, store, tokens = big(), store_at(tmp_path), sequence(1, 200)
    keep(cache, store, tokens)
    keep(cache, store, [*tokens, *sequence(2, 100)])
    store.close()
    again = store_at(tmp_path)
    path = files(tmp_path)
    for file in path:
        file.write_bytes(b"")
    fetches = [again.fetch(tokens + sequence(2, length), 0) for length in (100, 50)]
    cache = big()
    for fetch in fetches:
        delivered(again, fetch, cache)
    assert list(cache.nodes()) == []
    assert again.nbytes == 0


def test_what_hangs_on_a_removed_file_can_be_removed_again(tmp_path):
    cache, store, tokens = big(), store_at(tmp_path), sequence(1, 200)
    keep(cache, store, tokens)
    keep(cache, store, [*tokens, *sequence(2, 100)])
    root, leaf = store.nodes()
    for node in (root, leaf, root):
        store.remove(node)
        assert node not in store
    assert files(tmp_path) == []
    assert store.match(tokens) == (0, None)


def test_a_file_that_is_evicted_while_it_is_fetched_is_no_hit(tmp_path):
    cache, store, tokens = big(), store_at(tmp_path), sequence(1, 200)
    keep(cache, store, tokens)
    fetch = store.fetch(tokens, 0)
    store.remove(next(store.nodes()))
    cache = big()
    delivered(store, fetch, cache)
    assert list(cache.nodes()) == []
    keep(cache, store, tokens)
    assert fetched(store_at(tmp_path), big(), [*tokens, 1]) == 200


def test_a_piece_whose_beginning_is_evicted_meanwhile_is_written_again(tmp_path):
    cache, store, tokens = big(), store_at(tmp_path), sequence(1, 200)
    keep(cache, store, tokens)
    longer = [*tokens, *sequence(2, 100)]
    lease = cache.take(longer)
    compute(lease, longer)
    cache.give(lease, longer, 300)
    store.offer(longer)
    store.pump(cache)
    store.remove(next(store.nodes()))
    while store.busy:
        store.pump(cache)
    assert len(files(tmp_path)) == 1
    assert fetched(store_at(tmp_path), big(), [*longer, 1]) == 300


@pytest.mark.parametrize("name", ["utime", "unlink"])
def test_a_folder_that_cannot_be_changed_costs_the_store_and_nothing_else(tmp_path, monkeypatch, caplog, name):
    cache, store, tokens = big(), store_at(tmp_path, max_bytes=15_000), sequence(1, 400)
    keep(cache, store, tokens)

    def read_only(*_, **__):
        raise OSError(30, "Read-only file system")

    if name == "utime":
        monkeypatch.setattr("vllm_mlx.engine.store.os.utime", read_only)
        assert fetched(store, big(), [*tokens, 1]) == 400
    else:
        monkeypatch.setattr("pathlib.Path.unlink", read_only)
        keep(cache, store, sequence(2, 400))
        assert store.nbytes <= 15_000
        (store.folder / "notes.txt").write_text("mine")
        assert store_at(tmp_path).nbytes > 15_000
    assert "Read-only file system" in caplog.text
