"""The conversation that every protocol decodes to, in one spelling: equal meaning gives equal values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "developer", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made. `arguments` is JSON text, with the key order and number spellings it came with."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. Content parts are already one string; a missing content is ""; a missing thought is None."""

    role: Role
    content: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        assert not self.tool_calls or self.role == "assistant"
        assert self.reasoning is None or self.role == "assistant"


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the client offers. `function` is its JSON object as sent (name, description, parameters, ...)."""

    name: str
    function: Mapping[str, Any]

    @property
    def schema(self) -> dict[str, Any]:
        """The OpenAI wrapper that templates and tool parsers read."""
        return {"type": "function", "function": dict(self.function)}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`named` carries the function's name in `name`. `parallel` False: at most one call in the reply."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is rendered to a prompt. `template_kwargs` go to the chat template as they are."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
