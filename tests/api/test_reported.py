"""Reports of other servers that take more than one request to show."""

import asyncio
import re

import pytest

from vllm_mlx.api import turn

from .conftest import sse

pytestmark = pytest.mark.anyio

HEAD = 'x\n</think>\n\n<minimax:tool_call>\n<invoke name="ba'
CALL = (
    'y\n</think>\n\n<minimax:tool_call>\n<invoke name="bash">\n<parameter name="command">ls</parameter>\n'
    "</invoke>\n</minimax:tool_call>"
)
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}
REQUESTS = {
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"type": "function", "function": {"name": "bash", "parameters": SCHEMA}}],
    },
    "/v1/messages": {
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "x"}],
        "tools": [{"name": "bash", "input_schema": SCHEMA}],
    },
    "/v1/responses": {"input": "x", "tools": [{"type": "function", "name": "bash", "parameters": SCHEMA}]},
}


@pytest.mark.parametrize("path", REQUESTS)
async def test_a_half_call_leaves_nothing_to_the_next_request(serving, path):
    request = {**REQUESTS[path], "stream": True}
    async with serving(list(HEAD), list(CALL), list(CALL)) as client:
        await client.post(path, json=request)
        second = sse((await client.post(path, json=request)).text)
        third = sse((await client.post(path, json=request)).text)

    def without_ids(events):
        return re.sub(
            r"[a-z]+_[0-9a-f]{24,}|chatcmpl-[0-9a-f]+|'(created|created_at|completed_at)': \d+", "", str(events)
        )

    assert without_ids(second) == without_ids(third)
    assert "'x'" not in str(second)
    assert "bash" in str(second)


@pytest.mark.parametrize("path", REQUESTS)
async def test_no_two_turns_share_a_call_id(serving, path):
    async with serving(CALL) as client:
        replies = [(await client.post(path, json=REQUESTS[path])).text for _ in range(3)]
    ids = [id for reply in replies for id in re.findall(r'"(?:call_id|id)":"((?:call|toolu)_[A-Za-z0-9]{16,})"', reply)]
    assert len(set(ids)) == len(ids) == 3


@pytest.mark.parametrize("strict", [False, True])
async def test_another_model_is_never_loaded(serving, strict):
    """One model answers to any name, or the name is refused; either way the server has one model."""
    async with serving(CALL, strict_model_name=strict) as client:
        for path, request in REQUESTS.items():
            response = await client.post(path, json={**request, "model": "org/much-larger"})
            assert response.status_code == (404 if strict else 200)
            assert strict or response.json()["model"] == "demo"
            assert (await client.post(path, json={**request, "model": "demo"})).status_code == 200
        assert [model["id"] for model in (await client.get("/v1/models")).json()["data"]] == ["demo"]


async def test_a_reply_tells_the_log_what_it_took(serving, caplog):
    with caplog.at_level("INFO", logger="vllm_mlx"):
        async with serving(list(CALL)) as client:
            usage = (await client.post("/v1/chat/completions", json=REQUESTS["/v1/chat/completions"])).json()["usage"]
    (line,) = [record.getMessage() for record in caplog.records if "prompt tokens" in record.getMessage()]
    assert f"{usage['prompt_tokens']} prompt tokens (0 cached), {usage['completion_tokens']} generated" in line
    assert "steps/s" in line
    assert "bash" not in line


async def test_a_long_prefill_tells_how_far_it_is(serving, caplog, monkeypatch):
    monkeypatch.setattr(turn, "TELL_SECONDS", 0)
    path = "/v1/chat/completions"
    with caplog.at_level("INFO", logger="vllm_mlx"):
        async with serving({"output": "x", "prefill_ms": 100_000}, max_num_seqs=1) as client:
            asked = [asyncio.create_task(client.post(path, json=REQUESTS[path])) for _ in range(2)]
            states = []
            while [state["state"] for state in states] != ["prefill", "waiting"]:
                await asyncio.sleep(0.01)
                states = (await client.get("/load")).json()["sequences"]
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
    assert states[0]["prefilled_tokens"] == states[0]["generated_tokens"] == 0
    assert f"0 of {states[0]['prompt_tokens']} prompt tokens are prefilled" in caplog.text
