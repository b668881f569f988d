"""The keys and values of earlier turns: a tree of token runs, each stored once.

    root [0..900) ── child [600..750)        a branch holds only what it does not share
                  └─ child [880..1200)

A running row takes the stored run over instead of copying it, and gives it back when it ends; what the row's prompt
does not share is cut off first and stays as a child. Only a prefix that another row is using at the moment is copied.
Lookup is by hashes of token blocks, each chained to the one before: linear in the prompt. Bytes are bounded by dropping
the least recently used leaf.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from vllm_mlx.engine import kv
from vllm_mlx.engine.kv import Caches

BLOCK = 32
"""Tokens a hash covers, and the fewest that are worth keeping."""


@dataclass(slots=True, eq=False)
class Run:
    """Tokens from `base` on and their keys and values; those before are its parent's.

    While a row owns the run (`lent`), `caches` are the row's own: only `end` tokens of them are the run's.
    """

    base: int
    tokens: list[int]
    caches: Caches
    hashes: list[bytes]
    parent: "Run | None" = None
    children: list["Run"] = field(default_factory=list)
    lent: bool = False
    used: int = 0

    @property
    def end(self) -> int:
        return self.base + len(self.tokens)

    def path(self) -> list["Run"]:
        """From the root to this one."""
        return [*(self.parent.path() if self.parent else ()), self]


@dataclass(slots=True, eq=False)
class Lease:
    """What a row gets: caches that hold the first `length` tokens of its prompt."""

    caches: Caches
    length: int
    run: Run | None = None


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a lookup found no more: `evicted`, or `differs` (the ids from there on, on both sides), or `unseen`."""

    kind: str
    at: int
    cached: list[int]
    prompt: list[int]


