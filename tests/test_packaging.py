import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements.lock", "requirements-dev.lock")
DEMO = ("config.json", "generation_config.json", "tokenizer.json", "model.safetensors", "chat_template.jinja")


def pins(lock: str) -> dict[str, list[str]]:
    """Each pinned package of a lock file with the lines that pin it."""
    result: dict[str, list[str]] = {}
    for entry in re.split(r"\n(?! )", (ROOT / lock).read_text().strip()):
        name = re.match(r"([a-z0-9-]+)==\S+", entry)
        assert name, entry
        assert "--hash=sha256:" in entry, entry
        result.setdefault(name[1], []).append(entry)
    return result


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_pin_everything_and_name_no_host(lock: str) -> None:
    assert {"torch", "torchvision", "triton"}.isdisjoint(pins(lock))
    assert not any(name.startswith("nvidia") for name in pins(lock))
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text


def test_each_platform_gets_its_mlx() -> None:
    locked = pins("requirements.lock")
    assert "sys_platform == 'darwin'" in locked["mlx-metal"][0]
    assert "platform_machine == 'arm64'" in locked["mlx-metal"][0]
    assert "sys_platform == 'linux'" in locked["mlx-cpu"][0]
    assert ";" not in locked["mlx"][0].split("\\")[0]


def test_the_locks_agree() -> None:
    run, dev = (pins(lock) for lock in LOCKS)
    for name in run.keys() & dev.keys():
        assert run[name] == dev[name]


def test_the_wheel_has_the_packages_and_the_built_in_model(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"vllm_mlx/demo/{name}" for name in DEMO} <= names
    assert {"tool_parsers/__init__.py", "reasoning_parsers/__init__.py", "vllm_mlx/cli/serve.py"} <= names
    assert not any(name.startswith(("tests/", "scripts/")) for name in names)
