"""Which calls a reply may or must have, and what of other servers' tools is passed over."""

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from vllm_mlx.api.errors import invalid
from vllm_mlx.chat.conversation import Tool, ToolChoice

log = logging.getLogger(__name__)


@lru_cache(1024)
def note_hosted(kind: str) -> None:
    """Logs, once a kind, that a tool is not offered to the model: it runs on another server than this."""
    log.warning("tools of type %.100r are hosted elsewhere and are not offered to the model", kind)


@lru_cache(1024)
def note_left_out(kind: str) -> None:
    """Logs, once a kind, that a part of the history is left out: it tells of what happened on another server."""
    log.warning("what has the type %.100r is left out of the history", kind)


@lru_cache(1024)
def note_not_included(name: str) -> None:
    """Logs, once a name, that there is nothing to add to a response under it."""
    log.warning("include: there is nothing here of the name %.100r", name)


def choice_of(wish: Any, parallel: bool | None, tools: Sequence[Tool], automatic: bool) -> ToolChoice:
    """A tool choice in the words of chat completions: null, none, auto, required, or an object that names a function.

    `automatic`: the model may call tools without being told to.

    Raises:
        ApiError: what is wished for cannot be had.
    """
    names = [tool.name for tool in tools]
    parallel = parallel is not False
    match wish:
        case None:
            return ToolChoice("auto" if automatic and names else "none", parallel=parallel)
        case "none":
            return ToolChoice("none", parallel=parallel)
        case "auto":
            if names and not automatic:
                raise invalid("tool_choice 'auto' is turned off: --no-enable-auto-tool-choice", "tool_choice")
            return ToolChoice("auto" if names else "none", parallel=parallel)
        case "required" if names:
            return ToolChoice("required", parallel=parallel)
        case {"type": "function", "function": {"name": str(name)}} if names:
            if name not in names:
                raise invalid(f"tool_choice names '{name}', which is not among the tools", "tool_choice")
            return ToolChoice("named", name, parallel=parallel)
        case "required" | {"type": "function", "function": {"name": str()}}:
            raise invalid("tool_choice asks for a call, but there are no tools", "tool_choice")
    raise invalid("tool_choice must be none, auto, required, or an object that names a function", "tool_choice")
