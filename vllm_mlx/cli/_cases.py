"""Case files: raw model text beside what it must become. Each line says by its `family` which parsers read it."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tool_parsers
from tool_parsers.base import ToolSchema
from tool_parsers.events import Event
from vllm_mlx.chat.family import MINIMAX_TURN
from vllm_mlx.chat.output import OutputParser, parser_classes
from vllm_mlx.chat.reply import Reply, fold

FAMILIES = {"minimax_append_think": ("minimax_m2", "minimax_append_think")}
"""The parsers of a case's family, where it is not named after a tool parser."""

THINKING_OPEN = ("minimax_m2", "minimax_append_think", "deepseek_r1")
"""Reasoning parsers whose templates always leave a thought open."""


@dataclass(frozen=True, slots=True)
class Setup:
    """How a text is read. Parsers are canonical names, or None."""

    tool_parser: str | None
    reasoning_parser: str | None
    tools: Sequence[ToolSchema] | None
    thinking_open: bool

    def read(self, pieces: Sequence[str]) -> Reply:
        """The reply that a text is, fed piece by piece."""
        tool, reasoning = parser_classes(self.tool_parser, self.reasoning_parser)
        # No template here tells whose turn tokens these are; none reaches a client, whatever the parsers.
        parser = OutputParser(tool, reasoning, tools=self.tools, thinking_open=self.thinking_open, turn=MINIMAX_TURN)
        events: list[Event] = []
        for piece in pieces:
            events += parser.feed(piece)
        return fold([*events, *parser.finish()])


@dataclass(frozen=True, slots=True)
class Case:
    """One line of a case file. `expect` is as in the file, without what it leaves open."""

    id: str
    text: str
    setup: Setup
    expect: dict[str, Any]

    def got(self, pieces: Sequence[str]) -> dict[str, Any]:
        """What the text becomes, in the shape of `expect`."""
        reply = self.setup.read(pieces)
        result: dict[str, Any] = {
            "reasoning": reply.reasoning,
            "content": reply.content,
            "tool_calls": [{"name": call.name, "arguments_json": call.arguments} for call in reply.tool_calls],
        }
        if "ids" in self.expect:
            result["ids"] = [call.id for call in reply.tool_calls]
        return result


def read_cases(file: Path) -> Iterator[Case]:
    """The cases of a file. Raises `ValueError` with the line's number when a line is not one."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield _case(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{file}, line {number} is not a case: {type(error).__name__}: {error}") from error


def parsers_of(family: str) -> tuple[str, str | None]:
    """The parsers of a family: the tool parser of that name with its templates' reasoning parser, or those listed.

    Raises:
        ValueError: there is neither.
    """
    if family in FAMILIES:
        return FAMILIES[family]
    try:
        return tool_parsers.resolve(family), tool_parsers.get(family).reasoning
    except KeyError as error:
        raise ValueError(f"no family {family!r}: {error.args[0]}; or {', '.join(FAMILIES)}") from error


def _case(line: dict[str, Any]) -> Case:
    tool, reasoning = parsers_of(line["family"])
    expect = dict(line["expect"])
    if "expect_ids" in line:
        expect["ids"] = line["expect_ids"]
    setup = Setup(tool, reasoning, line.get("tools"), bool(line.get("prefilled_think")))
    return Case(line["id"], line["text"], setup, expect)


def cuttings(text: str, split: int | str | None) -> Iterator[list[str]]:
    """The ways to cut `text`: whole, in pieces of `split` characters, or, for `every`, also at every two-way cut."""
    if isinstance(split, int):
        yield [text[at : at + split] for at in range(0, len(text), split)]
        return
    yield [text]
    if split == "every":
        yield list(text)
        for at in range(1, len(text)):
            yield [text[:at], text[at:]]
