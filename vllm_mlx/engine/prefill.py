"""Prompts into keys and values, a chunk at a time, and how large a chunk may be."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from vllm_mlx.engine.attention import rows_prefill

_FIRST = 64
_SMALLEST = 16
_SHARE = 0.9
"""Of the time that there is, since the next chunk is a little slower than the last."""


@dataclass(slots=True)
class ChunkSizer:
    """Sizes chunks so that one takes at most `stall` seconds while other rows wait for their next token.

    A pass has at most `chunk_pairs` pairs of a query and a key (None: any number), which bounds the masks that sparse
    attention makes.
    """

    step_size: int
    stall: float
    chunk_pairs: int | None = None
    _rate: float | None = None
    """Tokens a second of the recent chunks."""

    def size(self, seconds: float | None) -> int:
        """Tokens of the next chunk: at most what `seconds` allow (None: nobody waits)."""
        if seconds is None:
            return self.step_size
        fitting = _FIRST if self._rate is None else int(self._rate * _SHARE * seconds)
        return min(self.step_size, max(_SMALLEST, fitting))

    def within(self, parts: Sequence[tuple[int, int]]) -> list[int]:
        """How many tokens each part, (tokens before it, its own), may have in one pass.

        The first gets one at least and may be cut short; those after it that do not fit as they are must wait.
        """
        if self.chunk_pairs is None:
            return [count for _, count in parts]
        left, counts = self.chunk_pairs, list[int]()
        for before, count in parts:
            # The most tokens n with n * (before + n) <= left.
            most = (math.isqrt(before * before + 4 * left) - before) // 2
            if counts and most < count:
                break
            counts.append(min(count, max(1, most)))
            left = max(0, left - counts[-1] * (before + counts[-1]))
            if counts[-1] < count:
                break
        return counts

    def ran(self, tokens: int, seconds: float) -> None:
        """Learns from a chunk. One much shorter than a stall says little about the rate: it counts by its length.

        A slower one counts twice: every next chunk of a prompt has more keys to look at.
        """
        rate = tokens / max(seconds, 1e-6)
        if self._rate is None:
            self._rate = rate
        else:
            weight = min(1.0, tokens / max(_SMALLEST, self._rate * self.stall / 4))
            self._rate += (weight if rate < self._rate else weight / 2) * (rate - self._rate)


Part = tuple[list[Any], Sequence[int]]
"""A row's caches, and the tokens that follow what is in them."""


def prefill(model: Any, parts: Sequence[Part]) -> float:
    """Computes the keys and values of all parts, in one pass where the model can; the seconds that it took."""
    started = time.perf_counter()
    together = rows_prefill(model) if len(parts) > 1 else None
    if together is not None:
        together(parts)
    else:
        for caches, tokens in parts:
            model(mx.array(list(tokens))[None], cache=caches)
    mx.eval([cache.state for caches, _ in parts for cache in caches])
    return time.perf_counter() - started
