import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from huggingface_hub import constants

from vllm_mlx import demo
from vllm_mlx.cli import _launch, main
from vllm_mlx.cli._banner import warning
from vllm_mlx.cli._flags import ALIASES
from vllm_mlx.config import EngineConfig, ServeConfig

Serve = Callable[..., tuple[Result, ServeConfig | None]]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Serve:
    """Runs `serve` up to where it would start the server; gives its settings."""
    started: list[ServeConfig] = []
    monkeypatch.setattr(_launch, "run", lambda _app, config, *_: started.append(config))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def invoke(*args: str) -> tuple[Result, ServeConfig | None]:
        result = CliRunner().invoke(main, ["serve", *args, "--port", "0"])
        return result, started.pop() if started else None

    return invoke


def cache_model(cache: Path, name: str, model_type: str, *, whole: bool = True) -> Path:
    """A model in a Hugging Face cache, with the text side of the built-in one."""
    folder = cache / f"models--{name.replace('/', '--')}"
    snapshot = folder / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    for file in demo.path().iterdir():
        if file.suffix in (".json", ".jinja") and file.name != "config.json":
            (snapshot / file.name).write_bytes(file.read_bytes())
    (snapshot / "config.json").write_text(json.dumps({"model_type": model_type}))
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    for part in (1, 2) if whole else (1,):
        (snapshot / f"model-{part}.safetensors").write_bytes(b"")
    return snapshot


def test_defaults(serve: Serve) -> None:
    _, config = serve("demo")
    assert config is not None
    assert config.host == "127.0.0.1"
    assert config.enable_auto_tool_choice
    assert config.engine.enable_prefix_caching
    assert config.served_model_name == ("demo",)
    assert config.engine.model == str(demo.path())


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["demo", "--no-enable-prefix-caching"], False),
        (["demo", "--no-enable-prefix-cache"], False),
        (["demo", "--disable-prefix-cache"], False),
        (["demo", "--no_enable_prefix_caching"], False),
        (["demo", "--no-enable-prefix-caching", "--enable-prefix-cache"], True),
    ],
)
def test_aliases(serve: Serve, args: list[str], expected: bool) -> None:
    result, config = serve(*args)
    assert config is not None, result.output
    assert config.engine.enable_prefix_caching is expected


def test_flags_of_vllm_that_have_another_name_here(serve: Serve) -> None:
    result, config = serve("demo", "--max-num-batched-tokens", "512", "--uvicorn-log-level=warning")
    assert config is not None, result.output
    assert (config.engine.prefill_step_size, config.log_level) == (512, "warning")


def test_every_alias_means_a_flag() -> None:
    flags = CliRunner().invoke(main, ["serve", "--no-such-flag"]).output.split()
    for alias, meant in ALIASES.items():
        assert meant in flags, alias
        assert alias not in flags


@pytest.mark.parametrize(
    "args",
    [
        ["demo", "--served-model-name", "a", "b", "--seed", "3"],
        ["--model", "demo", "--served-model-name", "a", "b", "--seed", "3"],
        ["--seed", "3", "--model=demo", "--served-model-name", "a", "b"],
        ["demo", "--served_model_name", "a", "--served-model-name=b", "--seed=3"],
        ["--served-model-name", "a", "--served-model-name", "b", "--seed", "3", "demo"],
    ],
)
def test_several_values(serve: Serve, args: list[str]) -> None:
    result, config = serve(*args)
    assert config is not None, result.output
    assert config.served_model_name == ("a", "b")
    assert config.engine.seed == 3
    assert config.engine.model == str(demo.path())


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["demo", "--tool-call-parsr", "x"], "no flag --tool-call-parsr; did you mean --tool-call-parser?"),
        (["demo", "--tool-call-parsr", "x"], "--max-num-seqs"),
        (["demo", "--tool-call-parser", "minimx"], "no tool parser is called 'minimx'; there are: "),
        (["demo", "--reasoning-parser", "r1"], "no reasoning parser is called 'r1'; there are: "),
        (["demo", "--max-num-seqs", "0"], "--max-num-seqs"),
        (["demo", "--gpu-memory-utilization", "1.5"], "--gpu-memory-utilization"),
        (["demo", "--reasoning-field", "thoughts"], "reasoning_content"),
        (["demo", "--chat-template", "/no/such/file"], "/no/such/file"),
        (["demo", "--record", "/no/such/folder/file"], "--record /no/such/folder/file: No such file or directory"),
        (["~/no/such/model"], "no model '~/no/such/model': no such folder"),
        (["dmeo"], "Did you mean demo?"),
    ],
)
def test_mistakes_fail_with_what_there_is(serve: Serve, args: list[str], complaint: str) -> None:
    result, config = serve(*args)
    assert config is None
    assert result.exit_code == 2
    assert complaint in result.output


