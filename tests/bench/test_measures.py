"""What is computed from measurements, and the models that are made for them."""

import json
import random
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from tokenizers import Tokenizer

from vllm_mlx.bench.agent import CLIENTS, Turn, _reusable, _Session, summary
from vllm_mlx.bench.engine import Results, _rate, verdicts
from vllm_mlx.bench.http import Stream, _read
from vllm_mlx.bench.load import Level, as_json, as_svg, percentile
from vllm_mlx.bench.models import SHAPES, make_model


def test_a_model_is_the_same_wherever_it_is_made(tmp_path):
    one, other = (make_model("tiny-deep", tmp_path / name) for name in "ab")
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (one / file).read_bytes() == (other / file).read_bytes()
    stamp = (one / "model.safetensors").stat().st_mtime_ns
    make_model("tiny-deep", tmp_path / "a")
    assert (one / "model.safetensors").stat().st_mtime_ns == stamp


def test_every_id_of_a_made_vocabulary_is_some_text(tmp_path):
    folder = make_model("tiny-deep", tmp_path)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == SHAPES["tiny-deep"].vocab
    assert all(tokenizer.id_to_token(id) for id in range(SHAPES["tiny-deep"].vocab))
    text = "some text of 31 characters: é"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_rate_counts_from_when_all_rows_decode():
    times = [[0.0, 1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 4.0]]
    assert _rate(times, [5, 3]) == pytest.approx(4 / 2)
    # A row whose chunks carry two tokens each.
    assert _rate(times, [10, 3]) == pytest.approx((2 / 5 * 10 + 2) / 2)


def test_targets_are_judged_over_raw_and_over_ourselves():
    results = Results()
    results.add("raw", {"decode 1 tok/s": 100})
    for speed in (90, 96, 99):
        results.add("vllm-mlx", {"decode 1 tok/s": speed, "TTFT short alone ms": 10, "TTFT short joining ms": 16})
    judged = {target.measure: (value, reached) for target, value, reached in verdicts(results)}
    assert judged == {"decode 1 tok/s": (0.96, True), "TTFT short joining ms": (1.6, False)}


def test_a_stream_is_read_into_text_calls_and_times():
    stream = Stream(0)
    deltas = [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"content": "a"},
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"x"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]},
    ]
    for delta in deltas:
        _read(b"data: " + json.dumps({"choices": [{"delta": delta}]}).encode(), stream)
    usage = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}
    _read(b"data: " + json.dumps({"choices": [], "usage": usage}).encode(), stream)
    _read(b"data: [DONE]", stream)
    assert (stream.text, stream.cached_tokens, len(stream.times)) == ("hma", 4, 4)
    assert stream.calls[0]["function"] == {"name": "f", "arguments": '{"x": 1}'}
    assert stream.done >= stream.times[-1]


def test_a_reply_without_visible_text_counts_from_its_finish():
    stream = Stream(0.0)
    for delta, finish in (({"role": "assistant", "content": ""}, None), ({}, "length")):
        choice = {"delta": delta, "finish_reason": finish}
        _read(b"data: " + json.dumps({"choices": [choice]}).encode(), stream)
    assert len(stream.times) == 1
    assert stream.ttft > 0


@pytest.mark.parametrize(
    ("ids", "prompt", "expected"),
    [
        ([1, 2, 3, 7, 8, 9, 10], 7, 5),  # it goes on: the last prompt and its two new tokens
        ([1, 2, 9, 9], 4, 2),  # it differs inside the last prompt
        ([], 7, 5),  # a server that does not tokenize is believed
    ],
)
def test_what_can_be_reused_of_a_prompt(ids, prompt, expected):
    session = _Session("s", "keeps", random.Random(0))
    assert _reusable(session, ids, prompt) == 0
    session.known = 5
    session.ids = [1, 2, 3] if ids else []
    assert _reusable(session, ids, prompt) == expected


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_client_makes_of_a_reply(client):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"b":1,"a":2}'}}
    usage = {"prompt_tokens": 7, "completion_tokens": 5}
    reply = Stream(0, reasoning="R", calls=[call], usage=usage, finish="tool_calls")
    session = _Session("s", client, random.Random(0))
    session.go_on("tool", reply)
    message, result = session.messages
    assert ("reasoning_content" in message) == (client != "drops")
    (returned,) = message["tool_calls"]
    assert json.loads(returned["function"]["arguments"]) == {"a": 2, "b": 1}
    assert (returned == call) == (client != "reserialises")
    assert (result["tool_call_id"], session.known) == ("c", 12)
    session.go_on("tool", Stream(0, content="half", calls=[call], usage=usage, finish="length"))
    assert [message["role"] for message in session.messages[2:]] == ["assistant", "user"]


def test_a_replayed_session_goes_on_with_its_own_calls():
    session = _Session("s", "keeps", random.Random(0), replayed=True)
    reply = Stream(0, content="noise", usage={"prompt_tokens": 7, "completion_tokens": 5}, finish="length")
    session.go_on("tool", reply)
    message, result = session.messages
    assert message["content"] is None
    assert message["tool_calls"][0]["id"] == result["tool_call_id"]
    assert session.known == 7
    session.go_on("answer", reply)
    answer, question = session.messages[2:]
    assert (answer["content"], question["role"], session.known) == ("noise", "user", 12)


def test_a_session_is_summed_up_by_client_and_kind():
    kinds = ("first", "tool", "tool", "answer", "user")
    turns = [
        Turn(f"{client}-a", kind, 100, 50 * (kind != "first"), 45 if kind == "tool" else 60, 5.0)
        for client in CLIENTS
        for kind in kinds
    ]
    rows = {(row.client, row.kind): row for row in summary(turns)}
    assert len(rows) == 12
    tool, user, first = (rows["drops", kind] for kind in ("tool", "user", "first"))
    assert (tool.turns, tool.share, tool.computed) == (2, 0.9, 55)
    assert (user.share, user.computed, first.share) == (1, 40, 1)
    silent = summary([replace(turn, reused=None) for turn in turns])
    assert {(row.share, row.computed) for row in silent} == {(None, None)}


def test_percentiles_tables_and_plots():
    assert [percentile([3, 1, 2, 4], share) for share in (0, 0.5, 0.99)] == [1, 3, 4]
    levels = [Level(c, 4, 100.0 * c, 1.0, 5, 6, 7, 1, 2, 3) for c in (1, 2, 8)]
    assert json.loads(as_json(levels))[2]["tokens_per_second"] == 800
    root = ElementTree.fromstring(as_svg(levels))
    lines = root.findall(".//{*}polyline")
    assert len(lines) == 7
    assert all(len(line.get("points").split()) == 3 for line in lines)


def test_help_needs_no_mlx():
    from click.testing import CliRunner

    from vllm_mlx.cli import main

    for words in (["bench", "--help"], ["bench", "engine", "--help"], ["plan", "--help"]):
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, result.output
    assert "--peer" in CliRunner().invoke(main, ["bench", "engine", "--help"]).output
