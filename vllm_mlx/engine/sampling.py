"""Draws the next token of every row at once, each by its own settings.

Rows fall into groups, each one vectorised: greedy; those whose `top_k` bounds the choice (the k best are found first
and everything else happens on k values); the rest, over the whole vocabulary, sorted where `top_p` needs it. Settings
apply in the order penalties, bias, temperature, min_p, top_k, top_p. The randomness of a row depends on its seed and
the token's position alone, so a seed gives the same tokens in any batch.
"""

import hashlib
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from vllm_mlx.engine.protocol import Sampling, TokenLogprobs

_BLOCK = 64
NOT_A_NUMBER = -1
"""What is drawn where the logits of a row are not finite."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """How one row chooses: its settings, and for its penalties the row's tokens (live: prompt, then what was read)."""

    sampling: Sampling
    seed: int
    tokens: Sequence[int]
    prompt_length: int
    logprobs: int | None = None

    @property
    def penalised(self) -> bool:
        s = self.sampling
        return s.repetition_penalty != 1 or s.presence_penalty != 0 or s.frequency_penalty != 0


@dataclass(frozen=True, slots=True)
class Draw:
    """What is particular about one row's draw now: its place in the output, a forced id, ids that may not be drawn."""

    position: int
    forced: int | None = None
    banned: Sequence[int] = ()
    mask: mx.array | None = None
    """Added to the logits, (vocabulary,) of float32: 0 for an id that may be drawn at all, else -inf."""


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Tokens (rows,), not evaluated yet, and for each row that asked for them its log-probabilities."""

    tokens: mx.array
    chosen: mx.array | None
    top_ids: mx.array | None
    top_values: mx.array | None
    asked: dict[int, int]

    @property
    def arrays(self) -> list[mx.array]:
        arrays = (self.tokens, self.chosen, self.top_ids, self.top_values)
        return [array for array in arrays if array is not None]

    def logprobs(self) -> dict[int, TokenLogprobs]:
        """By row; evaluates."""
        if self.chosen is None or self.top_ids is None or self.top_values is None:
            return {}
        arrays: Any = (self.chosen.tolist(), self.top_ids.tolist(), self.top_values.tolist())
        chosen, ids, values = arrays
        return {
            row: TokenLogprobs(chosen[i], list(zip(ids[i], values[i], strict=True))[:count])
            for i, (row, count) in enumerate(self.asked.items())
        }


def seed_of(sampling: Sampling, default: int | None) -> int:
    """The row's seed: its own, the default, or a fresh one."""
    if sampling.seed is not None:
        return sampling.seed
    return random.getrandbits(63) if default is None else default


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on these two alone."""
    digest = hashlib.blake2b(struct.pack("<qq", seed & (2**63 - 1), position), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) / 2**53


def best(logits: mx.array, k: int) -> tuple[mx.array, mx.array]:
    """The k largest values of each row, best first, and their ids: two arrays (rows, k).

    A large vocabulary is searched by blocks: the k best values lie in the k blocks with the largest maxima.
    """
    rows, size = logits.shape
    if k >= size:
        ids = mx.argsort(-logits, axis=-1)
        return mx.take_along_axis(logits, ids, axis=-1), ids
    if size % _BLOCK or size < 4 * k * _BLOCK:
        ids = mx.argpartition(-logits, kth=k - 1, axis=-1)[:, :k]
        values = mx.take_along_axis(logits, ids, axis=-1)
    else:
        blocks = logits.reshape(rows, size // _BLOCK, _BLOCK)
        winners = mx.argpartition(-blocks.max(axis=-1), kth=k - 1, axis=-1)[:, :k]
        candidates = mx.take_along_axis(blocks, winners[:, :, None], axis=1).reshape(rows, k * _BLOCK)
        inner = mx.argpartition(-candidates, kth=k - 1, axis=-1)[:, :k]
        values = mx.take_along_axis(candidates, inner, axis=-1)
        ids = mx.take_along_axis(winners, inner // _BLOCK, axis=-1) * _BLOCK + inner % _BLOCK
    order = mx.argsort(-values, axis=-1)
    return mx.take_along_axis(values, order, axis=-1), mx.take_along_axis(ids, order, axis=-1)


class Sampler:
    """The choices of a batch's rows, in the batch's order."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab = vocab_size
        self._choices: list[Choice] = []
        self._rebuild()

    def join(self, choice: Choice) -> None:
        self._choices.append(choice)
        self._rebuild()

    def leave(self, row: int) -> None:
        del self._choices[row]
        self._rebuild()

    def _rebuild(self) -> None:
        """Settings as vectors: made anew when the batch changes, not at every step."""
        choices = list(enumerate(self._choices))
        warm = [(i, c) for i, c in choices if c.sampling.temperature > 0]
        self._greedy = [i for i, c in choices if c.sampling.temperature <= 0]
        # A row must be drawn the same way whoever is beside it, so what differs in method is a group of its own.
        narrow = [(i, c) for i, c in warm if 0 < c.sampling.top_k < self._vocab]
        wide = [(i, c) for i, c in warm if not 0 < c.sampling.top_k < self._vocab]
        nucleus = [(i, c) for i, c in wide if c.sampling.top_p < 1]
        plain = [(i, c) for i, c in wide if c.sampling.top_p >= 1]
        self._groups = [_Group(members, self._vocab) for members in (narrow, nucleus, plain) if members]
        order = self._greedy + [row for group in self._groups for row in group.rows]
        self._inverse = None if order == sorted(order) else mx.array([order.index(i) for i in range(len(order))])
        self._penalties = _Penalties([(i, c) for i, c in choices if c.penalised], self._vocab)
        biases = [(i, token, b) for i, c in choices for token, b in c.sampling.logit_bias.items()]
        self._bias = _columns(biases) if biases else None
        self._asked = {i: c.logprobs for i, c in choices if c.logprobs is not None}

    def draw(self, logits: mx.array, inputs: mx.array, draws: Sequence[Draw]) -> Drawn:
        """The next tokens, from logits (rows, vocabulary); `inputs` (rows,) are the tokens that led to them."""
        raw = logits
        logits = self._penalties.apply(logits, inputs, draws)
        if self._bias is not None:
            rows, ids, values = self._bias
            logits = logits.at[rows, ids].add(values.astype(logits.dtype))
        logits = _restricted(logits, draws)
        tokens = self._sampled(logits, draws)
        chosen = mx.take_along_axis(logits, tokens[:, None], axis=-1)[:, 0]
        tokens = mx.where(mx.isfinite(chosen), tokens, NOT_A_NUMBER)
        if any(draw.forced is not None for draw in draws):
            forced = mx.array([-1 if draw.forced is None else draw.forced for draw in draws])
            tokens = mx.where(forced >= 0, forced, tokens)
        return self._with_logprobs(tokens, raw)

    def _sampled(self, logits: mx.array, draws: Sequence[Draw]) -> mx.array:
        uniforms = [uniform(c.seed, d.position) for c, d in zip(self._choices, draws, strict=True)]
        parts = []
        if self._greedy:
            whole = len(self._greedy) == len(draws)
            parts.append(mx.argmax(logits if whole else logits[mx.array(self._greedy)], axis=-1).astype(mx.int32))
        parts += [group.draw(logits, uniforms) for group in self._groups]
        tokens = parts[0] if len(parts) == 1 else mx.concatenate(parts)
        return tokens if self._inverse is None else tokens[self._inverse]

    def _with_logprobs(self, tokens: mx.array, logits: mx.array) -> Drawn:
        if not self._asked:
            return Drawn(tokens, None, None, None, {})
        rows = mx.array(list(self._asked))
        logits = logits[rows].astype(mx.float32)
        logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
        chosen = mx.take_along_axis(logprobs, mx.maximum(tokens[rows], 0)[:, None], axis=-1)[:, 0]
        values, ids = best(logprobs, max(1, *self._asked.values()))
        return Drawn(tokens, chosen, ids, values, self._asked)


