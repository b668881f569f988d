"""A server for the cases: one socket, behind it the built-in model or a replay of the case's output."""

import asyncio
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import orjson
import uvicorn
from tokenizers import Tokenizer

import vllm_mlx.demo
from reports.cases import Case, NotRun
from reports.checks import Result, Timeline
from reports.views import View, read_stream, read_whole
from tool_parsers.events import ArgumentsDelta
from vllm_mlx.api.app import create_app
from vllm_mlx.api.playback import parse_line, replay_engine
from vllm_mlx.api.protocols import CODECS
from vllm_mlx.api.requests import parse_json
from vllm_mlx.api.service import Service
from vllm_mlx.chat.model import ChatModel
from vllm_mlx.config import EngineConfig, ServeConfig
from vllm_mlx.engine.client import EngineClient
from vllm_mlx.engine.replay import ReplayEngine

DEMO = Path(vllm_mlx.demo.__file__).parent
M3_TEMPLATE = Path(__file__).parents[2] / "tests/chat/templates/minimax_m3.jinja"
M3_TOKENS = ["]<]minimax[>[", "<mm:think>", "</mm:think>"]
CONTEXT = 1024
"""Tokens of the built-in model's context: enough for every request, and filled in no time."""
NOTHING = {"output": ""}
SHORT = 16
"""Tokens of the built-in model's replies, where the request sets no limit."""


