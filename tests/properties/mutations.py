"""Broken model output: seeded mutations of case texts, and what must hold whatever a model writes."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import tool_parsers
from vllm_mlx.chat.reply import Reply
from vllm_mlx.cli._cases import Case, read_cases

CASES = Path(__file__).parents[1] / "cases"

# Spellings that never reach visible text, whatever the model wrote; a thought or a value may quote them.
HIDDEN = ("[e~[", "]~b]", "]~!b[", "]<]minimax[>[")

PIECES = (
    *HIDDEN, "<think>", "</think>", "<mm:think>", "</mm:think>", "<minimax:tool_call>", "</minimax:tool_call>",
    '<invoke name="ping">', "</invoke>", '<parameter name="path">', "</parameter>", "<parameter", "<invoke",
    "]<]minimax[>[<tool_call>", "]<]minimax[>[</invoke>", "]<]minimax[>[<item>", "<tool_call>", "</tool_call>",
    *sorted({marker for name in tool_parsers.names() for marker in tool_parsers.get(name).markers}),
    "<function=ping>", "</function>", "<parameter=path>", "functions.ping:0", '{"name": "ping", "arguments": {', '"}}',
    "\n", "\n\n", " ", "<", ">", "]", "[", '"', "{", "}", "\\", "\r\n", "é", "🧐", "数", "```\n", "\x00",
)  # fmt: skip


def all_cases() -> list[Case]:
    """The project's cases, those whose text is not too long to cut everywhere."""
    return [case for file in sorted(CASES.glob("*.jsonl")) for case in read_cases(file) if len(case.text) < 3000]


def mutate(text: str, rng: random.Random) -> str:
    """One to four edits: a span lost, doubled or moved, a marker put in, the end cut off."""
    for _ in range(rng.randint(1, 4)):
        start, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        end = min(end, start + 40)
        match rng.randrange(6):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:end] + text[start:]
            case 2:
                at = rng.randint(0, len(text))
                text = text[:at] + text[start:end] + text[at:]
            case 3:
                text = text[:end]
            case _:
                text = text[:start] + rng.choice(PIECES) + text[start:]
    return text


def cuts(text: str, rng: random.Random) -> Iterator[list[str]]:
    """One character at a time, one random cut in two, and random pieces."""
    yield list(text)
    at = rng.randint(0, len(text))
    yield [text[:at], text[at:]]
    pieces = []
    while text:
        size = rng.randint(1, 9)
        pieces.append(text[:size])
        text = text[size:]
    yield pieces


def check(case: Case, text: str, rng: random.Random) -> None:
    """Everything that must hold of a text that any model may have written."""
    whole = case.setup.read([text])
    for pieces in cuts(text, rng):
        assert case.setup.read(pieces) == whole, pieces
    _check_visible(whole, case)
    for call in whole.tool_calls:
        assert isinstance(json.loads(call.arguments, parse_int=str, parse_float=str), dict), call
    at = rng.randint(0, len(text))
    before = case.setup.read([text[:at]]).tool_calls
    assert whole.tool_calls[: len(before)] == before, (at, text[:at])


def _check_visible(reply: Reply, case: Case) -> None:
    own = tool_parsers.get(case.setup.tool_parser).hidden if case.setup.tool_parser else ()
    if case.setup.reasoning_parser == "minimax_append_think":
        own = ()  # A thought may quote a marker, and here thoughts stand in the content.
    for hidden in (*HIDDEN, *own):
        assert hidden not in (reply.content or ""), hidden
