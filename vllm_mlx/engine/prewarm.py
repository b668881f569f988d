"""Prefilling while nobody waits: prompts that are likely to come, stopped at once by any that has come."""

from collections import deque
from collections.abc import Sequence as Tokens
from typing import Any

from vllm_mlx.engine.prefill import ChunkSizer, prefill
from vllm_mlx.engine.prefix_cache import Lease, PrefixCache
from vllm_mlx.engine.room import Room
from vllm_mlx.engine.tree import BLOCK

_WANTED = 4
"""Prompts that are remembered; the oldest is forgotten first."""


class Prewarmer:
    """Computes the keys and values of prompts in chunks no longer than a running stream would wait."""

    def __init__(self, model: Any, cache: PrefixCache, room: Room, sizer: ChunkSizer) -> None:
        self._model = model
        self._cache = cache
        self._room = room
        self._sizer = sizer
        self._wanted: deque[list[int]] = deque(maxlen=_WANTED)
        self._prompt: list[int] = []
        self._lease: Lease | None = None
        self._done = 0

    @property
    def active(self) -> bool:
        """Whether `step` has something to do."""
        return self._lease is not None or bool(self._wanted)

    def ask(self, prompt: Tokens[int]) -> None:
        """This prompt is likely to come."""
        self._wanted.append(list(prompt))

    def step(self) -> None:
        """One chunk."""
        if self._lease is None and not self._begin():
            return
        assert self._lease is not None
        (size,) = self._sizer.within([(self._done, self._sizer.size(self._sizer.stall))])
        chunk = self._prompt[self._done : self._done + size]
        self._sizer.ran(len(chunk), prefill(self._model, [(self._lease.caches, chunk)]))
        self._done += len(chunk)
        if self._done == len(self._prompt):
            self.stop()

    def _begin(self) -> bool:
        self._prompt = self._wanted.pop()
        have, _ = self._cache.match(self._prompt)
        # It is a guess: nothing that is stored has to give way to it.
        found = have - self._cache.copies(self._prompt)
        missing = self._room.bytes_for(len(self._prompt)) - self._room.per_token * found
        if len(self._prompt) - have < BLOCK or self._cache.nbytes + missing > self._cache.max_bytes:
            return False
        self._lease = self._cache.take(self._prompt)
        self._done = self._lease.length
        return True

    def stop(self) -> None:
        """Keeps what is done, as the first to be evicted."""
        if self._lease is None:
            return
        lease, self._lease = self._lease, None
        self._cache.give(lease, self._prompt[: self._done], self._done)
        self._cache.demote(self._prompt[: self._done], lease.length)

    def abandon(self) -> None:
        """A step failed: what it made is not to be trusted."""
        if self._lease is not None:
            self._cache.drop(self._lease)
            self._lease = None
        self._wanted.clear()

    def clear(self) -> None:
        """A request has come: it goes first, and what was likely is not any more."""
        self.stop()
        self._wanted.clear()
