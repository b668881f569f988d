"""Requests made from the server's own description, on every route: no 5xx, no hang, alive and right afterwards."""

import os
import subprocess
import sys

import httpx2
import pytest

from .process import replay_file, running

EXAMPLES = os.environ.get("VLLM_MLX_FUZZ_REQUESTS", "5")
"""Requests a route and kind, beside those that cover every constraint once."""

OUTPUT = ["I think.", "\n</think>", "\n\nHel", "lo"]
FUZZER = [sys.executable, "-m", "schemathesis.cli", "run", "--no-color", "--checks", "not_a_server_error"]
LIMITS = ["--phases", "coverage,fuzzing", "--max-examples", EXAMPLES, "--request-timeout", "20"]


@pytest.mark.timeout(900)
def test_no_request_breaks_the_server(tmp_path):
    with running("replay", replay_file(tmp_path, OUTPUT), "--log-level", "error") as server:
        fuzzer = subprocess.run(
            [*FUZZER, *LIMITS, server.root + "/openapi.json"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert fuzzer.returncode == 0, fuzzer.stdout + fuzzer.stderr
        body = {"messages": [{"role": "user", "content": "hi"}]}
        message = httpx2.post(server.url + "/chat/completions", json=body).json()["choices"][0]["message"]
        load = httpx2.get(server.root + "/load").json()
    assert (message["reasoning_content"], message["content"]) == ("I think.", "Hello")
    assert load == {"server_load": 0}
