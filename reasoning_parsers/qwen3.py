"""Qwen3 and Qwen3.5: `<think>\\n…\\n</think>\\n\\n…`; the model writes the opener, or the prompt leaves it open."""

from typing import ClassVar

from reasoning_parsers.base import ReasoningParser


class Qwen3(ReasoningParser):
    """Splits the thought off."""

    opener: ClassVar[str] = "<think>"
    closer: ClassVar[str] = "</think>"
    after_opener: ClassVar[int] = 1
    before_closer: ClassVar[int] = 1
    after_closer: ClassVar[int] = 2

    @classmethod
    def speaks(cls, template: str) -> bool:
        return cls.closer in template and "<|im_start|>" in template
