"""The server's own description: request bodies come from the wire types, so that they cannot differ from the code."""

from typing import Any

from fastapi import FastAPI

from vllm_mlx.api.requests import WireRequest

_ERROR = {"description": "An error in the protocol's own shape.", "content": {"application/json": {"schema": {}}}}


def takes(wire: type[WireRequest], stream: bool = False) -> dict[str, Any]:
    """The keywords of a route that reads its body as `wire`; `stream`: the answer may be a stream of events."""
    schema = wire.model_json_schema(ref_template="#/components/schemas/{model}")
    content: dict[str, Any] = {"application/json": {"schema": {}}}
    if stream:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    return {
        "response_model": None,
        "responses": {"200": {"description": "The answer.", "content": content}, "default": _ERROR},
        "openapi_extra": {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}},
    }


def install(app: FastAPI) -> None:
    """Moves the definitions inside request bodies to where references look for them."""
    written = app.openapi

    def openapi() -> dict[str, Any]:
        document = written()
        known = document.setdefault("components", {}).setdefault("schemas", {})
        for path in document["paths"].values():
            for operation in path.values():
                for content in operation.get("requestBody", {}).get("content", {}).values():
                    known.update(content["schema"].pop("$defs", {}))
        return document

    app.openapi = openapi  # type: ignore[method-assign]
