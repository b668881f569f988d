import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from vllm_mlx.cli import main

CASES = Path(__file__).parents[1] / "cases"
TURN = (
    "a thought\n</think>\n\nLooking.\n<minimax:tool_call>\n"
    '<invoke name="read_file">\n<parameter name="path">a.py</parameter>\n<parameter name="lines">07</parameter>\n'
    "</invoke>\n</minimax:tool_call>"
)
TOOL = {
    "type": "function",
    "function": {"name": "read_file", "parameters": {"properties": {"lines": {"type": "string"}}}},
}


def parse(*args: str, text: str = TURN) -> Result:
    return CliRunner().invoke(main, ["parse", *args], input=text)


def test_a_turn_from_standard_input() -> None:
    result = parse("--split", "every")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "reasoning": "a thought",
        "content": "Looking.",
        "tool_calls": [{"name": "read_file", "arguments": '{"path":"a.py","lines":"07"}'}],
    }


def test_a_file_and_the_names_that_users_write(tmp_path: Path) -> None:
    file = tmp_path / "turn.txt"
    file.write_text(TURN)
    expected = json.loads(parse().stdout)
    for names in (("MiniMax-M2", "minimax"), ("minimax", "deepseek-r1")):
        result = parse(str(file), "--tool-call-parser", names[0], "--reasoning-parser", names[1])
        assert json.loads(result.stdout) == expected


@pytest.mark.parametrize("wrap", [lambda tools: tools, lambda tools: {"model": "m", "tools": tools}])
def test_tools_give_types(tmp_path: Path, wrap: object) -> None:
    file = tmp_path / "tools.json"
    text = TURN.replace("07", "7")
    assert json.loads(parse(text=text).stdout)["tool_calls"][0]["arguments"] == '{"path":"a.py","lines":7}'
    file.write_text(json.dumps(wrap([TOOL])))  # type: ignore[operator]
    typed = json.loads(parse("--tools", str(file), text=text).stdout)
    assert typed["tool_calls"][0]["arguments"] == '{"path":"a.py","lines":"7"}'


def test_whether_thinking_is_open() -> None:
    assert json.loads(parse(text="just text").stdout)["reasoning"] == "just text"
    assert json.loads(parse("--no-thinking-open", text="just text").stdout)["content"] == "just text"
    assert json.loads(parse("--reasoning-parser", "none", text="just text").stdout)["content"] == "just text"


def test_without_a_tool_parser_calls_are_text() -> None:
    result = json.loads(parse("--tool-call-parser", "none").stdout)
    assert result["tool_calls"] == []
    assert "<invoke" in result["content"]


def test_a_cut_call_is_left_out_and_said() -> None:
    result = parse(text=TURN[: TURN.index("</invoke>")])
    assert json.loads(result.stdout)["tool_calls"] == []
    assert "cut short" in result.stderr


def test_unknown_parsers_say_what_there_is() -> None:
    for option in ("--tool-call-parser", "--reasoning-parser"):
        result = parse(option, "minimx")
        assert result.exit_code == 2
        assert "minimax_m2" in result.output


@pytest.mark.parametrize("split", [(), ("--split", "3"), ("--split", "every")])
def test_cases_pass(split: tuple[str, ...]) -> None:
    file = CASES / "m2.jsonl"
    count = file.read_text().count("\n")
    result = parse(*split, "--cases", str(file))
    assert result.output == f"{count} passed, 0 failed\n"
    assert result.exit_code == 0


def test_failing_cases_are_shown_and_counted(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (CASES / "m2.jsonl").read_text().splitlines()[:3]]
    lines[1]["expect"]["content"] = "something else"
    file = tmp_path / "cases.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = parse("--cases", str(file))
    assert result.exit_code == 1
    head, expected, got, total = result.output.splitlines()
    assert head == lines[1]["id"]
    assert "something else" in expected
    assert "something else" not in got
    assert total == "2 passed, 1 failed"


def test_files_that_are_no_cases_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    for line, complaint in (('{"id": "x"}', "'family'"), ('{"family": "llama"}', "no family 'llama'"), ("{", "line 1")):
        file.write_text(line)
        result = parse("--cases", str(file))
        assert result.exit_code == 2
        assert complaint in result.output


def test_a_wrong_split_is_refused() -> None:
    for split in ("0", "-1", "all"):
        assert parse(f"--split={split}").exit_code == 2
