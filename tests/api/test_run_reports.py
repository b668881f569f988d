"""The runner of reports sees what is wrong, and says what it did not run."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts/run_reports.py"
REQUEST = {
    "model": "m",
    "messages": [{"role": "user", "content": "x"}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
}
PLAIN = {"model": "m", "prompt": "x"}
CALL = 'hm\n</think>\n\n<minimax:tool_call>\n<invoke name="f">\n</invoke>\n</minimax:tool_call>'
INVARIANTS = [
    "stream_equals_nonstream",
    "args_is_json_object",
    "ids_unique",
    "index_contiguous_from_0",
    "one_finish_reason",
    "done_is_last",
]


def entry(id, **repro):
    return {"id": id, "theme": "t", "summary": f"about {id}", "repro": repro}


def scripted(id, expect, **more):
    fields = {"family": "m2", "model_output": CALL, "request": REQUEST, "chunking": ["whole", "per_char", "per_token"]}
    return entry(id, kind="scripted", **{**fields, "apis": ["chat", "messages", "responses"], **more}, expect=expect)


RIGHT = {
    "reasoning": "hm",
    "content": "",
    "tool_calls": [{"name": "f", "arguments": {}}],
    "finish_reason": "tool_calls",
    "anthropic_stop_reason": "tool_use",
    "not_contains": ["<invoke"],
    "invariants": INVARIANTS,
}
ENTRIES = [
    scripted("right", RIGHT),
    scripted("right-m3", {"content": "ok", "tool_calls": []}, family="m3", model_output="</mm:think>ok"),
    scripted("right-cut", {"finish_reason": "length"}, model_output=CALL[:50], simulate_finish="length"),
    scripted("right-bytes", RIGHT, chunking=["per_byte_tokens", "random_1_to_40", [CALL[:9], CALL[9:]]]),
    scripted("right-text", {"content": CALL, "invariants": INVARIANTS}, apis=["completions"], request=PLAIN),
    scripted("wrong-text", {"content": "no"}),
    scripted("wrong-call", {"tool_calls": [{"name": "g", "arguments": {}}]}),
    scripted("wrong-reason", {"finish_reason": "stop"}),
    scripted("wrong-choice", {"one_of": [{"content": "no"}, {"reasoning": "no"}]}),
    entry(
        "right-request",
        kind="request",
        path="/v1/chat/completions",
        request={**REQUEST, "top_p": 2},
        expect={"status": 400, "error_param": "top_p"},
        variants=[{"temperature": -1}],
    ),
    entry(
        "right-prompt",
        kind="request",
        path="/v1/messages",
        family="m2,m3",
        request={"max_tokens": 4, "messages": [{"role": "user", "content": "MARK"}]},
        expect={"status": 200, "prompt_contains": ["MARK"], "prompt_contains_once": ["MARK"], "server_alive": True},
    ),
    entry("wrong-path", kind="request", path="/v1/none", request={}, expect={"status": 200}),
    entry("other", kind="manual", actions=["look"], expect={}),
    scripted("unknown", {"smells_of": "roses"}),
]


def test_the_tests_that_stand_for_entries_are_there():
    named = tomllib.loads((SCRIPT.parent / "reports/other.toml").read_text())
    tests = [test for known in named.values() if isinstance(known, list) for test in known]
    assert tests
    for test in tests:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (SCRIPT.parents[1] / file).read_text(), test


def test_reports_are_judged_right(tmp_path):
    file = tmp_path / "reports.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in ENTRIES))
    done = subprocess.run([sys.executable, SCRIPT, file], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    failed = [line.split()[1].rstrip(":") for line in lines if line.startswith("FAILED")]
    assert failed == ["wrong-text", "wrong-call", "wrong-reason", "wrong-choice", "wrong-path"]
    assert [line.split()[2] for line in lines if line.startswith("not run")] == ["other", "unknown"]
    assert lines[-1] == "7 passed, 5 failed, 2 not run"
    assert 'expected "no", got null' in done.stdout or 'expected "no", got ""' in done.stdout
