"""Reports of other servers that take more than one request to show."""

import re

import pytest

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
