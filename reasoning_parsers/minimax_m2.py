"""MiniMax M2, M2.1, M2.5 and M2.7: `<think>\\n…\\n</think>\\n\\n…`, the opener and its newline always in the prompt."""

from typing import ClassVar

from reasoning_parsers.base import ReasoningParser


class MinimaxM2(ReasoningParser):
    """Splits the thought off."""

    opener: ClassVar[str] = "<think>"
    closer: ClassVar[str] = "</think>"
    after_opener: ClassVar[int] = 1
    before_closer: ClassVar[int] = 1
    after_closer: ClassVar[int] = 2

    @classmethod
    def speaks(cls, template: str) -> bool:
        return cls.closer in template and "]~b]ai" in template and "<mm:think>" not in template


class MinimaxAppendThink(MinimaxM2):
    """Leaves the thought in the content, its opener put back, for clients that want the tags inline."""

    inline: ClassVar[bool] = True

    @classmethod
    def speaks(cls, template: str) -> bool:
        return False
