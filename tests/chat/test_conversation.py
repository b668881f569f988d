"""Equal meaning gives equal messages."""

import pytest

from vllm_mlx.chat.conversation import Message, ToolCall, is_own_call_id, new_call_id, normalise

THOUGHT = ("<think>", "</think>")
USER = Message("user", "U")
CALLS = Message("assistant", "", tool_calls=(ToolCall("a", "f", "{}"), ToolCall("b", "g", "{}")))


def norm(*messages: Message, late: bool = False) -> list[Message]:
    return normalise(messages, thought=THOUGHT, late_system=late)


@pytest.mark.parametrize(
    ("content", "reasoning", "rest"),
    [
        ("<think>\nR\n</think>\n\nC", "R", "C"),
        ("\n<think>R</think>C", "R", "C"),
        ("<think>R", "R", ""),
        ("<think>R</think>\n\nC </think> D", "R", "C </think> D"),
        ("<think>\n\n</think>\n\nC", "", "C"),
        ("A <think>R</think>", None, "A <think>R</think>"),
        ("R</think>C", None, "R</think>C"),
    ],
)
def test_a_leading_thought_is_lifted(content: str, reasoning: str | None, rest: str) -> None:
    assert norm(Message("assistant", content)) == [Message("assistant", rest, reasoning=reasoning)]


def test_nothing_else_is_lifted() -> None:
    given = [Message("user", "<think>R</think>"), Message("assistant", "<think>R</think>", reasoning="own")]
    assert norm(*given) == given
    assert normalise(given, thought=None, late_system=True) == given


def test_leading_system_and_developer_messages_are_one() -> None:
    merged = norm(Message("system", "A"), Message("developer", "B"), Message("system", ""), USER)
    assert merged == [Message("system", "A\n\nB"), USER]
    assert norm(Message("developer", "A\n\nB"), USER) == merged
    assert norm(Message("system", ""), USER) == [USER]


def test_late_system_messages_stay_in_place() -> None:
    given = (Message("system", "A"), USER, Message("developer", "B"), USER)
    assert norm(*given, late=True) == [Message("system", "A"), USER, Message("system", "B"), USER]
    assert norm(*given) == [Message("system", "A"), USER, Message("user", "[developer message]\nB"), USER]


def result(text: str, call: str | None) -> Message:
    return Message("tool", text, tool_call_id=call)


@pytest.mark.parametrize(
    "results",
    [
        [result("1", "a"), result("2", "b")],
        [result("2", "b"), result("1", "a")],
        [result("1", None), result("2", None)],
        [result("2", "b"), result("1", None)],
    ],
)
def test_results_follow_the_order_of_their_calls(results: list[Message]) -> None:
    assert norm(USER, CALLS, *results) == [USER, CALLS, result("1", "a"), result("2", "b")]


def test_results_of_no_call_come_last_and_none_is_lost() -> None:
    strange = [result("x", "z"), result("2", "b"), result("1", "a"), result("y", None)]
    assert norm(CALLS, *strange) == [CALLS, result("1", "a"), result("2", "b"), result("x", "z"), result("y", None)]


def test_each_turn_has_its_own_order() -> None:
    second = Message("assistant", tool_calls=(ToolCall("b", "g", "{}"), ToolCall("a", "f", "{}")))
    one, two = result("1", "a"), result("2", "b")
    assert norm(CALLS, two, one, second, one, two) == [CALLS, one, two, second, two, one]


@pytest.mark.parametrize("prefix", ["call_", "toolu_"])
def test_ids_that_are_made_here_are_known_again(prefix: str) -> None:
    assert is_own_call_id(new_call_id(prefix))
    assert new_call_id(prefix) != new_call_id(prefix)


@pytest.mark.parametrize("id", ["", "call_0", "functions.f:0", "call_" + "0" * 23, "call_" + "0" * 25])
def test_ids_of_others(id: str) -> None:
    assert not is_own_call_id(id)
