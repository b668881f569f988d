"""Every case of tests/cases, however its text is cut."""

import random
from pathlib import Path

import pytest

import tool_parsers
from vllm_mlx.cli._cases import Case, Setup, cuttings, read_cases

FILES = sorted((Path(__file__).parents[1] / "cases").glob("*.jsonl"))
CASES = [case for file in FILES for case in read_cases(file) if case.setup.tool_parser in tool_parsers.names()]


def random_cuts(text: str, seed: str) -> list[list[str]]:
    rng = random.Random(seed)
    cuts = []
    for _ in range(10):
        points = sorted(rng.sample(range(len(text) + 1), min(len(text), rng.randint(1, 8))))
        cuts.append([text[a:b] for a, b in zip([0, *points], [*points, len(text)], strict=True)])
    return cuts


def test_ids_are_unique() -> None:
    ids = [case.id for case in CASES]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(case: Case) -> None:
    for pieces in [*cuttings(case.text, "every"), *random_cuts(case.text, case.id)]:
        assert case.got(pieces) == case.expect, pieces


@pytest.mark.parametrize("case", [c for c in CASES if c.setup.reasoning_parser == "minimax_m2"], ids=lambda c: c.id)
def test_deepseek_r1_gives_what_minimax_gives(case: Case) -> None:
    setup = Setup(case.setup.tool_parser, "deepseek_r1", case.setup.tools, case.setup.thinking_open)
    other = Case(case.id, case.text, setup, case.expect)
    for pieces in [[case.text], list(case.text), *random_cuts(case.text, case.id)]:
        assert other.got(pieces) == case.expect, pieces
