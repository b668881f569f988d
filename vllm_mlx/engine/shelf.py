"""The keys and values that no row owns: the prefix cache, its tier on disk, and why prompts found no more in them."""

import logging
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable
from pathlib import Path

from vllm_mlx.config import EngineConfig
from vllm_mlx.engine import kv
from vllm_mlx.engine.loader import LoadedModel, LoadError
from vllm_mlx.engine.prefix_cache import Lease, PrefixCache
from vllm_mlx.engine.protocol import CacheReport, CacheRun, Lookup, Miss
from vllm_mlx.engine.scheduler import Gate, Phase, Sequence
from vllm_mlx.engine.snapshots import SnapshotCache
from vllm_mlx.engine.store import Fetch, KvStore
from vllm_mlx.engine.tree import BLOCK

_log = logging.getLogger("vllm_mlx.engine")
_LOOKUPS = 32
_SHARED = 256
"""Tokens in common for which a prompt waits until another has computed them."""


class Shelf:
    """What earlier sequences left, and what becomes of it."""

    def __init__(self, loaded: LoadedModel, config: EngineConfig) -> None:
        self._make = loaded.make_caches
        self.cuttable = kv.cuttable(loaded.make_caches())
        self.cache = self._make_cache(config)
        self._store = self._make_store(loaded, config)
        self._fetches: dict[str, Fetch | None] = {}
        """By sequence; None: it was looked for already."""
        self._fetching: Sequence | None = None
        """Whom the disk is read for: whoever comes next."""
        self._lookups: deque[Lookup] = deque(maxlen=_LOOKUPS)
        self._ended: OrderedDict[str, tuple[array[int], int]] = OrderedDict()
        """The stored tokens of sequences that ended by themselves in the last steps, and how many were the prompt's.

        The API may still say that fewer of them count: it reads an end a step or two after it was sent.
        """
        self._most_ended = 2 * config.max_num_seqs

    def _make_cache(self, config: EngineConfig) -> PrefixCache | SnapshotCache | None:
        if not config.enable_prefix_caching:
            return None
        kind = PrefixCache if self.cuttable else SnapshotCache
        return kind(self._make, max_bytes=0)

    def _make_store(self, loaded: LoadedModel, config: EngineConfig) -> KvStore | None:
        if config.kv_store is None or not isinstance(self.cache, PrefixCache):
            return None
        folder, limit = Path(config.kv_store).expanduser(), int(config.kv_store_gb * 1e9)
        try:
            return KvStore(folder, max_bytes=limit, salt=loaded.identity, make=self._make)
        except OSError as error:
            raise LoadError(f"--kv-store {config.kv_store}: {error.strerror}") from error

    @property
    def busy(self) -> bool:
        """Whether `pump` will have something to do."""
        return self._store is not None and self._store.busy

    def pump(self) -> None:
        """Moves the disk on. Never waits."""
        if self._store is not None and isinstance(self.cache, PrefixCache):
            try:
                self._store.pump(self.cache)
            except Exception:
                self._turn_store_off()

    def _turn_store_off(self) -> None:
        """The border of the disk: an error behind it costs the store, and no row."""
        _log.exception("kv store: an error; the store is off until the engine starts again")
        if self._store is not None:
            self._store.close(wait=False)
        self._store = self._fetching = None
        self._fetches.clear()

    def gate(self, sequence: Sequence, running: Iterable[Sequence]) -> Gate:
        """Whether it pays to wait: for another prompt that is computing the same, or for the disk."""
        if self.cache is None:
            return Gate.OPEN
        tokens = sequence.tokens
        for other in running:
            if other.phase is Phase.PREFILL and other.tokens[:_SHARED] == tokens[:_SHARED]:
                shared = _common(other.tokens, tokens)
                if shared >= max(_SHARED, other.kv + BLOCK):
                    self.forget(sequence.submit.id)
                    return Gate.PASS_BY
        if self._store is None or not isinstance(self.cache, PrefixCache):
            return Gate.OPEN
        try:
            return self._fetched(sequence, self._store, self.cache)
        except Exception:
            self._turn_store_off()
            return Gate.OPEN

    def _fetched(self, sequence: Sequence, store: KvStore, cache: PrefixCache) -> Gate:
        id = sequence.submit.id
        if id not in self._fetches:
            have, _ = cache.match(sequence.tokens)
            self._fetches[id] = store.fetch(sequence.tokens, have)
        fetch = self._fetches[id]
        if fetch is None:
            return Gate.OPEN
        if not self._takes_disk(sequence) or not store.advance(fetch, cache):
            return Gate.PASS_BY
        self._fetches[id] = self._fetching = None
        return Gate.OPEN

    def _takes_disk(self, sequence: Sequence) -> bool:
        """Whether the disk is read for this one now: who comes after another waits."""
        other = self._fetching
        if other is not None and other is not sequence:
            if other.order <= sequence.order:
                return False
            self.forget(other.submit.id)
        self._fetching = sequence
        return True

    def lease(self, sequence: Sequence) -> tuple[Lease, Miss | None]:
        """The caches that a row begins with, and why they do not hold more of its tokens."""
        id = sequence.submit.id
        self.forget(id)
        if self.cache is None:
            return Lease(self._make(), 0), None
        lease = self.cache.take(sequence.tokens)
        miss = self.cache.last_miss
        self._lookups.append(Lookup(id, len(sequence.tokens), lease.length, miss))
        return lease, miss

    def share(self, lease: Lease, sequence: Sequence) -> None:
        """What the row has computed may be copied from."""
        if self.cache is not None:
            self.cache.share(lease, sequence.tokens[: sequence.kv])

    def give(self, lease: Lease, sequence: Sequence) -> None:
        """A row's keys and values, for later prompts."""
        if self.cache is None:
            return
        tokens = sequence.tokens[: sequence.kv]
        self.cache.give(lease, tokens, sequence.kv)
        if self._store is not None:
            self._store.offer(tokens)

    def drop(self, lease: Lease) -> None:
        """A row's keys and values are not to be trusted."""
        if self.cache is not None:
            self.cache.drop(lease)

    def rescue(self, lease: Lease) -> None:
        """A step failed over a row: what was stored of it before is kept, where its buffers are still good."""
        run = lease.run
        if isinstance(self.cache, PrefixCache) and run is not None and kv.restored(lease.caches, run.end):
            self.cache.give(lease, run.tokens, run.end)
        else:
            self.drop(lease)

    def forget(self, id: str) -> None:
        """The sequence does not wait for the disk any more."""
        self._fetches.pop(id, None)
        if self._fetching is not None and self._fetching.submit.id == id:
            self._fetching = None

    def ended(self, sequence: Sequence) -> None:
        """It ended by itself, and was given."""
        self._ended[sequence.submit.id] = array("I", sequence.tokens[: sequence.kv]), len(sequence.submit.prompt)
        if len(self._ended) > self._most_ended:
            self._ended.popitem(last=False)

    def cut(self, id: str, keep: int) -> None:
        """Of an ended sequence only the first `keep` new tokens count."""
        ended = self._ended.pop(id, None)
        if ended is not None and self.cache is not None:
            tokens, prompt = ended
            self.cache.cut(tokens, prompt + keep)

    def report(self) -> CacheReport:
        """For people who wonder."""
        runs: list[CacheRun] = []
        if isinstance(self.cache, PrefixCache):
            runs = [
                CacheRun(run.base, len(run.tokens), kv.nbytes(run.caches), run.lent, run.used)
                for run in self.cache.nodes()
            ]
        return CacheReport(
            enabled=self.cache is not None,
            bytes=self.cache.nbytes if self.cache else 0,
            limit=self.cache.max_bytes if self.cache else 0,
            runs=runs,
            lookups=list(self._lookups),
            store_bytes=self._store.nbytes if self._store else None,
            store_limit=self._store.max_bytes if self._store else None,
        )

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def _common(a: list[int], b: list[int]) -> int:
    """How many tokens two sequences have in common at their beginning."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
