"""The HTTP application: routes, error shapes, and the engine's life with the server's."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from vllm_mlx import __version__
from vllm_mlx.api import debug, door, messages, openapi, responses
from vllm_mlx.api.answer import Codec, answer, error_response, gone, json_response
from vllm_mlx.api.errors import ApiError
from vllm_mlx.api.metrics import CONTENT_TYPE as METRICS_TYPE
from vllm_mlx.api.models import model_list, model_of
from vllm_mlx.api.openapi import takes
from vllm_mlx.api.protocols import CODECS
from vllm_mlx.api.record import Recorder
from vllm_mlx.api.requests import read_body
from vllm_mlx.api.service import Service
from vllm_mlx.api.tokenize import DetokenizeRequest, TokenizeRequest, detokenize, tokenize
from vllm_mlx.chat.model import ChatModel
from vllm_mlx.config import ServeConfig
from vllm_mlx.engine.interface import Engine


def create_app(config: ServeConfig, chat: ChatModel, engine: Engine, recorder: Recorder | None = None) -> FastAPI:
    """The application. The engine starts and ends with it."""
    service = Service(config, chat, engine, recorder)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        del app
        await engine.start()
        try:
            yield
        finally:
            await engine.close()
            service.close()
            if recorder is not None:
                recorder.close()

    app = FastAPI(title="vllm-mlx", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    for path, codec in CODECS.items():
        _add_generating_route(app, path, codec, service)
    _add_anthropic_routes(app, service)
    _add_response_routes(app, service)
    _add_token_routes(app, service)
    _add_state_routes(app, service)
    openapi.install(app)
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ClientDisconnect, _left)
    door.install(app, config)
    return app


def _add_generating_route(app: FastAPI, path: str, codec: Codec[Any], service: Service) -> None:
    async def endpoint(request: Request) -> Response:
        return await answer(request, service, codec)

    app.add_api_route(path, endpoint, methods=["POST"], **takes(codec.wire, stream=True))


def _add_token_routes(app: FastAPI, service: Service) -> None:
    @app.post("/tokenize", **takes(TokenizeRequest))
    async def tokenize_(request: Request) -> Response:
        body = await read_body(request, service.config.max_request_bytes)
        return json_response(await service.off_loop(partial(tokenize, service=service), body))

    @app.post("/detokenize", **takes(DetokenizeRequest))
    async def detokenize_(request: Request) -> Response:
        body = await read_body(request, service.config.max_request_bytes)
        return json_response(await service.off_loop(partial(detokenize, service=service), body))


def _add_anthropic_routes(app: FastAPI, service: Service) -> None:
    @app.post("/v1/messages/count_tokens", **takes(messages.CountTokensRequest))
    async def count_tokens(request: Request) -> Response:
        body = await read_body(request, service.config.max_request_bytes)
        wire = messages.CountTokensRequest.read(body)
        return json_response(await service.off_loop(partial(messages.count_tokens, service=service), wire))

    @app.head("/")
    async def root() -> Response:
        """Some clients ask whether anyone is there."""
        return Response()


def _add_response_routes(app: FastAPI, service: Service) -> None:
    @app.post("/v1/responses/input_tokens", **takes(responses.ResponsesRequest))
    async def input_tokens(request: Request) -> Response:
        body = await read_body(request, service.config.max_request_bytes)
        decoded = responses.decode(responses.ResponsesRequest.read(body), service)
        return json_response(await service.off_loop(partial(responses.count_tokens, service=service), decoded))

    @app.get("/v1/responses/{id}/input_items")
    async def input_items(id: str, request: Request) -> Response:
        return Response(responses.input_items(service, id, request.query_params), media_type="application/json")

    @app.get("/v1/responses/{id}")
    async def response(id: str, request: Request) -> Response:
        return Response(responses.stored(service, id, request.query_params), media_type="application/json")

    @app.delete("/v1/responses/{id}")
    async def delete_response(id: str) -> dict[str, Any]:
        return responses.delete(service, id)


def _add_state_routes(app: FastAPI, service: Service) -> None:
    @app.get("/health")
    @app.get("/ping", include_in_schema=False)
    @app.post("/ping", include_in_schema=False)
    async def health() -> Response:
        """200 while the engine takes requests, else 503; the state is in the body."""
        state = service.engine.health
        return json_response({"status": state}, 200 if state == "ready" else 503)

    @app.get("/version")
    async def version() -> dict[str, str]:
        return {"version": __version__}

    @app.get("/metrics")
    async def metrics() -> Response:
        """Prometheus text."""
        return Response(service.metrics.text(), media_type=METRICS_TYPE)

    @app.get("/debug/cache")
    async def debug_cache() -> dict[str, Any]:
        """What the prefix cache holds, and why prompts found no more in it."""
        return await debug.cache(service)

    @app.get("/load")
    async def load() -> dict[str, Any]:
        """How many sequences run or wait, and how far each is."""
        living = sorted(service.live, key=lambda turn: turn.submitted)
        return {"server_load": len(living), "sequences": [turn.state() for turn in living]}

    @app.get("/models", include_in_schema=False)
    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return model_list(service)

    @app.get("/models/{name:path}", include_in_schema=False)
    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return model_of(service, name)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(request.url.path, error)


async def _left(request: Request, error: Exception) -> Response:
    """The client left before its request was whole."""
    del request, error
    return gone()


async def _http_error(request: Request, error: Exception) -> Response:
    """What the framework refuses: an unknown route, a wrong method."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}"
    kind = "not_found_error" if error.status_code == 404 else "invalid_request_error"
    return error_response(request.url.path, ApiError(error.status_code, message, type=kind, headers=error.headers))
