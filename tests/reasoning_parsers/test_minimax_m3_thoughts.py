"""M3's thoughts, read alone: its three modes of thinking, bare closers, openers anywhere."""

import pytest

import reasoning_parsers
from reasoning_parsers.minimax_m3 import MinimaxM3
from tool_parsers.events import ParserEvent, Reasoning, Text


def read(text: str, *, thinking: bool, size: int) -> tuple[str, str]:
    parser = MinimaxM3(thinking=thinking)
    events: list[ParserEvent] = []
    for at in range(0, len(text), size):
        events += parser.feed(text[at : at + size])
    events += parser.finish()
    thoughts = "".join(event.text for event in events if isinstance(event, Reasoning))
    return thoughts, "".join(event.text for event in events if isinstance(event, Text))


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("thinking", "text", "expected"),
    [
        (True, "reason</mm:think>answer", ("reason", "answer")),
        (True, "<mm:think>reason</mm:think>answer", ("reason", "answer")),
        (True, "reason", ("reason", "")),
        (True, "a <mm:think> b</mm:think>c", ("a <mm:think> b", "c")),
        (True, "a<mm:think", ("a<mm:think", "")),
        (True, "</mm:think>answer", ("", "answer")),
        (False, "answer", ("", "answer")),
        (False, "<mm:think>reason</mm:think>answer", ("reason", "answer")),
        (False, "</mm:think></mm:think>answer", ("", "answer")),
        (False, "reason</mm:think>answer", ("", "reasonanswer")),
        (False, "Sure. <mm:think>hm</mm:think>Yes.", ("hm", "Sure. Yes.")),
        (False, "<mm:think>\nr\n</mm:think>\n\na", ("\nr\n", "\n\na")),
        (False, "<think>x</think>y</mm:thin", ("", "<think>x</think>y</mm:thin")),
    ],
)
def test_thoughts(thinking: bool, text: str, expected: tuple[str, str], size: int) -> None:
    assert read(text, thinking=thinking, size=size) == expected


def test_a_closer_alone_while_streaming() -> None:
    parser = MinimaxM3(thinking=True)
    assert parser.feed("reason") == [Reasoning("reason")]
    parser.feed("</mm:think>")
    assert not parser.thinking
    assert parser.feed("answer") == [Text("answer")]


def test_names_and_template() -> None:
    assert reasoning_parsers.get("minimax-m3") is reasoning_parsers.get("MiniMax_M3") is MinimaxM3
    assert MinimaxM3.speaks("{%- set think_begin_token = '<mm:think>' -%}")
    assert not MinimaxM3.speaks("<think>")
