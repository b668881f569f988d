"""GLM 4.5, 4.6 and 4.7: `<think>…</think>…` without layout; from 4.7 on the prompt ends with one of the tags."""

from typing import ClassVar

from reasoning_parsers.base import ReasoningParser


class Glm45(ReasoningParser):
    """Splits the thought off."""

    opener: ClassVar[str] = "<think>"
    closer: ClassVar[str] = "</think>"

    @classmethod
    def speaks(cls, template: str) -> bool:
        return cls.closer in template and "<|observation|>" in template
