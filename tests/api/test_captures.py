"""Requests that real clients sent are answered. They are third-party data and not part of the project."""

import json

import pytest

from tests.chat.folders import SHARED
from vllm_mlx.api.app import create_app
from vllm_mlx.api.playback import parse_line, replay_engine
from vllm_mlx.config import EngineConfig, ServeConfig

from .conftest import connect

pytestmark = pytest.mark.anyio

FILES = sorted((SHARED / "captures").glob("*.json"))


def output(body):
    """A reply that the request can be content with: a call where it forces one."""
    choice = body.get("tool_choice")
    if choice in (None, "auto", "none") or (isinstance(choice, dict) and choice.get("type") in ("auto", "none")):
        return "t\n</think>\n\nHello"
    named = choice.get("function", choice) if isinstance(choice, dict) else {}
    tool = body["tools"][0]
    name = named.get("name") or tool.get("function", tool)["name"]
    return f't\n</think>\n\n<minimax:tool_call>\n<invoke name="{name}">\n</invoke>\n</minimax:tool_call>'


@pytest.mark.skipif(not FILES, reason="the captured requests are not here")
@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
async def test_a_captured_request_is_answered(chat, file):
    capture = json.loads(file.read_text())
    if capture["method"] != "POST":
        pytest.skip("no request with a body")
    body = capture["body"]
    config = ServeConfig(engine=EngineConfig(model="demo", max_model_len=chat.max_model_len))
    engine = replay_engine([parse_line({"output": output(body)})], config, chat)
    async with connect(create_app(config, chat, engine)) as client:
        response = await client.post(capture["path"], json=body)
    assert response.status_code == 200, response.text
    assert '"error":{' not in response.text
