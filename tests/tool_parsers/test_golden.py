"""Completions of real models, where they are at hand, become what they say."""

import json
from typing import Any

import pytest

from tests.chat.folders import SHARED
from vllm_mlx.chat.reply import Reply
from vllm_mlx.cli._cases import Setup

FILE = SHARED / "golden" / "golden_completions.json"
PARSERS = {
    "MiniMax-M2.5": ("minimax_m2", "minimax_m2", True),
    "MiniMax-M3": ("minimax_m3", "minimax_m3", False),
    "Qwen3-0.6B": ("hermes", "qwen3", False),
    "Qwen3.5-4B": ("qwen3_coder", "qwen3", True),
    "MiMo-V2.6-Flash-RL": ("qwen3_coder", "qwen3", False),
    "Step-5-Preview": ("qwen3_coder", "qwen3", True),
    "DeepSeek-V3.2-Exp": ("deepseek_v32", "deepseek_v4", True),
    "DeepSeek-V4-Flash": ("deepseek_v4", "deepseek_v4", True),
    "DeepSeek-V4.1-Flash": ("deepseek_v4", "deepseek_v4", True),
    "GLM-4.5": ("glm47", "glm45", False),
    "GLM-4.7-Flash": ("glm47", "glm45", True),
    "GLM-5.2-FP8": ("glm47", "glm45", True),
    "Kimi-K2.5": ("kimi_k2", "kimi_k2", True),
}
ADD = {"x": {"type": "integer"}, "y": {"type": "number"}, "items": {"type": "array", "items": {"type": "string"}}}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
    for name, properties in (("get_weather", {"location": {"type": "string"}}), ("add", ADD))
]
CALLS = {"get_weather": '{"location":"Shanghai"}', "add": '{"y":1.0,"x":2,"items":["left","right"]}'}


@pytest.mark.skipif(not FILE.is_file(), reason="the completions are not here")
@pytest.mark.parametrize("name", PARSERS)
def test_completions(name: str) -> None:
    tool, reasoning, thinking_open = PARSERS[name]
    setup = Setup(tool, reasoning, TOOLS, thinking_open)
    for kind, generation in json.loads(FILE.read_text(encoding="utf-8"))[name]["generations"].items():
        text = generation["completion"]
        reply = setup.read([text])
        assert setup.read(list(text)) == reply
        assert setup.read([text[at : at + 7] for at in range(0, len(text), 7)]) == reply
        _check(reply, kind)


def _check(reply: Reply, kind: str) -> None:
    assert reply.reasoning == "Need call the weather and add tools."
    assert not reply.aborted
    names = {"named": ["get_weather"], "none_schema": [], "auto_schema_content": []}.get(kind, list(CALLS))
    assert [call.name for call in reply.tool_calls] == names
    for call in reply.tool_calls:
        # Formats that carry JSON keep its spaces.
        assert call.arguments.replace(": ", ":").replace(", ", ",") == CALLS[call.name]
    if kind == "auto":
        assert reply.content == "I will call the tools."
    elif not names:
        assert (reply.content or "").lstrip("\n") == '{"answer":"sunny"}'
    else:
        assert reply.content is None
