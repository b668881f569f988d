"""History is what the model wrote: rendered, parsed and rendered again, a message gives the same text."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from folders import OWN, ROOT, SHARED, TOKENS, make_folder, real_template
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from limits import SETTINGS, Setting, call

from tool_parsers.json_text import Number, write_json
from vllm_mlx.chat.conversation import Conversation, Message, Tool, ToolCall
from vllm_mlx.chat.model import ChatModel
from vllm_mlx.chat.roundtrip import as_message, completion_of, read, take_trip, with_message

OBJECT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "note": {"type": "string"},
        "rate": {"type": "number"},
        "items": {"type": "array", "items": {"type": "integer"}},
    },
}
LOCATION = {"location": {"type": "string"}}
EDIT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "y": {"type": "number"},
        "x": {"type": "integer"},
        "flag": {"type": "boolean"},
        "maybe": {"type": ["integer", "null"]},
        "items": {"type": "array", "items": {"type": "string"}},
        "grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        "options": OBJECT,
    },
}
TOOLS = (
    Tool("edit", {"name": "edit", "description": "Edits.", "parameters": EDIT}),
    Tool(
        "get_weather",
        {"name": "get_weather", "parameters": {"type": "object", "properties": {"location": {"type": "string"}}}},
    ),
)
START = Conversation((Message("system", "S"), Message("user", "Hi")), TOOLS)
MIX = Message(
    "assistant",
    "I will call the tools.",
    reasoning="Need to call the weather and add tools.",
    tool_calls=(
        ToolCall("functions.get_weather:0", "get_weather", '{"location":"Shanghai"}'),
        ToolCall(
            "functions.edit:1",
            "edit",
            '{"y":1.0,"x":2,"items":["left","right"],"grid":[[1.00,2],[]],'
            '"options":{"rate":1e0,"items":[3]},"path":" a\\n"}',
        ),
    ),
)
PLAIN = Message("assistant", "An answer.\n\n    with code\n- and a list", reasoning="A thought.\n\nIn two parts.")


@pytest.fixture(scope="module", params=SETTINGS, ids=lambda setting: setting.name)
def setting(request: pytest.FixtureRequest) -> Setting:
    found: Setting = request.param
    return found


@pytest.fixture(scope="module", params=["real", "own"])
def model(request: pytest.FixtureRequest, setting: Setting, tmp_path_factory: pytest.TempPathFactory) -> ChatModel:
    if request.param == "real":
        template = real_template(setting.template)
        if template is None:
            pytest.skip("the model's own template is not here")
    elif setting.own == "minimax_m2":
        template = (ROOT / "vllm_mlx/demo/chat_template.jinja").read_text(encoding="utf-8")
    else:
        template = (OWN / f"{setting.own}.jinja").read_text(encoding="utf-8")
    return ChatModel.load(make_folder(tmp_path_factory.mktemp("model"), template, TOKENS[setting.template]))


def problem(model: ChatModel, setting: Setting, message: Message, **options: Any) -> str | None:
    return take_trip(model, replace(START, template_kwargs=setting.kwargs), message, **options).problem


def expressible(setting: Setting, message: Message) -> bool:
    return not any(limit.hits(message) for limit in setting.limits)


@pytest.mark.parametrize("piece", [1, 7, 100_000])
@pytest.mark.parametrize("message", [PLAIN, MIX, replace(MIX, content="")], ids=["plain", "mix", "calls"])
def test_fixed_messages_come_back(model: ChatModel, setting: Setting, message: Message, piece: int) -> None:
    if not expressible(setting, message):
        message = replace(message, reasoning=None)
    if expressible(setting, message):
        assert problem(model, setting, message, piece=piece) is None


def test_limits_are_real(model: ChatModel, setting: Setting) -> None:
    for limit in setting.limits:
        assert limit.hits(limit.example), limit.reason
        assert problem(model, setting, limit.example) is not None, limit.reason


WORDS = [
    *("a", "b c", " ", "\n", "\n\n", "\t", "```\n", "é🙂", "null", "1", "&amp;"),
    *("<", ">", "</", "[e~", "]", "]<", "<thi", "<think", "<tool", "<|", "｜DSML", "\\", '"', "{", "}"),
]
NUMBERS = ["1.00", "1e0", "-0", "0.5", "7", "123456789012345678901234567890", "1E+2", "-1.5e-7"]
WHOLE = ["0", "-3", "42", "98765432109876543210"]

prose = st.lists(st.sampled_from(WORDS), max_size=8).map("".join)
numbers = st.sampled_from(NUMBERS).map(Number)
whole = st.sampled_from(WHOLE).map(Number)
scalars = st.none() | st.booleans() | numbers | prose | st.sampled_from(["true", "None", "1.0", "[1]", '{"a":1}'])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "path": prose,
    "y": numbers,
    "x": whole,
    "flag": st.booleans(),
    "maybe": st.none() | whole,
    "free": scalars
    | st.lists(scalars, max_size=2)
    | st.dictionaries(st.sampled_from(["k", "item"]), scalars, max_size=2),
    "items": st.lists(prose, max_size=3),
    "grid": st.lists(st.lists(numbers, max_size=2), max_size=2),
    "options": st.fixed_dictionaries(
        {}, optional={"note": prose, "rate": numbers, "items": st.lists(whole, max_size=2)}
    ),
}


@st.composite
def calls(draw: st.DrawFn) -> tuple[ToolCall, ...]:
    made = []
    for at in range(draw(st.integers(0, 3))):
        keys = draw(st.permutations(list(VALUES)))[: draw(st.integers(0, len(VALUES)))]
        made.append(call(write_json({key: draw(VALUES[key]) for key in keys}), at=at))
    return tuple(made)


messages = st.builds(Message, st.just("assistant"), prose, prose | st.none(), calls())


@settings(max_examples=30, suppress_health_check=list(HealthCheck), deadline=None)
@given(message=messages)
def test_any_message_comes_back(model: ChatModel, setting: Setting, message: Message) -> None:
    assume(expressible(setting, message))
    assert problem(model, setting, message) is None


GOLDEN = SHARED / "golden" / "golden_completions.json"
ADD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "x": {"type": "integer"},
        "y": {"type": "number"},
        "items": {"type": "array", "items": {"type": "string"}},
    },
}
GOLDEN_TOOLS = (Tool("add", {"name": "add", "parameters": ADD}), TOOLS[1])
GOLDEN_SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "MiniMax-M2.5": ("MiniMax-M2.5", {}),
    "MiniMax-M3": ("MiniMax-M3", {}),
    "Qwen3-0.6B": ("Qwen3-0.6B", {}),
    "Qwen3.5-4B": ("Qwen3.5-4B", {}),
    "DeepSeek-V4-Flash": ("DeepSeek-V4", {"thinking": True}),
    "GLM-4.7-Flash": ("GLM-4.7-Flash", {}),
    "Kimi-K2.5": ("Kimi-K2.5", {}),
}


@pytest.mark.skipif(not GOLDEN.is_file(), reason="the golden completions are not here")
@pytest.mark.parametrize("name", GOLDEN_SETTINGS)
def test_golden_completions_come_back(name: str, tmp_path: Path) -> None:
    template_name, kwargs = GOLDEN_SETTINGS[name]
    template = real_template(template_name)
    assert template is not None
    model = ChatModel.load(make_folder(tmp_path, template, TOKENS[template_name]))
    before = Conversation((Message("user", "Hi"),), GOLDEN_TOOLS, template_kwargs=kwargs)
    prompt = model.render(before)
    for kind, generation in json.loads(GOLDEN.read_text(encoding="utf-8"))[name]["generations"].items():
        completion = generation["completion"]
        reply = as_message(read(model, before, prompt, completion))
        expected = {"get_weather": {"location": "Shanghai"}, "add": {"y": 1.0, "x": 2, "items": ["left", "right"]}}
        assert reply.reasoning == "Need call the weather and add tools."
        assert all(json.loads(made.arguments) == expected[made.name] for made in reply.tool_calls)
        assert len(reply.tool_calls) == {"named": 1, "none_schema": 0, "auto_schema_content": 0}.get(kind, 2)
        assert "1.0" in completion or not any(made.name == "add" for made in reply.tool_calls)
        if template_name == "Kimi-K2.5" and not reply.tool_calls:
            continue  # This template leaves the thought of such a turn out.
        history = with_message(model, before, reply)
        assert completion_of(model, prompt, history) == completion
