"""Replies that repeat themselves without end, as models do that have lost their way."""

from collections.abc import Sequence

LONGEST = 512
"""Tokens of the longest piece whose repetition is noticed."""
TIMES = 8
TOKENS = 1024
"""A piece that came so many times, over so many tokens at least, will come for ever."""

_TAIL = 8
"""Tokens that are compared first: most sizes differ there."""


def repeats(ids: Sequence[int]) -> bool:
    """Whether a reply, by its tokens until now, ends with one piece over and over."""
    tail = ids[-_TAIL:]
    for size in range(1, min(LONGEST, len(ids) // TIMES) + 1):
        if ids[-_TAIL - size : -size] == tail:
            span = max(TOKENS, TIMES * size)
            if len(ids) >= span and ids[-span:-size] == ids[size - span :]:
                return True
    return False
