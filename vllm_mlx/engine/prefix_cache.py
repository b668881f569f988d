"""The keys and values of earlier turns: a tree of token runs, each stored once.

    root [0..900) ── child [600..750)        a branch holds only what it does not share
                  └─ child [880..1200)

A running row takes the stored run over instead of copying it, and gives it back when it ends; what the row's prompt
does not share is cut off first and stays as a child. Where that is more than what is shared, the prefix is copied and
the run stays as it is; a prefix that another row is using at the moment is copied too. Lookup is by hashes of token
blocks, each chained to the one before: linear in the prompt. Bytes are bounded by cutting back the least recently used
leaf.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from vllm_mlx.engine import kv
from vllm_mlx.engine.kv import Caches
from vllm_mlx.engine.protocol import Miss
from vllm_mlx.engine.tree import BLOCK, Node, Tree, beyond, ends, follower, holders

_REMEMBERED = 65536
"""Hashes of evicted blocks."""


@dataclass(slots=True, eq=False, kw_only=True)
class Run(Node):
    """A stored run. While a row owns it (`lent`), `caches` are the row's: only `end` tokens of them are the run's."""

    caches: Caches
    lent: bool = False
    double: bool = False
    """A row's that was copied: what it shares with other runs is stored there, and will not be stored twice."""


@dataclass(slots=True, eq=False)
class Lease:
    """What a row gets: caches that hold the first `length` tokens of its prompt."""

    caches: Caches
    length: int
    run: Run | None = None


