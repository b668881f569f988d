"""Decoding many rows at once while each row owns its keys and values.

mlx-lm keeps a batch in one padded buffer: joining and leaving copy it, and a short row pays for the longest. Here the
projections and experts of a step are batched, and attention runs row by row over each row's own buffers. For MiniMax's
two architectures; the modules and weights are mlx-lm's, so prefill is mlx-lm's own forward pass, or for several short
prompts one pass over all.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import CacheList, KVCache

_STEP = 64


class RowCache(KVCache):  # type: ignore[misc]
    """One layer's keys and values of one row, (1, heads, capacity, head_dim), in buffers that grow by a 32nd.

    `reserve` is the length in tokens that the buffers get when they must grow: a prompt's length, so that its prefill
    copies nothing.
    """

    keys: mx.array | None
    values: mx.array | None
    offset: int

    def __init__(self) -> None:
        super().__init__()
        self.reserve = 0

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        start, end = self.offset, self.offset + keys.shape[2]
        if self.keys is None or self.values is None:
            capacity = capacity_for(max(end, self.reserve))
            self.keys, self.values = (mx.zeros((*x.shape[:2], capacity, x.shape[3]), x.dtype) for x in (keys, values))
        elif end > self.keys.shape[2]:
            self.grow(max(end, self.reserve))
        self.keys[..., start:end, :] = keys
        self.values[..., start:end, :] = values
        self.offset = end
        return self.keys[..., :end, :], self.values[..., :end, :]

    def grow(self, length: int) -> None:
        """Moves what there is to buffers for `length` tokens and some more."""
        assert self.keys is not None
        assert self.values is not None
        more = capacity_for(length) - self.offset
        self.keys, self.values = (
            mx.concatenate([x[..., : self.offset, :], mx.zeros((*x.shape[:2], more, x.shape[3]), x.dtype)], axis=2)
            for x in (self.keys, self.values)
        )


def capacity_for(length: int) -> int:
    """The tokens that buffers get when they must hold `length`."""
    return -(-(length + length // 32) // _STEP) * _STEP


def own_caches(caches: list[Any]) -> list[Any]:
    """A row's caches with mlx-lm's plain ones replaced by `RowCache`, with what they hold."""

    def own(cache: Any) -> Any:
        if type(cache) is KVCache:
            mine = RowCache()
            mine.keys, mine.values, mine.offset = cache.keys, cache.values, cache.offset
            return mine
        if type(cache) is CacheList:
            return CacheList(*(own(inner) for inner in cache.caches))
        return cache

    return [own(cache) for cache in caches]


Forward = Callable[[mx.array, Sequence[list[Any]]], mx.array]
"""Last tokens (rows,) and each row's caches by layer -> logits (rows, vocabulary)."""


def row_forward(model: Any) -> Forward | None:
    """The row-by-row decode step of a model, or None where there is none for its architecture."""
    if model.model_type == "minimax":
        return lambda tokens, rows: _decode(model, _attend, tokens, rows)
    if model.model_type == "minimax_m3_vl":
        return lambda tokens, rows: _decode(model.language_model, _attend_sparse, tokens, rows)
    return None


def rows_prefill(model: Any) -> Callable[[Sequence[tuple[list[Any], Sequence[int]]]], None] | None:
    """A pass over several rows' caches and the tokens that follow in them, or None for other architectures.

    Attention is mlx-lm's own, row by row; experts take all tokens together. The caller evaluates the caches.
    """
    if model.model_type not in ("minimax", "minimax_m3_vl"):
        return None
    body = (model if model.model_type == "minimax" else model.language_model).model

    def run(parts: Sequence[tuple[list[Any], Sequence[int]]]) -> None:
        lengths = [len(tokens) for _, tokens in parts]
        cuts = list(accumulate(lengths))[:-1]
        masks = [None if length == 1 else "causal" for length in lengths]
        hidden = body.embed_tokens(mx.array([token for _, tokens in parts for token in tokens])[None])
        for index, layer in enumerate(body.layers):
            rows = mx.split(layer.input_layernorm(hidden), cuts, axis=1)
            attended = [
                layer.self_attn(x, mask, caches[index]) for x, mask, (caches, _) in zip(rows, masks, parts, strict=True)
            ]
            hidden = hidden + mx.concatenate(attended, axis=1)
            hidden = hidden + _experts(layer)(layer.post_attention_layernorm(hidden))

    return run


def _experts(layer: Any) -> Any:
    return layer.block_sparse_moe if "block_sparse_moe" in layer else layer.mlp


def _decode(head: Any, attend: Callable[..., mx.array], tokens: mx.array, rows: Sequence[list[Any]]) -> mx.array:
    body = head.model
    hidden = body.embed_tokens(tokens[:, None])
    first = [row[0] for row in rows]
    offsets = mx.array([(c[0] if isinstance(c, CacheList) else c).offset for c in first])
    for index, layer in enumerate(body.layers):
        caches = [row[index] for row in rows]
        hidden = hidden + attend(layer.self_attn, layer.input_layernorm(hidden), caches, offsets)
        hidden = hidden + _experts(layer)(layer.post_attention_layernorm(hidden))
    hidden = body.norm(hidden)
    logits = body.embed_tokens.as_linear(hidden) if head.args.tie_word_embeddings else head.lm_head(hidden)
    row_logits: mx.array = logits[:, 0]
    return row_logits


