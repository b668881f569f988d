"""`GET /v1/responses/{id}/input_items`: what a stored response was asked with, a page at a time."""

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_mlx.api.errors import invalid
from vllm_mlx.api.response_store import Item


def input_page(response_id: str, items: Sequence[Item], query: Mapping[str, str]) -> dict[str, Any]:
    """A page of items; `query` may have limit, order and after. Raises `ApiError`."""
    limit, order, after = query.get("limit", "20"), query.get("order", "desc"), query.get("after")
    if not (limit.isascii() and limit.isdigit() and len(limit) <= 3 and 1 <= int(limit) <= 100):
        raise invalid("limit: must be 1 to 100", "limit")
    if order not in ("asc", "desc"):
        raise invalid("order: must be asc or desc", "order")
    shown = [_shown(item, f"in_{response_id.removeprefix('resp_')}_{i}") for i, item in enumerate(items)]
    if order == "desc":
        shown.reverse()
    if after is not None:
        ids = [item["id"] for item in shown]
        if after not in ids:
            raise invalid(f"after: there is no item '{after:.100}'", "after")
        shown = shown[ids.index(after) + 1 :]
    page = shown[: int(limit)]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return {"object": "list", "data": page, "first_id": first, "last_id": last, "has_more": len(shown) > len(page)}


def _shown(item: Item, id: str) -> dict[str, Any]:
    """An item with an id, under which `after` finds it, and a message in its full form."""
    shown = {**item, "id": item.get("id") if isinstance(item.get("id"), str) else id}
    if "role" not in item or item.get("type") not in (None, "message"):
        return shown
    content = item.get("content")
    if isinstance(content, str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        content = [{"type": kind, "text": content, **({"annotations": []} if kind == "output_text" else {})}]
    return {**shown, "type": "message", "content": content or [], "status": item.get("status") or "completed"}
