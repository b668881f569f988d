"""`doctor`: a report that a person reads, JSON for scripts, an exit code for both."""

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hub_server import HubServer

import vllm_mlx
from vllm_mlx.cli import main
from vllm_mlx.cli._environment import _commands, _owners

DEMO = Path(vllm_mlx.__file__).parent / "demo"


def doctor(*args: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *args])


def statuses(result: Result) -> dict[str, str]:
    return {check["name"]: check["status"] for check in json.loads(result.stdout)["checks"]}


def test_the_demo_model_is_well() -> None:
    result = doctor("demo", "--json")
    assert statuses(result)["Tool calls come back"] == "pass"
    assert json.loads(result.stdout)["ok"] is (result.exit_code == 0)


def test_lines_for_people() -> None:
    lines = doctor("demo").stdout.splitlines()
    assert "PASS  Tool call parser: minimax_m2" in lines
    assert all(line.split()[0] in ("PASS", "WARN", "FAIL", "INFO") for line in lines)


def copy(folder: Path, template: str) -> str:
    for name in ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO / name, folder / name)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return str(folder)


def test_an_edited_template_fails_and_the_original_heals(tmp_path: Path) -> None:
    template = (DEMO / "chat_template.jinja").read_text(encoding="utf-8")
    folder = copy(tmp_path, template.replace("<parameter name=\"' ~ key", "<param name=\"' ~ key"))
    result = doctor(folder, "--json")
    assert (result.exit_code, statuses(result)["Tool calls come back"]) == (1, "fail")
    healed = doctor(folder, "--json", "--chat-template", str(DEMO / "chat_template.jinja"))
    assert statuses(healed)["Tool calls come back"] == "pass"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["absent"], "no such folder"),
        (["demo", "--tool-call-parser", "x"], "there are:"),
        (["./absent"], "no such folder"),
    ],
)
def test_what_is_not_there(args: list[str], words: str) -> None:
    result = doctor(*args)
    assert result.exit_code != 0
    assert words in result.output


def test_a_repository_is_checked_without_its_weights(tmp_path: Path) -> None:
    files = {file.name: file.read_bytes() for file in DEMO.iterdir() if file.is_file()}
    hub = HubServer({"org/demo": files})
    try:
        environ = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.url, "HOME": str(tmp_path)}
        done, absent = (
            subprocess.run(
                [sys.executable, "-m", "vllm_mlx.cli", "doctor", name, "--json"],
                env=environ,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            for name in ("org/demo", "org/absent")
        )
    finally:
        hub.close()
    checks = {check["name"]: check["status"] for check in json.loads(done.stdout)["checks"]}
    assert checks["Tool calls come back"] == "pass"
    assert "chat_template.jinja" in hub.fetched()
    assert "model.safetensors" not in hub.fetched()
    assert absent.returncode == 1
    assert "org/absent cannot be looked up" in absent.stderr


def test_without_a_model_the_environment_is_checked() -> None:
    assert set(statuses(doctor("--json"))) >= {"vllm-mlx", "MLX", "Device", "vllm-mlx on PATH"}


def script(folder: Path) -> str:
    folder.mkdir(parents=True)
    (folder / "vllm-mlx").touch()
    return str(folder)


def test_commands_on_the_path(tmp_path: Path) -> None:
    ours, other = script(tmp_path / "ours" / "bin"), script(tmp_path / "other" / "bin")
    prefix = tmp_path / "ours"
    assert _commands([], prefix).status == "info"
    assert _commands([ours, "/nowhere", ours], prefix).status == "pass"
    assert _commands([ours, other], prefix).status == "warn"
    foreign = _commands([other, ours], prefix)
    assert foreign.status == "warn"
    assert "is not of this environment" in foreign.detail


def installed(folder: Path, name: str, version: str, files: list[str]) -> metadata.Distribution:
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    return metadata.PathDistribution(info)


def test_owners_of_the_module(tmp_path: Path) -> None:
    own = installed(tmp_path / "a", "vllm_mlx", vllm_mlx.__version__, ["vllm_mlx/__init__.py"])
    peer = installed(tmp_path / "b", "vllm-mlx", "9.9", ["vllm_mlx/__init__.py"])
    shim = installed(tmp_path / "c", "rapid-mlx", "1.0", ["rapid_mlx/__init__.py", "vllm_mlx/__init__.py"])
    stranger = installed(tmp_path / "d", "click", "8", ["click/__init__.py"])
    assert [check.status for check in _owners([own, stranger])] == ["pass"]
    assert [check.status for check in _owners([peer])] == ["fail"]
    assert [check.status for check in _owners([own, peer])] == ["fail"]
    (check,) = _owners([own, shim])
    assert (check.status, "rapid-mlx 1.0" in check.detail) == ("fail", True)
