"""Templates render as transformers renders them; numbers keep their spelling; errors are clear."""

import json
from pathlib import Path
from typing import Any

import pytest
from folders import TOKENS, real_template
from hypothesis import given
from hypothesis import strategies as st

from tool_parsers.json_text import read_json
from vllm_mlx.chat.template import ChatTemplate, TemplateError, find_source, number, write_json

SPELLINGS = [
    "1",
    "-0",
    "0",
    "1.0",
    "1.00",
    "1e0",
    "1E+2",
    "1e400",
    "-1.50e-3",
    "123456789012345678901234567890",
    "9" * 5000,
]


def render(source: str, messages: list[dict[str, Any]] | None = None, **kwargs: Any) -> str:
    template = ChatTemplate(source)
    return template.render(messages or [], None, add_generation_prompt=True, kwargs=kwargs)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_numbers_print_as_written(spelling: str) -> None:
    assert str(number(spelling)) == spelling
    assert write_json([number(spelling)]) == f"[{spelling}]"
    assert render(
        "{{ x }}|{{ x|string }}|{{ x ~ '' }}|{{ x|tojson }}|{{ x is number }}", x=number(spelling)
    ) == "|".join([spelling] * 4 + ["True"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.booleans(), st.sampled_from([None, 0, 2, "\t"]), st.booleans())
def test_json_is_written_as_json_dumps_writes_it(value: Any, ascii: bool, indent: int | str | None, sort: bool) -> None:
    expected = json.dumps(value, ensure_ascii=ascii, indent=indent, sort_keys=sort)
    assert write_json(value, ensure_ascii=ascii, indent=indent, sort_keys=sort) == expected


def test_json_separators_and_keys_that_are_no_strings() -> None:
    value = {1: [1, 2], None: {"é": True}}
    assert write_json(value, separators=(",", ":")) == json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize("name", TOKENS)
def test_real_templates_render_as_in_transformers(name: str) -> None:
    source = real_template(name)
    if source is None:
        pytest.skip("the model's own template is not here")
    from transformers.utils.chat_template_utils import render_jinja_template

    arguments = {"path": "a/b.py", "n": 1.5, "deep": {"list": [1, {"x": None}], "é": "<b>"}, "flag": True}
    call = {"id": "functions.read:0", "type": "function", "function": {"name": "read", "arguments": arguments}}
    messages = [
        {"role": "system", "content": "S é <&>"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "C", "reasoning_content": "R\n\nR2", "tool_calls": [call, call]},
        {"role": "tool", "content": "T\n", "tool_call_id": "functions.read:0"},
        {"role": "tool", "content": "U", "tool_call_id": "functions.read:0"},
        {"role": "assistant", "content": "done", "reasoning_content": ""},
        {"role": "user", "content": "two"},
    ]
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": "é < 'q' \"d\""}}}
    tools = [{"type": "function", "function": {"name": "read", "description": "D", "parameters": schema}}]
    for given_tools in (tools, None):
        expected, _ = render_jinja_template(
            [messages], tools=given_tools, chat_template=source, add_generation_prompt=True, bos_token="B"
        )
        ours = ChatTemplate(source, {"bos_token": "B"}).render(messages, given_tools, add_generation_prompt=True)
        assert ours == expected[0]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ raise_exception('not so') }}", "not so"),
        ("{{ messages[0].arguments.items() }}", "cannot render"),
        ("{{ missing.name }}", "missing"),
        ("{{ 'x' + 1 }}", "cannot render"),
        ("{{ 1 / 0 }}", "cannot render"),
        ("{{ messages.append(1) }}", "cannot render"),
        ("{{ ''.__class__.__mro__ }}", "cannot render"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deep"),
        ("{{ x|tojson }}", "cannot be written as JSON"),
    ],
)
def test_errors_of_templates_are_told(source: str, words: str) -> None:
    with pytest.raises(TemplateError, match=words):
        render(source, [{"role": "user", "content": "x"}])


def test_broken_templates_are_refused_when_loaded() -> None:
    with pytest.raises(TemplateError, match="line 2"):
        ChatTemplate("a\n{% if %}")


def test_template_arguments_cannot_replace_the_conversation() -> None:
    with pytest.raises(TemplateError, match="messages"):
        ChatTemplate("x").render([], None, add_generation_prompt=True, kwargs={"messages": []})


def test_blocks_leave_no_lines_and_extensions_work() -> None:
    source = "{% for m in messages %}\n  {% if m == 2 %}\n{% break %}{% endif %}\n{{ m }}\n{% endfor %}\n"
    assert ChatTemplate(source).render([1, 2, 3], None, add_generation_prompt=False) == "1\n"  # type: ignore[list-item]
    assert render("a{% generation %}b{{ 1 }}{% endgeneration %}c") == "ab1c"
    assert render("{{ strftime_now('%Y') }}").isdigit()


def test_tools_are_none_without_tools() -> None:
    assert ChatTemplate("{{ tools is none }}").render([], [], add_generation_prompt=False) == "True"


def test_what_a_template_reads() -> None:
    assert {"thinking", "tools"} <= ChatTemplate("{% if thinking is defined %}{% endif %}{{ tools }}").reads


def test_where_templates_are_found(tmp_path: Path) -> None:
    settings = {"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}
    assert find_source(tmp_path, {}) is None
    assert find_source(tmp_path, {"chat_template": "c"}) == "c"
    assert find_source(tmp_path, settings) == "t"
    (tmp_path / "chat_template.json").write_text('{"chat_template": "j"}')
    assert find_source(tmp_path, settings) == "j"
    (tmp_path / "chat_template.jinja").write_text("f")
    assert find_source(tmp_path, settings) == "f"
    assert find_source(tmp_path, settings, "{{ inline }}") == "{{ inline }}"
    (tmp_path / "other").write_text("o")
    assert find_source(tmp_path, settings, str(tmp_path / "other")) == "o"
    with pytest.raises(TemplateError, match="no file"):
        find_source(tmp_path, settings, str(tmp_path / "absent"))


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        "7",
        "{}",
        '{"chat_template": 7}',
        '{"chat_template": ["x"]}',
        '{"chat_template": [{"name": "default"}]}',
        '{"chat_template": [{"name": ["default"], "template": "t"}]}',
        '{"chat_template": [{"name": "default", "template": 7}]}',
    ],
)
def test_a_broken_template_file_is_an_error_that_names_it(tmp_path: Path, content: str) -> None:
    (tmp_path / "chat_template.json").write_text(content)
    with pytest.raises(TemplateError, match=r"chat_template\.json does not have a chat template as \{"):
        find_source(tmp_path, {})


def test_a_broken_template_in_the_tokenizers_settings(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match=r"tokenizer_config\.json does not have a chat template"):
        find_source(tmp_path, {"chat_template": [{"name": "default"}]})


@pytest.mark.parametrize("name", ["chat_template.jinja", "chat_template.json"])
def test_a_template_file_that_is_no_text(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\xff")
    with pytest.raises(TemplateError, match=f"{name} cannot be read: "):
        find_source(tmp_path, {})


def test_spelled_numbers_of_requests_become_numbers() -> None:
    assert [str(number(item)) for item in read_json("[1.00, -0, 1e400]")] == ["1.00", "-0", "1e400"]
