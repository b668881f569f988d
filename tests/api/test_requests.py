"""What is refused, with which words, and what is taken in every spelling."""

import json
import logging

import pytest

from vllm_mlx.api.requests import parse_json, plain
from vllm_mlx.api.responses import ResponsesRequest

from .conftest import sse

pytestmark = pytest.mark.anyio

URL = "/v1/chat/completions"
USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

REFUSED = [
    # the request's fields, the field that the error names
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [None]}, "messages[0]"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [USER, {"role": "robot", "content": "x"}]}, "messages[1].role"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [7]}]}, "messages[0].content[0]"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 7}}]}]},
        "messages[0].tool_calls[0].function.arguments",
    ),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "c"}]}]}, "messages[0].tool_calls[0].function"),
    ({"messages": [{**USER, "tool_calls": [{"function": {"name": "f"}}]}]}, "messages[0].tool_calls"),
    ({"model": ""}, "model"),
    ({"model": 5}, "model"),
    ({"stream": "yes"}, "stream"),
    ({"stream": 1}, "stream"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"),
    ({"top_k": 10**30}, "top_k"),
    ({"thinking_token_budget": 10**30}, "thinking_token_budget"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"n": 0}, "n"),
    ({"n": 1000}, "n"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 2.0}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 1.5}, "min_p"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias.5"),
    ({"seed": 2**64}, "seed"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stop": [5]}, "stop"),
    ({"stop": {}}, "stop"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}, "tools[0].function.parameters"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "maybe", "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": [TOOL]}, "tool_choice"),
    ({"thinking": {"type": "disable"}}, "thinking.type"),
    ({"thinking": {}}, "thinking.type"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ({"best_of": 2}, "best_of"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"audio": {"voice": "x"}}, "audio"),
    ({"web_search_options": {"a": 1}}, "web_search_options"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_bad_field_is_refused_by_name(serving, fields, param, stream):
    async with serving("x") as client:
        response = await client.post(URL, json={"messages": [USER], "stream": stream, **fields})
    assert response.status_code == 400
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert param.split("[")[0].split(".")[0] in error["message"]
    assert "Wire" not in error["message"]


async def test_stream_options_need_a_stream(serving):
    async with serving("x") as client:
        response = await client.post(URL, json={"messages": [USER], "stream_options": {"include_usage": True}})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "stream_options")


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b'{"a": NaN}', b'{"a": "\n"}', b"[" * 100_000, b'{"messages": 1e999}',
     b'{"max_tokens": ' + b"9" * 5000 + b"}"],
)  # fmt: skip
async def test_what_is_no_json_object_is_a_400(serving, raw):
    async with serving("x") as client:
        response = await client.post(URL, content=raw)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


async def test_a_prompt_over_the_context_is_refused_before_the_stream(serving):
    long = {"messages": [{"role": "user", "content": "word " * 2000}], "stream": True}
    async with serving("x", max_model_len=300) as client:
        response = await client.post(URL, json=long)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    assert "maximum context length is 300 tokens" in error["message"]


async def test_max_tokens_over_what_is_left_is_clamped(serving, monkeypatch):
    from vllm_mlx.engine.replay import ReplayEngine

    seen = []
    submit = ReplayEngine.submit
    monkeypatch.setattr(ReplayEngine, "submit", lambda self, request: seen.append(request) or submit(self, request))
    async with serving("x", max_model_len=400) as client:
        for fields in ({}, {"max_tokens": 10**9}, {"max_tokens": 5}, {"max_tokens": 9, "max_completion_tokens": 7}):
            assert (await client.post(URL, json={"messages": [USER], **fields})).status_code == 200
    room = 400 - len(seen[0].prompt)
    assert [request.max_tokens for request in seen] == [room, room, 5, 7]


