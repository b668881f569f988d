"""Rows drawn together, each by its own settings."""

import math

import mlx.core as mx
import pytest

from vllm_mlx.engine.protocol import Sampling
from vllm_mlx.engine.sampling import NOT_A_NUMBER, Choice, Draw, Sampler, best, uniform

VOCAB = 1024


def logits_of(rows: int, vocab: int = VOCAB, key: int = 0) -> mx.array:
    return 3 * mx.random.normal((rows, vocab), key=mx.random.key(key))


def sampler_of(*settings: Sampling, tokens=(), vocab: int = VOCAB, logprobs=None) -> Sampler:
    sampler = Sampler(vocab)
    for index, sampling in enumerate(settings):
        seed = sampling.seed if sampling.seed is not None else index
        sampler.join(Choice(sampling, seed, list(tokens), len(tokens), logprobs))
    return sampler


def drawn(sampler: Sampler, logits: mx.array, position: int = 0, inputs=None, **draw) -> list[int]:
    rows = logits.shape[0]
    inputs = mx.zeros(rows, mx.int32) if inputs is None else mx.array(inputs)
    return sampler.draw(logits, inputs, [Draw(position, **draw)] * rows).tokens.tolist()


def reference(logits: list[float], s: Sampling) -> list[float]:
    """The distribution that the settings mean, in plain Python: temperature, min_p, top_k, top_p."""
    scaled = [value / s.temperature for value in logits]
    top = max(scaled)
    weights = [math.exp(value - top) for value in scaled]
    weights = [w if w >= s.min_p else 0.0 for w in weights]
    order = sorted(range(len(weights)), key=lambda i: -weights[i])
    kept = set(order[: s.top_k] if s.top_k else order)
    weights = [w if i in kept else 0.0 for i, w in enumerate(weights)]
    total, mass, nucleus = sum(weights), 0.0, set()
    for i in order:
        if mass < s.top_p * total:
            nucleus.add(i)
        mass += weights[i]
    weights = [w if i in nucleus else 0.0 for i, w in enumerate(weights)]
    return [w / sum(weights) for w in weights]


SETTINGS = [
    Sampling(),
    Sampling(temperature=0.5),
    Sampling(top_k=5),
    Sampling(top_p=0.7),
    Sampling(min_p=0.1),
    Sampling(temperature=1.5, top_k=20, top_p=0.8, min_p=0.02),
    Sampling(top_k=1),
]


def test_every_setting_draws_from_its_own_distribution_in_one_batch():
    vocab, draws = 64, 4000
    logits = mx.broadcast_to(logits_of(1, vocab, key=5), (len(SETTINGS), vocab))
    sampler = sampler_of(*SETTINGS, vocab=vocab)
    counts = [[0] * vocab for _ in SETTINGS]
    for position in range(draws):
        for row, token in enumerate(drawn(sampler, logits, position)):
            counts[row][token] += 1
    for row, sampling in enumerate(SETTINGS):
        expected = reference(logits[row].tolist(), sampling)
        for token, probability in enumerate(expected):
            if probability == 0:
                assert counts[row][token] == 0, (sampling, token)
            spread = math.sqrt(draws * probability * (1 - probability))
            assert abs(counts[row][token] - draws * probability) <= 5 * spread + 1, (sampling, token)


def test_a_row_draws_the_same_alone_and_beside_any_others():
    rows = [*SETTINGS, Sampling(temperature=0), Sampling(presence_penalty=1), Sampling(logit_bias={3: 9.0})]
    logits = logits_of(len(rows))
    together = drawn(sampler_of(*rows), logits, 7)
    for row, sampling in enumerate(rows):
        alone = Sampler(VOCAB)
        alone.join(Choice(sampling, row, [], 0))
        assert drawn(alone, logits[row : row + 1], 7) == [together[row]], sampling


def test_a_seed_decides_with_the_position():
    assert uniform(1, 2) == uniform(1, 2)
    assert len({uniform(seed, position) for seed in range(20) for position in range(20)}) == 400
    assert all(0 <= uniform(seed, 0) < 1 for seed in range(1000))


