"""Text completions and the token routes."""

import json

import pytest
from openai.types import Completion

from .conftest import sse

pytestmark = pytest.mark.anyio

URL = "/v1/completions"
RAW = "]~b]user\nhi[e~[\n]~b]ai\n"


@pytest.mark.parametrize("url", [URL, "/completions"])
async def test_text_goes_on_unparsed(serving, url):
    written = "<think>a</think> é <minimax:tool_call>\n"
    async with serving(list(written), list(written)) as client:
        whole = (await client.post(url, json={"prompt": "Once"})).json()
        options = {"stream": True, "stream_options": {"include_usage": True}}
        *chunks, usage, done = sse((await client.post(url, json={"prompt": "Once", **options})).text)
    Completion.model_validate(whole, strict=True)
    assert whole["choices"] == [{"index": 0, "text": written, "logprobs": None, "finish_reason": "stop"}]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == written
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-2:] == [None, "stop"]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]
    assert whole["usage"]["completion_tokens"] == len(written)
    assert done == "[DONE]"


async def test_several_prompts_and_several_replies(serving, chat):
    prompts = ["one", "two"]
    async with serving(*"abcd", *"abcd") as client:
        whole = (await client.post(URL, json={"prompt": prompts, "n": 2, "echo": True, "seed": 3})).json()
        response = await client.post(URL, json={"prompt": prompts, "n": 2, "echo": True, "stream": True})
    assert [choice["text"] for choice in whole["choices"]] == ["onea", "oneb", "twoc", "twod"]
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
    lengths = [len(chat.encode(prompt, add_special=True)) for prompt in prompts]
    assert whole["usage"]["prompt_tokens"] == sum(lengths)
    assert whole["usage"]["completion_tokens"] == 4
    texts = {}
    for chunk in sse(response.text)[:-1]:
        (choice,) = chunk["choices"]
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    assert texts == {0: "onea", 1: "oneb", 2: "twoc", 3: "twod"}


async def test_token_ids_are_a_prompt(serving, chat):
    ids = chat.encode(RAW)
    async with serving("x", "y", "z") as client:
        one = (await client.post(URL, json={"prompt": ids, "echo": True, "return_token_ids": True})).json()
        two = (await client.post(URL, json={"prompt": [ids, ids[:2]], "echo": True})).json()
    (choice,) = one["choices"]
    assert choice["text"] == RAW + "x"
    assert choice["prompt_token_ids"] == ids
    assert [choice["text"] for choice in two["choices"]] == [RAW + "y", chat.decode(ids[:2]) + "z"]


async def test_stops_and_limits(serving, chat):
    ids = chat.encode("one two three")
    async with serving(list("one STOP two"), ids) as client:
        stopped = (await client.post(URL, json={"prompt": "x", "stop": ["STOP"]})).json()["choices"][0]
        cut = (await client.post(URL, json={"prompt": "x", "max_tokens": 2})).json()["choices"][0]
    assert (stopped["text"], stopped["finish_reason"], stopped["stop_reason"]) == ("one ", "stop", "STOP")
    assert (cut["text"], cut["finish_reason"]) == (chat.decode(ids[:2]), "length")


REFUSED = [
    ({}, "prompt"),
    ({"prompt": None}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [""]}, "prompt[0]"),
    ({"prompt": ["a", 5]}, "prompt[1]"),
    ({"prompt": [10**9]}, "prompt[0]"),
    ({"prompt": [[1], [-1]]}, "prompt[1][0]"),
    ({"prompt": [[True]]}, "prompt[0]"),
    ({"prompt": ["a"] * 129}, "prompt"),
    ({"prompt": "a", "logprobs": 21}, "logprobs"),
    ({"prompt": "a", "logprobs": True}, "logprobs"),
    ({"prompt": "a", "logprobs": 1, "echo": True}, "echo"),
    ({"prompt": "a", "suffix": "b"}, "suffix"),
    ({"prompt": "a", "best_of": 2}, "best_of"),
    ({"prompt": "a", "stop_token_ids": [10**8]}, "stop_token_ids"),
    ({"prompt": "a", "logit_bias": {"99999999": 1}}, "logit_bias"),
    ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
]


async def test_a_prompt_that_does_not_fit_is_named(serving):
    async with serving("x", max_model_len=20) as client:
        response = await client.post(URL, json={"prompt": "word " * 40})
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["code"]) == (400, "prompt", "context_length_exceeded")


@pytest.mark.parametrize(("fields", "param"), REFUSED)
async def test_a_bad_field_is_refused_by_name(serving, fields, param):
    async with serving("x") as client:
        response = await client.post(URL, json=fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


async def test_a_text_becomes_tokens_and_text_again(serving, chat):
    text = "naïve 漢字 [e~[ and <think>"
    async with serving("x", max_model_len=5000) as client:
        plain = (await client.post("/tokenize", json={"prompt": text, "add_special_tokens": False})).json()
        special = (await client.post("/tokenize", json={"prompt": text, "return_token_strs": True})).json()
        back = (await client.post("/detokenize", json={"tokens": plain["tokens"]})).json()
    assert plain == {"count": len(plain["tokens"]), "max_model_len": 5000, "tokens": chat.encode(text)}
    assert special["tokens"] == chat.encode(text, add_special=True)
    assert len(special["token_strs"]) == special["count"]
    assert back == {"prompt": text}


async def test_a_conversation_is_tokenized_as_it_is_served(serving, chat):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
    async with serving("x") as client:
        tokens = (await client.post("/tokenize", json=body)).json()
        usage = (await client.post("/v1/chat/completions", json=body)).json()["usage"]
        bare = (await client.post("/tokenize", json={**body, "add_generation_prompt": False})).json()
    assert tokens["count"] == usage["prompt_tokens"]
    assert bare["tokens"] == tokens["tokens"][: bare["count"]]
    assert bare["count"] < tokens["count"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {}),
        ("/tokenize", {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}),
        ("/tokenize", {"prompt": 5}),
        ("/tokenize", {"messages": []}),
        ("/detokenize", {}),
        ("/detokenize", {"tokens": "x"}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [10**8]}),
    ],
)
async def test_the_token_routes_refuse(serving, path, body):
    async with serving("x") as client:
        response = await client.post(path, json=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"]


async def test_the_description_is_whole(serving):
    async with serving("x") as client:
        text = (await client.get("/openapi.json")).text
    document = json.loads(text)
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert "$defs" not in text
    assert set(_references(document)) <= known
    body = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["max_tokens"]["anyOf"][0]["minimum"] == 1
    assert {"/v1/completions", "/v1/messages", "/v1/responses", "/tokenize", "/v1/models"} <= set(document["paths"])


def _references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
