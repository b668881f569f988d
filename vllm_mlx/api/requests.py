"""Reading a request: its body's JSON, its fields, and what becomes of fields that this server does not have."""

import logging
import math
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Self

import zstandard
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from starlette.requests import Request

from tool_parsers.json_text import Number, read_json
from vllm_mlx.api.errors import ApiError, invalid, unsupported

log = logging.getLogger(__name__)

MAX_DEPTH = 200
"""How deep a body may be nested; no client comes near, and every walk through it stays within bounds."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


NOTHING: tuple[Any, ...] = (None, False, "", [], {})
"""Values that ask for nothing: a field that is refused may have them."""

_warned: set[str] = set()


class Wire(BaseModel):
    """A JSON object that clients send, read strictly: no type is guessed. Null and missing are the same.

    Its fields act; `ignored` says why for others that are known. Unknown ones are logged, once a name.
    """

    model_config = ConfigDict(extra="allow", strict=True)
    ignored: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="after")
    def _note_unknown(self) -> Self:
        for name, value in (self.model_extra or {}).items():
            if name not in self.ignored and name not in _warned and value not in NOTHING and len(_warned) < 1000:
                _warned.add(name)
                log.warning("the request field %.100r is unknown here and does nothing", name)
        return self


class WireRequest(Wire):
    """A request's body. `refused` says why for fields that are known and cannot be served.

    `opaque` names the keys whose values are not ours to read: their numbers keep their spelling, as `Number`.
    """

    opaque: ClassVar[frozenset[str]] = frozenset({"parameters", "arguments"})
    refused: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def read(cls, body: Any) -> Self:
        """Raises `ApiError` that names the field at fault."""
        if not isinstance(body, dict):
            raise invalid("the request's body must be a JSON object")
        for name, why in cls.refused.items():
            if body.get(name) not in NOTHING:
                raise unsupported(name, why)
        try:
            return cls.model_validate(plain(body, cls.opaque))
        except ValidationError as error:
            raise _first(error, body) from error


def _first(error: ValidationError, body: Any) -> ApiError:
    """The first thing wrong with a request."""
    found = error.errors(include_url=False, include_context=False)[0]
    missing = found["type"] == "missing"
    param = _path(found["loc"], body, missing=missing)
    if missing:
        return invalid(f"{param}: is required", param, "missing_required_parameter")
    code = "invalid_type" if found["type"].endswith("_type") else "invalid_value"
    if found["type"] in ("model_type", "dict_type"):
        return invalid(f"{param}: input should be an object", param, code)
    return invalid(f"{param}: {found['msg'][:1].lower()}{found['msg'][1:]}", param or None, code)


def _path(steps: Sequence[int | str], body: Any, *, missing: bool) -> str:
    """A place in a body as a client spells it; the names of a union's branches are no part of it.

    `missing`: the last step is not there.
    """
    path, value = "", body
    for at, step in enumerate(steps, 1):
        if isinstance(step, int):
            path, value = f"{path}[{step}]", value[step]
        elif isinstance(value, dict) and (step in value or (missing and at == len(steps))):
            path, value = f"{path}.{step}" if path else step, value.get(step)
    return path


async def read_body(request: Request, limit: int) -> Any:
    """The JSON value of a request's body, numbers as `Number`. Content-Encoding may be gzip, deflate or zstd.

    Raises:
        ApiError: the body is no JSON in UTF-8, or has more than `limit` bytes, as sent or unpacked.
    """
    return parse_json(_unpacked(await _raw(request, limit), request.headers.get("content-encoding", ""), limit))


async def _raw(request: Request, limit: int) -> bytes:
    raw = bytearray()
    async for piece in request.stream():
        raw += piece
        if len(raw) > limit:
            raise _too_large(limit)
    return bytes(raw)


def _too_large(limit: int) -> ApiError:
    message = f"the request's body has more than {limit} bytes, the most that --max-request-bytes allows"
    return ApiError(413, message, code="request_too_large")


def _unpacked(raw: bytes, encoding: str, limit: int) -> bytes:
    try:
        match encoding.strip().lower():
            case "" | "identity":
                return raw
            case "gzip" | "x-gzip":
                unpacked = zlib.decompressobj(wbits=31).decompress(raw, limit + 1)
            case "deflate":
                unpacked = zlib.decompressobj().decompress(raw, limit + 1)
            case "zstd":
                unpacked = zstandard.ZstdDecompressor().stream_reader(raw).read(limit + 1)
            case _:
                raise ApiError(415, f"Content-Encoding '{encoding:.50}' is not one of gzip, deflate, zstd")
    except (zlib.error, zstandard.ZstdError) as error:
        raise invalid(f"the request's body is not {encoding.strip().lower()}: {error}", code="invalid_body") from error
    if len(unpacked) > limit:
        raise _too_large(limit)
    return unpacked


def parse_json(raw: bytes) -> Any:
    """One JSON value. Half surrogate pairs become U+FFFD, as in a browser: they are no text."""
    try:
        value = read_json(raw.decode(), strict=True)
        _check_depth(value)
        return _whole_characters(value) if _ESCAPED_SURROGATE.search(raw) else value
    except (ValueError, RecursionError) as error:
        raise invalid(f"the request's body is not valid JSON: {error}", code="invalid_json") from error


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level := [child for parent in level for child in _children(parent)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")


def _children(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _whole_characters(value: Any) -> Any:
    match value:
        case Number():
            return value
        case str():
            return _SURROGATE.sub("\ufffd", value)
        case list():
            return [_whole_characters(item) for item in value]
        case dict():
            return {_whole_characters(key): _whole_characters(item) for key, item in value.items()}
    return value


def plain(value: Any, opaque: frozenset[str]) -> Any:
    """A value of `read_json` with numbers as int and float, but for what stands under an opaque key."""
    match value:
        case Number():
            return _number(value)
        case list():
            return [plain(item, opaque) for item in value]
        case dict():
            return {key: item if key in opaque else plain(item, opaque) for key, item in value.items()}
    return value


def _number(spelling: str) -> int | float:
    """Raises `ApiError` for a number that no field could take."""
    if len(spelling) > 400:
        raise invalid(f"the number {spelling:.20}... has too many digits", code="invalid_json")
    if spelling.lstrip("-").isdigit():
        return int(spelling)
    number = float(spelling)
    if math.isinf(number):
        raise invalid(f"the number {spelling:.50} is out of range", code="invalid_json")
    return number
