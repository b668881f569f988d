"""Answers and calls that a grammar holds, drawn from the built-in model at a heat at which it writes nonsense."""

import json
import threading

import jsonschema
import pytest

from vllm_mlx.chat.conversation import Conversation, Message, Tool, ToolChoice
from vllm_mlx.chat.model import ChatModel
from vllm_mlx.chat.reply import fold
from vllm_mlx.engine.grammar import Grammars
from vllm_mlx.engine.protocol import Sampling, Thinking, ToolGrammar
from vllm_mlx.engine.structured import choice_answer, grammar_answer, json_answer, regex_answer


@pytest.fixture(scope="module")
def chat(demo_folder):
    return ChatModel.load(demo_folder)


@pytest.fixture
def answers(chat, demo_run):
    """Replies to one question under a grammar: (text, how it ended) of each."""

    def ask(grammar, count=4, *, thinking=None, max_tokens=120):
        run = demo_run()
        for i in range(count):
            run.submit(
                f"r{i}",
                chat.encode("Say something."),
                max_tokens,
                sampling=Sampling(temperature=1.5, seed=i),
                stop_ids=list(chat.stop_ids),
                thinking=thinking,
                grammar=grammar,
            )
        run.until_idle()
        assert not run.failures
        return [(chat.decode(run.tokens.get(id, [])), end) for id, end in run.ends.items()]

    return ask


SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["åland", "数据"]},
        "count": {"type": "integer", "minimum": 3, "maximum": 40},
        "next": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "null"}]},
    },
    "required": ["kind", "count"],
    "additionalProperties": False,
    "$defs": {"leaf": {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}},
}


def test_json_fits_its_schema(answers):
    found = answers(json_answer(SCHEMA))
    whole = [text for text, end in found if end == "stop"]
    assert whole
    for text in whole:
        jsonschema.validate(json.loads(text), SCHEMA)


def test_a_choice_a_regex_and_grammars_are_kept(answers):
    assert {text for text, _ in answers(choice_answer(["yes", "näh"]))} <= {"yes", "näh"}
    assert all(text in ("a/b", "c/b") for text, _ in answers(regex_answer("(a|c)/b")))
    assert all(text in ("xy", "xyy") for text, _ in answers(grammar_answer('start: "x" "y" "y"?')))
    assert all(text in ("xy", "xyy") for text, _ in answers(grammar_answer('root ::= "x" "y" "y"?')))


def test_a_thought_is_free_and_the_answer_behind_it_is_not(answers, chat):
    thinking = Thinking(open=True, close_ids=chat.close_ids(), budget=6)
    for text, end in answers(choice_answer(["yes"]), thinking=thinking):
        assert text.endswith("</think>yes")
        assert end == "stop"
        assert text != "</think>yes"


def test_a_thought_may_come_first_where_none_is_open(answers, chat):
    (opener,) = open_ids = chat.encode("<think>")
    thinking = Thinking(open=False, close_ids=chat.close_ids(), open_ids=open_ids, budget=4)
    run = answers(choice_answer(["yes"]), thinking=thinking)
    assert all(text.endswith("yes") and (text == "yes" or text.startswith(chat.decode([opener]))) for text, _ in run)


ECHO = {
    "name": "echo",
    "parameters": {
        "type": "object",
        "properties": {"mode": {"enum": ["å", "b"]}, "n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    },
}
BEYOND = {"name": "echo", "parameters": {"type": "object", "properties": {"n": {"not": {"type": "string"}}}}}


def forced(chat, run, function, count=3):
    """Replies to a request that must call, from the model's thought on: (reply, deltas) of each."""
    asked = Message("user", "Use echo with n = 3.")
    conversation = Conversation((asked,), (Tool("echo", function),), ToolChoice("required"))
    prompt = chat.render(conversation)
    for i in range(count):
        run.submit(
            f"r{i}",
            list(prompt.ids),
            160,
            sampling=Sampling(temperature=1.5, seed=i),
            stop_ids=list(chat.stop_ids),
            thinking=Thinking(open=prompt.thinking_open, close_ids=chat.close_ids(), budget=8),
            grammar=ToolGrammar("minimax_m2", json.dumps([function]), ["echo"], required=True, single=True),
        )
    run.until_idle()
    assert not run.failures
    for id, deltas in run.deltas.items():
        decoder = chat.decoder(conversation, prompt)
        events = [*decoder.feed(run.tokens[id]), *decoder.finish()]
        yield fold(events), deltas


def test_the_model_thinks_first_and_then_must_call(chat, demo_run):
    whole = 0
    for reply, deltas in forced(chat, demo_run(), ECHO):
        assert not any(delta.unconstrained_calls for delta in deltas)
        if deltas[-1].finish == "stop":
            whole += 1
            (call,) = reply.tool_calls
            assert call.name == "echo"
            jsonschema.validate(json.loads(call.arguments), ECHO["parameters"])
            assert reply.content is None
    assert whole


@pytest.mark.parametrize("open", [False, True])
def test_a_thought_comes_before_a_call_that_must_and_is_not_all(chat, demo_run, open):
    """A model that opens a thought itself, and one that wants to end the turn in an open one."""
    opener, stop = chat.encode("<think>")[0], chat.stop_ids[0]
    run = demo_run()
    for i in range(3):
        run.submit(
            f"r{i}",
            chat.encode("Echo."),
            200,
            sampling=Sampling(temperature=1.5, seed=i, logit_bias={stop if open else opener: 100}),
            stop_ids=list(chat.stop_ids),
            thinking=Thinking(open=open, close_ids=chat.close_ids(), open_ids=[opener], budget=6),
            grammar=ToolGrammar("minimax_m2", json.dumps([ECHO]), ["echo"], required=True, single=True),
        )
    run.until_idle()
    assert not run.failures
    for id, tokens in run.tokens.items():
        thought, _, call = chat.decode(tokens).partition("</think>")
        assert open or thought.startswith("<think>")
        assert call.lstrip().startswith("<minimax:tool_call>"), call
        assert not any(delta.unconstrained_calls for delta in run.deltas[id])


def test_a_schema_beyond_grammars_is_held_as_far_as_can_be_and_counted_at_once(chat, demo_run):
    for reply, deltas in forced(chat, demo_run(), BEYOND):
        assert sum(delta.unconstrained_calls for delta in deltas) == 1
        assert deltas[-1].unconstrained_calls == 0
        for call in reply.tool_calls:
            assert call.name == "echo"
            assert json.loads(call.arguments).keys() <= {"n"}


def test_nothing_is_built_in_the_step_loop(chat, demo_run, monkeypatch):
    builders = []
    build = Grammars.build

    def watched(self, lark):
        builders.append(threading.get_ident())
        return build(self, lark)

    monkeypatch.setattr(Grammars, "build", watched)
    assert any(reply.tool_calls for reply, _ in forced(chat, demo_run(), ECHO))
    assert len(builders) > 3
    assert threading.get_ident() not in builders


def test_an_answer_that_is_over_ends_before_min_tokens(chat, demo_run):
    run = demo_run()
    run.submit(
        "a", chat.encode("Say."), 20, stop_ids=list(chat.stop_ids), min_tokens=10, grammar=choice_answer(["yes"])
    )
    run.until_idle()
    assert (chat.decode(run.tokens["a"]), run.ends["a"]) == ("yes", "stop")