def test_a_port_that_cannot_be() -> None:
    result = CliRunner().invoke(main, ["serve", "demo", "--port", "65536"])
    assert result.exit_code == 2
    assert "--port" in result.output


@pytest.mark.parametrize("name", ["minimax", "MiniMax-M2", "minimax_m2", "auto"])
def test_parser_names(serve: Serve, name: str) -> None:
    result, config = serve("demo", "--tool-call-parser", name, "--reasoning-parser", name)
    assert config is not None, result.output


def test_keys_come_from_flags_or_the_environment(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "from-environment")
    _, config = serve("demo")
    assert config is not None
    assert config.api_key == ("from-environment",)
    _, config = serve("demo", "--api-key", "a", "b")
    assert config is not None
    assert config.api_key == ("a", "b")


def test_a_replay_has_only_the_engine_flags_that_it_applies() -> None:
    command = main.get_command(click.Context(main), "replay")
    assert command is not None
    of_an_engine = {item.name for item in fields(EngineConfig) if "help" in item.metadata}
    taken = {param.name for param in command.params} & of_an_engine
    assert taken == {"max_num_seqs", "max_model_len", "max_waiting_seqs", "trust_remote_code"}


def test_a_replay_prefills_nothing_ahead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[ServeConfig] = []
    monkeypatch.setattr(_launch, "run", lambda _app, config, *_: started.append(config))
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"output": "x"}')
    result = CliRunner().invoke(main, ["replay", str(lines), "--port", "0"])
    assert not result.exception, result.output
    assert not started.pop().engine.prewarm


@pytest.mark.parametrize(
    ("host", "warned"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("vllm.localhost", False), ("0.0.0.0", True)],
)
def test_a_server_for_all_is_warned_of(host: str, warned: bool) -> None:
    assert (warning(ServeConfig(EngineConfig("model"), host=host)) is not None) is warned


NO_NUMBERS = ["", "many", "nan", "inf", "-1", "1" + "0" * 30]
NO_TEXTS = ["", " ", "\udcff"]
BAD = {
    "--root-path": ["models", "http://host/"],
    "--allowed-hosts": ["http://mac.lan", "mac.lan:8000", '["a.lan", "b:1"]', "[1, 2"],
    "--allowed-origins": ["[bad json", '["http://a", 5]', "app.example", "http://app.example/", "http://*.example"],
    "--allowed-methods": ["get", "[]]"],
    "--allowed-headers": ["X-One, X-Two", "[{}]"],
    "--ssl-certfile": ["/no/such/file", "/", __file__],
    "--tool-call-parser": ["minimx"],
    "--reasoning-parser": ["r1"],
    "--log-level": ["loud"],
    "--uds": ["/no/such/folder/socket", "/" + "long" * 50],
    "--host": ["no host", "." * 300, "203.0.113.1", "a" * 70],
    "--record": ["/no/such/folder/file", "/"],
}
"""What cannot be meant, beside what no flag of a kind takes."""


def bad_values() -> list[tuple[str, str, str]]:
    found = []
    for command in ("serve", "replay"):
        for option in main.get_command(click.Context(main), command).params:
            name = option.opts[0]
            if isinstance(option, click.Argument) or option.is_flag:
                continue
            is_number = isinstance(option.type, click.IntRange | click.FloatRange)
            values = NO_NUMBERS if is_number else [] if name in ("--revision", "--model", "--root-path") else NO_TEXTS
            found += [(command, name, value) for value in (*values, *BAD.get(name, ()))]
    return found


