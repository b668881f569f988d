"""A reply that repeats itself for ever ends, and no other reply does."""

import random

import pytest

from vllm_mlx.api.loops import LONGEST, TOKENS, repeats

pytestmark = pytest.mark.anyio

BODY = {"messages": [{"role": "user", "content": "hi"}]}
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


@pytest.mark.parametrize(
    ("path", "body", "ending"),
    [
        ("/v1/chat/completions", BODY, '"finish_reason":"length"'),
        ("/v1/chat/completions", {**BODY, "stream": True}, '"finish_reason":"length"'),
        ("/v1/completions", {"prompt": "x"}, '"finish_reason":"length"'),
        ("/v1/responses", {"input": "x"}, '"status":"incomplete"'),
        ("/v1/messages", {**BODY, "max_tokens": 32000}, '"stop_reason":"max_tokens"'),
    ],
)
async def test_it_ends_as_at_a_limit(serving, chat, path, body, ending):
    ids = chat.encode("t\n</think>\n\nWell") + chat.encode(" la") * 6000
    async with serving(ids) as client:
        response = await client.post(path, json=body)
        load = (await client.get("/load")).json()["server_load"]
    assert ending in response.text
    assert response.text.count(" la") < 6000 / len(chat.encode(" la"))
    assert load == 0


@pytest.mark.parametrize("fields", [{"max_tokens": 4096}, {"ignore_eos": True}, {"min_tokens": 6000}])
async def test_a_client_that_says_how_much_gets_it(serving, chat, fields):
    ids = chat.encode("t\n</think>\n\nWell") + chat.encode(" la") * 6000
    async with serving(ids) as client:
        usage = (await client.post("/v1/chat/completions", json={**BODY, **fields})).json()["usage"]
    assert usage["completion_tokens"] >= 4096
