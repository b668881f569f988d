"""What a grammar costs: rows under one, and rows beside such a row, each over the same rows without."""

import asyncio
import random
import statistics
import string
from collections.abc import Sequence
from typing import Any

from vllm_mlx.bench.http import Stream, stream_chat
from vllm_mlx.bench.servers import Server

_TOKENS = 128
_BESIDE = 3
_FREE: dict[str, Any] = {}
_FORM = {
    "response_format": {
        "type": "json_schema",
        "json_schema": {
            "name": "rows",
            "schema": {
                "type": "array",
                "minItems": _TOKENS,
                "items": {
                    "type": "object",
                    "properties": {"n": {"type": "integer"}, "ok": {"type": "boolean"}, "kind": {"enum": ["a", "b"]}},
                    "required": ["n", "ok", "kind"],
                    "additionalProperties": False,
                },
            },
        },
    }
}
_CALL = {
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "write_file",
                "parameters": {
                    "type": "object",
                    "properties": {"path": {"enum": ["a.txt"]}, "content": {"type": "string"}},
                    "required": ["path", "content"],
                },
            },
        }
    ],
    "tool_choice": "required",
}


def pace(rows: Sequence[Stream]) -> float:
    """Tokens a second of a row, the median of those that were begun together. Chunks may hold several tokens."""
    return statistics.median(float(row.usage["completion_tokens"]) / (row.times[-1] - row.started) for row in rows)


async def measure(server: Server, rng: random.Random) -> dict[str, float]:
    """Each kind of row alone, then free rows by themselves and beside one under a grammar."""

    async def play(*kinds: dict[str, Any]) -> list[Stream]:
        texts = ["".join(rng.choices(string.ascii_lowercase, k=32)) for _ in kinds]
        bodies = [
            {"model": server.model, "messages": [{"role": "user", "content": text}], "max_tokens": _TOKENS, **kind}
            for text, kind in zip(texts, kinds, strict=True)
        ]
        return await asyncio.gather(*(stream_chat(server.base_url, body) for body in bodies))

    # A grammar is built once: what is measured is the pace of the rows.
    await play(_FORM)
    await play(_CALL)
    rows = await play(*[_FREE] * (_BESIDE + 1))
    *beside, _ = await play(*[_FREE] * _BESIDE, _FORM)
    return {
        "free row tok/s": pace(await play(_FREE)),
        "JSON row tok/s": pace(await play(_FORM)),
        "call row tok/s": pace(await play(_CALL)),
        "free 4 a row tok/s": pace(rows),
        "free beside JSON a row tok/s": pace(beside),
    }
