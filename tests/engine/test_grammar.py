"""Answers and calls that a grammar holds, drawn from the built-in model at a heat at which it writes nonsense."""

import json

import jsonschema
import pytest

from vllm_mlx.chat.model import ChatModel
from vllm_mlx.engine.protocol import Sampling, Thinking
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
    print(found)
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
