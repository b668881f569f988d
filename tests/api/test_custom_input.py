"""The input of a custom tool is the same for every cutting of its call's arguments."""

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx.api.custom_input import CustomInput

TEXT = st.text(st.characters(codec=None, categories=None), max_size=40) | st.text('\\"u\nd8cf\ud800\udc00', max_size=20)


@given(TEXT, st.booleans(), st.lists(st.integers(0, 200), max_size=8))
def test_the_text_comes_as_it_was_written(text, ascii_only, places):
    arguments = json.dumps({"input": text}, ensure_ascii=ascii_only)
    bounds = sorted({0, len(arguments), *(place for place in places if place < len(arguments))})
    reader = CustomInput()
    pieces = [reader.feed(arguments[a:b]) for a, b in pairwise(bounds)]
    # What is half a character is none, in JSON as elsewhere.
    whole = json.loads(arguments)["input"]
    assert "".join(pieces) + reader.finish() == re.sub("[\ud800-\udfff]", "\ufffd", whole)


def test_the_text_streams():
    reader = CustomInput()
    pieces = [reader.feed(character) for character in '{"input":"ab\\n\\u00e9"}']
    assert [piece for piece in pieces if piece] == ["a", "b", "\n", "é"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input":""}', ""),
        ('{"input":"a","x":1}', "a"),
        ('{"x":1.00,"input":"a"}', "a"),
        ('{"x":1.00}', '{"x":1.00}'),
        ('{"input":5}', '{"input":5}'),
        ("{}", "{}"),
        ('{"patch":"' + "x" * 100 + '"}', '{"patch":"' + "x" * 100 + '"}'),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_other_arguments_are_taken_whole(arguments, text, size):
    reader = CustomInput()
    pieces = [reader.feed(arguments[at : at + size]) for at in range(0, len(arguments), size)]
    assert "".join(pieces) + reader.finish() == text
