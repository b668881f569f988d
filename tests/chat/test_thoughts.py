"""Thoughts that clients leave out come back, to their own reply alone, within bounds."""

from dataclasses import replace

import pytest

from vllm_mlx.chat.conversation import Message, ToolCall
from vllm_mlx.chat.thoughts import Thoughts

OWN = "call_" + "0a" * 12
USER = Message("user", "list it")
CALLING = Message("assistant", "I look.", reasoning="hm", tool_calls=(ToolCall(OWN, "ls", '{"depth": 1.0}'),))
FOREIGN = replace(CALLING, tool_calls=(ToolCall("functions.ls:0", "ls", '{"depth": 1.0}'),))
ANSWER = Message("assistant", "done", reasoning="thought")


def known(*pairs):
    thoughts = Thoughts()
    for history, reply in pairs:
        thoughts.remember(history, reply)
    return thoughts


def without(message, **changes):
    return replace(message, reasoning=None, **changes)


RESTORED = {
    # what was remembered, the history that comes back, the thought of its last message
    "a call by its id": ([USER], CALLING, [USER, without(CALLING)]),
    "whatever stands before it": ([USER], CALLING, [Message("user", "compacted"), without(CALLING)]),
    "whatever became of its text": ([USER], CALLING, [USER, without(CALLING, content="")]),
    "a call with its format's own id, by its place": ([USER], FOREIGN, [USER, without(FOREIGN)]),
    "numbers by value": (
        [USER],
        FOREIGN,
        [USER, without(FOREIGN, tool_calls=(ToolCall("functions.ls:0", "ls", '{"depth":1}'),))],
    ),
    "a text by its place": ([USER], ANSWER, [USER, without(ANSWER)]),
    "an empty thought is none": ([USER], ANSWER, [USER, replace(ANSWER, reasoning="")]),
    "instructions change": ([Message("system", "a"), USER], ANSWER, [Message("system", "b"), USER, without(ANSWER)]),
    "deep in the history": ([USER], CALLING, [USER, without(CALLING), Message("tool", "a.txt", tool_call_id=OWN)]),
}

NOT_RESTORED = {
    "another text": ([USER], ANSWER, [USER, without(ANSWER, content="done.")]),
    "another history": ([USER], ANSWER, [Message("user", "list all"), without(ANSWER)]),
    "a format's own id elsewhere": ([USER], FOREIGN, [Message("user", "x"), without(FOREIGN)]),
    "not an assistant's": ([USER], ANSWER, [USER, Message("user", "done")]),
    "a reply without a thought": ([USER], without(ANSWER), [USER, without(ANSWER)]),
}


@pytest.mark.parametrize(("before", "reply", "after"), RESTORED.values(), ids=RESTORED)
def test_a_thought_comes_back(before, reply, after):
    restored = known((before, reply)).restore(after)
    (at,) = [i for i, message in enumerate(after) if message.role == "assistant"]
    assert restored[at] == replace(after[at], reasoning=reply.reasoning)
    assert [*restored[:at], *restored[at + 1 :]] == [*after[:at], *after[at + 1 :]]


@pytest.mark.parametrize(("before", "reply", "after"), NOT_RESTORED.values(), ids=NOT_RESTORED)
def test_a_thought_goes_nowhere_else(before, reply, after):
    assert list(known((before, reply)).restore(after)) == after


def test_a_thought_that_is_sent_stands():
    sent = [USER, replace(CALLING, reasoning="mine")]
    assert list(known(([USER], CALLING)).restore(sent)) == sent


def test_the_same_text_in_two_conversations_keeps_two_thoughts():
    other = Message("user", "again")
    thoughts = known(([USER], ANSWER), ([other], replace(ANSWER, reasoning="second")))
    assert thoughts.restore([USER, without(ANSWER)])[1].reasoning == "thought"
    assert thoughts.restore([other, without(ANSWER)])[1].reasoning == "second"


@pytest.mark.parametrize("bounds", [{"max_entries": 4}, {"max_characters": 40}])
def test_the_oldest_thought_goes_first(bounds):
    thoughts = Thoughts(**bounds)
    histories = [[Message("user", str(i))] for i in range(5)]
    for history in histories:
        thoughts.remember(history, replace(ANSWER, reasoning="x" * 10))
    kept = [thoughts.restore([*history, without(ANSWER)])[1].reasoning is not None for history in histories]
    assert kept == [False, True, True, True, True]


def test_a_thought_that_is_used_stays():
    thoughts = Thoughts(max_entries=2)
    histories = [[Message("user", str(i))] for i in range(3)]
    thoughts.remember(histories[0], ANSWER)
    thoughts.remember(histories[1], ANSWER)
    thoughts.restore([*histories[0], without(ANSWER)])
    thoughts.remember(histories[2], ANSWER)
    assert thoughts.restore([*histories[0], without(ANSWER)])[1].reasoning
    assert not thoughts.restore([*histories[1], without(ANSWER)])[1].reasoning
