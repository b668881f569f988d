"""What templates cannot express, each with its reason and an example that shows it. Nothing else may fail a round trip.

A setting is a template and the template arguments it is rendered with. For a limit, `hits` says which messages it is
about; the example is such a message, and fails.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tool_parsers.json_text import Number, read_json, write_json
from vllm_mlx.chat.conversation import Message, ToolCall


@dataclass(frozen=True, slots=True)
class Limit:
    reason: str
    hits: Callable[[Message], bool]
    example: Message


@dataclass(frozen=True, slots=True)
class Setting:
    template: str
    """Name of the model's own template in the shared data."""
    own: str
    """Name of ours."""
    kwargs: dict[str, Any]
    limits: tuple[Limit, ...]

    @property
    def name(self) -> str:
        return "-".join([self.template, *map(str, self.kwargs.values())])


def texts(message: Message) -> list[str]:
    return [
        message.reasoning or "",
        message.content,
        *(call.arguments for call in message.tool_calls),
        *strings(message),
    ]


def strings(message: Message) -> list[str]:
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                found.append(key)
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)
        elif isinstance(value, str):
            found.append(value)

    for call in message.tool_calls:
        walk(read_json(call.arguments))
    return found


def call(arguments: str = '{"path":"a"}', name: str = "edit", at: int = 0) -> ToolCall:
    return ToolCall(f"functions.{name}:{at}", name, arguments)


FULL = Message("assistant", "C", reasoning="R", tool_calls=(call(),))


def has_call(message: Message) -> bool:
    return bool(message.tool_calls)


def no_thought(message: Message) -> bool:
    return not (message.reasoning or "").strip()


def blank_thought(message: Message) -> bool:
    return bool(message.reasoning) and no_thought(message)


def stripped(text: str, chars: str | None = None) -> bool:
    """Whether a template that strips the text loses some of it."""
    return text != text.strip(chars)


BLANK_CONTENT = Limit(
    "a content of blanks only is layout to the parsers: next to a boundary it means nothing",
    lambda message: bool(message.content) and not message.content.strip(),
    replace(FULL, content=" \n"),
)
BLANK_THOUGHT = Limit("a thought of blanks only is none", blank_thought, replace(FULL, reasoning=" "))
NO_THOUGHT_LOSES_PREFIX = Limit(
    "without a thought the history does not have the opener that the prompt ended with",
    no_thought,
    replace(FULL, reasoning=None),
)
STRIPPED_CONTENT = Limit(
    "the template strips the content", lambda message: stripped(message.content), replace(FULL, content="C ")
)
STRIPPED_THOUGHT = Limit(
    "the template strips the thought", lambda message: stripped(message.reasoning or ""), replace(FULL, reasoning=" R")
)
LINES_OF_CONTENT = Limit(
    "the template strips line breaks before the content",
    lambda message: message.content.startswith("\n"),
    replace(FULL, content="\nC"),
)
LINES_OF_THOUGHT = Limit(
    "the template strips line breaks around the thought",
    lambda message: stripped(message.reasoning or "", "\n"),
    replace(FULL, reasoning="\nR\n"),
)
THOUGHT_IS_LEFT_OUT = Limit(
    "with thinking off, the template writes no thought into the history", lambda message: bool(message.reasoning), FULL
)
THOUGHT_LOSES_PREFIX = Limit(
    "with thinking off, a history with a thought does not have the closed thought that the prompt ended with",
    lambda message: bool(message.reasoning),
    FULL,
)
LAST_THOUGHT_IS_LEFT_OUT = Limit(
    "the template leaves out the thought of a turn without calls",
    lambda message: bool(message.reasoning) and not message.tool_calls,
    replace(FULL, tool_calls=()),
)


def undeclared(message: Message) -> list[Any]:
    """Values of the parameter that no schema declares."""
    arguments = [read_json(call.arguments) for call in message.tool_calls]
    return [values["free"] for values in arguments if "free" in values]


def reads_as_json(value: Any) -> bool:
    if not isinstance(value, str) or isinstance(value, Number):
        return False
    try:
        read_json(value)
    except ValueError:
        return False
    return True


UNDECLARED_JSON = Limit(
    "nothing tells an undeclared string that reads as JSON from the JSON value: it comes back as that",
    lambda message: any(reads_as_json(value) for value in undeclared(message)),
    replace(FULL, tool_calls=(call('{"free":"1.0"}'),)),
)
UNDECLARED_TEXT = Limit(
    "nothing tells an undeclared value of another type from its text: it comes back as text",
    lambda message: any(not isinstance(value, str) or isinstance(value, Number) for value in undeclared(message)),
    replace(FULL, tool_calls=(call('{"free":1.0}'),)),
)
NULL_IS_LEFT_OUT = Limit(
    "the template leaves out members that are null",
    lambda message: "null" in write_json([read_json(call.arguments) for call in message.tool_calls]),
    replace(FULL, tool_calls=(call('{"maybe":null}'),)),
)


