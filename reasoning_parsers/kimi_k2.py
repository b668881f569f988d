"""Kimi K2 Thinking and K2.5: `<think>…</think>…` without layout; the prompt ends with the opener or an empty pair."""

from typing import ClassVar

from reasoning_parsers.base import ReasoningParser


class KimiK2(ReasoningParser):
    """Splits the thought off."""

    opener: ClassVar[str] = "<think>"
    closer: ClassVar[str] = "</think>"

    @classmethod
    def speaks(cls, template: str) -> bool:
        return cls.closer in template and "<|im_middle|>" in template
