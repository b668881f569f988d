"""Model text to tool calls: one incremental parser a format. Pure Python, usable on its own.

parser = tool_parsers.get("minimax")(tools)
events = parser.feed(piece) ... + parser.finish()
"""

from tool_parsers.base import ToolParser
from tool_parsers.registry import Registry

_REGISTRY: Registry[ToolParser] = Registry("tool", "tool_parsers")
_REGISTRY.add("minimax_m2", "minimax_m2", "MinimaxM2", "minimax")
_REGISTRY.add("hermes", "hermes", "Hermes", "qwen", "qwen3")
_REGISTRY.add("qwen3_coder", "qwen3_coder", "Qwen3Coder", "qwen3_xml", "qwen35")
_REGISTRY.add("glm47", "glm47", "Glm47", "glm45")
_REGISTRY.add("kimi_k2", "kimi_k2", "KimiK2", "kimi_k25")
_REGISTRY.add("deepseek_v3", "deepseek_v3", "DeepseekV3")
_REGISTRY.add("deepseek_v31", "deepseek_v3", "DeepseekV31")
_REGISTRY.add("deepseek_v4", "deepseek_v4", "DeepseekV4", "deepseek_v32")
_REGISTRY.add("minimax_m3", "minimax_m3", "MinimaxM3")

detect = _REGISTRY.detect
get = _REGISTRY.get
names = _REGISTRY.names
aliases = _REGISTRY.aliases
resolve = _REGISTRY.resolve
