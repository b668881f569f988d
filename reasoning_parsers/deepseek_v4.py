"""DeepSeek V3.1, V3.2 and V4: `<think>…</think>…` without layout; the prompt ends with one of the tags.

Their templates are told from those of R1 and V3 by the calls alone, so the tool parsers name it.
"""

from reasoning_parsers.deepseek_r1 import DeepseekR1


class DeepseekV4(DeepseekR1):
    """Splits the thought off."""

    @classmethod
    def speaks(cls, template: str) -> bool:
        return False
