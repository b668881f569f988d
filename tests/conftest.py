"""Fixtures of all tests."""

import pytest


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


def pytest_terminal_summary(terminalreporter):
    skipped = [str(report.longrepr[-1]) for report in terminalreporter.getreports("skipped")]
    if absent := sum(reason.endswith("not here") for reason in skipped):
        terminalreporter.write_line(f"{absent} tests need the data of VLLM_MLX_TEST_DATA, which are not here")
