"""Newlines that belong to a format's layout."""

import pytest

from vllm_mlx.chat.layout import ALL, Segment


@pytest.mark.parametrize("tail", [0, 1, 2, ALL])
@pytest.mark.parametrize("text", ["a\n\n\n\nb\n", "a\n\n\n", "\n\na\n", "\n \n", "a"])
def test_a_segment_is_the_same_however_it_is_cut(text: str, tail: int) -> None:
    whole, pieces = Segment(head=1, tail=tail), Segment(head=1, tail=tail)
    assert whole.feed(text) + whole.end(drop=tail) == "".join(map(pieces.feed, text)) + pieces.end(drop=tail)


def test_newlines_are_held_in_the_pieces_that_came() -> None:
    """A model may write newlines without end: none of them is joined to those before it until text follows."""
    segment = Segment(tail=ALL)
    assert segment.feed("a") == "a"
    held = [segment.feed("\n") for _ in range(1000)]
    assert not any(held)
    assert max(map(len, segment._held)) == 1
    assert segment.feed("b") == "\n" * 1000 + "b"
