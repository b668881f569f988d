"""The decode batch: rows join and leave between steps; a step is launched before the one before it is read."""

from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx

from vllm_mlx.engine.attention import Forward, own_caches, row_forward
from vllm_mlx.engine.prefix_cache import Lease
from vllm_mlx.engine.protocol import TokenLogprobs
from vllm_mlx.engine.sampling import Choice, Draw, Drawn, Sampler
from vllm_mlx.engine.scheduler import Sequence


@dataclass(slots=True, eq=False)
class Row:
    """A sequence with its keys and values, leased from the prefix cache, and how its tokens are chosen."""

    sequence: Sequence
    lease: Lease
    choice: Choice
    reserved: int = 0
    """Tokens that there are, or will be, buffers for."""

    @property
    def caches(self) -> list[Any]:
        """One a layer. A padded batch empties the list while it holds the row."""
        return self.lease.caches


class Batch(Protocol):
    """Runs the model over the last tokens of many rows."""

    def join(self, row: Row) -> None: ...

    def leave(self, index: int) -> None:
        """Takes a row out and leaves its keys and values in `row.caches`."""
        ...

    def forward(self, tokens: mx.array) -> mx.array:
        """Last tokens (rows,) -> logits (rows, vocabulary)."""
        ...


class RowBatch:
    """Each row owns its buffers: nothing is copied or padded."""

    def __init__(self, forward: Forward) -> None:
        self._forward = forward
        self._rows: list[list[Any]] = []

    def join(self, row: Row) -> None:
        self._rows.append(row.caches)

    def leave(self, index: int) -> None:
        del self._rows[index]

    def forward(self, tokens: mx.array) -> mx.array:
        return self._forward(tokens, self._rows)


class PaddedBatch:
    """mlx-lm's own batching, for architectures without a row-by-row step: rows are padded to the longest."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._rows: list[Row] = []
        self._caches: list[Any] = []

    def join(self, row: Row) -> None:
        merged = [cache.merge([cache]) for cache in row.caches]
        if self._rows:
            for mine, new in zip(self._caches, merged, strict=True):
                mine.extend(new)
        else:
            self._caches = merged
        self._rows.append(row)
        row.caches.clear()

    def leave(self, index: int) -> None:
        row = self._rows.pop(index)
        row.caches[:] = own_caches([cache.extract(index) for cache in self._caches])
        # An extracted cache is a view of the whole batch until it is evaluated.
        mx.eval([cache.state for cache in row.caches])
        keep = [i for i in range(len(self._rows) + 1) if i != index]
        for cache in self._caches if keep else ():
            cache.filter(keep)

    def forward(self, tokens: mx.array) -> mx.array:
        logits: mx.array = self._model(tokens[:, None], cache=self._caches)[:, -1]
        return logits


@dataclass(frozen=True, slots=True)
class Read:
    """One token of one row."""

    row: Row
    token: int
    logprobs: TokenLogprobs | None


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """A launched step. The next one can be launched before this one is read."""

    rows: list[Row]
    drawn: Drawn

    def read(self) -> list[Read]:
        """Waits for the step's tokens."""
        tokens: Any = self.drawn.tokens.tolist()
        logprobs = self.drawn.logprobs()
        return [Read(row, tokens[i], logprobs.get(i)) for i, row in enumerate(self.rows)]


class Decoder:
    """Steps of the batch. At most one is in flight: launched and not read."""

    def __init__(self, model: Any, vocab_size: int) -> None:
        forward = row_forward(model)
        self._batch: Batch = RowBatch(forward) if forward else PaddedBatch(model)
        self._sampler = Sampler(vocab_size)
        self._tokens: mx.array | None = None
        self._logits: mx.array | None = None
        self._flight: Flight | None = None
        self.rows: list[Row] = []
        self._steps = 0

    def join(self, row: Row) -> None:
        """Adds a row whose tokens but the last are in its caches."""
        last = mx.array([row.sequence.tokens[-1]], mx.int32)
        self._tokens = last if self._tokens is None else mx.concatenate([self._tokens, last])
        self._batch.join(row)
        self._sampler.join(row.choice)
        self.rows.append(row)

    def leave(self, row: Row) -> None:
        """Takes a row out of the steps to come; what is in flight of it can still be read."""
        index = self.rows.index(row)
        del self.rows[index]
        self._batch.leave(index)
        self._sampler.leave(index)
        keep = [i for i in range(len(self.rows) + 1) if i != index]
        self._tokens = self._tokens[mx.array(keep)] if self._tokens is not None and keep else None
        self._logits = self._logits[mx.array(keep)] if self._logits is not None and keep else None

    def forward(self) -> None:
        """Starts a step of all rows; rows may leave before `draw` ends it."""
        assert self._tokens is not None
        self._logits = self._batch.forward(self._tokens)

    def start(self) -> None:
        """Sets the device to work on `forward`, for when there is something to do before `draw`."""
        mx.async_eval(self._logits)  # type: ignore[no-untyped-call]

    def draw(self, draws: Ordered[Draw]) -> None:
        """Chooses the next tokens; `draws` are in the order of `rows`."""
        assert self._flight is None
        assert self._tokens is not None
        assert self._logits is not None
        logits, self._logits = self._logits, None
        drawn = self._sampler.draw(logits, self._tokens, draws)
        self._tokens = drawn.tokens
        mx.async_eval(*drawn.arrays)  # type: ignore[no-untyped-call]
        self._flight = Flight(list(self.rows), drawn)
        self._steps += 1
        if self._steps % 512 == 0:
            mx.clear_cache()

    def take(self) -> Flight | None:
        """The step in flight, to be read now or after the next launch."""
        flight, self._flight = self._flight, None
        return flight
