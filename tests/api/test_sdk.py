"""The real OpenAI SDK against the real server process, on recorded output and on the built-in model."""

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import openai
import pytest

from .process import replay_file, running

THOUGHT = "The user wants it.\n</think>\n\n"
CALL = '<minimax:tool_call>\n<invoke name="add">\n<parameter name="a">2</parameter>\n<parameter name="b">3.50</parameter>\n</invoke>\n</minimax:tool_call>'  # noqa: E501
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "number"}},
                "required": ["a", "b"],
            },
        },
    }
]
USER = [{"role": "user", "content": "Add 2 and 3.50."}]


EXTRA = ("min_tokens", "ignore_eos", "thinking_token_budget")


def sdk(server, **options):
    return openai.OpenAI(base_url=server.url, api_key="none", max_retries=0, **options)


def joined(stream):
    """The SDK's own accumulation of a stream, as a dict."""
    reasoning, content, calls, finish = "", "", {}, None
    for chunk in stream:
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            content += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                known = calls.setdefault(call.index, {"id": call.id, "name": call.function.name, "arguments": ""})
                known["arguments"] += call.function.arguments or ""
            finish = finish or choice.finish_reason
    return {"reasoning": reasoning, "content": content, "calls": list(calls.values()), "finish": finish}


def whole(completion):
    (choice,) = completion.choices
    calls = [
        {"id": call.id, "name": call.function.name, "arguments": call.function.arguments}
        for call in choice.message.tool_calls or []
    ]
    return {
        "reasoning": choice.message.reasoning_content or "",
        "content": choice.message.content or "",
        "calls": calls,
        "finish": choice.finish_reason,
    }


def without_ids(reply):
    return {**reply, "calls": [{**call, "id": bool(call["id"])} for call in reply["calls"]]}


@pytest.fixture(scope="module")
def demo():
    with running("serve", "demo", "--max-num-seqs", "8", "--keep-alive-interval", "0.5") as server:
        yield server


