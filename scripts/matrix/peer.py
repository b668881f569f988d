"""Runs cases through another project's parsers; started with that project's own Python, and imports nothing of ours.

Reads one JSON object a line, `{"family", "tools", "thinking", "think", "openers", "text", "pieces"}`, and answers each
with one line, `{"result": ...}`, `{"error": ...}` or `{"none": true}` where the project has no parser for the family.
The first line of output is `{"version": ...}`. `think` is how the family spells the tags of a thought, `openers` what
opens a block of calls.

The projects' parsers are called as their servers call them: the reasoning parser reads the text, unless thinking is off
and none is written; what it leaves as content goes to the tool parser, in a stream also a thought that opens a block.
"""

import importlib
import inspect
import json
import os
import signal
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, ClassVar

SECONDS = 10

Result = dict[str, Any]


class MlxLm:
    """mlx-lm: a state machine over the text, then one parse of each block."""

    package = "mlx-lm"
    parsers: ClassVar = {
        "minimax_m2": "minimax_m2",
        "qwen3": "json_tools",
        "qwen3_coder": "qwen3_coder",
        "glm47": "glm47",
        "kimi_k25": "kimi_k2",
    }

    def __init__(self) -> None:
        self._machine = importlib.import_module("mlx_lm.generate").TextStateMachine
        self._formatter = importlib.import_module("mlx_lm.server").ToolCallFormatter

    def read(self, line: Result) -> Result | None:
        if line["family"] not in self.parsers:
            return None
        parser = importlib.import_module(f"mlx_lm.tool_parsers.{self.parsers[line['family']]}")
        (opener, closer), call = line["think"], (parser.tool_call_start, "tool")
        edges = {
            "normal": [(opener, "reasoning"), call],
            "reasoning": [(closer, "normal"), call],
            "tool": [(parser.tool_call_end, "normal")] if parser.tool_call_end else [],
        }
        state = self._machine(edges).make_state("reasoning" if line["thinking"] else "normal")
        texts = {"reasoning": "", "normal": "", "tool": ""}
        blocks: list[str] = []
        before = state[0]
        for piece in [*line["pieces"], None]:
            if piece is None:
                state, rest, name = self._machine.flush(state)
                segments = [(name, rest)]
            else:
                state, segments = self._machine.split(state, piece)
            for name, text in segments:
                texts[name] += text
                if name == "normal" and before == "tool":
                    blocks.append(texts["tool"])
                    texts["tool"] = ""
                before = name
        if texts["tool"]:
            blocks.append(texts["tool"])
        made = self._formatter(parser.parse_tool_call, line["tools"])(blocks)
        calls = [(call["function"]["name"], call["function"]["arguments"]) for call in made]
        return reply(texts["reasoning"], texts["normal"], calls)


