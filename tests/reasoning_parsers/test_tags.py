"""Thoughts and answers: the rules of the tags, and each family's layout."""

import pytest

import reasoning_parsers
from tool_parsers.events import Event, Reasoning, Text, ThoughtEnd, ThoughtStart
from vllm_mlx.chat.output import OutputParser
from vllm_mlx.chat.reply import Reply, fold

ROOMY = ("minimax_m2", "qwen3")
TIGHT = ("deepseek_r1", "deepseek_v4", "glm45", "kimi_k2")


def read(name: str, text: str, *, thinking: bool) -> Reply:
    """The reply, which must be the same however the text is cut."""

    def of(pieces: list[str]) -> Reply:
        parser = OutputParser(None, reasoning_parsers.get(name), thinking_open=thinking)
        events: list[Event] = []
        for piece in pieces:
            events += parser.feed(piece)
        return fold([*events, *parser.finish()])

    whole = of([text])
    assert of(list(text)) == whole
    for cut in range(1, len(text)):
        assert of([text[:cut], text[cut:]]) == whole
    return whole


@pytest.mark.parametrize("name", [*ROOMY, *TIGHT])
@pytest.mark.parametrize(
    ("text", "thinking", "reasoning", "content"),
    [
        ("just text", False, None, "just text"),
        ("just a thought", True, "just a thought", None),
        ("a</think>b", True, "a", "b"),
        ("<think>a</think>b", True, "a", "b"),
        ("<think>a</think>b", False, "a", "b"),
        (" \n<think>a</think>b", False, "a", "b"),
        ("b</think>c", False, None, "bc"),
        ("</think>b", True, None, "b"),
        (" </think>b", True, None, "b"),
        ("a</think><think>b</think>c", True, "a\nb", "c"),
        ("a</think>b <think>c</think> d", True, "a", "b <think>c</think> d"),
        ("a <think> b</think>c", True, "a <think> b", "c"),
        ("a</thin", True, "a</thin", None),
        ("a</think>b</thin", True, "a", "b</thin"),
        ("a</think> ", True, "a", None),
        ("思考 🧐</think>好", True, "思考 🧐", "好"),
    ],
)
def test_rules(name: str, text: str, thinking: bool, reasoning: str | None, content: str | None) -> None:
    reply = read(name, text, thinking=thinking)
    assert (reply.reasoning, reply.content) == (reasoning, content)


@pytest.mark.parametrize("name", ROOMY)
def test_newlines_that_the_template_writes(name: str) -> None:
    for text in ("<think>\na\n</think>\n\nb", "<think>a</think>b"):
        assert read(name, text, thinking=False).reasoning == "a"
        assert read(name, text, thinking=False).content == "b"
    reply = read(name, "\n\na\n\n</think>\n\n\n b\n", thinking=True)
    assert (reply.reasoning, reply.content) == ("\n\na\n", "\n b\n")


@pytest.mark.parametrize("name", TIGHT)
def test_newlines_that_no_template_writes(name: str) -> None:
    reply = read(name, "\na\n</think>\n\nb\n", thinking=True)
    assert (reply.reasoning, reply.content) == ("\na\n", "\n\nb\n")


@pytest.mark.parametrize("name", [*ROOMY, *TIGHT])
def test_a_parser_alone(name: str) -> None:
    parser = reasoning_parsers.get(name)(thinking=True)
    events = [*parser.feed("a</th"), *parser.feed("ink>b<think>"), *parser.finish()]
    assert events == [Reasoning("a"), ThoughtEnd(), Text("b"), Text("<think>")]
    assert reasoning_parsers.get(name)(thinking=False).feed(" <think>") == [Text(" "), ThoughtStart()]
