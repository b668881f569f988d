import json
import os
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from hub_server import HubServer
from running import Running

from vllm_mlx import demo

Start = Callable[..., Running]
PASTED = (
    "serve demo --enable-auto-tool-choice --tool-call-parser minimax --reasoning-parser deepseek_r1 --port 0",
    "serve demo --host 0.0.0.0 --port 0 --enable-prefix-cache --max-num-seqs 2 --tool-call-parser minimax "
    "--enable-auto-tool-choice",
)
NEVER_LOADS = """
import asyncio
from types import SimpleNamespace
from fastapi import FastAPI
from contextlib import asynccontextmanager
from vllm_mlx.cli import _launch
from vllm_mlx.cli._listen import listen
from vllm_mlx.config import EngineConfig, ServeConfig

@asynccontextmanager
async def never(app):
    print("loading", flush=True)
    await asyncio.Event().wait()
    yield

config = ServeConfig(EngineConfig("x"), served_model_name=("x",))
with listen("127.0.0.1", 0, None) as listener:
    _launch.run(FastAPI(lifespan=never), config, SimpleNamespace(warnings=()), None, listener)
"""


def curl_of(banner: str) -> tuple[str, Any]:
    """The URL and the body of the banner's curl line, as a shell would read them."""
    words = shlex.split(banner.splitlines()[-1])
    assert [words[0], *words[2:5]] == ["curl", "-H", "Content-Type: application/json", "-d"]
    return words[1], json.loads(words[5])


@pytest.mark.parametrize("line", PASTED)
def test_pasted_command_lines(start: Start, line: str) -> None:
    server = start(*line.split())
    assert "Tool call parser: minimax_m2" in server.banner
    assert "Reasoning parser: " in server.banner
    assert "Context:          8,192 tokens" in server.banner
    url, body = curl_of(server.banner)
    assert url == f"{server.url}/chat/completions"
    answer = httpx2.post(url, json={**body, "max_tokens": 20}, timeout=60)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["role"] == "assistant"
    assert ("WARNING" in server.errors) == ("0.0.0.0" in line)
    client = openai.OpenAI(base_url=server.url, api_key="unused")
    assert [model.id for model in client.models.list()] == ["demo"]


def test_a_repository_is_downloaded_and_served(start: Start) -> None:
    files = {file.name: file.read_bytes() for file in demo.path().iterdir() if file.suffix != ".py" and file.is_file()}
    hub = HubServer({"org/small-minimax": files})
    try:
        variables = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0"}
        first = start("serve", "org/small-minimax", "--port", "0", **variables)
        _ask(first, "org/small-minimax")
        assert "100%" in first.errors
        hub.requests.clear()
        second = start("serve", "--port", "0", **variables)
        _ask(second, "org/small-minimax")
        assert "No MODEL given: serving org/small-minimax" in second.errors
        assert hub.requests == []
    finally:
        hub.close()


def _ask(server: Running, name: str) -> None:
    url, body = curl_of(server.banner)
    assert body["model"] == name
    assert httpx2.post(url, json={**body, "max_tokens": 5}, timeout=60).status_code == 200


def test_with_a_key_the_banner_names_it_and_nobody_is_warned(start: Start) -> None:
    server = start("serve", "demo", "--host", "0.0.0.0", "--port", "0", "--api-key", "secret", "other")
    assert "WARNING" not in server.errors
    assert server.banner.rstrip().endswith('-H "Authorization: Bearer $VLLM_API_KEY"')
    assert "secret" not in server.banner
    assert httpx2.get(f"{server.url}/models").status_code == 401
    for key in ("secret", "other"):
        client = openai.OpenAI(base_url=server.url, api_key=key)
        assert [model.id for model in client.models.list()] == ["demo"]


