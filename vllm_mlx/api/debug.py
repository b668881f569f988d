"""`GET /debug/cache`: what the prefix cache holds, and why the latest prompts found no more in it, as text."""

from typing import Any

from vllm_mlx.api.errors import of_engine
from vllm_mlx.api.service import Service
from vllm_mlx.engine.interface import EngineError
from vllm_mlx.engine.protocol import Lookup, Miss


async def cache(service: Service) -> dict[str, Any]:
    """The engine's report; tokens are told as text. Raises `ApiError` when no engine runs."""
    try:
        report = await service.engine.cache_report()
    except EngineError as error:
        raise of_engine(error) from error
    found: dict[str, Any] = {
        "enabled": report.enabled,
        "bytes": report.bytes,
        "limit_bytes": report.limit,
        "runs": [
            {"begins_at": run.base, "tokens": run.tokens, "bytes": run.bytes, "in_use": run.lent, "last_used": run.used}
            for run in report.runs
        ],
        "lookups": [_lookup(lookup, service) for lookup in report.lookups],
    }
    if report.store_bytes is not None:
        found["store"] = {"bytes": report.store_bytes, "limit_bytes": report.store_limit}
    return found


def _lookup(lookup: Lookup, service: Service) -> dict[str, Any]:
    return {
        "id": lookup.id,
        "prompt_tokens": lookup.prompt_tokens,
        "cached_tokens": lookup.cached_tokens,
        "miss": None if lookup.miss is None else _miss(lookup.miss, service),
    }


def _miss(miss: Miss, service: Service) -> dict[str, Any]:
    return {
        "why": miss.kind,
        "at_token": miss.at,
        "cached": service.chat.decode(miss.cached),
        "prompt": service.chat.decode(miss.prompt),
    }
