"""What stands before every route: who may come in, and what a reply carries whatever made it.

Plain ASGI, so that streams pass through untouched and a client that leaves is still seen.
"""

import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
from collections.abc import Iterable

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vllm_mlx.api.answer import error_response
from vllm_mlx.api.errors import ApiError, request_id, server_error
from vllm_mlx.config import ServeConfig

log = logging.getLogger(__name__)

REQUEST_ID = "X-Request-Id"
OPEN_PATHS = frozenset({"/", "/health", "/metrics", "/ping", "/version"})
"""Answered without a key: they tell nothing of anyone's requests."""

_ID = re.compile(r"[!-~]{1,128}")


def install(app: FastAPI, config: ServeConfig) -> None:
    """Puts the door before an application; the last one added is met first."""
    if config.api_key:
        app.add_middleware(KeyCheck, keys=config.api_key)
    hosts = known_hosts(config)
    if hosts is not None:
        app.add_middleware(HostCheck, hosts=hosts)
    app.add_middleware(Border)
    if config.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=config.allowed_origins,
            allow_methods=config.allowed_methods,
            allow_headers=config.allowed_headers,
            allow_credentials=config.allow_credentials,
            expose_headers=[REQUEST_ID],
        )
    app.add_middleware(RequestId)


def known_hosts(config: ServeConfig) -> frozenset[str] | None:
    """The names that a Host header may have; None: any.

    A server that listens on this machine alone takes no request for a foreign name: a web page whose name
    was made to point here could read its answers otherwise.
    """
    allowed = config.allowed_hosts
    if config.uds or "*" in allowed or (not allowed and not is_loopback(config.host)):
        return None
    return frozenset(name.lower().strip("[]") for name in ("localhost", config.host, *allowed))


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine's own, for itself alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class RequestId:
    """Every reply carries the client's own request id, or a new one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        given = Headers(scope=scope).get(REQUEST_ID, "")
        id = given if _ID.fullmatch(given) else "req_" + secrets.token_hex(12)
        request_id.set(id)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = id
                if scope["path"].startswith("/v1/messages"):
                    headers["request-id"] = id  # Anthropic's own name for it.
            await send(message)

        return await self._app(scope, receive, send_with_id)


class Border:
    """A bug in a route is an answer in shape, with the headers that every answer has."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if begun:
                raise
            error = server_error("internal error; the server's log has the details", "internal_error")
            await error_response(scope["path"], error)(scope, receive, send)


class KeyCheck:
    """Only who has a key comes in, by `Authorization: Bearer` or `x-api-key`."""

    def __init__(self, app: ASGIApp, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._known(Headers(scope=scope)):
            return await self._app(scope, receive, send)
        error = ApiError(
            401,
            "the API key is missing or wrong",
            type="authentication_error",
            code="invalid_api_key",
            headers={"WWW-Authenticate": "Bearer"},
        )
        return await error_response(scope["path"], error)(scope, receive, send)

    def _known(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        digest = hashlib.sha256(given.encode("latin-1", "replace")).digest()
        # All are compared, so that the time tells nothing.
        return sum(hmac.compare_digest(digest, known) for known in self._digests) > 0


class HostCheck:
    """Refuses requests for a name that is not this server's."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        given = Headers(scope=scope).get("host", "")
        host = re.sub(r":\d*$", "", given).lower().strip("[]")
        if not host or host in self._hosts or is_loopback(host):
            return await self._app(scope, receive, send)
        error = ApiError(
            403,
            f"this server does not answer for the host '{host:.100}'; --allowed-hosts adds one",
            type="permission_error",
            code="host_not_allowed",
        )
        return await error_response(scope["path"], error)(scope, receive, send)