class Watched:
    """An engine that shows the prompts it was given."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.prompts: list[list[int]] = []

    def play(self, engine: Any) -> None:
        """Puts another engine in the place of the one before."""
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def submit(self, request: Any) -> Any:
        self.prompts.append(request.prompt)
        return self._engine.submit(request)


class Server:
    """Answers cases. The application behind the socket changes from case to case."""

    def __init__(self, m3: Path) -> None:
        self._chats = {"m2": ChatModel.load(DEMO), "m3": ChatModel.load(m3)}
        self._config = ServeConfig(
            engine=EngineConfig(model=str(DEMO)), served_model_name=("demo",), allowed_origins=("*",)
        )
        short = replace(self._config, engine=EngineConfig(model=str(DEMO), max_model_len=CONTEXT))
        self._model = Watched(EngineClient(short.engine))
        self._model_app = create_app(short, self._chats["m2"], self._model)
        self._replays = {family: Watched(self._replay(NOTHING, chat)) for family, chat in self._chats.items()}
        self._replay_apps = {
            family: create_app(self._config, self._chats[family], engine) for family, engine in self._replays.items()
        }
        self._app: Any = self._model_app
        self._client: httpx2.AsyncClient

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)

    @classmethod
    @asynccontextmanager
    async def running(cls) -> AsyncIterator["Server"]:
        """The server on a free port, its model loaded."""
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
            server = cls(m3_folder(Path(folder)))
            config = uvicorn.Config(server, lifespan="off", log_config=None, access_log=False)
            http = uvicorn.Server(config)
            serving = asyncio.create_task(http.serve(sockets=[listener]))
            base = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with AsyncExitStack() as stack:
                for app in (server._model_app, *server._replay_apps.values()):
                    await stack.enter_async_context(app.router.lifespan_context(app))
                server._client = await stack.enter_async_context(httpx2.AsyncClient(base_url=base, timeout=60))
                yield server
                http.should_exit = True
                await serving

    def _replay(self, line: dict[str, Any], chat: ChatModel) -> ReplayEngine:
        return replay_engine([parse_line(line)], self._config, chat)

    async def answer(self, case: Case) -> Result:
        """Sends a case's request: whole and as a stream where there are both."""
        chat = self._chats[case.family]
        if case.line is None:
            self._app, engine = self._model_app, self._model
            return await self._ask(case, chat, engine, self._filled(case))
        line = dict(case.line)
        if isinstance(line["output"], str) and case.label.find("per_token") >= 0:
            line["output"] = chat.encode(case.output)
        played = self._replay(line, chat)
        await played.start()
        engine = self._replays[case.family]
        engine.play(played)
        self._app = self._replay_apps[case.family]
        result = await self._ask(case, chat, engine, case.body)
        if case.expect.keys() & {"max_silent_tokens", "first_argument_delta_before"}:
            result.timeline = self._timeline(case, chat, line["output"])
        return result

    async def _ask(self, case: Case, chat: ChatModel, engine: Watched, body: Any) -> Result:
        engine.prompts.clear()
        begun = time.monotonic()
        if case.api is None or case.method != "POST":
            views = [await self._send(case, body)]
        elif case.expect.get("twice_same_text"):
            views = [await self._send(case, body), await self._send(case, body)]
        else:
            views = [
                await self._send(case, {**body, "stream": False}),
                await self._send(case, {**body, "stream": True}),
            ]
        seconds = time.monotonic() - begun
        prompt = chat.decode(engine.prompts[-1]) if engine.prompts else None
        alive = (await self._client.get("/health")).status_code == 200
        return Result(case, views, prompt, alive, seconds)

    async def _send(self, case: Case, body: Any) -> View:
        content = None if body is None else orjson.dumps(body)
        headers = {"content-type": "application/json", **case.headers}
        response = await self._client.request(case.method, case.path, content=content, headers=headers)
        found = {name.lower(): value for name, value in response.headers.items()}
        if case.api is not None and response.status_code == 200 and isinstance(body, dict) and body.get("stream"):
            return read_stream(case.api, response.status_code, response.text, found)
        return read_whole(case.api, response.status_code, response.text, found)

    def _filled(self, case: Case) -> Any:
        """The request with text in the place of `<longer than context>`, and with a limit for the reply."""
        body = case.body
        if not isinstance(body, dict) or case.api is None:
            return body
        text = orjson.dumps(body).decode()
        limit = self._model.info.max_model_len
        if "<longer than context>" in text:
            body = orjson.loads(text.replace("<longer than context>", "word " * limit))
        elif "<context minus " in text:
            left = int(text.partition("<context minus ")[2].split()[0])
            mark = f"<context minus {left} tokens>"
            low, high = 0, limit
            while low < high:
                middle = (low + high + 1) // 2
                filled = orjson.loads(text.replace(mark, "x " * middle))
                low, high = (middle, high) if self._length(case, filled) <= limit - left else (low, middle - 1)
            body = orjson.loads(text.replace(mark, "x " * low))
        name = "max_output_tokens" if case.api == "responses" else "max_tokens"
        refused = case.expect.get("status") == 400
        return body if name in body or refused else {**body, name: SHORT}

    def _length(self, case: Case, body: Any) -> int:
        service = Service(self._config, self._chats["m2"], self._model)
        codec = CODECS[case.path]
        request = codec.decode(codec.wire.read(parse_json(orjson.dumps(body))), service)
        service.close()
        return len(self._chats["m2"].render(request.conversation).ids)

    def _timeline(self, case: Case, chat: ChatModel, output: Any) -> Timeline:
        if not isinstance(output, list) or not all(isinstance(piece, int) for piece in output):
            raise NotRun("tokens are counted only where the output is cut into tokens")
        service = Service(self._config, chat, self._model)
        codec = CODECS[case.path]
        request = codec.decode(codec.wire.read(parse_json(orjson.dumps(case.body))), service)
        service.close()
        decoder = chat.decoder(request.conversation, chat.render(request.conversation))
        silence = longest = 0
        before = None
        for at, token in enumerate(output):
            events = decoder.feed([token])
            silence = 0 if events else silence + 1
            longest = max(longest, silence)
            if before is None and any(isinstance(event, ArgumentsDelta) and event.json != "{" for event in events):
                before = chat.decode(output[: at + 1])
        return Timeline(longest, before)


def m3_folder(folder: Path) -> Path:
    """A model folder that speaks M3: the built-in tokenizer with M3's markers, and a template in its format."""
    tokenizer = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
    tokenizer.add_special_tokens(M3_TOKENS)
    tokenizer.save(str(folder / "tokenizer.json"))
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        (folder / name).write_text((DEMO / name).read_text())
    (folder / "chat_template.jinja").write_text(M3_TEMPLATE.read_text())
    return folder
