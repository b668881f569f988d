"""An answer of a form that repeats itself for ever ends, and no other reply does."""

import random

import pytest

from vllm_mlx.api.loops import LONGEST, TOKENS, repeats

pytestmark = pytest.mark.anyio

HELLO = {"messages": [{"role": "user", "content": "hi"}]}
MESSAGES = {"/v1/chat/completions": HELLO, "/v1/messages": HELLO}
OBJECT = {"type": "json_object"}
SCHEMA = {"type": "json_schema", "schema": {"type": "object"}}
SIZES = (1, 2, 7, 100, LONGEST - 1, LONGEST)


def pieces(size):
    draw = random.Random(size)
    return [draw.randrange(5) for _ in range(size)]


@pytest.mark.parametrize("size", SIZES)
def test_a_piece_counts_once_it_came_often_enough(size):
    start = list(range(1000, 1500))
    looped = (pieces(size) * TOKENS)[:TOKENS]
    assert repeats(start + looped)
    assert not repeats(start + looped[:-1])
    assert not repeats([*start, *looped, 9])
    assert not repeats(start + looped[: TOKENS // 2] + [9] + looped[TOKENS // 2 + 1 :])
    assert not repeats([token for row in range(20) for token in (*pieces(LONGEST), row)])


@pytest.mark.parametrize("seed", range(5))
def test_what_is_not_the_same_is_no_loop(seed):
    draw = random.Random(seed)
    assert not repeats([draw.randrange(3) for _ in range(5000)])
    rows = [[5, 6, 7, draw.randrange(100), 8] for _ in range(500)]
    assert not repeats([token for row in rows for token in row])


CASES = [
    ("/v1/chat/completions", {"response_format": OBJECT}, '"finish_reason":"length"'),
    ("/v1/chat/completions", {"response_format": OBJECT, "stream": True}, '"finish_reason":"length"'),
    ("/v1/completions", {"prompt": "x", "structured_outputs": {"regex": ".*"}}, '"finish_reason":"length"'),
    ("/v1/responses", {"input": "x", "text": {"format": OBJECT}}, '"status":"incomplete"'),
    ("/v1/messages", {"max_tokens": 32000, "output_config": {"format": SCHEMA}}, '"stop_reason":"max_tokens"'),
]


@pytest.fixture
def ids(chat):
    return chat.encode('t\n</think>\n\n{"a": "') + chat.encode(" la") * 6000


@pytest.mark.parametrize(("path", "fields", "ending"), CASES)
async def test_it_ends_as_at_a_limit(serving, ids, path, fields, ending):
    async with serving(ids) as client:
        response = await client.post(path, json={**MESSAGES.get(path, {}), **fields})
        load = (await client.get("/load")).json()["server_load"]
    assert ending in response.text
    assert response.text.count(" la") < 3000
    assert load == 0


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"response_format": {"type": "text"}},
        {"response_format": OBJECT, "ignore_eos": True},
        {"response_format": OBJECT, "min_tokens": 13000},
    ],
)
async def test_other_replies_are_as_long_as_they_are(serving, ids, fields):
    async with serving(ids) as client:
        request = {**MESSAGES["/v1/chat/completions"], **fields}
        usage = (await client.post("/v1/chat/completions", json=request)).json()["usage"]
    assert usage["completion_tokens"] == len(ids)
