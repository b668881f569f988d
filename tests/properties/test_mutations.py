"""Broken model output breaks nothing: `make fuzz` runs many more of these than a test run does."""

import os
import random

import pytest

from tests.properties.mutations import all_cases, check, mutate

COUNT = int(os.environ.get("VLLM_MLX_FUZZ", "2000"))
CASES = all_cases()
SHARDS = 8


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_mutated_output(shard: int) -> None:
    for seed in range(shard, COUNT, SHARDS):
        rng = random.Random(seed)
        case = rng.choice(CASES)
        text = mutate(case.text, rng)
        try:
            check(case, text, rng)
        except Exception as error:
            pytest.fail(f"seed {seed}, case {case.id}: {text!r}: {type(error).__name__}: {error}")
