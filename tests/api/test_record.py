"""What is recorded plays again, the same to the byte."""

import json

import pytest

from vllm_mlx.api.app import create_app
from vllm_mlx.api.playback import ReplayError, parse_line, read_lines, replay_engine
from vllm_mlx.api.record import Recorder
from vllm_mlx.config import EngineConfig, ServeConfig

from .conftest import connect, sse

pytestmark = pytest.mark.anyio

URL = "/v1/chat/completions"
CONFIG = ServeConfig(engine=EngineConfig(model="demo"))
SCHEMA = {"type": "object", "properties": {"n": {"type": "number", "minimum": 1.50}}}


def body(text, **fields):
    tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
    return {"messages": [{"role": "user", "content": text}], "tools": [tool], **fields}


def contents(text):
    return [chunk["choices"][0]["delta"] for chunk in sse(text) if chunk != "[DONE]"]


async def test_a_recording_answers_the_requests_it_was_made_of(chat, tmp_path):
    file = tmp_path / "r.jsonl"
    outputs = [chat.encode("x\n</think>\n\nnaïve 漢字 🎉"), ["y\n</think>", "\n\nsecond"]]
    engine = replay_engine([parse_line({"output": output}) for output in outputs], CONFIG, chat)
    app = create_app(CONFIG, chat, engine, Recorder(file, chat.vocabulary.bytes_of))
    async with connect(app) as client:
        first = (await client.post(URL, json=body("one", stream=True))).text
        second = (await client.post(URL, json=body("two"))).json()
    lines = [json.loads(line) for line in file.read_text().split("\n") if line]
    assert [line["request"]["messages"][0]["content"] for line in lines] == ["one", "two"]
    assert lines[0]["tokens"] == outputs[0]
    assert lines[0]["finish_reason"] == "stop"
    assert lines[0]["prompt"]
    assert '"minimum":1.5' in file.read_text()
    async with connect(create_app(CONFIG, chat, replay_engine(read_lines(file), CONFIG, chat))) as client:
        again_second = (await client.post(URL, json=body("two"))).json()
        again_first = (await client.post(URL, json=body("one", stream=True))).text
    assert again_second["choices"] == second["choices"]
    assert contents(again_first) == contents(first)
    assert "naïve 漢字 🎉" in "".join(delta.get("content") or "" for delta in contents(first))


async def test_an_engine_error_is_recorded_where_it_came(chat, tmp_path):
    file = tmp_path / "r.jsonl"
    engine = replay_engine([parse_line({"output": ["a", "b", "c"], "error_after": 2})], CONFIG, chat)
    async with connect(create_app(CONFIG, chat, engine, Recorder(file, chat.vocabulary.bytes_of))) as client:
        assert (await client.post(URL, json=body("x"))).status_code == 500
    (line,) = read_lines(file)
    assert (line.pieces, line.error_after) == ((b"a", b"b"), 2)


LINES = [
    '{"output": "x"}',
    '{"output": ["a\u2028b", {"b64": "4g=="}, {"b64": "gqw="}], "delay_ms": 0}',
    '{"output": [1, 2, 3], "finish_reason": "length", "error_after": 2}',
    '{"output": []}',
]


def test_a_line_needs_only_its_output(tmp_path):
    file = tmp_path / "r.jsonl"
    file.write_text("\n\n".join(LINES) + "\n", encoding="utf-8")
    found = read_lines(file)
    assert [line.pieces for line in found] == [(b"x",), ("a\u2028b".encode(), b"\xe2", b"\x82\xac"), (1, 2, 3), ()]
    assert (found[2].finish_reason, found[2].error_after) == ("length", 2)


@pytest.mark.parametrize(
    "line",
    ["x", "[]", "{}",
     '{"output": 1.5}', '{"output": [null]}', '{"output": [true]}', '{"output": [{"b64": "!"}]}',
     '{"output": "x", "finish_reason": "over"}', '{"output": "x", "die_after": -1}',
     '{"output": "x", "delay_ms": "1"}', '{"output": "x", "error_after": 1.5}'],
)  # fmt: skip
def test_a_bad_line_is_named(tmp_path, line):
    file = tmp_path / "r.jsonl"
    file.write_text(LINES[0] + "\n" + line, encoding="utf-8")
    with pytest.raises(ReplayError, match="line 2"):
        read_lines(file)


def test_a_field_that_does_nothing_is_logged(tmp_path, caplog):
    file = tmp_path / "r.jsonl"
    file.write_text('{"output": "x", "dely_ms": 5, "tokens": [1], "path": null}')
    read_lines(file)
    assert [record.args[2] for record in caplog.records] == ["dely_ms"]


def test_tokens_of_another_model_are_refused(chat):
    lines = [parse_line({"output": [1, 2]}), parse_line({"output": [1, 200_000]})]
    with pytest.raises(ReplayError, match="line 2: the model has no token 200000"):
        replay_engine(lines, CONFIG, chat)


def test_an_empty_file_is_refused(tmp_path):
    file = tmp_path / "r.jsonl"
    file.write_text("\n")
    with pytest.raises(ReplayError):
        read_lines(file)
