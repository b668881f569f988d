"""The real OpenAI (Responses) and Anthropic SDKs against the real server process, on recorded output and the model."""

import gzip
import json

import anthropic
import httpx2
import openai
import pytest
import zstandard

from .process import replay_file, running
from .replies import CUT

THOUGHT = "The user wants it.\n</think>\n\n"
CALL = (
    '<minimax:tool_call>\n<invoke name="add">\n<parameter name="a">2</parameter>\n'
    '<parameter name="b">3.50</parameter>\n</invoke>\n</minimax:tool_call>'
)
ANSWER = "It is known.\n</think>\n\nThe sum is 5.50."
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "number"}},
    "required": ["a", "b"],
}
FUNCTION = {"type": "function", "name": "add", "description": "Adds.", "parameters": SCHEMA, "strict": False}
WRITE = {"type": "function", "name": "write_file", "parameters": {"type": "object"}, "strict": False}
TOOL = {"name": "add", "description": "Adds.", "input_schema": SCHEMA}
QUESTION = "Add 2 and 3.50."
USER = [{"role": "user", "content": QUESTION}]


def responses_sdk(server):
    return openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)


def messages_sdk(server):
    return anthropic.Anthropic(base_url=server.root, api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def demo():
    with running("serve", "demo", "--keep-alive-interval", "0.5") as server:
        yield server


def parts(response):
    """What a response says, without ids."""
    found = []
    for item in response.output:
        match item.type:
            case "reasoning":
                found.append(("reasoning", item.content[0].text))
            case "message":
                found.append(("message", item.content[0].text))
            case "function_call":
                found.append((item.name, item.arguments))
    return found, response.status


def blocks(message):
    found = []
    for block in message.content:
        match block.type:
            case "thinking":
                assert block.signature
                found.append(("thinking", block.thinking))
            case "text":
                found.append(("text", block.text))
            case "tool_use":
                found.append((block.name, block.input))
    return found, message.stop_reason


@pytest.mark.parametrize("streamed", [False, True])
def test_an_agent_turn_of_responses(tmp_path, streamed):
    file = replay_file(tmp_path, list(THOUGHT + CALL), list(ANSWER))
    with running("replay", file) as server, responses_sdk(server) as client:

        def ask(items):
            request = {"model": "demo", "input": items, "tools": [FUNCTION]}
            if not streamed:
                return client.responses.create(**request)
            with client.responses.stream(**request) as stream:
                return stream.get_final_response()

        first = ask(USER)
        call = first.output[-1]
        assert parts(first) == (
            [("reasoning", "The user wants it."), ("add", '{"a":2,"b":3.50}')],
            "completed",
        )
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "5.50"}
        second = ask([*USER, *[item.to_dict() for item in first.output], result])
        assert parts(second)[0] == [("reasoning", "It is known."), ("message", "The sum is 5.50.")]
        assert second.output_text == "The sum is 5.50."
        fetched = client.responses.retrieve(second.id)
        assert fetched.output_text == second.output_text
        client.responses.delete(second.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(second.id)


@pytest.mark.parametrize("streamed", [False, True])
def test_an_agent_turn_of_messages(tmp_path, streamed):
    file = replay_file(tmp_path, list(THOUGHT + CALL), list(ANSWER))
    with running("replay", file) as server, messages_sdk(server) as client:

        def ask(messages):
            request = {"model": "demo", "max_tokens": 500, "messages": messages, "tools": [TOOL]}
            if not streamed:
                return client.messages.create(**request)
            with client.messages.stream(**request) as stream:
                return stream.get_final_message()

        first = ask(USER)
        assert blocks(first) == (
            [("thinking", "The user wants it."), ("add", {"a": 2, "b": 3.5})],
            "tool_use",
        )
        call = first.content[-1]
        result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "5.50"}]}
        # The thought goes back as it came.
        history = [*USER, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        second = ask(history)
        assert blocks(second) == ([("thinking", "It is known."), ("text", "The sum is 5.50.")], "end_turn")
        assert client.messages.count_tokens(model="demo", messages=USER).input_tokens > 0
        assert [model.id for model in client.models.list()] == ["demo"]


def test_a_thought_is_in_the_next_prompt(tmp_path):
    record = tmp_path / "record.jsonl"
    with running("serve", "demo", "--record", record) as server, messages_sdk(server) as client:
        history = [
            *USER,
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "MARK-17", "signature": "any"},
                    {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1, "b": 2}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "3"}]},
        ]
        client.messages.create(model="demo", max_tokens=4, messages=history, tools=[TOOL], system="Be brief.")
    (line,) = [json.loads(line) for line in record.read_text().splitlines()]
    assert "MARK-17" in line["prompt"]
    assert "Be brief." in line["prompt"]