def markup(*markers: str) -> Limit:
    """Nothing is escaped in any template: a text that spells the format's markup is markup."""
    return Limit(
        "text that spells the format's markup is markup: no template escapes it",
        lambda message: any(marker in text for marker in markers for text in texts(message)),
        replace(FULL, content=f"a{markers[0]}b"),
    )


THINK = ("</think>", "<think>")
TURN_M = ("[e~[", "]~b]", "]~!b[")
M2 = (*THINK, "<minimax:tool_call>", "</minimax:tool_call>", "<invoke", "<parameter", "</parameter>", *TURN_M)
M3 = ("</mm:think>", "<mm:think>", "]<]minimax[>[", *TURN_M)
QWEN = (*THINK, "<tool_call>", "</tool_call>", "<|im_end|>", "<|im_start|>")
CODER = (*QWEN, "<function=", "</parameter>", "<parameter=", "</function>")
DSML = (*THINK, "｜DSML｜", "<｜end▁of▁sentence｜>")
GLM = (*THINK, "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<|user|>")
KIMI = (*THINK, "<|tool_call", "<|im_end|>")

LIMITS_M2 = (markup(*M2), BLANK_CONTENT, BLANK_THOUGHT, NO_THOUGHT_LOSES_PREFIX, UNDECLARED_JSON)
LIMITS_M3 = (markup(*M3), BLANK_CONTENT, BLANK_THOUGHT, UNDECLARED_TEXT, NULL_IS_LEFT_OUT)
LIMITS_QWEN = (markup(*QWEN), BLANK_CONTENT, BLANK_THOUGHT, LINES_OF_CONTENT)
LIMITS_CODER = (markup(*CODER), STRIPPED_CONTENT, UNDECLARED_TEXT)
LIMITS_GLM = (markup(*GLM), STRIPPED_CONTENT, UNDECLARED_TEXT)

SETTINGS = [
    Setting("MiniMax-M2.5", "minimax_m2", {}, LIMITS_M2),
    Setting("MiniMax-M3", "minimax_m3", {"thinking_mode": "enabled"}, (*LIMITS_M3, NO_THOUGHT_LOSES_PREFIX)),
    Setting("MiniMax-M3", "minimax_m3", {"thinking_mode": "adaptive"}, LIMITS_M3),
    Setting("MiniMax-M3", "minimax_m3", {"thinking_mode": "disabled"}, (*LIMITS_M3, THOUGHT_LOSES_PREFIX)),
    Setting("Qwen3-0.6B", "qwen3", {}, (*LIMITS_QWEN, LINES_OF_THOUGHT)),
    Setting("Qwen3-0.6B", "qwen3", {"enable_thinking": False}, (*LIMITS_QWEN, THOUGHT_LOSES_PREFIX)),
    Setting("Qwen3.5-4B", "qwen35", {}, (*LIMITS_CODER, STRIPPED_THOUGHT)),
    Setting("Qwen3.5-4B", "qwen35", {"enable_thinking": False}, (*LIMITS_CODER, THOUGHT_LOSES_PREFIX)),
    Setting("DeepSeek-V4", "deepseek_v4", {"thinking": True}, (markup(*DSML), BLANK_CONTENT, BLANK_THOUGHT)),
    Setting("DeepSeek-V4", "deepseek_v4", {"thinking": False}, (markup(*DSML), BLANK_CONTENT, THOUGHT_IS_LEFT_OUT)),
    Setting("GLM-4.7-Flash", "glm47", {}, (*LIMITS_GLM, STRIPPED_THOUGHT, NO_THOUGHT_LOSES_PREFIX)),
    Setting("GLM-4.7-Flash", "glm47", {"enable_thinking": False}, (*LIMITS_GLM, THOUGHT_LOSES_PREFIX)),
    Setting("Kimi-K2.5", "kimi_k2", {}, (markup(*KIMI), BLANK_CONTENT, BLANK_THOUGHT, LAST_THOUGHT_IS_LEFT_OUT)),
    Setting("Kimi-K2.5", "kimi_k2", {"thinking": False}, (markup(*KIMI), BLANK_CONTENT, THOUGHT_IS_LEFT_OUT)),
]