async def test_sampling_reaches_the_engine(serving, monkeypatch, chat):
    from vllm_mlx.engine.replay import ReplayEngine

    seen = []
    submit = ReplayEngine.submit
    monkeypatch.setattr(ReplayEngine, "submit", lambda self, request: seen.append(request) or submit(self, request))
    fields = {
        "temperature": 0.5,
        "top_p": 0.25,
        "top_k": 7,
        "min_p": 0.125,
        "repetition_penalty": 1.5,
        "presence_penalty": -1,
        "frequency_penalty": 2,
        "seed": 11,
    }
    async with serving("x") as client:
        await client.post(URL, json={"messages": [USER], **fields, "logit_bias": {"5": -100}})
        await client.post(URL, json={"messages": [USER], "seed": -1, "top_k": -1})
    sampling = seen[0].sampling
    assert {name: getattr(sampling, name) for name in fields} == fields
    assert sampling.logit_bias == {5: -100}
    assert seen[1].sampling.seed is None
    assert seen[1].sampling.top_k == 0
    for name, value in chat.sampling_defaults.items():
        if name != "top_k":
            assert getattr(seen[1].sampling, name) == value


SPELLINGS = [
    {"messages": [{"role": "developer", "content": "Be brief."}, USER]},
    {"messages": [USER, {"role": "system", "content": "Late."}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
    {"messages": [{"role": "user", "content": None}]},
    {"messages": [USER], "store": True, "metadata": {"a": "b"}, "user": "u", "service_tier": "auto"},
    {"messages": [USER], "temperature": None, "tools": None, "stop": None, "stream": None, "n": None},
    {"messages": [USER], "best_of": 1, "bad_words": [], "cache_salt": ""},
    {"messages": [USER], "thinking": {"type": "adaptive"}},
    {"messages": [USER], "tool_choice": "auto"},
    {"messages": [USER], "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
]


@pytest.mark.parametrize("request_body", SPELLINGS)
async def test_every_spelling_is_taken(serving, request_body):
    call = 'x\n</think>\n\n<minimax:tool_call>\n<invoke name="f">\n</invoke>\n</minimax:tool_call>'
    async with serving(call) as client:
        response = await client.post(URL, json=request_body)
    assert response.status_code == 200, response.text


HISTORIES = [
    {"content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    {"content": "", "tool_calls": [{"id": "c1", "index": 0, "function": {"name": "f", "arguments": {"a": 1}}}]},
    {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": None}}]},
    {"content": [{"type": "text", "text": ""}], "tool_calls": [{"function": {"name": "f", "arguments": ""}}]},
    {"tool_calls": [{"function": {"name": "f", "arguments": '{"a":'}}]},
    {"tool_calls": [{"function": {"name": "f", "arguments": '{"a":1}{"a":2}'}}]},
    {"tool_calls": [{"function": {"name": "f", "arguments": "7"}}]},
]


@pytest.mark.parametrize("assistant", HISTORIES)
@pytest.mark.parametrize("thought", [{}, {"reasoning_content": "MARK"}, {"reasoning": "MARK"},
                                     {"reasoning_details": [{"type": "x", "text": "MARK"}]}])  # fmt: skip
async def test_a_tool_turn_comes_back_in_every_spelling(serving, monkeypatch, chat, assistant, thought):
    prompts = []
    render = type(chat).render
    monkeypatch.setattr(
        type(chat), "render", lambda self, conversation: prompts.append(render(self, conversation)) or prompts[-1]
    )
    messages = [USER, {"role": "assistant", **assistant, **thought},
                {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "result"}]}]  # fmt: skip
    async with serving("x") as client:
        response = await client.post(URL, json={"messages": messages, "tools": [TOOL]})
    assert response.status_code == 200, response.text
    (prompt,) = prompts
    assert ("MARK" in prompt.text) == bool(thought)
    assert "None" not in prompt.text
    assert "result" in prompt.text


async def test_another_model_name_is_answered_unless_the_server_is_strict(serving):
    async with serving("x", served_model_name=("a", "b")) as client:
        answered = await client.post(URL, json={"messages": [USER], "model": "other"})
        assert (answered.status_code, answered.json()["model"]) == (200, "a")
    async with serving("x", served_model_name=("a", "b"), strict_model_name=True) as client:
        for name, status in (("a", 200), ("b", 200), ("other", 404)):
            response = await client.post(URL, json={"messages": [USER], "model": name})
            assert response.status_code == status
        assert response.json()["error"]["code"] == "model_not_found"


async def test_automatic_calls_can_be_turned_off(serving):
    async with serving("x", enable_auto_tool_choice=False) as client:
        explicit = await client.post(URL, json={"messages": [USER], "tools": [TOOL], "tool_choice": "auto"})
        silent = await client.post(URL, json={"messages": [USER], "tools": [TOOL]})
    assert (explicit.status_code, explicit.json()["error"]["param"]) == (400, "tool_choice")
    assert silent.status_code == 200


@pytest.mark.parametrize(
    "fields",
    [
        {"no_such_field_of_chat": 1},
        {"stream": True, "stream_options": {"include_usgae": True}},
        {"thinking": {"type": "enabled", "bugdet": 1024}},
        {"messages": [{**USER, "no_such_field_of_a_message": 1}]},
        {"tools": [{**TOOL, "no_such_field_of_a_tool": 1}]},
    ],
)
async def test_an_unknown_field_is_logged_once(serving, caplog, fields):
    with caplog.at_level(logging.WARNING):
        async with serving("x") as client:
            for _ in range(2):
                response = await client.post(URL, json={"messages": [USER], "no_such_null": None, **fields})
                assert response.status_code == 200
    assert [record.message.count("unknown here") for record in caplog.records].count(1) == 1


def test_known_fields_that_do_nothing_are_not_logged(caplog):
    ResponsesRequest.read({"input": "hi", "text": {"verbosity": "low"}, "reasoning": {"summary": "auto"}})
    assert not caplog.records


def test_numbers_keep_their_spelling_where_they_are_not_ours():
    value = plain(parse_json(b'{"a": 1.50, "b": [2, -0.5e1], "parameters": {"x": 1.00}}'), frozenset({"parameters"}))
    assert value == {"a": 1.5, "b": [2, -5.0], "parameters": {"x": "1.00"}}
    assert [type(item) for item in (value["a"], *value["b"])] == [float, int, float]


def test_half_a_surrogate_pair_is_no_text():
    assert parse_json(rb'{"a": ["\ud83d", "\ud83d\ude00", "\udc00x"]}') == {"a": ["\ufffd", "\U0001f600", "\ufffdx"]}


@pytest.mark.parametrize("depth", [60, 150, 400, 600, 900, 5000, 100_000])
async def test_no_depth_breaks_the_server(serving, depth):
    deep = '{"a":' * depth + "1" + "}" * depth
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": deep}}]}
    bodies = [
        json.dumps({"messages": [USER, call, {"role": "tool", "content": "r"}]}),
        json.dumps({"messages": [USER], "tools": [TOOL]}).replace('{"type": "object"}', deep),
        json.dumps({"messages": [USER], "metadata": 0}).replace("0", deep),
        json.dumps({"messages": [USER], "chat_template_kwargs": 0}).replace("0", deep),
    ]
    async with serving("x") as client:
        statuses = [(await client.post(URL, content=raw)).status_code for raw in bodies]
    assert statuses[0] == 200
    assert set(statuses) <= {200, 400}


async def test_half_a_surrogate_pair_in_a_message_is_served(serving):
    raw = json.dumps({"messages": [{"role": "user", "content": "a\ud83d"}], "stream": True}).encode()
    async with serving("x\n</think>\n\ny") as client:
        response = await client.post(URL, content=raw)
    assert sse(response.text)[-1] == "[DONE]"
