"""A turn costs its new tokens: what the model wrote comes back as its own ids, through the API."""

import threading

import pytest

from vllm_mlx.engine.replay import ReplayEngine

pytestmark = pytest.mark.anyio

URL = "/v1/chat/completions"
USER = {"role": "user", "content": "List it."}
TOOL = {
    "type": "function",
    "function": {"name": "ls", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}},
}
# Two newlines before the call, where the template would write three.
WRITTEN = (
    "I look.\n</think>\n\n<minimax:tool_call>\n"
    '<invoke name="ls">\n<parameter name="path">.</parameter>\n</invoke>\n</minimax:tool_call>'
)


@pytest.fixture
def submitted(monkeypatch):
    seen = []
    submit = ReplayEngine.submit
    monkeypatch.setattr(ReplayEngine, "submit", lambda self, request: seen.append(request) or submit(self, request))
    return seen


def pieces(chat, text):
    """Ids that no tokenizer would choose: one a byte, but for the markers."""
    found = []
    for id in chat.encode(text):
        spelling = chat.vocabulary.bytes_of(id).decode()
        found += [id] if spelling.startswith("<") else [part for char in spelling for part in chat.encode(char)]
    return found


@pytest.mark.parametrize("stream", [False, True])
async def test_the_next_prompt_begins_with_the_last_one_and_its_reply(serving, chat, submitted, stream):
    ids = pieces(chat, WRITTEN)
    async with serving(ids, "done") as client:
        whole = (await client.post(URL, json={"messages": [USER], "tools": [TOOL]})).json()
        message = whole["choices"][0]["message"]
        (call,) = message["tool_calls"]
        # Clients write arguments anew.
        call["function"]["arguments"] = call["function"]["arguments"].replace(":", ": ")
        history = [
            USER,
            {key: message[key] for key in ("role", "content", "reasoning_content", "tool_calls")},
            {"role": "tool", "tool_call_id": call["id"], "content": "a.txt"},
        ]
        await client.post(URL, json={"messages": history, "tools": [TOOL], "stream": stream})
    first, second = (request.prompt for request in submitted)
    assert second[: len(first) + len(ids)] == first + ids
    assert len(second) > len(first) + len(ids)


@pytest.mark.parametrize("output", ["tokens", "text", "cut"])
async def test_a_thought_that_the_client_drops_is_put_back_and_counted(serving, chat, monkeypatch, output):
    prompts = []
    render = type(chat).render
    monkeypatch.setattr(
        type(chat), "render", lambda self, conversation: prompts.append(render(self, conversation)) or prompts[-1]
    )
    written = WRITTEN.replace("I look.", f"Thought of {output}.")
    line = {"tokens": chat.encode(written), "text": list(written), "cut": list(written + "STOP")}[output]
    async with serving(line, "done") as client:
        body = {"messages": [USER], "tools": [TOOL], "stop": "STOP"}
        message = (await client.post(URL, json=body)).json()["choices"][0]["message"]
        (call,) = message["tool_calls"]
        history = [
            USER,
            {"role": "assistant", "content": message["content"], "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "a.txt"},
        ]
        await client.post(URL, json={"messages": history, "tools": [TOOL]})
        metrics = (await client.get("/metrics")).text
    assert f"Thought of {output}." in prompts[1].text
    assert 'vllm_mlx:reasoning_restored_total{engine="0",model_name="demo"} 1.0' in metrics


async def test_prompts_are_made_aside(serving, chat, monkeypatch):
    threads = set()
    render = type(chat).render

    def watched(self, conversation):
        threads.add(threading.current_thread())
        return render(self, conversation)

    monkeypatch.setattr(type(chat), "render", watched)
    async with serving("x") as client:
        await client.post(URL, json={"messages": [USER]})
        await client.post("/tokenize", json={"messages": [USER]})
        await client.post("/v1/messages/count_tokens", json={"model": "demo", "messages": [USER]})
    assert len(threads) == 1
    assert threading.main_thread() not in threads


@pytest.fixture
def prewarmed(monkeypatch):
    seen = []
    monkeypatch.setattr(ReplayEngine, "prewarm", lambda _, prompt: seen.append(prompt))
    return seen


async def test_an_answer_is_followed_by_what_the_next_prompt_begins_with(serving, submitted, prewarmed):
    async with serving("Hm.\n</think>\n\nHello.", "done") as client:
        message = (await client.post(URL, json={"messages": [USER]})).json()["choices"][0]["message"]
        history = [USER, {"role": "assistant", "content": message["content"]}, {"role": "user", "content": "And now?"}]
        await client.post(URL, json={"messages": history})
    coming = prewarmed[0]
    # M2 drops the thought once the user has answered, so the prompt is not the last one and its reply.
    assert submitted[1].prompt[: len(coming)] == coming
    assert len(coming) > len(submitted[0].prompt) - 5


async def test_a_call_is_followed_by_its_result_and_needs_no_prewarming(serving, prewarmed):
    async with serving(WRITTEN) as client:
        await client.post(URL, json={"messages": [USER], "tools": [TOOL]})
    assert prewarmed == []
