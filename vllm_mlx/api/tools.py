"""Which calls a reply may or must have, and what of other servers' tools is passed over."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from vllm_mlx.api.errors import invalid
from vllm_mlx.chat.conversation import Tool, ToolChoice

log = logging.getLogger(__name__)

OWN_TYPES = ("function", "custom")
"""The types of tools that the client runs, and that are offered to the model."""

CHOICE_NOTE = (
    "none, auto, required, or an object that names a tool or the allowed ones (the model is told of all; "
    "`--constrain-tool-calls off`: it is not held to them)."
)


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


NameOf = Callable[[str, str | None], str]
"""What the model knows a tool by, of the name and the namespace that a client gives it."""


def _own_name(name: str, namespace: str | None) -> str:
    del namespace
    return name


def choice_of(
    wish: Any, parallel: bool | None, tools: Sequence[Tool], automatic: bool, name_of: NameOf = _own_name
) -> ToolChoice:
    """A tool choice: null, none, auto, required, or an object that names a tool or those that are allowed.

    Objects are read as chat completions and as the Responses API have them. `automatic`: the model may call tools
    without being told to.

    Raises:
        ApiError: what is wished for cannot be had.
    """
    given = _Tools({tool.name for tool in tools}, name_of)
    parallel = parallel is not False
    match wish:
        case None if automatic and tools:
            return ToolChoice("auto", parallel=parallel)
        case None | "none":
            return ToolChoice("none", parallel=parallel)
        case "auto" | "required":
            return _of_mode(wish, parallel, automatic, bool(tools))
        case {"type": "allowed_tools"}:
            return _allowed(wish, parallel, automatic, given)
        case {"type": "function" | "custom"}:
            return ToolChoice("named", given.name(wish, "tool_choice"), parallel=parallel)
        case {"type": str(kind)}:
            raise invalid(f"tool_choice: a tool of type '{kind}' is not on this server", "tool_choice")
    raise invalid("tool_choice must be none, auto, required, or an object that names tools", "tool_choice")


def _of_mode(
    mode: Literal["auto", "required"],
    parallel: bool,
    automatic: bool,
    some: bool,
    allowed: tuple[str, ...] | None = None,
) -> ToolChoice:
    """`some`: there are tools that may be called."""
    if mode == "required" and not some:
        raise invalid("tool_choice asks for a call, but there are no tools", "tool_choice")
    if mode == "auto" and some and not automatic:
        raise invalid("tool_choice 'auto' is turned off: --no-enable-auto-tool-choice", "tool_choice")
    return ToolChoice(mode if some else "none", parallel=parallel, allowed=allowed)


def _allowed(wish: Mapping[str, Any], parallel: bool, automatic: bool, given: "_Tools") -> ToolChoice:
    """Allowed tools: chat completions put mode and tools one level deeper than the Responses API."""
    inner, param = wish, "tool_choice"
    if "allowed_tools" in wish:
        inner, param = wish["allowed_tools"], "tool_choice.allowed_tools"
    if not isinstance(inner, Mapping):
        raise invalid(f"{param}: must be an object", param)
    mode, listed = inner.get("mode"), inner.get("tools")
    if mode not in ("auto", "required"):
        raise invalid(f"{param}.mode: must be auto or required", f"{param}.mode")
    if not isinstance(listed, list):
        raise invalid(f"{param}.tools: must be a list of tools", f"{param}.tools")
    named = [given.allowed(tool, f"{param}.tools[{i}]") for i, tool in enumerate(listed)]
    allowed = tuple(name for name in named if name is not None)
    return _of_mode(mode, parallel, automatic, bool(allowed), allowed)


@dataclass(frozen=True, slots=True)
class _Tools:
    """The tools that a choice may name."""

    names: Collection[str]
    name_of: NameOf

    def allowed(self, tool: Any, param: str) -> str | None:
        """The name of an allowed tool; None: it runs elsewhere. Raises `ApiError` for a tool that is not offered."""
        kind = tool.get("type") if isinstance(tool, Mapping) else None
        if not isinstance(kind, str):
            raise invalid(f"{param}: must be an object with a type", param)
        if kind in OWN_TYPES:
            return self.name(tool, param)
        note_hosted(kind)
        return None

    def name(self, tool: Mapping[str, Any], param: str) -> str:
        """The name of a tool: beside its type, or in an object of that name. Raises as `allowed`."""
        if not self.names:
            raise invalid(f"{param} asks for a call, but there are no tools", param)
        inner = tool.get(tool["type"], tool)
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if not isinstance(name, str):
            raise invalid(f"{param}: a tool must be named", param)
        namespace = inner.get("namespace")
        known = self.name_of(name, namespace if isinstance(namespace, str) else None)
        if known not in self.names:
            raise invalid(f"{param} names '{name}', which is not among the tools", param)
        return known
