"""Content and arguments in the spellings of clients."""

import json

import pytest

from tool_parsers.json_text import Number
from vllm_mlx.api.content import arguments_text, text_of
from vllm_mlx.api.errors import ApiError


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        (" a\n", " a\n"),
        ([], ""),
        ([{"type": "text", "text": "P1 "}, {"type": "text", "text": "P2"}], "P1 P2"),
        (["a", {"type": "input_text", "text": "b"}, {"type": "output_text", "text": "c"}], "abc"),
        ([{"type": "refusal", "refusal": "no"}], "no"),
    ],
)
def test_content_becomes_one_string(content, text):
    assert text_of(content, "content") == text


@pytest.mark.parametrize("content", [7, {}, [7], [{}], [{"type": "text", "text": 1}], [{"type": "input_audio"}]])
def test_what_is_no_text_is_refused(content):
    with pytest.raises(ApiError) as error:
        text_of(content, "x")
    assert error.value.param.startswith("x")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (None, "{}"),
        ("", "{}"),
        (" ", "{}"),
        ("null", "{}"),
        ('{"b": 1.00, "a": 1e5}', '{"b": 1.00, "a": 1e5}'),
        ({"b": Number("1.00"), "a": ["é"]}, '{"b":1.00,"a":["é"]}'),
    ],
)
def test_arguments_keep_order_and_spelling(arguments, text):
    assert arguments_text(arguments, "x") == text


DEEP = '{"a":[' * 40 + "1" + "]}" * 40


@pytest.mark.parametrize("arguments", [DEEP, '{"a":', '{"a":1}{"a":2}', "[1]", "7", "ls -l"])
def test_broken_arguments_stay_as_one_argument(arguments):
    assert json.loads(arguments_text(arguments, "x")) == {"arguments": arguments}


def test_nesting_within_reason_stays():
    text = '{"a":[' * 30 + "1" + "]}" * 30
    assert arguments_text(text, "x") == text


@pytest.mark.parametrize("arguments", [Number("7"), True, ["a"]])
def test_arguments_of_another_type_are_refused(arguments):
    with pytest.raises(ApiError):
        arguments_text(arguments, "x")
