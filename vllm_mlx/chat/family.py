"""What goes with a model: parsers, turn tokens, how thinking is switched; all read from its own template."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import reasoning_parsers
import tool_parsers
from reasoning_parsers.base import ReasoningParser
from tool_parsers.base import ToolParser
from tool_parsers.minimax_m2 import NAMESPACE
from vllm_mlx.chat.output import TurnTokens, parser_classes
from vllm_mlx.chat.template import ChatTemplate, TemplateError

# Turn tokens that end a turn, or are dropped, even as text. Other families' turn tokens are control tokens and
# nothing else: their ids are found by rendering.
MINIMAX_TURN = TurnTokens(begin="]~!b[", role="]~b]", end="[e~[", hidden=(NAMESPACE,))
_TURNS = (MINIMAX_TURN,)

# What the values of a template's `thinking_mode` are called, on and off.
_MODES = (("enabled", "disabled"), ("thinking", "chat"))
_EFFORTS_OFF = ("none", "minimal")


@dataclass(frozen=True, slots=True)
class Family:
    """How a model's turns are written and read."""

    tool_parser: str | None
    reasoning_parser: str | None
    turn: TurnTokens
    late_system: bool
    """The template writes a later system message in its place."""

    @property
    def parser_classes(self) -> tuple[type[ToolParser] | None, type[ReasoningParser] | None]:
        return parser_classes(self.tool_parser, self.reasoning_parser)


def recognise(template: ChatTemplate, *, tool_parser: str = "auto", reasoning_parser: str = "auto") -> Family:
    """The family of a template. A parser is `auto` (by what the template writes), `none`, or a name.

    Raises:
        KeyError: an unknown parser name; the message lists what is available.
    """
    calls, thoughts = detect(template.source)
    return Family(
        tool_parser=_choose(tool_parsers, tool_parser, calls),
        reasoning_parser=_choose(reasoning_parsers, reasoning_parser, thoughts),
        turn=next((turn for turn in _TURNS if turn.end and turn.end in template.source), TurnTokens()),
        late_system=_keeps_late_system(template),
    )


def detect(source: str) -> tuple[str | None, str | None]:
    """The tool parser and the reasoning parser that read what a template (Jinja source) writes.

    A format of calls names the thoughts that go with it; where the template does not write those, or no calls, the
    reasoning parsers are asked.
    """
    tool = tool_parsers.detect(source)
    own = tool_parsers.get(tool).reasoning if tool else None
    if own is None or reasoning_parsers.get(own).closer not in source:
        own = reasoning_parsers.detect(source)
    return tool, own


def _choose(registry: Any, name: str, found: str | None) -> str | None:
    if name == "auto":
        return found
    if name == "none":
        return None
    resolved: str = registry.resolve(name)
    return resolved


def _keeps_late_system(template: ChatTemplate) -> bool:
    """Renders one and looks: some templates drop it, some refuse it, some move it to the front."""
    texts = ("first-question", "first-answer", "late-system", "second-question")
    messages = [
        {"role": role, "content": text, "reasoning_content": ""}
        for role, text in zip(("user", "assistant", "system", "user"), texts, strict=True)
    ]
    try:
        rendered = template.render(messages, None, add_generation_prompt=True)
    except TemplateError:
        return False
    places = [rendered.find(text) for text in texts]
    return -1 not in places and places == sorted(places)


def thinking_kwargs(template: ChatTemplate, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Template arguments in which one wish about thinking, however it was put, is put as this template reads it.

    `thinking_mode`, `enable_thinking`, `thinking` (a bool, or `{"type": "enabled"}`) and `reasoning_effort` are
    understood. What the template reads itself is passed on as it came.
    """
    result = dict(kwargs)
    wish = _wish(kwargs)
    if not isinstance(kwargs.get("thinking"), bool):
        result.pop("thinking", None)
    if wish is None:
        return result
    for name in ("enable_thinking", "thinking"):
        if name in template.reads and name not in result:
            result[name] = wish
    if "thinking_mode" in template.reads and "thinking_mode" not in result:
        on, off = next((pair for pair in _MODES if all(f'"{word}"' in template.source for word in pair)), _MODES[0])
        result["thinking_mode"] = on if wish else off
    return result


def _wish(kwargs: Mapping[str, Any]) -> bool | None:
    """Whether thinking is wanted; the most explicit wish counts."""
    mode = kwargs.get("thinking_mode")
    thinking = kwargs.get("thinking")
    if mode is None and isinstance(thinking, Mapping):
        mode = thinking.get("type")
    for on, off in _MODES:
        if mode in (on, off):
            return bool(mode == on)
    for name in ("enable_thinking", "thinking"):
        if isinstance(kwargs.get(name), bool):
            return bool(kwargs[name])
    effort = kwargs.get("reasoning_effort")
    return None if effort is None else effort not in _EFFORTS_OFF
