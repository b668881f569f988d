"""`GET /debug/cache`, and the word in the log that says why a prompt missed."""

import logging

import pytest

from vllm_mlx.api.app import create_app
from vllm_mlx.api.playback import parse_line, replay_engine
from vllm_mlx.config import EngineConfig, ServeConfig
from vllm_mlx.engine.interface import EngineError
from vllm_mlx.engine.protocol import CacheReport, CacheRun, Delta, Lookup, Miss

from .conftest import connect

pytestmark = pytest.mark.anyio
CONFIG = ServeConfig(engine=EngineConfig(model="demo"))


def engine_of(chat):
    return replay_engine([parse_line({"output": "Hello"})], CONFIG, chat)


async def test_tokens_are_told_as_text(chat, monkeypatch):
    engine = engine_of(chat)
    miss = Miss("differs", 7, chat.encode("red"), chat.encode("blue"))
    report = CacheReport(True, 10, 20, [CacheRun(0, 9, 10, False, 3)], [Lookup("a", 9, 7, miss)], 5, 6)

    async def given():
        return report

    monkeypatch.setattr(engine, "cache_report", given)
    async with connect(create_app(CONFIG, chat, engine)) as client:
        found = (await client.get("/debug/cache")).json()
    assert found["runs"] == [{"begins_at": 0, "tokens": 9, "bytes": 10, "in_use": False, "last_used": 3}]
    assert found["lookups"][0]["miss"] == {"why": "differs", "at_token": 7, "cached": "red", "prompt": "blue"}
    assert found["store"] == {"bytes": 5, "limit_bytes": 6}


async def test_without_an_engine_it_is_an_error(chat, monkeypatch):
    engine = engine_of(chat)

    async def none():
        raise EngineError("died", "the engine is starting")

    monkeypatch.setattr(engine, "cache_report", none)
    async with connect(create_app(CONFIG, chat, engine)) as client:
        reply = await client.get("/debug/cache")
    assert reply.status_code in (500, 503)
    assert "error" in reply.json()


async def test_a_replay_has_no_cache(serving):
    async with serving("Hello") as client:
        found = (await client.get("/debug/cache")).json()
    assert found == {"enabled": False, "bytes": 0, "limit_bytes": 0, "runs": [], "lookups": []}


async def test_the_log_says_why_and_carries_no_prompt_text_by_default(chat, caplog, monkeypatch):
    engine = engine_of(chat)
    miss = Miss("differs", 7, chat.encode("crimson"), chat.encode("azure"))

    class Missing:
        def __aiter__(self):
            return self.play()

        async def play(self):
            yield Delta("x", chat.encode("Hi"), cached_tokens=7, miss=miss, finish="stop")

        def finish(self, keep):
            del keep

        def cancel(self):
            pass

    monkeypatch.setattr(engine, "submit", lambda _: Missing())
    body = {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}
    async with connect(create_app(CONFIG, chat, engine)) as client:
        for level, told in ((logging.INFO, False), (logging.DEBUG, True)):
            caplog.clear()
            caplog.set_level(level, logger="vllm_mlx.api.service")
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
            assert "the cache ends at token 7: differs" in caplog.text
            assert ("crimson" in caplog.text) is told
            assert ("azure" in caplog.text) is told
