"""Who holds how many bytes of keys and values, and that together they stay below the limit."""

from collections.abc import Iterable
from dataclasses import dataclass

from vllm_mlx.engine import kv
from vllm_mlx.engine.attention import capacity_for
from vllm_mlx.engine.decode import Row
from vllm_mlx.engine.prefix_cache import PrefixCache
from vllm_mlx.engine.snapshots import SnapshotCache

Cache = PrefixCache | SnapshotCache


@dataclass(slots=True)
class Room:
    """`limit` bytes for running rows and stored ones; a token takes `per_token`. The cache gives way to rows."""

    limit: int
    per_token: int
    cache: Cache | None

    def longest(self) -> int:
        """The longest sequence, in tokens, that fits alone."""
        tokens = self.limit // self.per_token
        while tokens > 0 and self.bytes_for(tokens) > self.limit:
            tokens -= max(1, tokens // 64)
        return tokens

    def bytes_for(self, tokens: int) -> int:
        return self.per_token * capacity_for(tokens)

    def held(self, row: Row) -> int:
        """Bytes that a row has, or will have once its buffers are made."""
        return max(self.bytes_for(row.reserved), kv.nbytes(row.caches))

    def fits(self, rows: Iterable[Row], tokens: int, instead_of: Row | None = None) -> bool:
        """Whether a row of so many tokens fits beside the others (without `instead_of`), were the cache empty."""
        live = sum(self.held(row) for row in rows if row is not instead_of)
        return live + self.bytes_for(tokens) <= self.limit

    def settle(self, rows: Iterable[Row]) -> None:
        """Leaves to the cache what the rows do not hold."""
        if self.cache is not None:
            self.cache.max_bytes = self.limit - sum(self.held(row) for row in rows)
            self.cache.shrink_to(self.cache.max_bytes)