@pytest.mark.parametrize("vocab", [1000, 1024, 64 * 300])
@pytest.mark.parametrize("k", [1, 5, 40])
def test_the_best_of_a_row_are_its_best(vocab, k):
    logits = logits_of(3, vocab)
    values, ids = best(logits, k)
    expected = mx.sort(logits, axis=-1)[:, ::-1][:, :k]
    assert values.tolist() == expected.tolist()
    assert mx.take_along_axis(logits, ids, axis=-1).tolist() == values.tolist()
    assert all(len(set(row)) == k for row in ids.tolist())


def test_penalties_count_every_token_once_also_when_the_batch_changes():
    """Presence, frequency and repetition over a run in which a second row joins and leaves."""
    sampling = Sampling(temperature=0, presence_penalty=0.5, frequency_penalty=0.25, repetition_penalty=1.5)
    tokens = [4, 4]
    sampler = Sampler(8)
    sampler.join(Choice(sampling, 0, tokens, 2))
    base = mx.array([[2.0, 1.9, 1.8, -1.0, 2.5, 0.0, 0.0, 0.0]])
    expected_tokens, last, counts = [], 4, {}
    for position in range(12):
        if position == 3:
            sampler.join(Choice(Sampling(temperature=0), 0, [], 0))
        if position == 6:
            sampler.leave(1)
        rows = 2 if 3 <= position < 6 else 1
        row = base[0].tolist()
        for token in range(8):
            if token in counts or token == 4:
                row[token] = row[token] / 1.5 if row[token] > 0 else row[token] * 1.5
            row[token] -= 0.25 * counts.get(token, 0) + 0.5 * (token in counts)
        expected = max(range(8), key=lambda token: row[token])
        got = drawn(sampler, mx.broadcast_to(base, (rows, 8)), position, inputs=[last] * rows)[0]
        assert got == expected, position
        counts[got] = counts.get(got, 0) + 1
        # Read one step late, as the step loop does.
        if position:
            tokens.append(last)
        expected_tokens.append(got)
        last = got
    assert len(set(expected_tokens)) > 2


def test_bias_bans_masks_and_forcing():
    logits = logits_of(2)
    greedy = [Sampling(temperature=0)] * 2
    first = drawn(sampler_of(*greedy), logits)
    assert drawn(sampler_of(*greedy), logits, banned=first)[0] not in first
    assert drawn(sampler_of(*greedy), logits, forced=17) == [17, 17]
    assert drawn(sampler_of(*greedy), logits, mask=mx.where(mx.arange(VOCAB) == 99, 0.0, -mx.inf)) == [99, 99]
    biased = sampler_of(Sampling(temperature=0, logit_bias={5: 100.0}), greedy[0])
    assert drawn(biased, logits) == [5, first[1]]


@pytest.mark.parametrize("sampling", [Sampling(temperature=0), Sampling(), Sampling(top_k=4)])
def test_logits_that_are_no_numbers_are_noticed(sampling):
    logits = logits_of(2)
    logits[1] = mx.full((VOCAB,), math.nan)
    tokens = drawn(sampler_of(sampling, sampling), logits)
    assert tokens[0] != NOT_A_NUMBER
    assert tokens[1] == NOT_A_NUMBER


def test_log_probabilities_only_for_rows_that_ask():
    sampler = Sampler(VOCAB)
    sampler.join(Choice(Sampling(temperature=0), 0, [], 0))
    sampler.join(Choice(Sampling(temperature=0), 0, [], 0, logprobs=3))
    logits = logits_of(2)
    result = sampler.draw(logits, mx.zeros(2, mx.int32), [Draw(0)] * 2)
    reported = result.logprobs()
    assert list(reported) == [1]
    row = logits[1].tolist()
    norm = math.log(sum(math.exp(value) for value in row))
    ranked = sorted(range(VOCAB), key=lambda i: -row[i])[:3]
    assert [token for token, _ in reported[1].top] == ranked
    assert reported[1].logprob == pytest.approx(row[ranked[0]] - norm, abs=1e-4)
    assert sampler_of(Sampling(), logprobs=None).draw(logits[:1], mx.zeros(1, mx.int32), [Draw(0)]).chosen is None
