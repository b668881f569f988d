"""Token counts as chat and text completions report them."""

from typing import Any

from vllm_mlx.api.generation import Usage


def usage_of(usage: Usage) -> dict[str, Any]:
    """The usage object of chat and text completions."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
