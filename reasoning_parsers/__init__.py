"""Model text to thoughts and answers: one tag machine, configured for each family. Pure Python, usable on its own."""

from reasoning_parsers.base import ReasoningParser
from tool_parsers.registry import Registry

_REGISTRY: Registry[ReasoningParser] = Registry("reasoning", "reasoning_parsers")
_REGISTRY.add("minimax_m2", "minimax_m2", "MinimaxM2", "minimax")
_REGISTRY.add("minimax_append_think", "minimax_m2", "MinimaxAppendThink", "minimax_m2_append_think")
_REGISTRY.add("minimax_m3", "minimax_m3", "MinimaxM3")
_REGISTRY.add("qwen3", "qwen3", "Qwen3")
_REGISTRY.add("deepseek_r1", "deepseek_r1", "DeepseekR1")
_REGISTRY.add("deepseek_v4", "deepseek_v4", "DeepseekV4")
_REGISTRY.add("glm45", "glm45", "Glm45")
_REGISTRY.add("kimi_k2", "kimi_k2", "KimiK2")

detect = _REGISTRY.detect
get = _REGISTRY.get
names = _REGISTRY.names
aliases = _REGISTRY.aliases
resolve = _REGISTRY.resolve