class PrefixCache:
    """All runs of one model. Used by the engine's thread alone."""

    def __init__(self, make: Callable[[], Caches], *, max_bytes: int, salt: bytes = b"") -> None:
        """`make` gives empty caches; `salt` names what the keys and values depend on besides the tokens."""
        self._make = make
        self.max_bytes = max_bytes
        self._salt = salt
        self._roots: list[Run] = []
        self._index: dict[bytes, Run] = {}
        self._evicted: dict[bytes, None] = {}
        self._clock = 0
        self.last_miss: Miss | None = None

    def runs(self) -> Iterator[Run]:
        """All runs, parents first."""
        stack = list(self._roots)
        while stack:
            run = stack.pop()
            yield run
            stack += run.children

    @property
    def nbytes(self) -> int:
        """Bytes of the runs that no row owns."""
        return sum(kv.nbytes(run.caches) for run in self.runs() if not run.lent)

    def take(self, tokens: Sequence[int]) -> Lease:
        """The longest stored beginning of `tokens` but the last one, which must always be computed."""
        count, run = self._match(tokens)
        self._explain(tokens, count, run)
        count = min(count, len(tokens) - 1)
        while run and run.base >= count:
            run = run.parent
        if run is None or count < BLOCK:
            return Lease(self._make(), 0)
        path = run.path()
        self._touch(path)
        if any(part.lent for part in path):
            return self._copied(path, count)
        self._make_room((run.end - count) * kv.token_bytes(run.caches), path)
        root = self._brought_together(run, count)
        root.lent = True
        return Lease(root.caches, count, root)

    def _copied(self, path: list[Run], count: int) -> Lease:
        caches = self._make()
        if not all(part.caches for part in path):
            return Lease(caches, 0)
        if not self._make_room(count * kv.token_bytes(path[0].caches), path):
            return Lease(caches, 0)
        kv.reserve(caches, count)
        for part, after in zip(path, [*path[1:], None], strict=True):
            end = after.base if after else count
            kv.extend(caches, part.caches, end - part.base)
        return Lease(caches, count)

    def _brought_together(self, run: Run, count: int) -> Run:
        """Makes the root of `run` hold exactly the first `count` tokens; cut-off tails become its children."""
        if run.parent is None:
            self._split(run, count)
            return run
        root = self._brought_together(run.parent, run.base)
        self._split(run, count)
        root.children.remove(run)
        for child in run.children:
            child.parent = root
        root.children += run.children
        kv.extend(root.caches, run.caches, count - run.base)
        root.tokens += run.tokens
        self._forget(run)
        self._register(root, run.hashes)
        return root

    def _split(self, run: Run, count: int) -> Run | None:
        """Cuts a run at `count`; its tail becomes a child, if it is worth it."""
        tail_tokens = run.tokens[count - run.base :]
        kept = count // BLOCK - run.base // BLOCK
        tail_hashes = run.hashes[kept:]
        later = [child for child in run.children if child.base > count]
        tail = None
        if self.nbytes + len(tail_tokens) * kv.token_bytes(run.caches) > self.max_bytes:
            for child in later:
                self._remove(child)
        elif len(tail_tokens) >= BLOCK or later:
            part = kv.piece(run.caches, count - run.base, run.end - run.base)
            tail = Run(count, tail_tokens, part, [], run, later, used=run.used)
            for child in later:
                run.children.remove(child)
                child.parent = tail
            run.children.append(tail)
        self._unregister(run, tail_hashes)
        del run.tokens[count - run.base :]
        del run.hashes[kept:]
        kv.trim(run.caches, count - run.base)
        if tail:
            self._register(tail, tail_hashes)
        return tail

    def share(self, lease: Lease, tokens: Sequence[int]) -> None:
        """The row has computed all of `tokens`: others may copy from it while it runs."""
        if lease.run is None:
            if self._match(tokens)[0] < BLOCK <= len(tokens):
                run = Run(0, list(tokens), lease.caches, [], lent=True)
                self._roots.append(run)
                self._register(run, self._hashes(tokens))
                self._touch([run])
                lease.run = run
        else:
            self._grow(lease.run, tokens)

    def _grow(self, run: Run, tokens: Sequence[int]) -> None:
        known = len(run.hashes)
        run.tokens += tokens[run.end :]
        self._register(run, self._hashes(tokens, run.hashes)[known:])
        for child in [c for c in run.children if c.end <= run.end and c.tokens == run.tokens[c.base : c.end]]:
            # The row wrote again what a branch held.
            run.children.remove(child)
            for grandchild in child.children:
                grandchild.parent = run
            run.children += child.children
            self._forget(child)
            self._register(run, [])

    def give(self, lease: Lease, tokens: Sequence[int], held: int) -> None:
        """The row has ended: of the `held` tokens in its caches `tokens` are meant, and stored."""
        assert len(tokens) <= held
        run = lease.run
        if run is not None:
            run.lent = False
            run.caches = lease.caches
            kv.trim(run.caches, max(len(tokens), run.end))
            self._grow(run, tokens)
            kv.shrink(run.caches)
        elif len(tokens) >= BLOCK:
            kv.trim(lease.caches, len(tokens))
            run = self._stored(lease.caches, tokens)
        if run is not None:
            self._touch(run.path())
        self.shrink_to(self.max_bytes)

    def _stored(self, caches: Caches, tokens: Sequence[int]) -> Run:
        """Stores an unattached row: what the tree does not have of it."""
        count, run = self._match(tokens)
        if run is not None and len(tokens) - count < BLOCK:
            return run
        hashes = self._hashes(tokens)
        if run is None or count < BLOCK:
            kv.shrink(caches)
            new = Run(0, list(tokens), caches, [])
            self._roots.append(new)
            self._register(new, hashes)
            return new
        if run.parent is None and run.end == count and not run.lent:
            # It holds all that the run holds: no copy.
            run.caches = caches
            self._grow(run, tokens)
            kv.shrink(caches)
            return run
        child = Run(count, list(tokens[count:]), kv.piece(caches, count, len(tokens)), [], run)
        run.children.append(child)
        self._register(child, hashes[count // BLOCK :])
        return child

    def drop(self, lease: Lease) -> None:
        """The row's keys and values are not to be trusted: forgets them, and what hangs on them."""
        if lease.run is not None:
            self._remove(lease.run)

    def cut(self, tokens: Sequence[int], count: int) -> None:
        """Of what is stored of `tokens`, only the first `count` were meant."""
        found, run = self._match(tokens)
        if run is None or run.lent or found <= count or run.base > count or run.end > found or run.children:
            return
        kept = max(0, count // BLOCK - run.base // BLOCK)
        self._unregister(run, run.hashes[kept:])
        del run.hashes[kept:]
        del run.tokens[count - run.base :]
        kv.trim(run.caches, count - run.base)

    def _make_room(self, count: int, path: Sequence[Run]) -> bool:
        """Drops others than `path` for `count` bytes more; False if they do not suffice."""
        return self.shrink_to(self.max_bytes - count, keep=path) <= self.max_bytes - count

    def shrink_to(self, limit: int, keep: Sequence[Run] = ()) -> int:
        """Drops least recently used leaves until what is stored takes at most `limit` bytes; returns the bytes."""
        held = self.nbytes
        while held > limit:
            leaves = [run for run in self.runs() if not run.children and not run.lent and run not in keep]
            if not leaves:
                break
            oldest = min(leaves, key=lambda run: run.used)
            held -= kv.nbytes(oldest.caches)
            self._evicted |= dict.fromkeys(oldest.hashes)
            self._remove(oldest)
        while len(self._evicted) > 65536:
            del self._evicted[next(iter(self._evicted))]
        return held

    def _remove(self, run: Run) -> None:
        for child in list(run.children):
            self._remove(child)
        (run.parent.children if run.parent else self._roots).remove(run)
        self._forget(run)

    def _forget(self, run: Run) -> None:
        self._unregister(run, run.hashes)
        run.caches = []

    def _touch(self, path: Sequence[Run]) -> None:
        self._clock += 1
        for run in path:
            run.used = self._clock

    def _register(self, run: Run, hashes: Sequence[bytes]) -> None:
        run.hashes += hashes
        for digest in hashes:
            self._evicted.pop(digest, None)
        for digest in run.hashes:
            self._index.setdefault(digest, run)

    def _unregister(self, run: Run, hashes: Sequence[bytes]) -> None:
        for digest in hashes:
            if self._index.get(digest) is run:
                del self._index[digest]

    def _hashes(self, tokens: Sequence[int], known: Sequence[bytes] = ()) -> list[bytes]:
        return [*known, *self._chain(tokens, known)]

    def _chain(self, tokens: Sequence[int], known: Sequence[bytes] = ()) -> Iterator[bytes]:
        """The hashes of the whole blocks of `tokens` after those that are known."""
        digest = known[-1] if known else self._salt
        for start in range(len(known) * BLOCK, len(tokens) - BLOCK + 1, BLOCK):
            block = array("I", tokens[start : start + BLOCK]).tobytes()
            digest = hashlib.blake2b(digest + block, digest_size=16).digest()
            yield digest

    def _match(self, tokens: Sequence[int]) -> tuple[int, Run | None]:
        """How many of the tokens are stored, and the run that holds the last of them."""
        count, run = 0, None
        for digest in self._chain(tokens):
            found = self._index.get(digest)
            if found is None:
                break
            count, run = count + BLOCK, found
        return (0, None) if run is None else _further(run, tokens, count)

    def _explain(self, tokens: Sequence[int], count: int, run: Run | None) -> None:
        """Keeps why the lookup ended where it did."""
        self.last_miss = None
        if count >= len(tokens) - 1:
            return
        follower = _follower(run, count)
        known = [digest for part in (run.path() if run else ()) for digest in part.hashes][: count // BLOCK]
        following = next(self._chain(tokens, known), None)
        kind = "evicted" if following in self._evicted else "differs" if follower else "unseen"
        self.last_miss = Miss(kind, count, follower[:16], list(tokens[count : count + 16]))


def _further(run: Run, tokens: Sequence[int], count: int) -> tuple[int, Run]:
    """Goes on token by token from a match that ends in `run`, into its children too."""
    end = min(run.end, len(tokens))
    here = count
    while here < end and run.tokens[here - run.base] == tokens[here]:
        here += 1
    best = (here, run)
    for child in run.children:
        if count <= child.base <= here:
            best = max(best, _further(child, tokens, child.base), key=lambda found: found[0])
    return best


def _follower(run: Run | None, count: int) -> list[int]:
    """What the tree has after the first `count` tokens that end in `run`."""
    if run is None:
        return []
    if run.end > count:
        return run.tokens[count - run.base :]
    return next((child.tokens for child in run.children if child.base == count), [])
