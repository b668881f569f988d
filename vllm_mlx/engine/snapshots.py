"""The prefix cache of models whose caches cannot be cut (sliding windows, state spaces): whole rows or nothing."""

from collections.abc import Callable, Sequence

from vllm_mlx.engine import kv
from vllm_mlx.engine.kv import Caches
from vllm_mlx.engine.prefix_cache import Lease
from vllm_mlx.engine.protocol import Miss
from vllm_mlx.engine.tree import BLOCK


class SnapshotCache:
    """Ended rows as they are. A row is of use to a prompt that begins with all of its tokens."""

    def __init__(self, make: Callable[[], Caches], *, max_bytes: int) -> None:
        self._make = make
        self.max_bytes = max_bytes
        self._stored: list[tuple[list[int], Caches]] = []
        """Least recently used first."""
        self.last_miss: Miss | None = None

    @property
    def nbytes(self) -> int:
        return sum(kv.nbytes(caches) for _, caches in self._stored)

    def take(self, tokens: Sequence[int]) -> Lease:
        """The longest snapshot that is a true beginning of `tokens`, moved out; else empty caches."""
        fitting = [e for e in self._stored if len(e[0]) < len(tokens) and e[0] == list(tokens[: len(e[0])])]
        if not fitting:
            self.last_miss = Miss("unseen", 0, [], list(tokens[:16]))
            return Lease(self._make(), 0)
        entry = max(fitting, key=lambda e: len(e[0]))
        self._stored.remove(entry)
        self.last_miss = None
        return Lease(entry[1], len(entry[0]))

    def share(self, lease: Lease, tokens: Sequence[int]) -> None:
        """A running row cannot be copied from: its state moves on."""

    def give(self, lease: Lease, tokens: Sequence[int], held: int) -> None:
        """Keeps an ended row, if the `held` tokens of its caches are all meant."""
        if len(tokens) >= BLOCK and len(tokens) == held:
            self._stored.append((list(tokens), lease.caches))
        self.shrink_to(self.max_bytes)

    def drop(self, lease: Lease) -> None:
        """A row that was taken is not here any more: nothing to forget."""

    def cut(self, tokens: Sequence[int], count: int) -> None:
        """What ran on cannot be cut off: the snapshot is of no use."""
        self._stored = [entry for entry in self._stored if entry[0] != list(tokens) or len(tokens) == count]

    def shrink_to(self, limit: int) -> int:
        held = self.nbytes
        while held > limit and self._stored:
            held -= kv.nbytes(self._stored.pop(0)[1])
        return held
