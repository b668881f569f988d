"""Entries of a report file to single cases: one request, one output, one cutting, on one API."""

import base64
import copy
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from reports.translate import translated

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "messages": "/v1/messages",
    "responses": "/v1/responses",
}
RANDOM_CUTS = 5
MESSAGE_FIELDS = frozenset({"reasoning", "reasoning_content", "reasoning_details", "content", "tool_calls"})
EXPECTED_FIELDS = frozenset({"status", "body", "error_param", "error_code", "twice_same_text"})


class NotRun(Exception):
    """An entry, or a part of it, that cannot be run; the message says why."""


@dataclass(frozen=True)
class Case:
    """`line` is a replay line, None for the built-in model. `api` None: a request to another path."""

    entry: str
    label: str
    family: str
    api: str | None
    method: str
    path: str
    body: Any
    headers: dict[str, str]
    expect: dict[str, Any]
    line: dict[str, Any] | None = None
    output: str = ""


@dataclass
class Entry:
    """The cases of one entry, and why others of it were not made."""

    id: str
    cases: list[Case] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def read(entry: dict[str, Any]) -> Entry:
    """All cases of an entry."""
    found = Entry(entry["id"])
    repro = entry["repro"]
    try:
        match repro["kind"]:
            case "scripted":
                found.cases += scripted(entry["id"], repro)
            case "request":
                found.cases += requests(entry["id"], repro)
            case kind:
                raise NotRun(f"kind {kind}")
    except NotRun as error:
        found.reasons.append(str(error))
    return found


def scripted(id: str, repro: dict[str, Any]) -> Iterator[Case]:
    """Every family, API, variant and cutting."""
    for family in families(repro):
        for native, expect, note in variants(repro):
            apis = repro.get("apis", ["chat"])
            if unknown := set(apis) - set(PATHS):
                raise NotRun(f"API {', '.join(sorted(unknown))}")
            for api in ["messages"] if note.startswith("anthropic") else apis:
                body = translated(native, api) if "chat" in apis else copy.deepcopy(native)
                if note.startswith("anthropic"):
                    body.update(next(v for v in repro["variants"] if v.get("anthropic"))["anthropic"])
                for cut, pieces in cuttings(repro):
                    line: dict[str, Any] = {"output": pieces}
                    if repro.get("simulate_finish"):
                        line["finish_reason"] = repro["simulate_finish"]
                    if repro.get("simulate_engine_exception_after") is not None:
                        line["error_after"] = repro["simulate_engine_exception_after"]
                    label = " ".join(filter(None, (family, api, cut, note)))
                    yield Case(
                        id, label, family, api, "POST", PATHS[api], body, {}, expect, line, repro["model_output"]
                    )


def requests(id: str, repro: dict[str, Any]) -> Iterator[Case]:
    """Every family and variant; the reply is the built-in model's own, or any where only the prompt counts."""
    for family in families(repro):
        for native, expect, note in variants(repro):
            changed = repro | next((v for v in repro.get("variants", []) if str(v) == note and isinstance(v, dict)), {})
            method, _, path = changed["path"].rpartition(" ")
            api = next((api for api, known in PATHS.items() if known == path), None)
            body = native
            if api not in (None, "chat") and repro["path"] == PATHS["chat"]:
                body = translated(native, api)
            elif api == "responses" and isinstance(body, dict) and "messages" in body:
                body = {"model": body.get("model"), "input": body["messages"]}
            line = None if family == "m2" else {"output": "ok"}
            headers = changed.get("headers") or {}
            label = " ".join(filter(None, (family, note)))
            yield Case(
                id, label, family, api, changed.get("method") or method or "POST", path, body, headers, expect, line
            )


def families(repro: dict[str, Any]) -> list[str]:
    """The model families of an entry; those without one are run as M2."""
    found = [family.strip() for family in (repro.get("family") or "m2").split(",")]
    unknown = [family for family in found if family not in ("m2", "m3")]
    if unknown:
        raise NotRun(f"family {unknown[0]}")
    return found


