"""Chat completions: the shapes of the OpenAI SDK, and a stream that says what the whole reply says."""

import json

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from .conftest import sse

pytestmark = pytest.mark.anyio

URL = "/v1/chat/completions"
TOOL = {
    "type": "function",
    "function": {
        "name": "write_file",
        "description": "Writes a file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "integer"}},
        },
    },
}
CALL = (
    '<minimax:tool_call>\n<invoke name="write_file">\n<parameter name="path">a.txt</parameter>\n'
    '<parameter name="content">  x\n</parameter>\n<parameter name="mode">0644</parameter>\n</invoke>\n'
    '<invoke name="write_file">\n</invoke>\n</minimax:tool_call>'
)
THOUGHT = "Let me see.\n</think>\n\n"
CUT = THOUGHT + "Now.\n" + CALL[:90]

REPLIES = {
    "text": THOUGHT + "Hello, wörld.",
    "calls": THOUGHT + "I write.\n" + CALL,
    "only calls": THOUGHT + CALL,
    "call inside the thought": "Let me see.\n" + CALL,
    "thought alone": "Let me",
    "nothing": "",
}


def body(**fields):
    return {"model": "demo", "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL], **fields}


def cuts(text):
    return {"whole": [text], "characters": list(text), "bytes": [{"b64": encoded} for encoded in _base64(text)]}


def _base64(text):
    import base64

    return [base64.b64encode(bytes([byte])).decode() for byte in text.encode()]


def message_of(chunks):
    """What a client makes of a stream: everything but ids of the stream itself."""
    message = {"content": None, "reasoning_content": "", "tool_calls": {}}
    finish = None
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if delta.get("content") is not None:
                message["content"] = (message["content"] or "") + delta["content"]
            message["reasoning_content"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls", []):
                known = message["tool_calls"].setdefault(call["index"], {"name": None, "arguments": ""})
                known["name"] = known["name"] or call["function"].get("name")
                known["arguments"] += call["function"].get("arguments", "")
            finish = finish or choice["finish_reason"]
    calls = [message["tool_calls"][index] for index in sorted(message["tool_calls"])]
    return message["content"], message["reasoning_content"], calls, finish


async def streamed(client, request):
    response = await client.post(URL, json={**request, "stream": True})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    return sse(response.text)


@pytest.mark.parametrize("cut", ["whole", "characters", "bytes"])
@pytest.mark.parametrize("reply", REPLIES)
async def test_a_stream_says_what_the_whole_reply_says(serving, reply, cut):
    pieces = cuts(REPLIES[reply])[cut]
    async with serving(pieces, pieces) as client:
        response = await client.post(URL, json=body())
        *chunks, done = await streamed(client, body(stream_options={"include_usage": True}))
    assert response.status_code == 200
    completion = response.json()
    ChatCompletion.model_validate(completion, strict=True)
    (choice,) = completion["choices"]
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls", [])]
    whole = message["content"], message["reasoning_content"] or "", calls, choice["finish_reason"]
    assert message_of(chunks) == whole
    assert done == "[DONE]"
    assert chunks[-1]["usage"] == completion["usage"]


@pytest.mark.parametrize("cut", ["whole", "characters"])
@pytest.mark.parametrize("reply", REPLIES)
async def test_every_chunk_has_its_place(serving, reply, cut):
    async with serving(cuts(REPLIES[reply])[cut]) as client:
        *chunks, _ = await streamed(client, body())
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk, strict=True)
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert not any("usage" in chunk for chunk in chunks)
    first, *middle, last = [chunk["choices"][0] for chunk in chunks]
    kinds = {kind for choice in middle for kind in choice["delta"]}
    begins = (middle or [last])[0]["delta"]
    assert first["delta"] == {"role": "assistant", "content": "" if "content" in begins else None}
    assert last["delta"] == ({} if kinds & {"content", "tool_calls"} else {"content": ""})
    assert last["finish_reason"] is not None
    assert all(choice["finish_reason"] is None for choice in (first, *middle))
    for choice in middle:
        (kind,) = choice["delta"]
        assert kind in ("content", "reasoning_content", "tool_calls")
        assert choice["delta"][kind]


async def test_a_call_is_named_once_and_its_slices_join_to_its_arguments(serving):
    async with serving(list(REPLIES["calls"])) as client:
        *chunks, _ = await streamed(client, body())
    deltas = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert all(len(chunk["choices"][0]["delta"].get("tool_calls", [])) <= 1 for chunk in chunks)
    for index in (0, 1):
        head, *slices = [delta for delta in deltas if delta["index"] == index]
        assert head["type"] == "function"
        assert head["id"].startswith("call_")
        assert len(head["id"]) == len("call_") + 24
        assert head["function"] == {"name": "write_file", "arguments": ""}
        assert all(set(slice) == {"index", "function"} and set(slice["function"]) == {"arguments"} for slice in slices)
    assert len({delta["id"] for delta in deltas if "id" in delta}) == 2
    arguments = "".join(delta["function"]["arguments"] for delta in deltas if delta["index"] == 0)
    assert json.loads(arguments) == {"path": "a.txt", "content": "  x\n", "mode": 644}


@pytest.mark.parametrize(
    ("setting", "keys"),
    [
        ("reasoning_content", {"reasoning_content"}),
        ("reasoning", {"reasoning"}),
        ("both", {"reasoning", "reasoning_content"}),
    ],
)
async def test_thoughts_stand_where_the_setting_says(serving, setting, keys):
    async with serving(REPLIES["text"], REPLIES["text"], reasoning_field=setting) as client:
        message = (await client.post(URL, json=body())).json()["choices"][0]["message"]
        *chunks, _ = await streamed(client, body())
    names = {"reasoning", "reasoning_content"}
    assert {key: message[key] for key in names & set(message)} == dict.fromkeys(keys, "Let me see.")
    found = [set(chunk["choices"][0]["delta"]) for chunk in chunks if names & set(chunk["choices"][0]["delta"])]
    assert found == [keys]


@pytest.mark.parametrize("fields", [{"tools": None}, {"tool_choice": "none"}, {"tools": []}])
async def test_a_request_that_wants_no_call_gets_none(serving, fields):
    async with serving(REPLIES["calls"], REPLIES["calls"]) as client:
        (choice,) = (await client.post(URL, json=body(**fields))).json()["choices"]
        *chunks, _ = await streamed(client, body(**fields))
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == "I write.\n" + CALL
    assert message_of(chunks) == (choice["message"]["content"], "Let me see.", [], "stop")


async def test_a_cut_call_is_a_length_when_the_limit_was_hit(serving):
    line = {"output": list(CUT), "finish_reason": "length"}
    async with serving(line, line) as client:
        (choice,) = (await client.post(URL, json=body())).json()["choices"]
        *chunks, done = await streamed(client, body())
    assert choice["finish_reason"] == "length"
    assert "tool_calls" not in choice["message"]
    assert message_of(chunks)[3] == "length"
    assert done == "[DONE]"


@pytest.mark.parametrize("pieces", [[CUT], list(CUT)], ids=["whole", "characters"])
async def test_a_cut_call_without_a_limit_is_an_error(serving, pieces):
    async with serving(pieces, pieces) as client:
        whole = await client.post(URL, json=body())
        chunks = await streamed(client, body())
    assert whole.status_code == 500
    assert whole.json()["error"]["code"] == "incomplete_tool_call"
    assert chunks[-2]["error"]["code"] == "incomplete_tool_call"
    assert chunks[-1] == "[DONE]"
    assert message_of(chunks[:-2])[:2] == ("Now.", "Let me see.")
    assert not any(choice["finish_reason"] for chunk in chunks[:-2] for choice in chunk["choices"])


async def test_only_one_call_when_parallel_calls_are_off(serving):
    async with serving(REPLIES["calls"], list(REPLIES["calls"])) as client:
        (choice,) = (await client.post(URL, json=body(parallel_tool_calls=False))).json()["choices"]
        *chunks, _ = await streamed(client, body(parallel_tool_calls=False))
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["write_file"]
    assert choice["finish_reason"] == "tool_calls"
    assert message_of(chunks)[2:] == ([choice["message"]["tool_calls"][0]["function"]], "tool_calls")


async def test_a_required_call_that_does_not_come_is_an_error(serving):
    async with serving(REPLIES["text"], REPLIES["only calls"]) as client:
        missing = await client.post(URL, json=body(tool_choice="required"))
        present = await client.post(URL, json=body(tool_choice="required"))
    assert missing.status_code == 500
    assert missing.json()["error"]["code"] == "tool_call_missing"
    assert present.json()["choices"][0]["finish_reason"] == "tool_calls"


async def test_several_choices_are_several_sequences(serving):
    outputs = [THOUGHT + "one", list(THOUGHT + "two"), THOUGHT + CALL]
    async with serving(*outputs, *outputs) as client:
        completion = (await client.post(URL, json=body(n=3))).json()
        *chunks, usage, done = await streamed(client, body(n=3, stream_options={"include_usage": True}))
    ChatCompletion.model_validate(completion, strict=True)
    assert [choice["index"] for choice in completion["choices"]] == [0, 1, 2]
    assert [choice["message"]["content"] for choice in completion["choices"]] == ["one", "two", None]
    for index, choice in enumerate(completion["choices"]):
        own = [chunk for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert own[0]["choices"][0]["delta"]["role"] == "assistant"
        assert message_of(own)[0] == choice["message"]["content"]
        assert message_of(own)[3] == choice["finish_reason"]
    assert usage["usage"] == completion["usage"]
    assert done == "[DONE]"


async def test_an_error_after_the_beginning_is_sent_and_ends_the_stream(serving):
    line = {"output": list(THOUGHT + "Hello"), "error_after": len(THOUGHT) + 2}
    async with serving(line, line, REPLIES["text"]) as client:
        whole = await client.post(URL, json=body())
        chunks = await streamed(client, body())
        after = await client.post(URL, json=body())
    assert whole.status_code == 500
    assert set(whole.json()["error"]) == {"message", "type", "param", "code"}
    assert chunks[-2]["error"] == whole.json()["error"]
    assert message_of(chunks[:-2]) == ("He", "Let me see.", [], None)
    assert after.json()["choices"][0]["message"]["content"] == "Hello, wörld."


async def test_death_ends_streams_in_shape_and_health_says_so(serving, monkeypatch):
    # Long enough to be seen on a busy machine.
    monkeypatch.setattr("vllm_mlx.engine.replay.RESTART_SECONDS", 2.0)
    line = {"output": list(THOUGHT + "Hello"), "die_after": 3}
    async with serving(line, REPLIES["text"]) as client:
        chunks = await streamed(client, body())
        assert chunks[-2]["error"]["code"] == "engine_died"
        health = await client.get("/health")
        assert (health.status_code, health.json()) == (503, {"status": "restarting"})
        # What comes now waits for the next engine.
        after = await client.post(URL, json=body())
        assert (await client.get("/health")).status_code == 200
    assert after.json()["choices"][0]["message"]["content"] == "Hello, wörld."


async def test_usage_counts_thoughts_and_all(serving):
    async with serving(list(REPLIES["text"])) as client:
        usage = (await client.post(URL, json=body())).json()["usage"]
    assert usage["prompt_tokens"] > 0
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]


async def test_a_stop_string_ends_the_reply_and_is_told(serving):
    outputs = [list(THOUGHT + "one STOP two")] * 2
    async with serving(*outputs) as client:
        (choice,) = (await client.post(URL, json=body(stop=["STOP"]))).json()["choices"]
        *chunks, _ = await streamed(client, body(stop="STOP"))
    assert choice["message"]["content"] == "one "
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "STOP")
    assert message_of(chunks)[0] == "one "
