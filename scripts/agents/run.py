"""Runs coding agents against this server and writes docs/agents.md: python scripts/agents/run.py [NAME ...]

Each agent is installed from npm under build/agents, and runs without a terminal in a scratch home and a scratch
folder, with nothing of this machine's environment. Node 22 is needed.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "agents"
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from clients.run import node, quiet  # noqa: E402 - the project is no package of this script
from tables import record  # noqa: E402

from tests.api.process import replay_file, running  # noqa: E402

TASK = "Run echo hello in the shell and tell me what it said"
COMMAND = "echo hello-$((40 + 2)) | tee said.txt"
SAID = "hello-42"
ANSWER = f"The tool answered.\n</think>\n\nIt said {SAID}."
CONTEXT = 196608
TIMEOUT = 600
MODEL = "demo"


def call(tool: str, parameter: str) -> str:
    """Raw output that calls a shell tool."""
    return (
        f'I should run it.\n</think>\n\n<minimax:tool_call>\n<invoke name="{tool}">\n'
        f'<parameter name="{parameter}">{COMMAND}</parameter>\n</invoke>\n</minimax:tool_call>'
    )


@dataclass(frozen=True)
class Setup:
    """What an agent is started with. `url` ends with /v1, `root` does not."""

    url: str
    root: str
    api: str
    home: Path
    work: Path


@dataclass(frozen=True)
class Agent:
    """`start` writes the agent's settings and returns its arguments and its own environment."""

    name: str
    package: str
    version: str
    command: str
    apis: tuple[str, ...]
    tool: str
    parameter: str
    start: Callable[[Setup], tuple[list[str], dict[str, str]]]


def opencode(setup: Setup) -> tuple[list[str], dict[str, str]]:
    library = {"chat": "@ai-sdk/openai-compatible", "messages": "@ai-sdk/anthropic"}[setup.api]
    model = {"name": MODEL, "limit": {"context": CONTEXT, "output": 8192}}
    provider = {"npm": library, "name": "Local", "options": {"baseURL": setup.url, "apiKey": "sk-local"}}
    settings = {
        "provider": {"local": {**provider, "models": {MODEL: model}}},
        "model": f"local/{MODEL}",
        "small_model": f"local/{MODEL}",
        "autoupdate": False,
        "share": "disabled",
        "permission": {"bash": "allow", "edit": "allow"},
    }
    (setup.work / "opencode.json").write_text(json.dumps(settings))
    return ["run", "--model", f"local/{MODEL}", "--format", "json", TASK], {"OPENCODE_DISABLE_MODELS_FETCH": "1"}


def codex(setup: Setup) -> tuple[list[str], dict[str, str]]:
    folder = setup.home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(
        f'model = "{MODEL}"\nmodel_provider = "local"\nmodel_context_window = {CONTEXT}\napproval_policy = "never"\n'
        'sandbox_mode = "danger-full-access"\ncheck_for_update_on_startup = false\n\n[model_providers.local]\n'
        f'name = "Local"\nbase_url = "{setup.url}"\nwire_api = "responses"\n'
    )
    return ["exec", "--skip-git-repo-check", TASK], {}


def claude_code(setup: Setup) -> tuple[list[str], dict[str, str]]:
    own = {
        "ANTHROPIC_BASE_URL": setup.root,
        "ANTHROPIC_AUTH_TOKEN": "sk-local",
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    return ["-p", TASK, "--allowedTools", "Bash", "--output-format", "json"], own


def pi(setup: Setup) -> tuple[list[str], dict[str, str]]:
    api = {"chat": "openai-completions", "messages": "anthropic-messages", "responses": "openai-responses"}[setup.api]
    folder = setup.home / ".pi/agent"
    folder.mkdir(parents=True)
    model = {"id": MODEL, "reasoning": True, "contextWindow": CONTEXT, "maxTokens": 8192}
    base = setup.root if setup.api == "messages" else setup.url
    provider = {"baseUrl": base, "api": api, "apiKey": "sk-local", "models": [model]}
    (folder / "models.json").write_text(json.dumps({"providers": {"local": provider}}))
    return ["-p", "--provider", "local", "--model", MODEL, TASK], {"PI_OFFLINE": "1"}


AGENTS = [
    Agent("opencode", "opencode-ai", "1.18.33", "opencode", ("chat", "messages"), "bash", "command", opencode),
    Agent("codex", "@openai/codex", "0.171.0", "codex", ("responses",), "exec_command", "cmd", codex),
    Agent(
        "claude-code", "@anthropic-ai/claude-code", "2.1.332", "claude", ("messages",), "Bash", "command", claude_code
    ),
    Agent(
        "pi",
        "@earendil-works/pi-coding-agent",
        "1.6.0",
        "pi",
        ("chat", "messages", "responses"),
        "bash",
        "command",
        pi,
    ),
]


@dataclass(frozen=True)
class Row:
    agent: str
    version: str
    api: str
    result: str


def installed(agent: Agent) -> Path:
    """The agent's command."""
    folder = BUILD / agent.package.rpartition("/")[2]
    manifest = folder / "node_modules" / agent.package / "package.json"
    if not manifest.is_file() or json.loads(manifest.read_text())["version"] != agent.version:
        print(f"installing {agent.package}@{agent.version}", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        wanted = f"{agent.package}@{agent.version}"
        quiet(["npm", "install", "--no-audit", "--no-fund", "--prefix", ".", wanted], folder)
    return folder / "node_modules/.bin" / agent.command


def run(agent: Agent, api: str) -> Row:
    """One task, over one API."""
    command = installed(agent)
    whole = list(call(agent.tool, agent.parameter))
    # Some agents ask for a title at the same time: that request takes one of the first two.
    with (
        tempfile.TemporaryDirectory() as folder,
        redirect_stdout(StringIO()),
        running("replay", replay_file(Path(folder), whole, whole, list(ANSWER))) as server,
    ):
        home, work = Path(folder) / "home", Path(folder) / "work"
        home.mkdir()
        work.mkdir()
        arguments, own = agent.start(Setup(server.url, server.root, api, home, work))
        path = os.pathsep.join([str(Path(node()).parent), os.environ["PATH"]])
        environment = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", **own}
        try:
            done = subprocess.run(
                [str(command), *arguments],
                cwd=work,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
            output = done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            output = f"no end within {TIMEOUT} s"
        said = work / "said.txt"
        ran = said.is_file() and said.read_text().strip() == SAID
    if ran and f"It said {SAID}" in output:
        return Row(agent.name, agent.version, api, "ok")
    problem = "the tool was not run" if not ran else "no answer"
    return Row(agent.name, agent.version, api, f"**failed**: {problem}: {output[-400:]!r}")


def rows(names: list[str]) -> Iterator[Row]:
    for agent in AGENTS:
        if not names or agent.name in names:
            yield from (run(agent, api) for api in agent.apis)


HEAD = """\
# Coding agents

<!-- Written by `make agents`. -->

Each agent completes a task against recorded output, without a terminal and in a scratch home: it calls its
shell tool, the command runs, its result goes back, and the answer is shown.
"""


def main() -> None:
    names = sys.argv[1:]
    titles = ("Agent", "Version", "API", "Result")
    record("agents.md", HEAD, titles, rows(names), good=lambda row: row.result == "ok", whole=not names)


if __name__ == "__main__":
    main()