def test_under_a_root_path(start: Start) -> None:
    server = start("serve", "demo", "--port", "0", "--root-path", "/models/m2/", "--api-key", "secret")
    origin = server.url.removesuffix("/v1")
    for base in (origin, f"{origin}/models/m2"):
        assert httpx2.get(f"{base}/health").status_code == 200
        refused = httpx2.post(f"{base}/v1/messages", json={})
        assert refused.status_code == 401
        assert refused.json()["type"] == "error"  # Anthropic's shape, by the path
    assert httpx2.get(f"{origin}/models/m3/health", headers={"x-api-key": "secret"}).status_code == 404


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything_cleanly(start: Start, number: signal.Signals, group: bool) -> None:
    server = start("serve", "demo", "--port", "0")
    children = _children(server.process.pid)
    assert children
    if group:  # what a terminal does
        os.killpg(server.process.pid, number)
    else:
        server.process.send_signal(number)
    assert server.process.wait(20) == 0
    server.end()
    assert "Traceback" not in server.errors
    assert "ERROR" not in server.errors
    assert not any(_alive(pid) for pid in children)


@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_ends_open_streams_with_an_error(start: Start, tmp_path: Path, signals: int) -> None:
    lines = tmp_path / "replies.jsonl"
    lines.write_text(json.dumps({"output": ["a", "b"], "hang_after": 1}))
    server = start("replay", str(lines), "--port", "0")
    client = openai.OpenAI(base_url=server.url, api_key="unused", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": "x"}]
    stream = client.chat.completions.create(model="demo", messages=messages, stream=True, timeout=60)
    next(stream)
    for _ in range(signals):
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    with pytest.raises(openai.APIError, match="closed"):
        list(stream)
    assert server.process.wait(20) == 0
    server.end()
    assert "Traceback" not in server.errors


def test_a_signal_while_the_model_loads() -> None:
    command = [sys.executable, "-c", NEVER_LOADS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "loading\n"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0
    assert errors == "Stopped before the model was loaded.\n"


def test_a_port_in_use_is_said_before_the_model_is_looked_for(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        server = start("serve", "/no/such/model", "--port", port)
        assert server.process.wait(20) == 1
        server.end()
    assert f"127.0.0.1:{port} is in use" in server.errors
    assert "--port" in server.errors


def test_weights_that_do_not_load_are_an_error_in_words(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(demo.path(), folder)
    (folder / "model.safetensors").write_bytes(b"no weights")
    server = start("serve", str(folder), "--port", "0")
    assert server.process.wait(60) == 1
    server.end()
    assert "Error: the engine does not start: " in server.errors
    assert server.banner == ""


def test_a_unix_socket(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "server.sock"
    for _ in range(2):
        server = start("serve", "demo", "--uds", str(path))
        assert f"curl --unix-socket {path}" in server.banner
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://localhost/health").status_code == 200
        second = start("serve", "demo", "--uds", str(path))
        second.end()
        assert f"{path} is in use" in second.errors
        assert server.end() == 0
        assert not path.exists()
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))  # what a killed server leaves


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_tls(start: Start, tmp_path: Path) -> None:
    names = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem"), "-subj", "/CN=localhost"]
    names += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names], check=True, capture_output=True
    )
    files = ("--ssl-certfile", str(tmp_path / "cert.pem"), "--ssl-keyfile", str(tmp_path / "key.pem"))
    server = start("serve", "demo", "--port", "0", *files)
    assert server.url.startswith("https://127.0.0.1:")
    context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    assert httpx2.get(f"{server.url}/models", verify=context).status_code == 200
    broken = start("serve", "demo", "--port", "0", "--ssl-certfile", "/no/such/cert.pem")
    assert broken.process.wait(20) == 2
    broken.end()
    assert "--ssl-certfile /no/such/cert.pem: No such file" in broken.errors


def test_record_and_replay_give_the_same_reply(start: Start, tmp_path: Path) -> None:
    recording = tmp_path / "recorded.jsonl"
    live = start("serve", "demo", "--port", "0", "--record", str(recording))
    bodies = [
        {"model": "demo", "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 30}
        for text in ("Say hello.", "Say goodbye.")
    ]
    told = [_message(live.url, body) for body in bodies]
    live.end()
    replayed = start("replay", str(recording), "--port", "0")
    assert [_message(replayed.url, body) for body in reversed(bodies)] == told[::-1]


def _message(url: str, body: Any) -> Any:
    choice = httpx2.post(f"{url}/chat/completions", json=body, timeout=60).json()["choices"][0]
    return choice["message"], choice["finish_reason"]


def _children(pid: int) -> list[int]:
    listing = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    return [int(child) for child, parent in map(str.split, listing.splitlines()) if int(parent) == pid]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
