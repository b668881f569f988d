"""Tools of the Responses API: functions, custom tools and namespaces, all offered to the model as functions."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_mlx.api.content import tool_of
from vllm_mlx.api.custom_input import PARAMETER
from vllm_mlx.api.errors import invalid
from vllm_mlx.api.tools import OWN_TYPES, note_hosted
from vllm_mlx.chat.conversation import Tool


@dataclass(frozen=True, slots=True)
class Origin:
    """What the client calls a tool. `custom`: it takes text instead of arguments."""

    name: str
    namespace: str | None = None
    custom: bool = False


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of a request as the model sees them, and what they are to the client."""

    tools: tuple[Tool, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def origin(self, name: str) -> Origin:
        """What the client knows a called tool by; a tool that was not offered is a function of that name."""
        return self.origins.get(name, Origin(name))

    def name_of(self, name: str, namespace: str | None) -> str:
        """What the model knows a tool by, in a call that the client sends back."""
        for known, origin in self.origins.items():
            if (origin.name, origin.namespace) == (name, namespace):
                return known
        return name


def tool_set(lists: Iterable[tuple[str, Sequence[Any]]]) -> ToolSet:
    """Reads lists of tools, each with where it stands in the request.

    A name that two namespaces have goes by both names. Raises `ApiError`.
    """
    found = [tool for param, tools in lists for tool in _flat(tools, param)]
    count = Counter(origin.name for origin, _, _ in found)
    offered: dict[str, Tool] = {}
    origins: dict[str, Origin] = {}
    for origin, function, param in found:
        unique = count[origin.name] == 1 or origin.namespace is None
        name = origin.name if unique else f"{origin.namespace}__{origin.name}"
        if name in offered:
            raise invalid(f"{param}: there are two tools named '{name}'", f"{param}.name")
        offered[name] = tool_of({"name": name, **function}, param)
        origins[name] = origin
    return ToolSet(tuple(offered.values()), origins)


def _flat(tools: Sequence[Any], param: str) -> Iterator[tuple[Origin, Mapping[str, Any], str]]:
    """Each tool that the client can run: what it is to the client, the function for the model, and where it stands."""
    for i, tool in enumerate(tools):
        where = f"{param}[{i}]"
        if not isinstance(tool, dict) or tool.get("type") != "namespace":
            yield from _one(tool, None, where)
            continue
        namespace, inner = tool.get("name"), tool.get("tools")
        if not isinstance(namespace, str) or not namespace:
            raise invalid(f"{where}.name: must be a string that is not empty", f"{where}.name")
        if not isinstance(inner, list):
            raise invalid(f"{where}.tools: must be a list of tools", f"{where}.tools")
        for k, one in enumerate(inner):
            yield from _one(one, namespace, f"{where}.tools[{k}]")


def _one(tool: Any, namespace: str | None, param: str) -> Iterator[tuple[Origin, Mapping[str, Any], str]]:
    if not isinstance(tool, dict):
        raise invalid(f"{param}: must be an object", param)
    kind, name = tool.get("type"), tool.get("name")
    if kind not in OWN_TYPES:
        if not isinstance(kind, str):
            raise invalid(f"{param}.type: must be a string", f"{param}.type")
        note_hosted(kind)
        return
    if not isinstance(name, str) or not name:
        raise invalid(f"{param}.name: must be a string that is not empty", f"{param}.name")
    if kind == "custom":
        yield Origin(name, namespace, custom=True), _custom(tool), param
        return
    kept = {key: tool[key] for key in ("description", "parameters") if tool.get(key) is not None}
    if tool.get("strict") is True:
        kept["strict"] = True
    yield Origin(name, namespace), kept, param


def _custom(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A custom tool as a function with one string; its grammar is told, since the model must keep to it."""
    description = tool.get("description") if isinstance(tool.get("description"), str) else ""
    match tool.get("format"):
        case {"type": "grammar", "syntax": str(syntax), "definition": str(definition)}:
            description = f"{description}\n\nThe input follows this {syntax} grammar:\n{definition}".strip()
    parameter = {"type": "string", "description": "The whole input of the tool, as plain text."}
    schema = {"type": "object", "properties": {PARAMETER: parameter}, "required": [PARAMETER]}
    return {"description": description, "parameters": schema}