def test_a_full_agent_turn(tmp_path):
    file = replay_file(tmp_path, list(THOUGHT + CALL), list("It is known.\n</think>\n\nThe sum is 5.50."))
    with running("replay", file) as server, sdk(server) as client:
        first = whole(client.chat.completions.create(model="demo", messages=USER, tools=TOOLS))
        (call,) = first["calls"]
        assert first["reasoning"] == "The user wants it."
        assert first["finish"] == "tool_calls"
        assert json.loads(call["arguments"]) == {"a": 2, "b": 3.5}
        assert "3.50" in call["arguments"]
        history = [
            *USER,
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": first["reasoning"],
                "tool_calls": [
                    {
                        "id": call["id"],
                        "type": "function",
                        "function": {"name": "add", "arguments": call["arguments"]},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": call["id"], "content": "5.50"},
        ]
        stream = client.chat.completions.create(model="demo", messages=history, tools=TOOLS, stream=True)
        assert joined(stream) == {
            "reasoning": "It is known.",
            "content": "The sum is 5.50.",
            "calls": [],
            "finish": "stop",
        }


def test_the_sdk_stream_helper_and_its_types(tmp_path):
    line = list(THOUGHT + "Adding.\n" + CALL)
    with running("replay", replay_file(tmp_path, line, line)) as server, sdk(server) as client:
        reply = whole(client.chat.completions.create(model="demo", messages=USER, tools=TOOLS))
        with client.chat.completions.stream(
            model="demo", messages=USER, tools=TOOLS, stream_options={"include_usage": True}
        ) as stream:
            completion = stream.get_final_completion()
    assert without_ids(whole(completion)) == without_ids(reply)
    assert completion.usage.total_tokens > completion.usage.completion_tokens > 0


def test_eight_streams_at_once_are_all_right(tmp_path):
    lines = [{"output": list(f"t{i}\n</think>\n\n" + f"answer {i} " * 20), "delay_ms": 1} for i in range(8)]
    with running("replay", replay_file(tmp_path, *lines)) as server, sdk(server) as client:

        def ask(_):
            return joined(client.chat.completions.create(model="demo", messages=USER, stream=True))

        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(ask, range(8)))
    found = sorted(replies, key=lambda reply: reply["reasoning"])
    assert [reply["reasoning"] for reply in found] == [f"t{i}" for i in range(8)]
    assert [reply["content"] for reply in found] == [f"answer {i} " * 20 for i in range(8)]


@pytest.mark.parametrize("hang_after", [0, 3])
def test_a_client_that_leaves_frees_its_slot(tmp_path, hang_after):
    hang = {"output": list(THOUGHT), "hang_after": hang_after}
    file = replay_file(tmp_path, hang, hang, THOUGHT + "next")
    with running("replay", file, "--max-num-seqs", "1", "--keep-alive-interval", "0.1") as server:
        with httpx2.Client(base_url=server.url) as client:
            body = {"messages": USER, "stream": True}
            with client.stream("POST", "/chat/completions", json=body) as response:
                assert next(response.iter_lines()).startswith(":")
            with pytest.raises(httpx2.ReadTimeout):
                client.post("/chat/completions", json={"messages": USER}, timeout=0.5)
        with sdk(server) as client:
            assert whole(client.chat.completions.create(model="demo", messages=USER))["content"] == "next"


def test_comments_keep_a_silent_stream_alive(tmp_path):
    file = replay_file(tmp_path, {"output": THOUGHT + "x", "prefill_ms": 1000})
    with running("replay", file, "--keep-alive-interval", "0.1") as server:
        body = {"messages": USER, "stream": True}
        with httpx2.stream("POST", server.url + "/chat/completions", json=body) as response:
            lines = list(response.iter_lines())
    first_data = next(at for at, line in enumerate(lines) if line.startswith("data:"))
    assert sum(line.startswith(":") for line in lines[:first_data]) >= 3
    assert lines[-2:] == ["data: [DONE]", ""]


def test_bad_requests_are_the_errors_of_the_sdk(tmp_path):
    with running("replay", replay_file(tmp_path, "x"), "--strict-model-name") as server, sdk(server) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="demo", messages=USER, temperature=9)
        assert refused.value.param == "temperature"
        with pytest.raises(openai.NotFoundError) as unknown:
            client.chat.completions.create(model="gpt", messages=USER)
        assert unknown.value.code == "model_not_found"
        assert [model.id for model in client.models.list()] == ["demo"]
        assert client.models.retrieve("demo").id == "demo"


def test_an_error_in_mid_stream_raises(tmp_path):
    line = {"output": list(THOUGHT + "abcdef"), "error_after": len(THOUGHT) + 3}
    with running("replay", replay_file(tmp_path, line, "ok\n</think>\n\nok")) as server, sdk(server) as client:
        stream = client.chat.completions.create(model="demo", messages=USER, stream=True)
        content = ""

        def read():
            nonlocal content
            for chunk in stream:
                content += chunk.choices[0].delta.content or ""

        with pytest.raises(openai.APIError):
            read()
        assert content == "abc"
        assert whole(client.chat.completions.create(model="demo", messages=USER))["content"] == "ok"


def test_a_stream_of_the_model_equals_its_whole_reply(demo):
    with sdk(demo) as client:
        for messages in (USER, [{"role": "user", "content": "Hello"}]):
            request = {"model": "demo", "messages": messages, "tools": TOOLS, "temperature": 0, "max_tokens": 60}
            reply = client.chat.completions.create(**request)
            stream = list(
                client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True})
            )
            assert without_ids(joined(stream)) == without_ids(whole(reply))
            assert stream[-1].usage.completion_tokens == reply.usage.completion_tokens
            assert 0 < reply.usage.completion_tokens <= 60


def test_eight_streams_of_the_model_are_each_what_it_says_alone(demo):
    with sdk(demo) as client:

        def ask(number):
            messages = [{"role": "user", "content": f"Hello {number}"}]
            return client.chat.completions.create(
                model="demo", messages=messages, temperature=0, max_tokens=30, stream=True
            )

        alone = [joined(ask(number)) for number in range(8)]
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda number: joined(ask(number)), range(8)))
    assert together == alone


