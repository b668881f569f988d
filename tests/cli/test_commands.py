import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import vllm_mlx.cli
from vllm_mlx.cli import main

COMMANDS = sorted(
    file.stem.replace("_", "-") for file in Path(vllm_mlx.cli.__file__).parent.glob("*.py") if file.stem[0] != "_"
)
HEAVY = ("mlx", "mlx_lm", "numpy", "transformers", "tokenizers", "fastapi", "uvicorn", "huggingface_hub", "jinja2")
IMPORTED = "import sys; from vllm_mlx.cli import main; main({args!r}, standalone_mode=False); print(*sys.modules)"


def modules_of(*args: str) -> set[str]:
    command = [sys.executable, "-c", IMPORTED.format(args=list(args))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_every_file_is_a_command() -> None:
    help = CliRunner().invoke(main, ["--help"]).output
    assert {"serve", "replay", "parse", "chat"} <= set(COMMANDS)
    for name in COMMANDS:
        assert f"\n  {name} " in help


@pytest.mark.parametrize("args", [["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    assert modules_of(*args).isdisjoint(HEAVY)


def test_parse_needs_no_mlx(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("thought</think>answer")
    assert modules_of("parse", str(text)).isdisjoint({"mlx", "mlx_lm", "numpy", "transformers", "fastapi"})


def test_the_api_process_imports_neither_mlx_nor_transformers() -> None:
    code = """
import sys
from vllm_mlx import demo, hub
from vllm_mlx.api.app import create_app
from vllm_mlx.chat.model import ChatModel
from vllm_mlx.cli import _launch, _model, replay, serve
from vllm_mlx.config import EngineConfig, ServeConfig
from vllm_mlx.engine.client import EngineClient
config = ServeConfig(EngineConfig(str(demo.path())), served_model_name=("demo",))
create_app(config, ChatModel.load(demo.path()), EngineClient(config.engine))
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert "fastapi" in loaded
    assert loaded.isdisjoint({"mlx", "mlx.core", "mlx_lm", "transformers", "torch"})


def test_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "vllm_mlx.cli", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == f"vllm-mlx, version {vllm_mlx.__version__}"


def test_an_unknown_command_says_what_there_is() -> None:
    result = CliRunner().invoke(main, ["sreve"])
    assert result.exit_code == 2
    assert "did you mean serve?" in result.output
    assert ", ".join(COMMANDS) in result.output
