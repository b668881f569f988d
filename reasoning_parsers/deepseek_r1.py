"""DeepSeek R1 and V3: `<think>…</think>…` without layout of its own.

Its tags are also those of MiniMax M2, whose users name it by habit; the layout then is the template's.
"""

from typing import ClassVar

from reasoning_parsers.base import ReasoningParser


class DeepseekR1(ReasoningParser):
    """Splits the thought off."""

    opener: ClassVar[str] = "<think>"
    closer: ClassVar[str] = "</think>"

    @classmethod
    def speaks(cls, template: str) -> bool:
        return cls.closer in template and "<｜Assistant｜>" in template