class Pairs:
    """The projects whose parsers have vLLM's older shape: one method for whole texts, one for streams."""

    package: str
    module: str
    parsers: ClassVar[dict[str, tuple[str, str]]]

    def __init__(self) -> None:
        self._tools = importlib.import_module(f"{self.module}.tool_parsers").ToolParserManager
        self._reasoning = importlib.import_module(f"{self.module}.reasoning")

    def read(self, line: Result) -> Result | None:
        if line["family"] not in self.parsers:
            return None
        tool, reasoning = self.parsers[line["family"]]
        pair = self._tools.get_tool_parser(tool)(), self._reasoning.get_parser(reasoning)()
        request = {"tools": line["tools"] or []}
        if len(line["pieces"]) > 1:
            return self._stream(*pair, line, request)
        return self._whole(*pair, line, request)

    def _whole(self, tool: Any, reasoning: Any, line: Result, request: Result) -> Result:
        thought, content = None, line["text"]
        if thinks(line):
            asked = self._asked(reasoning.extract_reasoning, line)
            thought, content = reasoning.extract_reasoning(content, **asked)
        found = tool.extract_tool_calls(content or "", request)
        calls = [(call["name"], self._arguments(call["arguments"], call["name"], line)) for call in found.tool_calls]
        return reply(thought, found.content if found.tools_called else content, calls)

    def _stream(self, tool: Any, reasoning: Any, line: Result, request: Result) -> Result:
        tool.reset()
        thoughts, content, passed = "", "", ""
        calls: dict[int, list[str]] = {}
        for thought, text in self._split(reasoning, line):
            if thought and not text and any(opener in passed + thought for opener in line["openers"]):
                thought, text = "", thought
            thoughts += thought
            if not text:
                continue
            told = tool.extract_tool_calls_streaming(passed, passed + text, text, request=request) or {}
            passed += text
            content += self._shown(told.get("content") or "")
            for call in told.get("tool_calls") or []:
                made = calls.setdefault(call["index"], ["", ""])
                made[0] += call["function"].get("name") or ""
                made[1] += call["function"].get("arguments") or ""
        done = [(name, text) for name, text in calls.values()]
        if not done and any(opener in passed for opener in line["openers"]):
            done = [(call["name"], call["arguments"]) for call in tool.extract_tool_calls(passed, request).tool_calls]
        return reply(thoughts, content, [(name, self._arguments(text, name, line)) for name, text in done])

    def _split(self, reasoning: Any, line: Result) -> Iterator[tuple[str, str]]:
        """Thought and content of each piece."""
        if not thinks(line):
            yield from (("", piece) for piece in line["pieces"])
            return
        reasoning.reset_state(**self._asked(reasoning.reset_state, line))
        read = ""
        for piece in line["pieces"]:
            delta = reasoning.extract_reasoning_streaming(read, read + piece, piece)
            read += piece
            if delta is not None:
                yield delta.reasoning or "", delta.content or ""
        if (delta := self._finish(reasoning)) is not None:
            yield delta.reasoning or "", delta.content or ""

    def _asked(self, method: Any, line: Result) -> Result:
        """Whether the prompt left a thought open, under the name that a method has for it."""
        names = ("implicit_mode", "enable_thinking", "prompt_thinking_active", "start_in_thinking")
        return {name: bool(line["thinking"]) for name in names if name in inspect.signature(method).parameters}

    def _finish(self, reasoning: Any) -> Any:
        return reasoning.finalize_stream()

    def _arguments(self, arguments: str, name: str, line: Result) -> str:
        return arguments

    def _shown(self, content: str) -> str:
        return content


class VllmMlx(Pairs):
    """vllm-mlx, whose server corrects the types of arguments and drops tags from streamed content."""

    package = "vllm-mlx"
    module = "vllm_mlx"
    parsers: ClassVar = {
        "minimax_m2": ("minimax", "deepseek_r1"),
        "qwen3": ("hermes", "qwen3"),
        "qwen3_coder": ("qwen3_coder", "qwen3"),
        "glm47": ("glm47", "glm4"),
        "kimi_k25": ("kimi", "qwen3"),
        "deepseek_v3": ("deepseek", "deepseek_r1"),
        "deepseek_v4": ("deepseek_v4", "deepseek_v4"),
    }

    def __init__(self) -> None:
        super().__init__()
        self._server = importlib.import_module("vllm_mlx.server")

    def _arguments(self, arguments: str, name: str, line: Result) -> str:
        corrected: str = self._server._coerce_tool_arguments(arguments, name, line["tools"])
        return corrected

    def _shown(self, content: str) -> str:
        shown: str = self._server._TOOL_MARKUP_PATTERN.sub("", content)
        return shown


class RapidMlx(Pairs):
    """rapid-mlx."""

    package = "rapid-mlx"
    module = "rapid_mlx"
    parsers: ClassVar = {
        "minimax_m2": ("minimax", "minimax"),
        "qwen3": ("hermes", "qwen3"),
        "qwen3_coder": ("qwen3_coder_xml", "qwen3"),
        "glm47": ("glm47", "glm4"),
        "kimi_k25": ("kimi", "qwen3"),
        "deepseek_v3": ("deepseek_v3", "deepseek_r1"),
        "deepseek_v31": ("deepseek_v31", "deepseek_v4"),
    }

    def _finish(self, reasoning: Any) -> Any:
        return reasoning.finish_stream()


