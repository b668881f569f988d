import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from running import Running

from vllm_mlx.cli import main


def chat(*args: str, text: str) -> Result:
    return CliRunner().invoke(main, ["chat", *args], input=text)


@pytest.fixture
def replies(tmp_path: Path) -> str:
    texts = ["a thought\n</think>\n\nFirst answer.", "another\n</think>\n\nSecond answer."]
    lines = tmp_path / "replies.jsonl"
    lines.write_text("".join(json.dumps({"output": text}) + "\n" for text in texts))
    return str(lines)


@pytest.fixture
def server(start: Callable[..., Running], replies: str) -> Running:
    return start("replay", replies, "--port", "0", "--api-key", "secret")


def test_two_turns(server: Running) -> None:
    result = chat("--url", server.url, "--api-key", "secret", "--system", "Be brief.", text="One?\nTwo?\n")
    assert result.exit_code == 0, result.output
    assert result.stdout == "a thought\nFirst answer.\nanother\nSecond answer.\n"
    assert "demo at " in result.stderr


@pytest.mark.parametrize("field", ["reasoning", "both"])
def test_thoughts_by_another_name(start: Callable[..., Running], replies: str, field: str) -> None:
    server = start("replay", replies, "--port", "0", "--reasoning-field", field)
    result = chat("--url", server.url, text="One?\n")
    assert result.stdout == "a thought\nFirst answer.\n"


def test_an_empty_line_ends(server: Running) -> None:
    result = chat("--url", server.url, "--api-key", "secret", text="One?\n\nTwo?\n")
    assert result.stdout == "a thought\nFirst answer.\n"


def test_refusals_are_said_in_the_servers_words(server: Running) -> None:
    result = chat("--url", server.url, text="One?\n")
    assert result.exit_code == 1
    assert "401" in result.stderr
    assert "API key" in result.stderr


def test_no_server(server: Running) -> None:
    server.end()
    result = chat("--url", server.url, text="One?\n")
    assert result.exit_code == 1
    assert f"no answer from {server.url}" in result.stderr
