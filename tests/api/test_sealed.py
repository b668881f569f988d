"""A packed thought is read back, and nothing else is taken for one."""

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_mlx.api.sealed import seal, signature, unseal


@given(st.text())
def test_a_thought_comes_back(thought):
    assert unseal(seal(thought)) == thought


@pytest.mark.parametrize(
    "word",
    [
        None,
        "",
        "sig-canned==",
        "thought1.",
        "thought1.*",
        "thought1.AAAA",
        seal("thought")[:-6],
        "thought1." + base64.urlsafe_b64encode(zlib.compress(b"\xff")).decode(),
        "thought1." + base64.urlsafe_b64encode(zlib.compress(bytes(2**23))).decode(),
        "thought1.é",
    ],
)
def test_another_word_is_none(word):
    assert unseal(word) is None


def test_a_signature_is_short_and_its_thoughts_own():
    assert len(signature("x" * 10_000)) < 100
    assert signature("a") != signature("b")
    assert unseal(signature("a")) is None