class _Group:
    """Rows that are drawn together: over their k best ids (all have a `top_k`), or over the vocabulary."""

    def __init__(self, members: Sequence[tuple[int, Choice]], vocab: int) -> None:
        self.rows = [row for row, _ in members]
        settings = [choice.sampling for _, choice in members]
        self._index = mx.array(self.rows)
        ks = [s.top_k if 0 < s.top_k < vocab else vocab for s in settings]
        self._k = max(ks)
        self._same_k = all(k == self._k for k in ks)
        self._ks = mx.array(ks)[:, None]
        self._temperature = mx.array([s.temperature for s in settings])[:, None]
        self._top_p = mx.array([s.top_p for s in settings])[:, None]
        # log(min_p), far below everything where it is off.
        self._min_p = mx.log(mx.maximum(mx.array([s.min_p for s in settings]), 1e-30))[:, None]
        self._sorted = self._k < vocab or any(s.top_p < 1 for s in settings)

    def draw(self, logits: mx.array, uniforms: Sequence[float]) -> mx.array:
        """Tokens (group,) by inverting the cumulated probabilities at each row's random number."""
        if len(self.rows) < logits.shape[0]:
            logits = logits[self._index]
        logits = logits.astype(mx.float32)
        if self._sorted:
            values, ids = best(logits, self._k)
        else:
            values, ids = logits, None
        values = (values - values.max(axis=-1, keepdims=True)) / self._temperature
        keep = values >= self._min_p
        if not self._same_k:
            keep &= mx.arange(self._k) < self._ks
        weights = mx.where(keep, mx.exp(values), 0)
        if self._sorted:
            before = mx.cumsum(weights, axis=-1, inclusive=False)
            weights = mx.where(before < self._top_p * weights.sum(axis=-1, keepdims=True), weights, 0)
        mass = mx.cumsum(weights, axis=-1)
        target = mx.array([uniforms[row] for row in self.rows])[:, None] * mass[:, -1:]
        # The first id whose cumulated mass passes the target; it has weight, since the mass rises there.
        place = mx.minimum((mass <= target).sum(axis=-1), mx.argmax(mass, axis=-1))
        if ids is None:
            return place.astype(mx.int32)
        return mx.take_along_axis(ids, place[:, None], axis=-1)[:, 0].astype(mx.int32)


