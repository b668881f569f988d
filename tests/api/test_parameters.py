"""Every parameter of a chat request reaches what it is meant for."""

import json

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from vllm_mlx.engine.replay import ReplayEngine

from .conftest import sse

pytestmark = pytest.mark.anyio

URL = "/v1/chat/completions"
USER = {"role": "user", "content": "hi"}
THOUGHT = "t\n</think>\n\n"


@pytest.fixture
def submitted(monkeypatch):
    """The requests that reach the engine."""
    seen = []
    submit = ReplayEngine.submit
    monkeypatch.setattr(ReplayEngine, "submit", lambda self, request: seen.append(request) or submit(self, request))
    return seen


async def ask(client, **fields):
    response = await client.post(URL, json={"messages": [USER], **fields})
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"min_tokens": 3}, {"min_tokens": 3}),
        ({"min_tokens": 3, "max_tokens": 5, "max_completion_tokens": 2}, {"min_tokens": 2, "max_tokens": 2}),
        ({"ignore_eos": True, "max_tokens": 7}, {"min_tokens": 7, "max_tokens": 7}),
        ({"priority": -2}, {"priority": -2}),
        ({"logprobs": True}, {"logprobs": 0}),
        ({"logprobs": True, "top_logprobs": 4}, {"logprobs": 4}),
        ({"logprobs": False}, {"logprobs": None}),
    ],
)
async def test_engine_parameters(serving, submitted, fields, expected):
    async with serving("x") as client:
        await ask(client, **fields)
    assert {name: getattr(submitted[0], name) for name in expected} == expected


async def test_stops_and_budgets(serving, submitted, chat):
    async with serving("x") as client:
        await ask(client, stop_token_ids=[5, 6], thinking_token_budget=9)
        await ask(client, thinking_token_budget=0)
        await ask(client)
    assert submitted[0].stop_ids == [*chat.stop_ids, 5, 6]
    assert [request.thinking.budget for request in submitted] == [9, 0, None]
    assert submitted[0].thinking.open
    assert submitted[0].thinking.close_ids == list(chat.close_ids())


async def test_a_prompt_keeps_its_last_tokens(serving, submitted):
    async with serving("x", max_model_len=200) as client:
        await ask(client)
        await ask(client, truncate_prompt_tokens=5)
        long = [{"role": "user", "content": "word " * 1000}]
        await ask(client, messages=long, truncate_prompt_tokens=-1, max_tokens=50)
    assert submitted[1].prompt == submitted[0].prompt[-5:]
    assert len(submitted[2].prompt) == 150
    assert submitted[2].max_tokens == 50


async def test_several_choices_have_seeds_of_their_own(serving, submitted):
    async with serving("x") as client:
        await ask(client, n=3, seed=5)
    assert [request.sampling.seed for request in submitted] == [5, 6, 7]
    assert len({request.id for request in submitted}) == 3


async def test_a_stop_token_is_reported(serving, chat):
    ids = chat.encode(THOUGHT + "one two")
    async with serving(ids) as client:
        completion = await ask(client, stop_token_ids=[ids[-1]])
    choice = completion["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", ids[-1])
    assert completion["usage"]["completion_tokens"] == len(ids) - 1


