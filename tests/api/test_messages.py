"""Anthropic messages: the shapes of its SDK, and a stream that says what the whole message says."""

import json
import re

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from vllm_mlx.api.sealed import seal

from .conftest import sse
from .replies import CALL, CUT, REPLIES, SCHEMA, THOUGHT, cuts

pytestmark = pytest.mark.anyio

URL = "/v1/messages"
TOOL = {"name": "write_file", "description": "Writes a file.", "input_schema": SCHEMA}
EVENT = TypeAdapter(RawMessageStreamEvent)


def body(**fields):
    request = {"model": "demo", "max_tokens": 512, "messages": [{"role": "user", "content": "hi"}], "tools": [TOOL]}
    return {name: value for name, value in {**request, **fields}.items() if value is not None}


async def streamed(client, request):
    response = await client.post(URL, json={**request, "stream": True})
    assert response.status_code == 200, response.text
    names = [line.removeprefix("event: ") for line in response.text.split("\n") if line.startswith("event: ")]
    events = sse(response.text)
    assert names == [event["type"] for event in events]
    return [event for event in events if event["type"] != "ping"]


def folded(events):
    """What a client makes of a stream; blocks that were never closed are left out."""
    start, *rest = events
    message = start["message"]
    blocks, closed = {}, []
    for event in rest:
        match event:
            case {"type": "content_block_start", "index": index, "content_block": block}:
                assert index == len(blocks)
                blocks[index] = {**block, "json": ""}
            case {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}:
                assert index == len(blocks) - 1
                assert index not in closed
                field = {"input_json_delta": "json"}.get(kind, kind.removesuffix("_delta"))
                (value,) = delta.values()
                assert value
                blocks[index][field] += value
            case {"type": "content_block_stop", "index": index}:
                closed.append(index)
            case {"type": "message_delta", "delta": delta, "usage": usage}:
                message.update(delta, usage=usage)
            case {"type": "message_stop"}:
                assert event is rest[-1]
    assert closed == sorted(set(closed))
    message["content"] = [blocks[index] for index in closed]
    for block in message["content"]:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
    return message


async def ask(client, request, stream):
    return folded(await streamed(client, request)) if stream else (await client.post(URL, json=request)).json()


def without_ids(message):
    blocks = [{**block, "id": "id" in block} for block in message["content"]]
    return {**message, "id": None, "content": blocks}


@pytest.mark.parametrize("cut", ["whole", "characters", "bytes"])
@pytest.mark.parametrize("reply", REPLIES)
async def test_a_stream_says_what_the_whole_message_says(serving, reply, cut):
    pieces = cuts(REPLIES[reply])[cut]
    async with serving(pieces, pieces) as client:
        response = await client.post(URL, json=body())
        events = await streamed(client, body())
    assert response.status_code == 200
    whole = response.json()
    Message.model_validate(whole, strict=True)
    for event in events:
        EVENT.validate_python(event, strict=True)
    assert without_ids(folded(events)) == without_ids(whole)
    assert events[0]["message"]["usage"]["input_tokens"] == whole["usage"]["input_tokens"] > 0


@pytest.mark.parametrize(
    ("reply", "types", "reason"),
    [
        ("text", ["thinking", "text"], "end_turn"),
        ("calls", ["thinking", "text", "tool_use", "tool_use"], "tool_use"),
        ("text around calls", ["thinking", "text", "tool_use", "tool_use", "text"], "tool_use"),
        ("call inside the thought", ["thinking", "tool_use", "tool_use"], "tool_use"),
        ("nothing", [], "end_turn"),
    ],
)
async def test_blocks_come_in_the_order_of_the_reply(serving, reply, types, reason):
    async with serving(REPLIES[reply]) as client:
        message = (await client.post(URL, json=body())).json()
    assert [block["type"] for block in message["content"]] == types
    assert message["stop_reason"] == reason
    assert message["id"].startswith("msg_")
    assert all(re.fullmatch("toolu_[0-9a-f]{24}", block["id"]) for block in message["content"] if "id" in block)


