"""Cutting, copying and joining the keys and values of rows: lists of caches, one a layer.

Every operation goes layer by layer and evaluates each: beside what it makes it needs one layer's bytes at most.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import CacheList

from vllm_mlx.engine.attention import RowCache
from vllm_mlx.engine.segments import Blob

Caches = list[Any]


def cuttable(caches: Caches) -> bool:
    """Whether any beginning of the row can be had from these caches: plain keys and values only."""
    return all(
        type(c) is RowCache or (type(c) is CacheList and all(type(inner) is RowCache for inner in c.caches))
        for c in caches
    )


def nbytes(caches: Caches) -> int:
    """Bytes held, spare capacity included."""
    return sum(int(cache.nbytes) for cache in caches if not cache.empty())


def length(caches: Caches) -> int:
    """Tokens held by cuttable caches."""
    return next(_leaves(caches)).offset


def token_bytes(caches: Caches) -> int:
    """Bytes that a token takes in cuttable caches that hold something."""
    return sum(
        array.nbytes // array.shape[2]
        for leaf in _leaves(caches)
        for array in (leaf.keys, leaf.values)
        if array is not None
    )


def capacity(caches: Caches) -> int:
    """Tokens that there are buffers for; 0 where there are none yet."""
    keys = next(_leaves(caches)).keys
    return 0 if keys is None else keys.shape[2]


def trim(caches: Caches, count: int) -> None:
    """Forgets all but the first `count` tokens; the buffers stay."""
    for leaf in _leaves(caches):
        assert count <= leaf.offset
        leaf.offset = count


def restored(caches: Caches, count: int) -> bool:
    """Goes back to the first `count` tokens in caches that a failed step left in disorder; False: they are lost."""
    leaves = list(_leaves(caches))
    if not leaves or any(leaf.offset < count for leaf in leaves):
        return False
    try:
        mx.eval([(leaf.keys, leaf.values) for leaf in leaves])
    except (RuntimeError, ValueError):
        return False
    trim(caches, count)
    return True


def piece(caches: Caches, start: int, end: int) -> Caches:
    """A copy of tokens start to end."""

    def cut(leaf: RowCache) -> RowCache:
        assert leaf.keys is not None
        assert leaf.values is not None
        assert end <= leaf.offset
        part = RowCache()
        part.keys, part.values = (mx.contiguous(x[..., start:end, :]) for x in (leaf.keys, leaf.values))
        part.offset = end - start
        mx.eval(part.keys, part.values)
        return part

    return _mapped(caches, cut)


def behead(caches: Caches, count: int) -> None:
    """Forgets the first `count` tokens, and gives their buffers and spare ones back."""
    for leaf in _leaves(caches):
        assert leaf.keys is not None
        assert leaf.values is not None
        leaf.keys, leaf.values = (mx.contiguous(x[..., count : leaf.offset, :]) for x in (leaf.keys, leaf.values))
        leaf.offset -= count
        mx.eval(leaf.keys, leaf.values)


def join(caches: Caches, parts: Sequence[tuple[Caches, int]]) -> None:
    """Appends the first tokens, so many, of each part. The parts are used up: their buffers go layer by layer."""
    total = length(caches) + sum(count for _, count in parts)
    for leaf, *rest in zip(_leaves(caches), *(_leaves(part) for part, _ in parts), strict=True):
        leaf.reserve = total
        for more, (_, count) in zip(rest, parts, strict=True):
            assert more.keys is not None
            assert more.values is not None
            leaf.update_and_fetch(more.keys[..., :count, :], more.values[..., :count, :])
            more.keys = more.values = None
        mx.eval(leaf.keys, leaf.values)


def extend(caches: Caches, part: Caches, count: int) -> None:
    """Appends the first `count` tokens of `part`."""
    for leaf, more in zip(_leaves(caches), _leaves(part), strict=True):
        assert more.keys is not None
        assert more.values is not None
        leaf.update_and_fetch(more.keys[..., :count, :], more.values[..., :count, :])
        mx.eval(leaf.keys, leaf.values)


def reserve(caches: Caches, count: int) -> None:
    """Grows the buffers at once for `count` tokens in all, where there are buffers; else when the first token comes."""
    for leaf in _leaves(caches):
        leaf.reserve = count
        if leaf.keys is not None and leaf.keys.shape[2] < count:
            leaf.grow(count)
            mx.eval(leaf.keys, leaf.values)


def shrink(caches: Caches, *, exactly: bool = False) -> None:
    """Gives back spare capacity: where it is more than a 16th, or `exactly` all."""
    for leaf in _leaves(caches):
        spare = 0 if exactly else leaf.offset // 16 + 64
        if leaf.keys is None or leaf.values is None or leaf.keys.shape[2] <= leaf.offset + spare:
            continue
        leaf.keys, leaf.values = (mx.contiguous(x[..., : leaf.offset, :]) for x in (leaf.keys, leaf.values))
        mx.eval(leaf.keys, leaf.values)


def blobs(caches: Caches) -> list[Blob]:
    """The arrays of caches that hold something, as bytes that may be read from any thread."""
    result = []
    for leaf in _leaves(caches):
        for array in (leaf.keys, leaf.values):
            assert array is not None
            data = memoryview(b"")
            if array.size:
                raw = mx.contiguous(array).view(mx.uint8)
                mx.eval(raw)
                data = memoryview(raw).cast("B")  # type: ignore[arg-type]
            result.append(Blob(str(array.dtype).removeprefix("mlx.core."), array.shape, data))
    return result


def from_blobs(caches: Caches, given: list[Blob]) -> Caches:
    """Fills empty caches with what `blobs` made."""
    arrays = iter(given)
    for leaf in _leaves(caches):
        leaf.keys, leaf.values = _array(next(arrays)), _array(next(arrays))
        leaf.offset = leaf.keys.shape[2]
        mx.eval(leaf.keys, leaf.values)
    return caches


def _array(blob: Blob) -> mx.array:
    kind: mx.Dtype = getattr(mx, blob.dtype)
    if not blob.data.nbytes:
        return mx.zeros(blob.shape, kind)
    return mx.array(np.frombuffer(blob.data, np.uint8)).view(kind).reshape(blob.shape)


def _leaves(caches: Caches) -> Iterator[RowCache]:
    for cache in caches:
        if isinstance(cache, CacheList):
            yield from cache.caches
        else:
            yield cache


def _mapped(caches: Caches, change: Callable[[RowCache], RowCache]) -> Caches:
    return [
        CacheList(*(change(inner) for inner in cache.caches)) if isinstance(cache, CacheList) else change(cache)
        for cache in caches
    ]