def test_errors_are_the_sdks_own(tmp_path):
    with running("replay", replay_file(tmp_path, "x"), "--strict-model-name") as server:
        with messages_sdk(server) as client:
            with pytest.raises(anthropic.BadRequestError) as refused:
                client.messages.create(model="demo", max_tokens=5, messages=USER, extra_body={"temperature": 9})
            assert "temperature" in refused.value.message
            assert refused.value.body["error"]["type"] == "invalid_request_error"
            assert refused.value.request_id == refused.value.body["request_id"]
            with pytest.raises(anthropic.NotFoundError):
                client.messages.create(model="claude", max_tokens=5, messages=USER)
        with responses_sdk(server) as client:
            with pytest.raises(openai.BadRequestError) as wrong:
                client.responses.create(model="demo", input=USER, temperature=9)
            assert wrong.value.param == "temperature"
            with pytest.raises(openai.NotFoundError) as unknown:
                client.responses.create(model="demo", input=USER, previous_response_id="resp_none")
            assert unknown.value.code == "previous_response_not_found"


def test_a_broken_stream_does_not_look_finished(tmp_path):
    line = {"output": list(THOUGHT + "abcdef"), "error_after": len(THOUGHT) + 3}
    with running("replay", replay_file(tmp_path, line, line, "ok\n</think>\n\nok")) as server:
        with messages_sdk(server) as client, pytest.raises(anthropic.APIStatusError):
            list(client.messages.create(model="demo", max_tokens=50, messages=USER, stream=True))
        with responses_sdk(server) as client:
            events = list(client.responses.create(model="demo", input=USER, stream=True))
            assert [event.type for event in events[-2:]] == ["error", "response.failed"]
            assert client.responses.create(model="demo", input=USER).output_text == "ok"


def test_a_cut_call_is_none(tmp_path):
    cut = {"output": list(CUT), "finish_reason": "length"}
    with running("replay", replay_file(tmp_path, cut, cut, list(CUT), list(CUT))) as server:
        with responses_sdk(server) as client:
            events = list(client.responses.create(model="demo", input=USER, tools=[WRITE], stream=True))
            assert events[-1].type == "response.incomplete"
            assert [item.type for item in events[-1].response.output] == ["reasoning", "message"]
            done = [event.item.type for event in events if event.type == "response.output_item.done"]
            assert "function_call" not in done
        with messages_sdk(server) as client:
            tools = [{"name": "write_file", "input_schema": {"type": "object"}}]
            request = {"model": "demo", "max_tokens": 500, "messages": USER, "tools": tools}
            events = list(client.messages.create(**request, stream=True))
            closed = {event.index for event in events if event.type == "content_block_stop"}
            assert [
                event.content_block.type
                for event in events
                if getattr(event, "index", None) not in closed and event.type == "content_block_start"
            ] == ["tool_use"]
            assert events[-2].delta.stop_reason == "max_tokens"
            with pytest.raises(anthropic.APIStatusError):
                list(client.messages.create(**request, stream=True))
        with responses_sdk(server) as client:
            events = list(client.responses.create(model="demo", input=USER, tools=[WRITE], stream=True))
            assert events[-1].type == "response.failed"


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.ZstdCompressor().compress)])
def test_packed_bodies(tmp_path, encoding, pack):
    body = pack(json.dumps({"model": "demo", "input": "hi"}).encode())
    with running("replay", replay_file(tmp_path, ANSWER)) as server:
        headers = {"content-encoding": encoding, "content-type": "application/json"}
        response = httpx2.post(f"{server.url}/responses", content=body, headers=headers)
    assert response.status_code == 200
    assert response.json()["output"][-1]["content"][0]["text"] == "The sum is 5.50."


def test_a_stream_of_the_model_equals_its_whole_reply(demo):
    with responses_sdk(demo) as client:
        request = {
            "model": "demo",
            "input": QUESTION,
            "tools": [FUNCTION],
            "temperature": 0,
            "max_output_tokens": 60,
        }
        whole = client.responses.create(**request)
        events = list(client.responses.create(**request, stream=True))
        assert parts(events[-1].response) == parts(whole)
        assert events[-1].response.usage.output_tokens == whole.usage.output_tokens > 0
    with messages_sdk(demo) as client:
        request = {
            "model": "demo",
            "messages": USER,
            "tools": [TOOL],
            "max_tokens": 60,
            "extra_body": {"temperature": 0},
        }
        message = client.messages.create(**request)
        with client.messages.stream(**request) as stream:
            assert blocks(stream.get_final_message()) == blocks(message)
        again = client.messages.create(**request).usage
        assert again.cache_read_input_tokens > 0
        total = message.usage.input_tokens + message.usage.cache_read_input_tokens
        assert again.input_tokens + again.cache_read_input_tokens + again.cache_creation_input_tokens == total
