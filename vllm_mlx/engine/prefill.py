"""Prompts into keys and values, a chunk at a time, and how large a chunk may be."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

_FIRST = 64
_SMALLEST = 16


@dataclass(slots=True)
class ChunkSizer:
    """Sizes chunks so that one takes at most `stall` seconds while other rows wait for their next token."""

    step_size: int
    stall: float
    _rate: float | None = None
    """Tokens a second of the recent chunks."""

    def size(self, remaining: int, *, seconds: float | None) -> int:
        """Tokens of the next chunk: at most what `seconds` allow (None: nobody waits)."""
        if seconds is None:
            return min(remaining, self.step_size)
        fitting = _FIRST if self._rate is None else int(self._rate * seconds)
        return min(remaining, self.step_size, max(_SMALLEST, fitting))

    def ran(self, tokens: int, seconds: float) -> None:
        """Learns from a chunk. A short one says little about the rate: it counts by its length."""
        rate = tokens / max(seconds, 1e-6)
        weight = min(1.0, tokens / 128)
        self._rate = rate if self._rate is None else self._rate + weight / 2 * (rate - self._rate)


def prefill(model: Any, caches: list[Any], tokens: Sequence[int]) -> float:
    """Computes the keys and values of `tokens`, which follow what is in `caches`; returns the seconds that it took."""
    started = time.perf_counter()
    model(mx.array(list(tokens))[None], cache=caches)
    mx.eval([cache.state for cache in caches])
    return time.perf_counter() - started