def _attend(attn: Any, x: mx.array, caches: list[Any], offsets: mx.array) -> mx.array:
    """M2's attention of one new token a row; `x` is (rows, 1, hidden)."""
    rows = x.shape[0]
    queries, keys, values = attn.q_proj(x), attn.k_proj(x), attn.v_proj(x)
    if attn.use_qk_norm:
        queries, keys = attn.q_norm(queries), attn.k_norm(keys)
    queries = queries.reshape(rows, attn.num_attention_heads, 1, -1)
    keys = keys.reshape(rows, attn.num_key_value_heads, 1, -1)
    queries, keys = _rope(attn.rope, queries, keys, offsets)
    values = values.reshape(rows, attn.num_key_value_heads, 1, -1)
    outputs = []
    for cache, q, k, v in zip(caches, *_by_row(queries, keys, values), strict=True):
        k, v = cache.update_and_fetch(k, v)
        outputs.append(mx.fast.scaled_dot_product_attention(q, k, v, scale=attn.scale))
    output: mx.array = attn.o_proj(_joined(outputs).reshape(rows, 1, -1))
    return output


def _attend_sparse(attn: Any, x: mx.array, caches: list[Any], offsets: mx.array) -> mx.array:
    """M3's attention of one new token a row: sparse layers look at the best blocks of keys only."""
    rows = x.shape[0]
    queries = attn.q_proj(x).reshape(rows, attn.num_attention_heads, 1, attn.head_dim)
    keys = attn.k_proj(x).reshape(rows, attn.num_key_value_heads, 1, attn.head_dim)
    values = attn.v_proj(x).reshape(rows, attn.num_key_value_heads, 1, attn.head_dim)
    if attn.use_qk_norm:
        queries, keys = attn.q_norm(queries), attn.k_norm(keys)
    queries, keys = _rope(attn.rope, queries, keys, offsets)
    masks = _block_masks(attn, x, caches, offsets) if attn.is_sparse_attn else [None] * rows
    outputs = []
    for cache, mask, q, k, v in zip(caches, masks, *_by_row(queries, keys, values), strict=True):
        k, v = cache[0].update_and_fetch(k, v)
        if attn.is_sparse_attn:
            # Below the block budget nothing reads the index keys: keep their updates in the graph.
            cache[0].keys = mx.depends(cache[0].keys, [cache[1].keys, cache[1].values])
        outputs.append(mx.fast.scaled_dot_product_attention(q, k, v, scale=attn.scale, mask=mask))
    output: mx.array = attn.o_proj(_joined(outputs).reshape(rows, 1, -1))
    return output


def _block_masks(attn: Any, x: mx.array, caches: list[Any], offsets: mx.array) -> list[mx.array | None]:
    """Stores the new index keys; which keys each row's query may look at, (1, heads, 1, length), None for all."""
    rows, heads, dim = x.shape[0], attn.index_n_heads, attn.index_head_dim
    keys = attn.index_k_norm(attn.index_k_proj(x).reshape(rows, 1, 1, dim))
    queries = attn.index_q_norm(attn.index_q_proj(x).reshape(rows, heads, 1, dim))
    queries, keys = _rope(attn.index_rope, queries, keys, offsets)
    masks = []
    for cache, q, k in zip(caches, *_by_row(queries, keys), strict=True):
        k, _ = cache[1].update_and_fetch(k, mx.zeros((1, 1, 1, 0), k.dtype))
        masks.append(_block_mask(attn, q, k))
    return masks


def _block_mask(attn: Any, query: mx.array, keys: mx.array) -> mx.array | None:
    heads, size, top = attn.index_n_heads, attn.index_block_size, attn.index_topk_blocks
    length = keys.shape[2]
    blocks = -(-length // size)
    if top >= blocks:
        return None
    scores = query.astype(mx.float32) @ keys.astype(mx.float32).swapaxes(-1, -2)
    padding = mx.full((1, heads, 1, blocks * size - length), -mx.inf)
    scores = mx.concatenate([scores, padding], axis=-1).reshape(1, heads, 1, blocks, size).max(axis=-1)
    if attn.index_local_blocks > 0:
        local = mx.arange(blocks) > (length - 1) // size - attn.index_local_blocks
        scores = mx.where(local, mx.inf, scores)
    best = mx.argpartition(-scores, kth=top - 1, axis=-1)[..., :top]
    keep = mx.put_along_axis(mx.zeros(scores.shape, mx.bool_), best, mx.array(True), axis=-1)
    keep = mx.repeat(keep, size, axis=-1)[..., :length]
    return mx.repeat(keep, attn.num_attention_heads // heads, axis=1)


def _rope(rope: Any, queries: mx.array, keys: mx.array, offsets: mx.array) -> tuple[mx.array, mx.array]:
    """Rotary positions for both at once: on the CPU a rotation is thirty operations."""
    both = rope(mx.concatenate([queries, keys], axis=1), offset=offsets)
    queries, keys = mx.split(both, [queries.shape[1]], axis=1)
    return queries, keys


def _by_row(*arrays: mx.array) -> list[list[mx.array]]:
    rows = arrays[0].shape[0]
    return [[array] if rows == 1 else list(mx.split(array, rows)) for array in arrays]


def _joined(outputs: list[mx.array]) -> mx.array:
    return outputs[0] if len(outputs) == 1 else mx.concatenate(outputs)