@pytest.mark.parametrize(("command", "flag", "value"), bad_values())
def test_a_bad_value_is_an_error_that_names_the_flag(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, flag: str, value: str
) -> None:
    monkeypatch.setattr(_launch, "run", lambda *_: pytest.fail("it was taken"))
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"output": "x"}')
    result = CliRunner().invoke(main, [command, "demo" if command == "serve" else str(lines), flag, value])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (1, 2)
    *_, error = result.output.rstrip().splitlines()
    assert error.startswith("Error: ")
    assert flag in error


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["chat", "--url", "nonsense"], "--url"),
        (["chat", "--url", "http://[::1"], "--url"),
        (["chat", "--api-key", ""], "--api-key"),
        (["doctor", "demo", "--tool-call-parser", "x"], "--tool-call-parser: no tool parser is called 'x'"),
        (["doctor", "demo", "--chat-template", "FILE"], "--chat-template: FILE cannot be read"),
        (["doctor", "demo", "--revision", "main"], "--revision main: demo is no repository"),
        (["plan", "demo", "--memory-gb", "nan"], "--memory-gb"),
        (["plan", "demo", "--revision", "main"], "--revision main: demo is no repository"),
        (["parse", "--reasoning-parser", "x"], "--reasoning-parser"),
        (["parse", "--cases", "FILE"], "FILE cannot be read"),
        (["parse", "--tools", "FILE"], "FILE is not JSON"),
        (["replay", "FILE"], "FILE cannot be read"),
        (["serve", "demo", "--chat-template", "FILE"], "--chat-template: FILE cannot be read"),
        (["serve", "demo", "--revision", "main"], "--revision main: demo is no repository"),
        (["serve", ""], "MODEL"),
        (["serve", "demo", "--ssl-keyfile", "FILE"], "--ssl-keyfile needs --ssl-certfile"),
        (["serve", "demo", "--ssl-certfile", "FILE"], "--ssl-certfile FILE: not a certificate and its key"),
    ],
)
def test_bad_values_of_other_commands(tmp_path: Path, args: list[str], complaint: str) -> None:
    """FILE is one that is no text."""
    file = tmp_path / "file"
    file.write_bytes(b"\xff\x00")
    result = CliRunner().invoke(main, [str(file) if arg == "FILE" else arg for arg in args])
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in (1, 2)
    assert complaint.replace("FILE", str(file)) in result.output


def test_lists_are_json_too(serve: Serve) -> None:
    _, config = serve("demo", "--allowed-origins", '["http://a", "http://b"]', "*", "--allowed-hosts", "[::1]", "c.lan")
    assert config is not None
    assert config.allowed_origins == ("http://a", "http://b", "*")
    assert config.allowed_hosts == ("[::1]", "c.lan")
    assert config.allowed_methods == ("*",)


def test_what_takes_several_machines_or_fewer_bits_is_no_flag(serve: Serve) -> None:
    for flag in ("--kv-bits", "--kv-cache-dtype", "--tensor-parallel-size", "--pipeline-parallel-size", "--nnodes"):
        result, config = serve("demo", flag, "2")
        assert config is None
        assert f"no flag {flag}" in result.output


def test_without_model_the_built_in_one(serve: Serve) -> None:
    result, config = serve("--tool-call-parser", "minimax")
    assert config is not None
    assert config.served_model_name == ("demo",)
    assert "serving the built-in one" in result.stderr


def test_without_model_the_one_in_the_cache(serve: Serve, tmp_path: Path) -> None:
    cache_model(tmp_path / "hub", "org/llama", "llama")
    cache_model(tmp_path / "hub", "org/MiniMax-half", "minimax", whole=False)
    snapshot = cache_model(tmp_path / "hub", "mlx/MiniMax-M2.5-4bit", "minimax")
    result, config = serve("--tool-call-parser", "minimax")
    assert config is not None, result.output
    assert config.served_model_name == ("mlx/MiniMax-M2.5-4bit",)
    assert config.engine.model == str(snapshot)
    assert "serving mlx/MiniMax-M2.5-4bit" in result.stderr


def test_without_model_several_in_the_cache_are_listed(serve: Serve, tmp_path: Path) -> None:
    for name in ("mlx/MiniMax-M2.5-4bit", "mlx/MiniMax-M3-3bit"):
        cache_model(tmp_path / "hub", name, "minimax")
    result, config = serve("--tool-call-parser", "minimax")
    assert config is None
    assert result.exit_code == 2
    assert "mlx/MiniMax-M2.5-4bit" in result.output
    assert "mlx/MiniMax-M3-3bit" in result.output