def test_parameters_act_on_the_model(demo):
    with sdk(demo) as client:

        def ask(**fields):
            extra = {name: fields.pop(name) for name in list(fields) if name in EXTRA}
            return client.chat.completions.create(
                **{"model": "demo", "messages": USER, "temperature": 2, "seed": 7, "max_tokens": 40, **fields},
                extra_body=extra,
            )

        # What the model writes behind its own end is less sure than a reply, and so shows the seed.
        first, again, other = (ask(ignore_eos=True, seed=seed) for seed in (7, 7, 8))
        assert without_ids(whole(first)) == without_ids(whole(again))
        assert without_ids(whole(first)) != without_ids(whole(other))
        greedy = ask(temperature=0, logprobs=True, top_logprobs=3)
        for entry in greedy.choices[0].logprobs.content:
            assert entry.logprob == entry.top_logprobs[0].logprob <= 0
            assert entry.token == entry.top_logprobs[0].token
            assert [top.logprob for top in entry.top_logprobs] == sorted(
                (top.logprob for top in entry.top_logprobs), reverse=True
            )
        assert len(greedy.choices[0].logprobs.content) == greedy.usage.completion_tokens
        long = ask(min_tokens=40)
        assert (long.usage.completion_tokens, long.choices[0].finish_reason) == (40, "length")
        assert ask(max_tokens=3).usage.completion_tokens == 3
        assert ask(ignore_eos=True, max_tokens=50).usage.completion_tokens == 50
        several = ask(n=3, ignore_eos=True)
        assert len({choice.index for choice in several.choices}) == 3
        assert len({str(choice.message) for choice in several.choices}) > 1
        brief = ask(thinking_token_budget=2, min_tokens=20)
        assert brief.usage.completion_tokens_details.reasoning_tokens <= 4
        banned = greedy.choices[0].logprobs.content[0]
        ids = httpx2.post(demo.root + "/tokenize", json={"prompt": banned.token, "add_special_tokens": False}).json()
        (id,) = ids["tokens"]
        without = ask(temperature=0, logit_bias={str(id): -100}, logprobs=True)
        assert without.choices[0].logprobs.content[0].token != banned.token


def test_text_completions_of_the_model(demo):
    with sdk(demo) as client:
        request = {"model": "demo", "prompt": ["Once", "Twice"], "temperature": 0, "max_tokens": 12, "logprobs": 2}
        completion = client.completions.create(**request)
        stream = list(client.completions.create(**request, stream=True))
    assert [choice.index for choice in completion.choices] == [0, 1]
    for choice in completion.choices:
        text = "".join(part.text for chunk in stream for part in chunk.choices if part.index == choice.index)
        assert text == choice.text
        assert len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs) <= 12
    assert completion.usage.completion_tokens == sum(len(choice.logprobs.tokens) for choice in completion.choices)


def test_the_first_requests_may_be_of_any_kind():
    """Whatever is loaded, compiled or built for the first time, it is where it is needed."""
    shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": ["a", "b"]}}}
    kinds = [
        {"max_tokens": 5},
        {"max_tokens": 5, "temperature": 1, "seed": 1, "logprobs": True},
        {"max_tokens": 40, "extra_body": {"thinking_token_budget": 5}, "response_format": shape},
        {"max_tokens": 5, "n": 2},
    ]
    with running("serve", "demo") as server, sdk(server, timeout=120) as client:

        def ask(fields):
            return client.chat.completions.create(model="demo", messages=USER, **fields).usage.completion_tokens

        with ThreadPoolExecutor(len(kinds)) as pool:
            assert all(pool.map(ask, kinds))


def test_a_killed_engine_ends_its_streams_and_comes_back():
    with running("serve", "demo") as server, sdk(server, timeout=60) as client:
        stream = client.chat.completions.create(
            model="demo", messages=USER, stream=True, extra_body={"min_tokens": 4000}
        )
        next(iter(stream))
        os.kill(server.engine_pid(), signal.SIGKILL)
        with pytest.raises(openai.APIError):
            list(stream)
        deadline = time.monotonic() + 60
        while httpx2.get(server.root + "/health").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert whole(client.chat.completions.create(model="demo", messages=USER, max_tokens=20))["finish"]
