"""Clients that drop the model's thoughts get replies as good as those that send them: the server puts them back."""

from pathlib import Path

import pytest

import vllm_mlx.demo
from vllm_mlx.api.app import create_app
from vllm_mlx.api.playback import parse_line, replay_engine
from vllm_mlx.chat.model import ChatModel
from vllm_mlx.config import EngineConfig, ServeConfig
from vllm_mlx.engine.replay import ReplayEngine

from .conftest import connect

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
WRITTEN = (
    "I look first.\n</think>\n\nLooking.\n<minimax:tool_call>\n"
    '<invoke name="ls">\n<parameter name="path">.</parameter>\n</invoke>\n</minimax:tool_call>'
)


def chat_turn(reply):
    """The next request of a client that keeps nothing but what it needs."""
    message = reply["choices"][0]["message"]
    (call,) = message["tool_calls"]
    return {
        "messages": [
            {"role": "user", "content": "list"},
            {"role": "assistant", "content": message["content"], "tool_calls": message["tool_calls"]},
            {"role": "tool", "tool_call_id": call["id"], "content": "a.txt"},
        ],
    }


def messages_turn(reply):
    kept = [block for block in reply["content"] if block["type"] != "thinking"]
    result = {"type": "tool_result", "tool_use_id": kept[-1]["id"], "content": "a.txt"}
    return {
        "messages": [
            {"role": "user", "content": "list"},
            {"role": "assistant", "content": kept},
            {"role": "user", "content": [result]},
        ],
    }


def responses_turn(reply):
    kept = [item for item in reply["output"] if item["type"] != "reasoning"]
    result = {"type": "function_call_output", "call_id": kept[-1]["call_id"], "output": "a.txt"}
    return {"input": [{"role": "user", "content": "list"}, *kept, result]}


APIS = {
    # path: a first request, and how to make the next one from its reply
    "/v1/chat/completions": (
        {
            "messages": [{"role": "user", "content": "list"}],
            "tools": [{"type": "function", "function": {"name": "ls", "parameters": SCHEMA}}],
        },
        chat_turn,
    ),
    "/v1/messages": (
        {
            "max_tokens": 100,
            "messages": [{"role": "user", "content": "list"}],
            "tools": [{"name": "ls", "input_schema": SCHEMA}],
        },
        messages_turn,
    ),
    "/v1/responses": (
        {"input": "list", "tools": [{"type": "function", "name": "ls", "parameters": SCHEMA}]},
        responses_turn,
    ),
}


@pytest.fixture
def prompts(monkeypatch):
    seen = []
    submit = ReplayEngine.submit
    monkeypatch.setattr(ReplayEngine, "submit", lambda self, request: seen.append(request) or submit(self, request))
    return seen


def server(restore):
    """A server with a memory of its own."""
    chat = ChatModel.load(Path(vllm_mlx.demo.__file__).parent, restore_reasoning=restore)
    config = ServeConfig(engine=EngineConfig(model="demo"), restore_reasoning=restore)
    lines = [parse_line({"output": WRITTEN}), parse_line({"output": "x\n</think>\n\nThere is a.txt."})]
    return chat, create_app(config, chat, replay_engine(lines, config, chat))


@pytest.mark.parametrize("restore", [True, False])
@pytest.mark.parametrize("path", APIS)
async def test_a_dropped_thought_is_put_back(prompts, path, restore):
    chat, app = server(restore)
    first, next_turn = APIS[path]
    async with connect(app) as client:
        reply = (await client.post(path, json=first)).json()
        answer = await client.post(path, json={**first, **next_turn(reply)})
        metrics = (await client.get("/metrics")).text
    assert answer.status_code == 200, answer.text
    prompt = chat.decode(prompts[-1].prompt)
    assert ("I look first." in prompt) is restore
    (count,) = [line for line in metrics.split("\n") if line.startswith("vllm_mlx:reasoning_restored_total")]
    assert float(count.split()[-1]) == restore


@pytest.mark.parametrize("path", APIS)
async def test_the_next_prompt_begins_with_the_last_one_and_its_reply(prompts, path):
    chat = ChatModel.load(Path(vllm_mlx.demo.__file__).parent)
    config = ServeConfig(engine=EngineConfig(model="demo"))
    ids = chat.encode(WRITTEN)
    lines = [parse_line({"output": ids}), parse_line({"output": "x\n</think>\n\nThere is a.txt."})]
    first, next_turn = APIS[path]
    async with connect(create_app(config, chat, replay_engine(lines, config, chat))) as client:
        reply = (await client.post(path, json=first)).json()
        await client.post(path, json={**first, **next_turn(reply)})
    begun, gone_on = (request.prompt for request in prompts)
    assert gone_on[: len(begun) + len(ids)] == begun + ids