class PrefixCache(Tree[Run]):
    """All runs of one model. Used by the engine's thread alone."""

    def __init__(self, make: Callable[[], Caches], *, max_bytes: int, salt: bytes = b"") -> None:
        """`make` gives empty caches."""
        super().__init__(salt)
        self._make = make
        self.max_bytes = max_bytes
        self._evicted: dict[bytes, None] = {}
        self.last_miss: Miss | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the runs that no row owns."""
        return sum(kv.nbytes(run.caches) for run in self.nodes() if not run.lent)

    def take(self, tokens: Sequence[int]) -> Lease:
        """The longest stored beginning of `tokens` but the last one, which must always be computed."""
        count, run = self.match(tokens)
        self._explain(tokens, count, run)
        count = min(count, len(tokens) - 1)
        path = holders(run, count)
        if not path:
            return Lease(self._make(), 0)
        self.touch(path)
        tail = beyond(path, count)
        lent = any(part.lent for part in path)
        if lent or count < tail:
            if self._room_to_copy(path, count):
                return self._copied(path, count)
            if lent:
                return Lease(self._make(), 0)
        self.make_room(tail * kv.token_bytes(path[0].caches), path)
        self._bring_together(path, count)
        path[0].lent = True
        return Lease(path[0].caches, count, path[0])

    def copies(self, tokens: Sequence[int]) -> int:
        """How many tokens `take` would copy: while the row runs they are held twice."""
        count, run = self.match(tokens)
        count = min(count, len(tokens) - 1)
        path = holders(run, count)
        if not path:
            return 0
        return count if any(part.lent for part in path) else min(count, beyond(path, count))

    def _room_to_copy(self, path: list[Run], count: int) -> bool:
        """Room for the first `count` tokens once more: others give way, then what `path` has beyond them."""
        if not all(part.caches for part in path):
            return False
        limit = self.max_bytes - count * kv.token_bytes(path[0].caches)
        held = self.shrink_to(limit, keep=path)
        for part, end in reversed(ends(path, count)):
            if held > limit and not part.lent:
                held -= self._cut_back(part, held - limit, end)
        return held <= limit

    def _copied(self, path: list[Run], count: int) -> Lease:
        caches = self._make()
        kv.reserve(caches, count)
        for part, end in ends(path, count):
            kv.extend(caches, part.caches, end - part.base)
        return Lease(caches, count)

    def _bring_together(self, path: list[Run], count: int) -> None:
        """Makes the root hold exactly the first `count` tokens; cut-off tails become its children."""
        for part, end in ends(path, count):
            self._split(part, end)
        root, *rest = path
        if not rest:
            return
        kv.join(root.caches, [(part.caches, len(part.tokens)) for part in rest])
        for part in rest:
            root.children.remove(part)
            for child in part.children:
                child.parent = root
            root.children += part.children
            root.tokens += part.tokens
            self.unregister(part, part.hashes)
            self.forgotten(part)
        self._register(root, [digest for part in rest for digest in part.hashes])

    def _split(self, run: Run, count: int) -> None:
        """Cuts a run at `count`; of its tail what there is room for becomes a child, if it is worth it."""
        if run.end == count:
            return
        room = (self.max_bytes - self.nbytes) // kv.token_bytes(run.caches)
        end = run.end if run.end - count <= room else max(count, (count + room) // BLOCK * BLOCK)
        for child in [child for child in run.children if child.base > end]:
            self.remove(child)
        later = [child for child in run.children if child.base > count]
        tail = None
        if end - count >= BLOCK or later:
            part = kv.piece(run.caches, count - run.base, end - run.base)
            kept = run.tokens[count - run.base : end - run.base]
            tail = Run(base=count, tokens=kept, caches=part, children=later, used=run.used)
            for child in later:
                run.children.remove(child)
                child.parent = tail
        hashes = self._end_at(run, count)
        if tail:
            self.attach(tail, run, hashes[: end // BLOCK - count // BLOCK])
            del hashes[: len(tail.hashes)]
        self._evicted |= dict.fromkeys(hashes)

    def _end_at(self, run: Run, count: int) -> list[bytes]:
        """Forgets what a run has beyond the first `count` tokens, but not its buffers; the hashes of that."""
        kept = count // BLOCK - run.base // BLOCK
        gone = run.hashes[kept:]
        self.unregister(run, gone)
        del run.hashes[kept:]
        del run.tokens[count - run.base :]
        kv.trim(run.caches, count - run.base)
        return gone

    def share(self, lease: Lease, tokens: Sequence[int]) -> None:
        """The row has computed all of `tokens`: others may copy from it while it runs."""
        if lease.run is None:
            known = self.match(tokens)[0]
            if len(tokens) - known >= BLOCK:
                run = Run(base=0, tokens=list(tokens), caches=lease.caches, lent=True, double=known >= BLOCK)
                self._attach(run, None, list(self.chain(tokens)))
                self.touch([run])
                lease.run = run
        else:
            self._grow(lease.run, tokens)

    def _grow(self, run: Run, tokens: Sequence[int]) -> None:
        run.tokens += tokens[run.end :]
        self._register(run, list(self.chain(tokens, run.hashes)))
        for child in [c for c in run.children if c.end <= run.end and c.tokens == run.tokens[c.base : c.end]]:
            # The row wrote again what a branch held.
            run.children.remove(child)
            for grandchild in child.children:
                grandchild.parent = run
            run.children += child.children
            self.unregister(child, child.hashes)
            self.forgotten(child)
            self._register(run, [])

    def give(self, lease: Lease, tokens: Sequence[int], held: int) -> None:
        """The row has ended: of the `held` tokens in its caches `tokens` are meant, and stored."""
        assert len(tokens) <= held
        run = lease.run
        if run is not None and run.double and not run.children:
            self.remove(run)
            run = None
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
            self.touch(run.path())
        self.shrink_to(self.max_bytes)

    def _stored(self, caches: Caches, tokens: Sequence[int]) -> Run:
        """Stores an unattached row: what the tree does not have of it."""
        count, run = self.match(tokens)
        if run is not None and len(tokens) - count < BLOCK:
            return run
        if run is None or count < BLOCK:
            kv.shrink(caches)
            new = Run(base=0, tokens=list(tokens), caches=caches)
            self._attach(new, None, list(self.chain(tokens)))
            return new
        if run.parent is None and run.end == count and not run.lent:
            # It holds all that the run holds: no copy.
            run.caches = caches
            self._grow(run, tokens)
            kv.shrink(caches)
            return run
        kv.behead(caches, count)
        child = Run(base=count, tokens=list(tokens[count:]), caches=caches)
        self._attach(child, run, list(self.chain(tokens, self.known_hashes(run, count))))
        return child

    def adopt(self, parent: Run | None, base: int, tokens: Sequence[int], caches: Caches, hashes: list[bytes]) -> None:
        """Adds a run that comes from elsewhere and goes on after `base` tokens that end in `parent`."""
        run = Run(base=base, tokens=list(tokens), caches=caches)
        self._attach(run, parent, hashes)
        self.touch(run.path())

    def demote(self, tokens: Sequence[int], count: int) -> None:
        """What is stored of `tokens` beyond the first `count` is a guess: the first to be evicted."""
        found, run = self.match(tokens)
        if run is None or run.lent or found <= count:
            return
        if run.base < count:
            self._split(run, count)
            kv.shrink(run.caches)
            _, run = self.match(tokens)
        if run is not None and run.base >= count:
            run.used = 0

    def drop(self, lease: Lease) -> None:
        """The row's keys and values are not to be trusted: forgets them, and what hangs on them."""
        if lease.run is not None:
            self.remove(lease.run)

    def cut(self, tokens: Sequence[int], count: int) -> None:
        """Of what is stored of `tokens`, only the first `count` were meant."""
        found, run = self.match(tokens)
        if run is None or run.lent or found <= count or run.base > count or run.end > found or run.children:
            return
        if run.base == count:
            self.remove(run)
        else:
            self._end_at(run, count)

    def make_room(self, count: int, path: Sequence[Run]) -> bool:
        """Drops others than `path` for `count` bytes more; False if they do not suffice."""
        return self.shrink_to(self.max_bytes - count, keep=path) <= self.max_bytes - count

    def shrink_to(self, limit: int, keep: Sequence[Run] = ()) -> int:
        """Cuts least recently used leaves back until what is stored takes at most `limit` bytes; returns the bytes."""
        held = self.nbytes
        while held > limit:
            leaves = [run for run in self.nodes() if not run.children and not run.lent and run not in keep]
            if not leaves:
                break
            oldest = min(leaves, key=lambda run: run.used)
            held -= self._cut_back(oldest, held - limit, oldest.base)
        while len(self._evicted) > _REMEMBERED:
            del self._evicted[next(iter(self._evicted))]
        return held

    def _cut_back(self, run: Run, excess: int, floor: int) -> int:
        """Takes `excess` bytes off a run's end, or what it has beyond the first `floor` tokens; returns the bytes.

        Spare buffers go first. Where tokens must go, an eighth of them does at least: what is left is copied.
        """
        held = kv.nbytes(run.caches)
        end = run.base + (held - excess) // kv.token_bytes(run.caches)
        if end < run.end:
            end = max(floor, min(end, run.end - len(run.tokens) // 8) // BLOCK * BLOCK)
            if end - run.base < BLOCK and floor == run.base:
                self._evicted |= dict.fromkeys(run.hashes)
                self.remove(run)
                return held
            self._evicted |= dict.fromkeys(self._end_at(run, end))
        kv.shrink(run.caches, exactly=True)
        return held - kv.nbytes(run.caches)

    def forgotten(self, node: Run) -> None:
        node.caches = []

    def _attach(self, run: Run, parent: Run | None, hashes: list[bytes]) -> None:
        self.attach(run, parent, [])
        self._register(run, hashes)

    def _register(self, run: Run, hashes: list[bytes]) -> None:
        for digest in hashes:
            self._evicted.pop(digest, None)
        self.register(run, hashes)

    def _explain(self, tokens: Sequence[int], count: int, run: Run | None) -> None:
        """Keeps why the lookup ended where it did."""
        self.last_miss = None
        if count >= len(tokens) - 1:
            return
        following = next(self.chain(tokens, self.known_hashes(run, count)), None)
        cached = follower(run, count)
        kind: Literal["evicted", "differs", "unseen"] = "differs" if cached else "unseen"
        if following in self._evicted:
            kind = "evicted"
        self.last_miss = Miss(kind, count, cached[:16], list(tokens[count : count + 16]))
