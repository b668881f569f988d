"""`GET /v1/models` and `/v1/models/{id}`: what is served, with its context. Fits OpenAI and Anthropic clients."""

from datetime import UTC, datetime
from typing import Any

from vllm_mlx.api.errors import not_found
from vllm_mlx.api.service import Service


def model_list(service: Service) -> dict[str, Any]:
    """Every name that the model is served under."""
    models = [model_card(service, name) for name in service.names]
    ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"]}
    return {"object": "list", "data": models, "has_more": False, **ends}


def model_of(service: Service, name: str) -> dict[str, Any]:
    """One model. Raises `ApiError` 404 for a name that is not served, strict or not."""
    if name not in service.names:
        raise not_found(f"the model '{name}' does not exist", "model", "model_not_found")
    return model_card(service, name)


def model_card(service: Service, name: str) -> dict[str, Any]:
    """The context length stands under every name that clients read it by."""
    length = service.max_model_len
    return {
        "id": name,
        "object": "model",
        "type": "model",
        "display_name": name,
        "lifecycle": "active",
        "created": service.started,
        "created_at": datetime.fromtimestamp(service.started, UTC).isoformat().replace("+00:00", "Z"),
        "owned_by": "vllm-mlx",
        "root": service.config.engine.model,
        "max_model_len": length,
        "context_length": length,
        "context_window": length,
        "max_input_tokens": length,
        "max_tokens": length,
    }
