"""What clients ask of the form of a reply reaches the engine; what no grammar can hold is refused by name."""

import json

import pytest

from vllm_mlx.api.app import create_app
from vllm_mlx.api.playback import parse_line, replay_engine
from vllm_mlx.config import EngineConfig, ServeConfig
from vllm_mlx.engine.protocol import Structured, ToolGrammar
from vllm_mlx.engine.structured import choice_answer, json_answer, regex_answer

from .conftest import connect

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CALL = 't\n</think>\n\n<minimax:tool_call>\n<invoke name="ping">\n</invoke>\n</minimax:tool_call>'
MESSAGES = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 100}
PATHS = {"chat": "/v1/chat/completions", "text": "/v1/completions", "resp": "/v1/responses", "msg": "/v1/messages"}


def tool(name, **more):
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA, **more}}


@pytest.fixture
def ask(chat):
    """Posts a body; the status, what the client got, and the grammar that the engine was given."""

    async def post(path, body, output="t\n</think>\n\nHello", **settings):
        config = ServeConfig(engine=EngineConfig(model="demo"), **settings)
        engine = replay_engine([parse_line({"output": output})], config, chat)
        given = []
        submit = engine.submit
        engine.submit = lambda request: given.append(request.grammar) or submit(request)
        async with connect(create_app(config, chat, engine)) as client:
            response = await client.post(PATHS[path], json=body)
        return response.status_code, response.json(), given[0] if given else None

    return post


@pytest.mark.parametrize(
    ("path", "body", "grammar"),
    [
        ("chat", {"response_format": {"type": "text"}}, None),
        ("chat", {"response_format": {"type": "json_object"}}, json_answer({"type": "object"})),
        (
            "chat",
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
            json_answer(SCHEMA),
        ),
        ("chat", {"structured_outputs": {"json": SCHEMA}}, json_answer(SCHEMA)),
        ("chat", {"structured_outputs": {"json": json.dumps(SCHEMA)}}, json_answer(SCHEMA)),
        ("chat", {"structured_outputs": {"regex": "a/b+"}}, regex_answer("a/b+")),
        ("chat", {"structured_outputs": {"choice": ["a", "b"]}}, choice_answer(["a", "b"])),
        ("chat", {"structured_outputs": {"grammar": 'start: "a"'}}, Structured('start: "a"')),
        ("text", {"structured_outputs": {"choice": ["a", "b"]}}, choice_answer(["a", "b"])),
        ("resp", {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}}, json_answer(SCHEMA)),
        ("msg", {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, json_answer(SCHEMA)),
    ],
)
async def test_the_form_of_an_answer_reaches_the_engine(ask, path, body, grammar):
    base = {"chat": MESSAGES, "msg": MESSAGES, "text": {"prompt": "hi"}, "resp": {"input": "hi"}}[path]
    status, reply, given = await ask(path, {**base, **body})
    assert status == 200, reply
    assert given == grammar


@pytest.mark.parametrize(
    ("path", "body", "param", "word"),
    [
        (
            "chat",
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}},
            "response_format.json_schema.schema",
            "not",
        ),
        ("chat", {"response_format": {"type": "xml"}}, "response_format.type", "json_schema"),
        ("chat", {"structured_outputs": {"json": {"uniqueItems": True}}}, "structured_outputs.json", "uniqueItems"),
        ("chat", {"structured_outputs": {"json": "{"}}, "structured_outputs.json", "json"),
        ("chat", {"structured_outputs": {"regex": "[a"}}, "structured_outputs.regex", "unclosed character class"),
        ("chat", {"structured_outputs": {"grammar": "start: foo"}}, "structured_outputs.grammar", "foo"),
        ("chat", {"structured_outputs": {"grammar": 'a ::= "b"'}}, "structured_outputs.grammar", "root"),
        ("chat", {"structured_outputs": {"choice": []}}, "structured_outputs.choice", "choice"),
        ("chat", {"structured_outputs": {"choice": ["a"], "regex": "a"}}, "structured_outputs", "one of"),
        ("chat", {"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag", "structural"),
        (
            "chat",
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
            "structured_outputs",
            "response_format",
        ),
        ("text", {"structured_outputs": {"regex": "[a"}}, "structured_outputs.regex", "class"),
        ("resp", {"text": {"format": {"type": "json_schema"}}}, "text.format", "schema"),
    ],
)
async def test_what_no_grammar_can_hold_is_a_400_that_names_it(ask, path, body, param, word):
    base = {"chat": MESSAGES, "text": {"prompt": "hi"}, "resp": {"input": "hi"}}[path]
    status, reply, given = await ask(path, {**base, **body})
    assert (status, given) == (400, None)
    assert reply["error"]["param"] == param
    assert word in reply["error"]["message"]


async def grammar_of(ask, body, output=CALL, **settings):
    status, reply, given = await ask("chat", {**MESSAGES, **body}, output, **settings)
    assert status == 200, reply
    return given


async def test_tools_are_the_grammar_of_calls(ask):
    tools = [tool("ping"), tool("a.b-c")]
    given = await grammar_of(ask, {"tools": tools})
    assert given == ToolGrammar("minimax_m2", given.tools, ["ping", "a.b-c"])
    assert json.loads(given.tools) == [one["function"] for one in tools]
    assert await grammar_of(ask, {"tools": tools, "tool_choice": "none"}) is None
    assert (await grammar_of(ask, {"tools": tools, "tool_choice": "required"})).required
    named = {"type": "function", "function": {"name": "ping"}}
    given = await grammar_of(ask, {"tools": tools, "tool_choice": named})
    assert (given.names, given.required, given.single) == (["ping"], True, True)
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named]}}
    for settings in ({}, {"constrain_tool_calls": "strict-only"}):
        given = await grammar_of(ask, {"tools": tools, "tool_choice": allowed}, **settings)
        assert (given.names, given.required, len(json.loads(given.tools))) == (["ping"], False, 2)
    assert await grammar_of(ask, {"tools": tools, "tool_choice": allowed}, constrain_tool_calls="off") is None
    assert (await grammar_of(ask, {"tools": tools, "parallel_tool_calls": False})).single
    both = {"tools": tools, "response_format": {"type": "json_object"}}
    assert (await grammar_of(ask, both)).answer == json_answer({"type": "object"})


async def test_the_server_says_which_calls_are_held(ask):
    tools = [tool("ping"), tool("pong", strict=True)]
    free, held = {"name": "ping"}, tools[1]["function"]
    assert await grammar_of(ask, {"tools": tools}, constrain_tool_calls="off") is None
    assert await grammar_of(ask, {"tools": tools[:1]}, constrain_tool_calls="strict-only") is None
    given = await grammar_of(ask, {"tools": tools}, constrain_tool_calls="strict-only")
    assert json.loads(given.tools) == [free, held]
    forced = {"tools": tools, "tool_choice": "required"}
    given = await grammar_of(ask, forced, constrain_tool_calls="strict-only")
    assert json.loads(given.tools) == [one["function"] for one in tools]
    assert await grammar_of(ask, forced, constrain_tool_calls="off") is None
