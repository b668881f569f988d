"""A server in this process: the real text side of the built-in model, and recorded output for an engine."""

import dataclasses
import json
import math
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

import vllm_mlx.demo
from vllm_mlx.api.app import create_app
from vllm_mlx.api.playback import parse_line, replay_engine
from vllm_mlx.chat.model import ChatModel
from vllm_mlx.config import EngineConfig, ServeConfig
from vllm_mlx.engine.protocol import Delta, TokenLogprobs
from vllm_mlx.engine.replay import ReplayGeneration


@pytest.fixture(scope="session")
def chat():
    return ChatModel.load(Path(vllm_mlx.demo.__file__).parent)


@pytest.fixture
def serving(chat):
    """`async with serving(line, ..., **settings) as client`: a line is a replay line, or its output alone."""

    def serve(*lines, **settings):
        names = {field.name for field in dataclasses.fields(EngineConfig)}
        of_engine = {name: settings.pop(name) for name in names & settings.keys()}
        config = ServeConfig(engine=EngineConfig(model="demo", **of_engine), **settings)
        parsed = [parse_line(line if isinstance(line, dict) else {"output": line}) for line in lines]
        return connect(create_app(config, chat, replay_engine(parsed, config, chat)))

    return serve


@pytest.fixture
def scored(monkeypatch):
    """Every token has log-probabilities: its own, and as many alternatives as were asked for."""
    play = ReplayGeneration._play

    async def scored_play(self):
        async for delta in play(self):
            wanted = self._request.logprobs
            if wanted is None or not delta.tokens:
                yield delta
                continue
            top = [(token, -0.5 * token) for token in range(wanted)]
            logprobs = [TokenLogprobs(-float(token) if token else -math.inf, top) for token in delta.tokens]
            yield Delta(delta.id, delta.tokens, None, logprobs, delta.finish, delta.stop_id, delta.cached_tokens)

    monkeypatch.setattr(ReplayGeneration, "_play", scored_play)


@asynccontextmanager
async def connect(app):
    """A client of an application whose engine runs."""
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        yield client


def sse(text):
    """The JSON of a stream's data lines; `[DONE]` stays a string."""
    datas = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [data if data == "[DONE]" else json.loads(data) for data in datas]
