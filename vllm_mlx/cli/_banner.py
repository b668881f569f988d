"""What a server says of itself when it is ready, and the warning of one that is open to all."""

import json
import shlex

from vllm_mlx import __version__
from vllm_mlx.api.door import is_loopback
from vllm_mlx.chat.model import ChatModel
from vllm_mlx.config import ServeConfig
from vllm_mlx.engine.protocol import EngineInfo

_ANY = ("", "0.0.0.0", "::")


def banner(config: ServeConfig, chat: ChatModel, info: EngineInfo, port: int) -> str:
    """What is served where, and a command that tries it. `port` is the one that was taken."""
    base = _base_url(config, port)
    rows = {
        "Base URL": f"{base} (on {config.uds})" if config.uds else base,
        "Model": f"{', '.join(config.served_model_name)} ({info.device})",
        "Context": f"{info.max_model_len:,} tokens",
        "Tool call parser": chat.tool_call_parser or "none",
        "Reasoning parser": chat.reasoning_parser or "none",
    }
    lines = [f"vllm-mlx {__version__}", *(f"  {label + ':':<18}{value}" for label, value in rows.items())]
    lines += [f"  {line}" for line in info.plan]
    return "\n".join([*lines, "Try it:", f"  {_curl(config, base)}"])


def _base_url(config: ServeConfig, port: int) -> str:
    scheme = "https" if config.ssl_certfile else "http"
    if config.uds:
        return f"{scheme}://localhost/v1"
    host = "127.0.0.1" if config.host in _ANY else config.host
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/v1"


def _curl(config: ServeConfig, base: str) -> str:
    body = {"model": config.served_model_name[0], "messages": [{"role": "user", "content": "Hello"}]}
    words = ["curl"]
    if config.uds:
        words += ["--unix-socket", config.uds]
    words += [f"{base}/chat/completions", "-H", "Content-Type: application/json", "-d", json.dumps(body)]
    key = ' -H "Authorization: Bearer $VLLM_API_KEY"' if config.api_key else ""
    return shlex.join(words) + key


def warning(config: ServeConfig) -> str | None:
    """What to say of a server that anyone on the network may use."""
    if config.uds or config.api_key or is_loopback(config.host):
        return None
    return f"WARNING: {config.host} lets everyone who can reach this machine use the model: there is no --api-key."