class _Penalties:
    """What penalised rows have written, counted on the device: (rows, vocabulary).

    A step may be launched before its input token was read, so counts are kept here and not read off the tokens:
    `_counted` says how much of each row's output they hold.
    """

    def __init__(self, members: Sequence[tuple[int, Choice]], vocab: int) -> None:
        self._rows = [row for row, _ in members]
        if not members:
            return
        choices = [choice for _, choice in members]
        self._index = mx.array(self._rows)
        self._prompted = mx.stack([_counts(choice.tokens[: choice.prompt_length], vocab) for choice in choices]) > 0
        self._output = mx.stack([_counts(choice.tokens[choice.prompt_length :], vocab) for choice in choices])
        self._counted = [len(choice.tokens) - choice.prompt_length for choice in choices]
        settings = [choice.sampling for choice in choices]
        self._repetition = mx.array([s.repetition_penalty for s in settings])[:, None]
        self._presence = mx.array([s.presence_penalty for s in settings])[:, None]
        self._frequency = mx.array([s.frequency_penalty for s in settings])[:, None]

    def apply(self, logits: mx.array, inputs: mx.array, draws: Sequence[Draw]) -> mx.array:
        if not self._rows:
            return logits
        positions = [draws[row].position for row in self._rows]
        fresh = mx.array([float(p > c) for p, c in zip(positions, self._counted, strict=True)])
        self._counted = positions
        self._output = self._output.at[mx.arange(len(positions)), mx.maximum(inputs[self._index], 0)].add(fresh)
        own = logits[self._index].astype(mx.float32)
        written = self._output > 0
        repeated = mx.where(own > 0, own / self._repetition, own * self._repetition)
        own = mx.where(written | self._prompted, repeated, own)
        own = own - self._frequency * self._output - self._presence * written
        if len(self._rows) == logits.shape[0]:
            return own
        result = logits.astype(mx.float32)
        result[self._index] = own
        return result


def _counts(tokens: Sequence[int], vocab: int) -> mx.array:
    counts = mx.zeros(vocab)
    return counts.at[mx.array(list(tokens))].add(1) if tokens else counts


def _columns(entries: Sequence[tuple[int, int, float]]) -> tuple[mx.array, mx.array, mx.array]:
    rows, ids, values = zip(*entries, strict=True)
    return mx.array(rows), mx.array(ids), mx.array(values)


def _restricted(logits: mx.array, draws: Sequence[Draw]) -> mx.array:
    """The logits with what may not be drawn out of reach."""
    banned = [(row, token, -mx.inf) for row, draw in enumerate(draws) for token in draw.banned]
    if banned:
        rows, ids, values = _columns(banned)
        logits = mx.array(logits)
        logits[rows, ids] = values.astype(logits.dtype)
    if any(draw.mask is not None for draw in draws):
        everything = mx.zeros(logits.shape[1])
        masks = mx.stack([everything if draw.mask is None else draw.mask for draw in draws])
        logits = logits + masks.astype(logits.dtype)
    return logits