async def test_numbers_keep_their_spelling(serving):
    async with serving(REPLIES["calls"]) as client:
        text = (await client.post(URL, json=body())).text
    assert '"input":{"path":"a.txt","content":"  x\\n","mode":1.00}' in text


async def test_a_thought_comes_with_a_signature(serving):
    async with serving(REPLIES["text"], list(REPLIES["text"])) as client:
        whole = (await client.post(URL, json=body())).json()["content"][0]
        events = await streamed(client, body())
    assert whole["thinking"] == "Let me see."
    assert whole["signature"]
    kinds = [event["delta"]["type"] for event in events if event.get("index") == 0 and "delta" in event]
    assert kinds == ["thinking_delta"] * (len(kinds) - 1) + ["signature_delta"]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_omitted_thought_comes_back_from_its_signature(serving, stream):
    request = body(thinking={"type": "adaptive", "display": "omitted"})
    async with serving(list(REPLIES["text"])) as client:
        message = await ask(client, request, stream)
    thought = message["content"][0]
    assert thought == {"type": "thinking", "thinking": "", "signature": seal("Let me see.")}


STOPS = {
    # output, request, the end
    "a stop string": ("t\n</think>\n\none STOP two", {"stop_sequences": ["STOP"]}, ("stop_sequence", "STOP", "one ")),
    "no stop string": ("t\n</think>\n\none", {"stop_sequences": ["STOP"]}, ("end_turn", None, "one")),
}


@pytest.mark.parametrize(("output", "fields", "end"), STOPS.values(), ids=STOPS)
async def test_why_a_message_ended(serving, output, fields, end):
    async with serving(list(output), list(output)) as client:
        whole = (await client.post(URL, json=body(**fields))).json()
        stream = folded(await streamed(client, body(**fields)))
    for message in (whole, stream):
        assert (message["stop_reason"], message["stop_sequence"], message["content"][-1]["text"]) == end


@pytest.mark.parametrize("stream", [False, True])
async def test_a_limit_is_the_clients_or_the_contexts(serving, chat, stream):
    line = chat.encode("t\n</think>\n\n" + "Hello. " * 500)
    async with serving(line, line, max_model_len=500) as client:
        ends = [(await ask(client, body(max_tokens=limit), stream))["stop_reason"] for limit in (64, 500)]
    assert ends == ["max_tokens", "model_context_window_exceeded"]


async def test_a_cut_call_is_a_limit_when_one_was_hit(serving):
    line = {"output": list(CUT), "finish_reason": "length"}
    async with serving(line, line) as client:
        whole = (await client.post(URL, json=body())).json()
        events = await streamed(client, body())
    assert [block["type"] for block in whole["content"]] == ["thinking", "text"]
    assert whole["stop_reason"] == "max_tokens"
    # Its block was begun and is never closed.
    assert without_ids(folded(events)) == without_ids(whole)
    assert any(event.get("content_block", {}).get("type") == "tool_use" for event in events)


async def test_a_cut_call_without_a_limit_is_an_error(serving):
    async with serving(list(CUT), list(CUT)) as client:
        whole = await client.post(URL, json=body())
        events = await streamed(client, body())
    assert whole.status_code == 500
    assert whole.json()["error"]["type"] == "api_error"
    assert events[-1]["error"]["type"] == "api_error"
    assert not any(event["type"] in ("message_delta", "message_stop") for event in events)


async def test_an_error_amid_a_stream_has_its_shape_and_the_requests_id(serving):
    async with serving({"output": ["abc", "def"], "error_after": 1}) as client:
        response = await client.post(URL, json=body(stream=True), headers={"X-Request-Id": "mine"})
    last = sse(response.text)[-1]
    assert last == {
        "type": "error",
        "error": {"type": "api_error", "message": "recorded error"},
        "request_id": "mine",
    }


async def test_silence_is_filled_with_pings(serving):
    async with serving({"output": "x", "prefill_ms": 350}, keep_alive_interval=0.1) as client:
        response = await client.post(URL, json=body(stream=True))
    assert response.text.count('event: ping\ndata: {"type":"ping"}\n\n') >= 2


