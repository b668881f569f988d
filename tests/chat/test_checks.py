"""What `doctor` finds out about a model's folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders import M2, ROOT, make_folder, write

from vllm_mlx.chat.checks import checks
from vllm_mlx.chat.model import ChatModel

DEMO = (ROOT / "vllm_mlx/demo/chat_template.jinja").read_text(encoding="utf-8")


def found(
    folder: Path, template: str, change: Callable[[Path], Any] = lambda folder: None
) -> dict[str, tuple[str, str]]:
    made = make_folder(folder, template, M2)
    change(made)
    return {check.name: (check.status, check.detail) for check in checks(ChatModel.load(made))}


def test_nothing_fails_where_nothing_is_wrong(any_model: ChatModel) -> None:
    result = checks(any_model)
    assert {check.status for check in result} <= {"pass", "info", "warn"}
    names = {check.name for check in result if check.status == "pass"}
    assert {"Tool calls come back", "Pasted control tokens stay text", "Tool call parser", "Reasoning parser"} <= names


def test_what_is_said_of_the_demo_model(tmp_path: Path) -> None:
    result = found(tmp_path, DEMO)
    assert result["Tool call parser"] == ("pass", "minimax_m2")
    assert result["Reasoning parser"] == ("pass", "minimax_m2; the prompt opens a thought")
    assert result["End of turn"] == ("pass", "[e~[ (322)")
    assert result["Special tokens"] == ("info", "left out of replies: ]~!b[ (320)")
    assert {status for status, _ in result.values()} == {"pass", "info"}


EDITED = [
    ("the calls are left out", "turn.tool_calls -%}", "false -%}", "does not write the calls"),
    ("a tag was renamed", "<parameter name=\"' ~ key", "<param name=\"' ~ key", "was the chat template edited"),
    ("the end of a value is missing", "'</parameter>\\n'", "'\\n'", "the calls came back changed"),
    ("strings are trimmed", "value if value is string", "value | trim if value is string", "Shanghai"),
]


@pytest.mark.parametrize(("old", "new", "words"), [case[1:] for case in EDITED], ids=[case[0] for case in EDITED])
def test_edited_templates_are_found_out(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in DEMO
    status, detail = found(tmp_path, DEMO.replace(old, new))["Tool calls come back"]
    assert status == "fail"
    assert words in detail


def test_a_template_that_loses_text(tmp_path: Path) -> None:
    edited = DEMO.replace("{{- text -}}", "{{- text | replace('- ', '') -}}")
    status, detail = found(tmp_path, edited)["Answers come back"]
    assert (status, "the content came back changed" in detail) == ("fail", True)


def test_a_template_that_leaves_thoughts_out(tmp_path: Path) -> None:
    edited = DEMO.replace("{%- if thought and", "{%- if false and").replace(
        "{{- ']~b]ai\\n<think>\\n' -}}", "{{- ']~b]ai\\n' -}}"
    )
    status, detail = found(tmp_path, edited)["Answers come back"]
    assert (status, "leaves their thoughts out" in detail) == ("warn", True)


def test_a_format_that_nobody_reads(tmp_path: Path) -> None:
    unknown = "{% for m in messages %}]~b]{{ m.content }}[e~[{% endfor %}"
    assert found(tmp_path / "a", unknown)["Tool call parser"][0] == "warn"
    assert found(tmp_path / "b", unknown + "{{ tools }}")["Tool call parser"][0] == "fail"


def test_configs_without_an_end_of_turn(tmp_path: Path) -> None:
    def forget(folder: Path) -> None:
        write(folder / "generation_config.json", {})
        write(folder / "tokenizer_config.json", {})

    result = found(tmp_path / "a", DEMO, forget)
    assert result["End of turn in the configs"][0] == "warn"
    assert result["End of turn"][0] == "pass"
    bare = "{% for m in messages %}{{ m.content }} {% endfor %}"
    assert found(tmp_path / "b", bare, forget)["End of turn"][0] == "fail"


def test_a_template_that_refuses_the_conversation(tmp_path: Path) -> None:
    result = found(tmp_path, "{{ raise_exception('never') }}{{ '<minimax:tool_call></think>' }}")
    assert result == {"Chat template": ("fail", "never")}


def test_ids_that_change_when_they_are_history(tmp_path: Path) -> None:
    edited = DEMO.replace("'<think>\\n' ~ thought", "'<think>\\n\\n' ~ thought")
    assert edited != DEMO
    assert found(tmp_path, edited)["Token ids survive a turn"][0] == "warn"
