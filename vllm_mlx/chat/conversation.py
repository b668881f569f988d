"""The conversation that every protocol decodes to, in one spelling: equal meaning gives equal values."""

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

_OWN_ID = re.compile(r"(?:call|toolu)_[0-9a-f]{24}")

Role = Literal["system", "developer", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model made. `arguments` is JSON text, with the key order and number spellings it came with."""

    id: str
    name: str
    arguments: str


def new_call_id(prefix: str) -> str:
    """An id that no other call has, in any request or any run of the server; `prefix` is `call_` or `toolu_`."""
    return prefix + secrets.token_hex(12)


def is_own_call_id(id: str) -> bool:
    """Whether an id was made here. Some formats bring their own, which begin anew in every conversation."""
    return _OWN_ID.fullmatch(id) is not None


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
    """`named` carries the function's name in `name`. `parallel` False: at most one call in the reply.

    `allowed`: the model is told of all tools and may call only these; None: any of them.
    """

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None
    parallel: bool = True
    allowed: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is rendered to a prompt. `template_kwargs` go to the chat template as they are."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that the model is told of and may call: none with tool_choice none."""
        return () if self.tool_choice.mode == "none" else self.tools


def normalise(messages: Iterable[Message], *, thought: tuple[str, str] | None, late_system: bool) -> list[Message]:
    """The one form in which a conversation is rendered.

    Args:
        messages: as a protocol decoded them.
        thought: the markers of the model's own thoughts: a leading thinking block in an assistant's content is moved
            to its `reasoning`, if it has none.
        late_system: whether the template writes system messages in place. Where it would drop, move or refuse
            them, later ones become marked user text at their place; the first turn never changes.
    """
    lifted = [lift_thought(message, thought) if thought else message for message in messages]
    return _order_results(_place_system(lifted, late_system))


def lift_thought(message: Message, thought: tuple[str, str]) -> Message:
    """Moves an assistant's leading inline thinking block to `reasoning`, without the line breaks beside the markers."""
    opener, closer = thought
    content = message.content.lstrip()
    if message.role != "assistant" or message.reasoning is not None or not content.startswith(opener):
        return message
    reasoning, _, rest = content[len(opener) :].partition(closer)
    return replace(message, reasoning=reasoning.strip("\n"), content=rest.lstrip("\n"))


def _place_system(messages: list[Message], late_system: bool) -> list[Message]:
    """Developer becomes system; leading ones merge to one message; later ones stay where they are."""
    late = next(
        (at for at, message in enumerate(messages) if message.role not in ("system", "developer")), len(messages)
    )
    leading = [message.content for message in messages[:late] if message.content]
    placed = [Message("system", "\n\n".join(leading))] if leading else []
    for message in messages[late:]:
        if message.role not in ("system", "developer"):
            placed.append(message)
        elif late_system:
            placed.append(replace(message, role="system"))
        else:
            placed.append(Message("user", f"[{message.role} message]\n{message.content}"))
    return placed


def _order_results(messages: list[Message]) -> list[Message]:
    """Tool results follow the order of their calls: some templates tell them apart by nothing else."""
    ordered: list[Message] = []
    calls: list[str] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        end = at + 1
        if message.role == "tool":
            while end < len(messages) and messages[end].role == "tool":
                end += 1
            ordered += _results(messages[at:end], calls)
        else:
            if message.role == "assistant":
                calls = [call.id for call in message.tool_calls]
            ordered.append(message)
        at = end
    return ordered


def _results(results: list[Message], calls: list[str]) -> list[Message]:
    """Results without an id answer the calls that nothing else answers, in order."""
    answered = {result.tool_call_id for result in results}
    open_calls = iter([call for call in calls if call not in answered])
    named = [
        result if result.tool_call_id else replace(result, tool_call_id=next(open_calls, None)) for result in results
    ]
    place = {call: at for at, call in enumerate(calls)}
    return sorted(named, key=lambda result: place.get(result.tool_call_id or "", len(place)))