async def test_the_numbers_of_the_prompt_are_disjoint(serving, monkeypatch):
    from vllm_mlx.engine.replay import ReplayGeneration

    play = ReplayGeneration._play

    async def cached(self):
        async for delta in play(self):
            yield type(delta)(delta.id, raw=delta.raw, finish=delta.finish, cached_tokens=7)

    monkeypatch.setattr(ReplayGeneration, "_play", cached)
    async with serving("x\n</think>\n\ny", "x\n</think>\n\ny") as client:
        count = (await client.post(f"{URL}/count_tokens", json=body(max_tokens=None))).json()["input_tokens"]
        whole = (await client.post(URL, json=body())).json()["usage"]
        stream = folded(await streamed(client, body()))["usage"]
    for usage in (whole, stream):
        assert usage["cache_read_input_tokens"] == 7
        assert usage["input_tokens"] + usage["cache_creation_input_tokens"] == count - 7


async def test_one_call_where_parallel_use_is_off(serving):
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    async with serving(THOUGHT + CALL) as client:
        message = (await client.post(URL, json=body(tool_choice=choice))).json()
    assert [block["type"] for block in message["content"]] == ["thinking", "tool_use"]
    assert message["stop_reason"] == "tool_use"


@pytest.mark.parametrize("fields", [{"tools": None}, {"tool_choice": {"type": "none"}}])
async def test_a_request_that_wants_no_call_gets_none(serving, fields):
    async with serving(THOUGHT + CALL) as client:
        message = (await client.post(URL, json=body(**fields))).json()
    assert [block["type"] for block in message["content"]] == ["thinking", "text"]
    assert message["stop_reason"] == "end_turn"


async def test_count_tokens_counts_the_prompt(serving):
    async with serving("x") as client:
        counted = await client.post(f"{URL}/count_tokens", json=body(max_tokens=None))
        usage = (await client.post(URL, json=body())).json()["usage"]
    assert counted.json() == {"input_tokens": usage["input_tokens"]}


async def test_a_client_may_ask_whether_anyone_is_there(serving):
    async with serving("x") as client:
        response = await client.head("/")
    assert response.status_code == 200


REFUSED = [
    # the request's fields, what the message says
    ({"max_tokens": None}, "max_tokens: is required"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"),
    ({"top_k": 10**30}, "top_k"),
    ({"thinking": {"type": "enabled", "budget_tokens": 10**30}}, "thinking.budget_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content: is required"),
    ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "content[0].tool_use_id"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]}]}, "content[0].name"),
    ({"system": 5}, "system"),
    ({"temperature": 3}, "temperature"),
    ({"top_p": 2.0}, "top_p"),
    ({"stop_sequences": [""]}, "stop_sequences"),
    ({"tools": [{"name": "x"}]}, "tools[0].input_schema"),
    ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"tool_choice": {"type": "tool", "name": "nope"}}, "'nope'"),
    ({"tool_choice": {"type": "any"}, "tools": []}, "no tools"),
    ({"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
    ({"thinking": {"type": "maybe"}}, "thinking.type"),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    ({"container": "c"}, "container"),
    ({"model": ""}, "model"),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fields", "said"), REFUSED)
async def test_what_cannot_be_served_is_refused_by_name(serving, fields, said, stream):
    async with serving("x") as client:
        response = await client.post(URL, json=body(**fields, stream=stream))
    assert response.status_code == 400
    error = response.json()
    assert error["type"] == "error"
    assert error["error"]["type"] == "invalid_request_error"
    assert error["request_id"] == response.headers["x-request-id"]
    assert said in error["error"]["message"]


async def test_a_prompt_that_is_too_long_is_told_in_the_words_that_clients_know(serving):
    long = [{"role": "user", "content": "word " * 300}]
    async with serving("x", max_model_len=200) as client:
        response = await client.post(URL, json=body(messages=long))
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert re.match(r"prompt is too long: \d+ tokens > 199 maximum", error["message"])