def variants(repro: dict[str, Any]) -> Iterator[tuple[Any, dict[str, Any], str]]:
    """The request as it is, then with each variant's fields changed; with what is expected, and a note."""
    request, expect = repro.get("request"), repro["expect"]
    yield copy.deepcopy(request), expect, ""
    for variant in repro.get("variants", []):
        if isinstance(variant, dict) and "anthropic" in variant:
            yield copy.deepcopy(request), expect, f"anthropic {variant['anthropic']}"
            continue
        yield *varied(request, expect, variant), str(variant)


def varied(request: Any, expect: dict[str, Any], variant: Any) -> tuple[Any, dict[str, Any]]:
    """A request and its expectation with a variant's fields changed, wherever they stand."""
    request, expect = copy.deepcopy(request), dict(expect)
    if isinstance(variant, str):
        if missing := re.fullmatch(r"(\w+) key missing", variant):
            for message in request["messages"]:
                if message.get(missing[1]) in (None, ""):
                    message.pop(missing[1], None)
            return request, expect
        raise NotRun(f"variant {variant!r}")
    fields = {name: value for name, value in variant.items() if name not in ("path", "method", "headers")}
    for name in EXPECTED_FIELDS & fields.keys():
        expect[name] = fields.pop(name)
    if "error_code" in variant or "path" in variant:
        expect.setdefault("status", 400)
        if "body" not in variant:
            expect.pop("body", None)
    if not fields:
        return request, expect
    if "error_param" in expect and expect["error_param"] not in fields:
        request.pop(expect["error_param"], None)
        (expect["error_param"],) = fields
    change(request, fields)
    return request, expect


def change(request: dict[str, Any], fields: dict[str, Any]) -> None:
    """Sets fields where the request has them: in a block, a call, a message of the assistant, or at its top."""
    for message in request.get("messages", []) if fields.keys().isdisjoint(request) else []:
        if message.get("role") != "assistant":
            continue
        for block in [*holders(message, "thinking"), *holders(message, "arguments")]:
            known = {"signature", "type", "data"} if "thinking" in block else {"arguments"}
            if fields.keys() <= known:
                if "type" in fields:
                    block.clear()
                block.update(fields)
                return
        if fields.keys() <= MESSAGE_FIELDS:
            for name in ("reasoning", "reasoning_content", "reasoning_details"):
                message.pop(name, None)
            message.update(fields)
            return
    request.update(fields)


def holders(value: Any, key: str) -> Iterator[dict[str, Any]]:
    """All objects within a value that have a key."""
    if isinstance(value, dict):
        if key in value:
            yield value
        for inner in value.values():
            yield from holders(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from holders(inner, key)


def cuttings(repro: dict[str, Any]) -> Iterator[tuple[str, list[Any] | str]]:
    """Every cutting of the output: a name and the pieces; `per_token` is left to the tokenizer."""
    text = repro["model_output"]
    for cutting in repro.get("chunking", ["whole", "per_char"]):
        match cutting:
            case list():
                yield "explicit", cutting
            case "whole":
                yield cutting, [text]
            case "per_char":
                yield cutting, list(text)
            case "per_token":
                yield cutting, text
            case "per_byte_tokens":
                yield cutting, [packed(bytes([byte])) for byte in text.encode()]
            case "all_two_way_splits":
                for at in range(1, len(text)):
                    yield f"cut at {at}", [text[:at], text[at:]]
            case "random_1_to_40":
                for seed in range(RANDOM_CUTS):
                    yield f"random {seed}", random_cut(text, random.Random(seed))
            case "invalid_utf8_tail":
                yield cutting, [text, packed(b"\xf0\x9f\xa6")]
            case _:
                raise NotRun(f"cutting {cutting!r}")


def packed(piece: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(piece).decode()}


def random_cut(text: str, source: random.Random) -> list[str]:
    pieces = []
    while text:
        size = source.randint(1, 40)
        pieces.append(text[:size])
        text = text[size:]
    return pieces
