"""Every setting of a server, once, frozen. The CLI makes its flags from it; nothing reads flags after that.

Field names are vLLM's flag names with underscores, where vLLM has the flag. A field made with `setting` is a flag; the
type is its annotation.
"""

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Form:
    """What a text must look like: a pattern that fits all of it, and the same in words."""

    pattern: str
    words: str


URL = Form(r"https?://(\[[0-9a-fA-F:.]+\]|[^/:\s\[\]]+)(:[0-9]{1,5})?(/\S*)?", "a URL like http://127.0.0.1:8000/v1")
ROOT = Form(r"(/.*)?", "a path that begins with /")
ORIGIN = Form(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s*]+", "an origin like http://localhost:3000, or * for any")
HOST = Form(
    r"\*|\[?[0-9a-fA-F]*:[0-9a-fA-F.]*:[0-9a-fA-F:.]*\]?|[^/:\s*\[\]]+", "a host's name without a port, or * for any"
)
METHOD = Form(r"\*|[A-Z]+", "a method like GET, or * for any")
HEADER = Form(r"\*|[!#$%&'*+.^_`|~0-9A-Za-z-]+", "a header's name, or * for any")


def setting(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    form: Form | None = None,
    json_list: bool = False,
    metavar: str | None = None,
    env: str | None = None,
) -> Any:
    """A field that is a command-line flag as well.

    `minimum` and `maximum` bound a number, inclusively, and `form` a text. `json_list`: a value may be a JSON list of
    values. `env` names an environment variable that is taken without the flag.
    """
    bounds = {"minimum": minimum, "maximum": maximum, "form": form, "json_list": json_list}
    return field(default=default, metadata={"help": help, "metavar": metavar, "env": env, **bounds})


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the engine process is told at its start. `model` is a local folder; times are seconds."""

    model: str
    max_num_seqs: int = setting(8, "Sequences that are generated at the same time.", minimum=1)
    max_model_len: int | None = setting(None, "Context in tokens; the model's own by default.", minimum=1)
    enable_prefix_caching: bool = setting(True, "Keep the KV cache of earlier turns: a new turn costs its new tokens.")
    prefill_step_size: int = setting(2048, "Prompt tokens that are prefilled in one step.", minimum=1)
    kv_store: str | None = setting(
        None, "Keep the KV cache of ended turns in this folder: it survives restarts.", metavar="DIR"
    )
    kv_store_gb: float = setting(
        100.0, "Gigabytes that a model may take there.", minimum=0.001, maximum=1e6, metavar="GB"
    )
    prewarm: bool = setting(True, "While idle, prefill conversations as they will look at the next message.")
    max_prefill_stall_ms: int = setting(
        200, "Milliseconds that running streams wait at most while another prompt is prefilled.", minimum=1
    )
    max_waiting_seqs: int = setting(2048, "Requests that may wait for a slot; more are refused with a 503.", minimum=1)
    gpu_memory_utilization: float = setting(
        0.9, "Share of the memory that models may take which is used.", minimum=0.01, maximum=1, metavar="SHARE"
    )
    seed: int | None = setting(None, "Seed of requests that bring none.", minimum=0, maximum=2**63 - 1)
    trust_remote_code: bool = setting(False, "Run Python code that comes with the model.")


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """What the API process is told at its start."""

    engine: EngineConfig
    host: str = setting("127.0.0.1", "Address to listen on.")
    port: int = setting(8000, "Port to listen on; 0 takes a free one.", minimum=0, maximum=65535)
    uds: str | None = setting(None, "Unix socket to listen on instead of host and port.", metavar="PATH")
    root_path: str = setting("", "Path under which a proxy shows the server.", form=ROOT, metavar="PATH")
    ssl_certfile: str | None = setting(None, "Certificate (PEM): serve TLS.", metavar="FILE")
    ssl_keyfile: str | None = setting(None, "Key of the certificate, if it is not in the same file.", metavar="FILE")
    served_model_name: tuple[str, ...] = setting(
        (), "Name that clients call the model by; may be given more than once.", metavar="NAME"
    )
    strict_model_name: bool = setting(False, "Refuse a request for any other model name.")
    tool_call_parser: str = setting("auto", "Format of the tool calls; auto reads it off the model.", metavar="NAME")
    reasoning_parser: str = setting("auto", "Format of the thoughts; auto reads it off the model.", metavar="NAME")
    enable_auto_tool_choice: bool = setting(True, "Let the model call tools when it likes.")
    constrain_tool_calls: Literal["auto", "strict-only", "off"] = setting(
        "auto", "Which calls must fit their schemas: all, those of strict tools and forced ones, or none."
    )
    reasoning_field: Literal["reasoning", "reasoning_content", "both"] = setting(
        "reasoning_content", "Where chat completions put the thoughts."
    )
    restore_reasoning: bool = setting(True, "Put the model's thoughts back where a client leaves them out.")
    tool_call_streaming: Literal["value", "parameter", "call"] = setting(
        "value", "How eagerly a call's arguments are sent: as they are written, whole parameters, or whole calls."
    )
    chat_template: str | None = setting(None, "File with a chat template instead of the model's own.", metavar="FILE")
    engine_stall_timeout: float = setting(
        300.0,
        "Seconds without a step after which an engine that has work, or loads the model again, is restarted.",
        minimum=1,
        maximum=86_400,
    )
    keep_alive_interval: float = setting(
        5.0, "Seconds of silence after which a stream sends a comment.", minimum=0.1, maximum=86_400
    )
    api_key: tuple[str, ...] = setting(
        (), "Key that lets a client in; may be given more than once.", metavar="KEY", env="VLLM_API_KEY"
    )
    allowed_hosts: tuple[str, ...] = setting(
        (),
        "Name that the Host header may have beside this machine's own; * for any.",
        form=HOST,
        json_list=True,
        metavar="NAME",
    )
    allowed_origins: tuple[str, ...] = setting(
        (), "Web page (origin) that may use the server.", form=ORIGIN, json_list=True, metavar="ORIGIN"
    )
    allowed_methods: tuple[str, ...] = setting(
        ("*",), "Methods that such pages may use.", form=METHOD, json_list=True, metavar="METHOD"
    )
    allowed_headers: tuple[str, ...] = setting(
        ("*",), "Headers that such pages may send.", form=HEADER, json_list=True, metavar="HEADER"
    )
    allow_credentials: bool = setting(False, "Whether such pages may send cookies and keys of their own.")
    max_request_bytes: int = setting(33_554_432, "Bytes of a request's body at most; more is a 413.", minimum=1024)
    record: str | None = setting(None, "Keep every request and its raw output in this file.", metavar="FILE.jsonl")
    log_level: Literal["debug", "info", "warning", "error"] = setting("info", "How much is logged.")
