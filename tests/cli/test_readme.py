import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner
from running import Running

from vllm_mlx.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_sdk_example_runs(start: Callable[..., Running]) -> None:
    (code,) = blocks("python")
    server = start("serve", "demo", "--port", "0")
    assert "http://127.0.0.1:8000/v1" in code
    code = code.replace("http://127.0.0.1:8000/v1", server.url)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    call, answer = done.stdout.splitlines()
    (printed,) = blocks("text")
    assert call == printed.splitlines()[0]
    assert "14 degrees and rain" in answer


def test_the_parse_examples_run() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines() if "vllm-mlx parse" in line]
    assert len(lines) == 2
    for line in lines:
        command = line.replace("vllm-mlx", f"{sys.executable} -m vllm_mlx.cli")
        done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_and_flag_exists() -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines() if "vllm-mlx" in line]
    for line in lines:
        name, *words = line[line.index("vllm-mlx") :].split()[1:]
        help = CliRunner().invoke(main, [name, "--help"])
        assert help.exit_code == 0, line
        assert all(word in help.output for word in words if word.startswith("--")), line


def test_make_targets_exist() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"make (\w+)", "\n".join(blocks("sh")))
    assert named
    assert set(named) <= set(targets)


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