async def test_the_end_of_a_turn_is_no_stop_of_the_client(serving, chat):
    async with serving([*chat.encode(THOUGHT + "x"), chat.stop_ids[0]]) as client:
        choice = (await ask(client))["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert "stop_reason" not in choice


@pytest.mark.parametrize(("include", "content"), [(True, "one STOP"), (False, "one ")])
async def test_the_stop_string_may_stay(serving, include, content):
    async with serving(list(THOUGHT + "one STOP two")) as client:
        completion = await ask(client, stop="STOP", include_stop_str_in_output=include)
    assert completion["choices"][0]["message"]["content"] == content


async def test_thoughts_can_be_left_out(serving):
    async with serving(list(THOUGHT + "x")) as client:
        message = (await ask(client, include_reasoning=False))["choices"][0]["message"]
        response = await client.post(URL, json={"messages": [USER], "include_reasoning": False, "stream": True})
    assert message["reasoning_content"] is None
    assert message["content"] == "x"
    assert "reasoning" not in response.text


async def test_a_message_is_continued(serving, chat, monkeypatch):
    prompts = []
    render = type(chat).render
    monkeypatch.setattr(
        type(chat), "render", lambda self, conversation: prompts.append(render(self, conversation)) or prompts[-1]
    )
    messages = [USER, {"role": "assistant", "content": "The answer is"}]
    async with serving(" 42.") as client:
        plain = await ask(client, messages=messages, continue_final_message=True, add_generation_prompt=False)
        echoed = await ask(client, messages=messages, continue_final_message=True, echo=True)
        response = await client.post(
            URL, json={"messages": messages, "continue_final_message": True, "echo": True, "stream": True}
        )
    assert all(prompt.text.endswith("The answer is") for prompt in prompts)
    assert plain["choices"][0]["message"]["content"] == " 42."
    assert echoed["choices"][0]["message"]["content"] == "The answer is 42."
    content = [chunk["choices"][0]["delta"].get("content", "") for chunk in sse(response.text)[:-1]]
    assert "".join(content) == "The answer is 42."


REFUSED = [
    ({"logprobs": None, "top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"min_tokens": 9, "max_tokens": 3}, "min_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"skip_special_tokens": False}, "skip_special_tokens"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
    ({"thinking_token_budget": -1}, "thinking_token_budget"),
    ({"continue_final_message": True}, "continue_final_message"),
    ({"continue_final_message": True, "add_generation_prompt": True}, "add_generation_prompt"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"chat_template": "x"}, "chat_template"),
    ({"prompt_logprobs": 1}, "prompt_logprobs"),
    ({"best_of": 2}, "best_of"),
    ({"bad_words": ["x"]}, "bad_words"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED)
async def test_what_cannot_be_done_is_refused_by_name(serving, fields, param):
    async with serving("x") as client:
        response = await client.post(URL, json={"messages": [USER], **fields})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


@pytest.mark.parametrize("kwargs", [{"messages": 1}, {"tools": 1}, {"add_generation_prompt": False}, {"x": {"y": []}}])
async def test_template_arguments_cannot_break_the_server(serving, kwargs):
    async with serving("x") as client:
        response = await client.post(URL, json={"messages": [USER], "chat_template_kwargs": kwargs})
    assert response.status_code in (200, 400)


async def test_tokens_and_logprobs_are_those_that_count(serving, scored, chat, submitted):
    ids = chat.encode(THOUGHT + "naïve 漢 one STOP two")
    fields = {"logprobs": True, "top_logprobs": 2, "return_token_ids": True, "stop": "STOP"}
    async with serving(ids, ids) as client:
        completion = await ask(client, **fields)
        response = await client.post(URL, json={"messages": [USER], **fields, "stream": True})
    ChatCompletion.model_validate(completion, strict=True)
    choice = completion["choices"][0]
    counted = completion["usage"]["completion_tokens"]
    assert counted < len(ids)
    assert choice["token_ids"] == ids[:counted]
    assert completion["prompt_token_ids"] == submitted[0].prompt
    content = choice["logprobs"]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in content) == b"".join(
        map(chat.vocabulary.bytes_of, ids[:counted])
    )
    assert all(entry["logprob"] == max(-float(id), -9999.0) for entry, id in zip(content, ids, strict=False))
    assert [len(entry["top_logprobs"]) for entry in content] == [2] * counted
    chunks = sse(response.text)[:-1]
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [id for part in choices for id in part.get("token_ids", [])] == ids[:counted]
    assert [entry for part in choices for entry in (part["logprobs"] or {"content": []})["content"]] == content
    assert [chunk.get("prompt_token_ids") is not None for chunk in chunks] == [True] + [False] * (len(chunks) - 1)


async def test_an_impossible_token_has_a_finite_logprob(serving, scored):
    async with serving([0]) as client:
        response = await client.post(URL, json={"messages": [USER], "logprobs": True})
    assert json.loads(response.text)["choices"][0]["logprobs"]["content"][0]["logprob"] == -9999.0


async def test_usage_on_every_chunk(serving):
    options = {"continuous_usage_stats": True, "include_usage": True}
    async with serving(list(THOUGHT + "abc")) as client:
        response = await client.post(URL, json={"messages": [USER], "stream": True, "stream_options": options})
    chunks = sse(response.text)[:-1]
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == len(THOUGHT + "abc")