class Sglang:
    """sglang: a detector of thoughts, then one of calls."""

    package = "sglang"
    parsers: ClassVar = {
        "minimax_m2": ("minimax-m2", "minimax"),
        "minimax_append_think": ("minimax-m2", "minimax-append-think"),
        "minimax_m3": ("minimax-m3", "minimax-m3"),
        "qwen3": ("hermes", "qwen3"),
        "qwen3_coder": ("qwen3_coder", "qwen3"),
        "glm47": ("glm47", "glm45"),
        "kimi_k25": ("kimi_k2", "kimi_k2"),
        "deepseek_v3": ("deepseekv3", "deepseek-v3"),
        "deepseek_v31": ("deepseekv31", "deepseek-v3"),
        "deepseek_v32": ("deepseekv32", "deepseek-v3"),
        "deepseek_v4": ("deepseekv4", "deepseek-v4"),
    }

    def __init__(self) -> None:
        self._calls = importlib.import_module("sglang.srt.function_call.function_call_parser").FunctionCallParser
        self._thoughts = importlib.import_module("sglang.srt.parser.reasoning_parser").ReasoningParser
        self._tool = importlib.import_module("sglang.srt.entrypoints.openai.protocol").Tool

    def read(self, line: Result) -> Result | None:
        if line["family"] not in self.parsers:
            return None
        tool, reasoning = self.parsers[line["family"]]
        calls = self._calls([self._tool(**schema) for schema in line["tools"] or []], tool)
        thoughts = self._thoughts(reasoning, force_reasoning=line["thinking"]) if thinks(line) else None
        if len(line["pieces"]) > 1:
            return self._stream(calls, thoughts, line["pieces"])
        thought, content = thoughts.parse_non_stream(line["text"]) if thoughts else (None, line["text"])
        content, made = calls.parse_non_stream(content or "")
        return reply(thought, content, [(call.name, call.parameters) for call in made])

    def _stream(self, calls: Any, thoughts: Any, pieces: list[str]) -> Result:
        thought, content = "", ""
        made: dict[int, list[str]] = {}

        def take(text: str, items: list[Any]) -> str:
            for item in items:
                call = made.setdefault(item.tool_index, ["", ""])
                call[0] += item.name or ""
                call[1] += item.parameters or ""
            return text or ""

        for piece in pieces:
            told, rest = thoughts.parse_stream_chunk(piece) if thoughts else (None, piece)
            thought += told or ""
            content += take(*calls.parse_stream_chunk(rest)) if rest else ""
        told, rest = thoughts.parse_stream_end() if thoughts else (None, None)
        thought += told or ""
        content += take(*calls.parse_stream_chunk(rest)) if rest else ""
        content += take(*calls.parse_stream_end())
        return reply(thought, content, [(name, arguments) for name, arguments in made.values()])


def thinks(line: Result) -> bool:
    """Whether a server that knows that thinking is off would ask its reasoning parser."""
    return line["thinking"] or any(tag in line["text"] for tag in line["think"])


def reply(reasoning: str | None, content: str | None, calls: list[tuple[str, str]]) -> Result:
    """The shape of a case's expectation."""
    made = [{"name": name, "arguments_json": arguments} for name, arguments in calls]
    return {"reasoning": reasoning or None, "content": content or None, "tool_calls": made}


PEERS: dict[str, Any] = {"mlx-lm": MlxLm, "vllm-mlx": VllmMlx, "rapid-mlx": RapidMlx, "sglang": Sglang}


def main(name: str) -> None:
    # Whatever a project prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    peer = PEERS[name]()

    def answer(line: Result) -> None:
        answers.write(json.dumps(line) + "\n")
        answers.flush()

    answer({"version": version(peer.package)})
    for line in sys.stdin:
        # A parser that hangs ends this process; the parent starts another for the cases that are left.
        signal.alarm(SECONDS)
        try:
            result = peer.read(json.loads(line))
        except Exception as error:  # a parser that raises is a result too
            answer({"error": f"{type(error).__name__}: {error}"})
        else:
            answer({"none": True} if result is None else {"result": result})
        signal.alarm(0)


if __name__ == "__main__":
    main(sys.argv[1])
