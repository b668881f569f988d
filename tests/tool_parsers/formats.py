"""What models of each family write: a thought, words and calls to one text, as their templates have it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Format:
    """A family: its two parsers, and how it writes a turn whose thought the prompt has opened."""

    tool_parser: str
    reasoning_parser: str
    thought: str
    """Between the thought and what follows it."""
    before_calls: str
    """Between the words, if there are any, and the calls."""
    calls: Callable[[Sequence[Call]], str]
    fragments: tuple[str, ...]
    """What strings hold that looks like the end of a value or a call."""
    raw: bool = False
    """The arguments are JSON in the text already, and reach the client with its spaces."""

    def render(self, thought: str, words: str, calls: Sequence[Call]) -> str:
        """The text of a turn."""
        layout = self.before_calls if words and calls else ""
        return f"{thought}{self.thought}{words}{layout}{self.calls(calls) if calls else ''}"

    def arguments(self, arguments: dict[str, Any]) -> str:
        """What a client must get."""
        return spaced(arguments) if self.raw else json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))


def spaced(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def plain(value: Any) -> str:
    """A string raw, anything else as JSON."""
    return value if isinstance(value, str) else spaced(value)


def python(value: Any) -> str:
    """As Python's `str` prints it, containers as JSON."""
    return spaced(value) if isinstance(value, dict | list) else str(value)


def hermes(calls: Sequence[Call]) -> str:
    return "\n".join(
        f'<tool_call>\n{{"name": {spaced(name)}, "arguments": {spaced(arguments)}}}\n</tool_call>'
        for name, arguments in calls
    )


def qwen3_coder(calls: Sequence[Call]) -> str:
    return "\n".join(
        f"<tool_call>\n<function={name}>\n"
        + "".join(f"<parameter={key}>\n{python(value)}\n</parameter>\n" for key, value in arguments.items())
        + "</function>\n</tool_call>"
        for name, arguments in calls
    )


def glm47(calls: Sequence[Call]) -> str:
    return "".join(
        f"<tool_call>{name}"
        + "".join(f"<arg_key>{k}</arg_key><arg_value>{plain(v)}</arg_value>" for k, v in arguments.items())
        + "</tool_call>"
        for name, arguments in calls
    )


def kimi_k2(calls: Sequence[Call]) -> str:
    inner = "".join(
        f"<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{spaced(arguments)}<|tool_call_end|>"
        for index, (name, arguments) in enumerate(calls)
    )
    return f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"


def deepseek_v3(calls: Sequence[Call]) -> str:
    inner = "\n".join(
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{spaced(arguments)}\n```<｜tool▁call▁end｜>"
        for name, arguments in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def deepseek_v31(calls: Sequence[Call]) -> str:
    inner = "".join(
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{spaced(arguments)}<｜tool▁call▁end｜>" for name, arguments in calls
    )
    return f"<｜tool▁calls▁begin｜>{inner}<｜tool▁calls▁end｜>"


def dsml(block: str) -> Callable[[Sequence[Call]], str]:
    token = "｜DSML｜"

    def parameter(key: str, value: Any) -> str:
        kind = "true" if isinstance(value, str) else "false"
        return f'<{token}parameter name="{key}" string="{kind}">{plain(value)}</{token}parameter>\n'

    def write(calls: Sequence[Call]) -> str:
        inner = "".join(
            f'<{token}invoke name="{name}">\n'
            + "".join(parameter(key, value) for key, value in arguments.items())
            + f"</{token}invoke>\n"
            for name, arguments in calls
        )
        return f"<{token}{block}>\n{inner}</{token}{block}>"

    return write


def minimax_m2(calls: Sequence[Call]) -> str:
    inner = "".join(
        f'<invoke name="{name}">\n'
        + "".join(f'<parameter name="{key}">{plain(value)}</parameter>\n' for key, value in arguments.items())
        + "</invoke>\n"
        for name, arguments in calls
    )
    return f"<minimax:tool_call>\n{inner}</minimax:tool_call>"


_KIMI = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>")
_DEEPSEEK = ("<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", "\n```")
_QWEN = ("<tool_call>", "</tool_call>", '"}}', "</think>")
_DSML = ("</｜DSML｜parameter>.", "</｜DSML｜invoke>.", "</｜DSML｜tool_calls>.")
_XML = ("</parameter>.", "</function>.", "</invoke>.")

FORMATS = {
    "qwen3": Format("hermes", "qwen3", "\n</think>\n\n", "\n", hermes, _QWEN, raw=True),
    "qwen3_coder": Format("qwen3_coder", "qwen3", "\n</think>\n\n", "\n\n", qwen3_coder, _XML),
    "glm47": Format("glm47", "glm45", "</think>", "", glm47, ("</arg_value>.", "</tool_call>.", "<arg_key>")),
    "kimi_k2": Format("kimi_k2", "kimi_k2", "</think>", "", kimi_k2, _KIMI, raw=True),
    "deepseek_v3": Format("deepseek_v3", "deepseek_r1", "</think>", "", deepseek_v3, _DEEPSEEK, raw=True),
    "deepseek_v31": Format("deepseek_v31", "deepseek_v4", "</think>", "", deepseek_v31, _DEEPSEEK, raw=True),
    "deepseek_v32": Format("deepseek_v32", "deepseek_v4", "</think>", "\n\n", dsml("function_calls"), _DSML),
    "deepseek_v4": Format("deepseek_v4", "deepseek_v4", "</think>", "\n\n", dsml("tool_calls"), _DSML),
    "minimax_m2": Format("minimax_m2", "minimax_m2", "\n</think>\n\n", "\n", minimax_m2, _XML),
}
