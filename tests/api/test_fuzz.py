"""Requests made from the server's own description, on every route: no 5xx, no hang, alive and right afterwards."""

import os
import subprocess
import sys

import httpx2
import pytest

from .process import replay_file, running

SECONDS = int(os.environ.get("VLLM_MLX_FUZZ_SECONDS", "60"))
"""How long requests are made; one setting, so that `make fuzz` may take longer than every test run."""

SEED = 1
"""The same requests in every run, as far as it gets."""

OUTPUT = ["I think.", "\n</think>", "\n\nHel", "lo"]
FUZZER = [sys.executable, "-m", "schemathesis.cli", "run", "--no-color", "--checks", "not_a_server_error"]
# A round is a few requests to every route; rounds are made, each from the next seed, until the time is over.
ROUND = ["--phases", "coverage,fuzzing", "--max-examples", "5", "--seed", str(SEED), "--generation-database", "none"]
LIMITS = ["--max-time", str(SECONDS), "--request-timeout", "20"]


@pytest.mark.timeout(SECONDS + 240)
def test_no_request_breaks_the_server(tmp_path):
    with running("replay", replay_file(tmp_path, OUTPUT), "--log-level", "error") as server:
        fuzzer = subprocess.run(
            [*FUZZER, *ROUND, *LIMITS, server.root + "/openapi.json"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        print(fuzzer.stdout)
        assert fuzzer.returncode == 0, fuzzer.stdout + fuzzer.stderr
        body = {"messages": [{"role": "user", "content": "hi"}]}
        message = httpx2.post(server.url + "/chat/completions", json=body).json()["choices"][0]["message"]
        load = httpx2.get(server.root + "/load").json()
    assert (message["reasoning_content"], message["content"]) == ("I think.", "Hello")
    assert load == {"server_load": 0, "sequences": []}
