"""What is computed from rows under a grammar."""

import pytest

from vllm_mlx.bench.constrained import pace
from vllm_mlx.bench.engine import TARGETS, Results, verdicts
from vllm_mlx.bench.http import Stream


def test_the_pace_is_that_of_the_middle_row_from_its_start_to_its_last_token():
    rows = [Stream(1.0, times=[2.0, end], usage={"completion_tokens": 8}) for end in (3.0, 5.0, 9.0)]
    assert pace(rows) == pytest.approx(8 / 4)


def test_rows_under_a_grammar_are_judged_over_the_same_rows_without():
    results = Results()
    results.add("vllm-mlx", {"free row tok/s": 100, "JSON row tok/s": 90, "call row tok/s": 80})
    results.add("vllm-mlx", {"free 4 a row tok/s": 50, "free beside JSON a row tok/s": 49.5})
    judged = {target.measure: (pytest.approx(value), reached) for target, value, reached in verdicts(results)}
    assert judged == {
        "JSON row tok/s": (0.9, True),
        "call row tok/s": (0.8, False),
        "free beside JSON a row tok/s": (0.99, True),
    }
    assert all(target.over for target in TARGETS if target.measure in judged)
