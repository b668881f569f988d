"""Every setting of a server, once, frozen. The CLI makes it; nothing reads flags after that.

Field names are vLLM's flag names with underscores.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the engine process is told at its start. `model` is a local folder; times are seconds."""

    model: str
    max_num_seqs: int = 8
    max_model_len: int | None = None
    enable_prefix_caching: bool = True
    prefill_step_size: int = 2048
    seed: int | None = None
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What the API process is told at its start."""

    engine: EngineConfig
    host: str = "127.0.0.1"
    port: int = 8000
    served_model_name: tuple[str, ...] = ()
    strict_model_name: bool = False
    tool_call_parser: str = "auto"
    reasoning_parser: str = "auto"
    enable_auto_tool_choice: bool = True
    reasoning_field: Literal["reasoning", "reasoning_content", "both"] = "reasoning_content"
    tool_call_streaming: Literal["value", "parameter", "call"] = "value"
    chat_template: str | None = None
    engine_stall_timeout: float = 300.0
    keep_alive_interval: float = 5.0
    record: str | None = None
    log_level: str = "info"
