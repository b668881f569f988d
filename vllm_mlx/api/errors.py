"""What a client is told when something is wrong: one exception, rendered in the shape of its protocol."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from vllm_mlx.engine.interface import EngineError

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that is being answered; Anthropic's errors carry it."""


class ApiError(Exception):
    """An answer other than success. `param` names the field at fault as a client spells it: `messages[0].role`."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.param = param
        self.code = code
        self.headers = headers or {}


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """The request cannot be served as it is: the client has to change it."""
    return ApiError(400, message, param=param, code=code)


def unsupported(param: str, why: str) -> ApiError:
    """A field that this server knows and refuses, by name."""
    return invalid(f"'{param}' is not supported: {why}", param, "unsupported_parameter")


def context_length_exceeded(prompt_tokens: int, max_model_len: int) -> ApiError:
    """The prompt alone fills the context. Agents compact their history on exactly this code and these words."""
    return invalid(
        f"prompt is too long: {prompt_tokens} tokens > {max_model_len - 1} maximum. This model's maximum context "
        f"length is {max_model_len} tokens, one of them for the reply. Please reduce the length of the messages.",
        "messages",
        "context_length_exceeded",
    )


def not_found(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """There is no such thing here."""
    return ApiError(404, message, type="not_found_error", param=param, code=code)


def server_error(message: str, code: str) -> ApiError:
    """The fault is on this side; the same request may succeed when it is sent again."""
    return ApiError(500, message, type="server_error", code=code)


def overloaded(message: str, code: str, retry_after: int) -> ApiError:
    """No room now; `retry_after` is in seconds."""
    headers = {"Retry-After": str(retry_after)}
    return ApiError(503, message, type="overloaded_error", code=code, headers=headers)


def of_engine(error: EngineError) -> ApiError:
    """An engine's refusal or death in the client's terms."""
    match error.kind:
        case "invalid":
            return invalid(str(error))
        case "too_long":
            return invalid(str(error), "messages", "context_length_exceeded")
        case "overloaded":
            return overloaded(str(error), "overloaded", 1)
        case "died":
            return overloaded(str(error), "engine_died", 2)
        case _:
            return server_error(str(error), "engine_error")


Shape = Callable[[ApiError], dict[str, Any]]


def openai_shape(error: ApiError) -> dict[str, Any]:
    """The body of every OpenAI route."""
    body = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return {"error": body}


_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


def anthropic_shape(error: ApiError) -> dict[str, Any]:
    """The body of the Anthropic routes. The field at fault is part of the message: there is no place for it."""
    kind = _ANTHROPIC_TYPES.get(error.status, "api_error" if error.status >= 500 else "invalid_request_error")
    named = error.param is None or error.param in error.message or error.code == "context_length_exceeded"
    message = error.message if named else f"{error.param}: {error.message}"
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id.get()}


def responses_shape(error: ApiError) -> dict[str, Any]:
    """The body of the Responses routes, which have no messages but input."""
    return _named(error, "input")


def completions_shape(error: ApiError) -> dict[str, Any]:
    """The body of the text completion routes, which have no messages but a prompt."""
    return _named(error, "prompt")


def _named(error: ApiError, messages: str) -> dict[str, Any]:
    body = openai_shape(error)
    if error.param == "messages":
        body["error"]["param"] = messages
    return body


def shape_of(path: str) -> Shape:
    """Which shape the errors of a route have, known before the route itself has spoken."""
    if path.startswith("/v1/messages"):
        return anthropic_shape
    if path in ("/v1/completions", "/completions"):
        return completions_shape
    return responses_shape if path.startswith("/v1/responses") else openai_shape
