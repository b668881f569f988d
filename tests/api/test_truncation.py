"""`truncation: auto`: old turns go, and the rest stays what it was for many requests."""

from itertools import pairwise

import pytest

from vllm_mlx.api.truncation import shortened
from vllm_mlx.chat.conversation import Conversation, Message, ToolCall

pytestmark = pytest.mark.anyio

URL = "/v1/responses"


def size(conversation):
    return sum(len(message.content) for message in conversation.messages)


def within(limit):
    return lambda conversation: size(conversation) <= limit


def history(turns):
    """Instructions, then turns of a question, a call, its result and an answer, a hundred characters each."""
    messages = [Message("system", "rules")]
    for i in range(turns):
        messages += [
            Message("user", f"question {i}".ljust(100)),
            Message("assistant", f"call {i}".ljust(100), tool_calls=(ToolCall(f"c{i}", "f", "{}"),)),
            Message("tool", f"result {i}".ljust(100), tool_call_id=f"c{i}"),
            Message("assistant", f"answer {i}".ljust(100)),
        ]
    return Conversation((*messages, Message("user", "now")))


def test_what_fits_is_left_alone():
    whole = history(3)
    assert shortened(whole, 100, within(size(whole))) is whole


@pytest.mark.parametrize("limit", range(20, 1300, 70))
def test_the_newest_turns_and_the_instructions_stay(limit):
    whole = history(3)
    left = shortened(whole, 100, within(limit)).messages
    assert left[0] == whole.messages[0]
    assert left[1:] == whole.messages[len(whole.messages) - len(left) + 1 :]
    assert left[-1] == whole.messages[-1]
    assert left[1].role != "tool"
    assert size(Conversation(left)) <= limit


def test_what_cannot_fit_keeps_the_last_question():
    left = shortened(history(3), 100, within(0)).messages
    assert [message.content for message in left] == ["rules", "now"]


def test_the_prompt_begins_anew_seldom():
    """While a conversation grows by a turn, what is left begins with the same turn most of the time."""
    firsts = [shortened(history(turns), 1500, within(6000)).messages[1].content for turns in range(1, 60)]
    changes = sum(one != other for one, other in pairwise(firsts))
    assert 3 <= changes <= 59 * 400 / 1500


async def test_a_long_conversation_is_answered_if_turns_may_go(serving, chat):
    old = [{"role": "user", "content": "word " * 300}, {"role": "assistant", "content": "word " * 300}]
    request = {"instructions": "Be brief.", "input": [*old * 3, {"role": "user", "content": "Now this."}]}
    async with serving("x\n</think>\n\nYes.", max_model_len=1000) as client:
        refused = await client.post(URL, json=request)
        response = await client.post(URL, json={**request, "truncation": "auto", "max_output_tokens": 20})
        hopeless = {"input": "word " * 2000, "truncation": "auto"}
        too_long = await client.post(URL, json=hopeless)
    assert refused.status_code == 400
    assert response.status_code == 200, response.text
    assert response.json()["truncation"] == "auto"
    assert response.json()["usage"]["input_tokens"] <= 980
    assert too_long.status_code == 400
    assert too_long.json()["error"]["code"] == "context_length_exceeded"
