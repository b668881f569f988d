"""Fixtures of the command line's tests."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import Running


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """`start("serve", "demo", ...)`: returns once it serves, or has ended. The Hugging Face cache is empty."""
    running: list[Running] = []
    environ = {**os.environ, "HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "1"}

    def start_one(*args: str, **variables: str) -> Running:
        running.append(Running(args, environ | variables))
        return running[-1]

    yield start_one
    for one in running:
        one.end()
