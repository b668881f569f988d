"""MiniMax M3: `<mm:think>…</mm:think>…` without layout, and a bare `</mm:think>` where nothing was thought.

The generation prompt ends with the opener, with the closer, or (adaptive thinking) with neither.
"""

from typing import ClassVar

from reasoning_parsers.base import ReasoningParser


class MinimaxM3(ReasoningParser):
    """Splits thoughts off. Its tags do not occur in prose, so an opener is one wherever it stands."""

    opener: ClassVar[str] = "<mm:think>"
    closer: ClassVar[str] = "</mm:think>"
    reopens_anywhere: ClassVar[bool] = True

    @classmethod
    def speaks(cls, template: str) -> bool:
        return cls.opener in template
