"""Answers that repeat themselves without end, as models do that want to end where their form does not let them."""

from collections.abc import Sequence

TOKENS = 2048
"""A piece that came over and over for so long will come for ever; data that is asked for is seldom like that."""
LONGEST = TOKENS // 8
"""Tokens of the longest piece whose repetition is noticed."""
_TAIL = 8
"""Tokens that are compared first: most sizes differ there."""


def repeats(ids: Sequence[int]) -> bool:
    """Whether a reply, by its tokens until now, ends with one piece over and over."""
    if len(ids) < TOKENS:
        return False
    tail = ids[-_TAIL:]
    return any(
        ids[-_TAIL - size : -size] == tail and ids[-TOKENS:-size] == ids[size - TOKENS :]
        for size in range(1, LONGEST + 1)
    )
