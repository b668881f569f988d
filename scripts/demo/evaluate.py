"""Measure the shipped model through the real server, on names and values never trained on.

Every case is a session of the generator's held-out side. The model plays its own part: each reply
is judged against the expected step, then goes into the history as the model gave it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .sessions import (
    Loop,
    Session,
    Step,
    both,
    chat_loop,
    in_turn,
    offer,
    one_call,
    pass_on,
    system_text,
    wire_tools,
)
from .words import Source

COUNTS = {"one": 140, "two": 60, "result": 60, "session": 40}  # 300 prompts
SESSION_STEPS = 12
WORKERS = 4
TEMPERATURES = (0.0, 0.7)
ROWS = (
    # row, what must be reached greedy, at 0.7
    ("calls well formed", 99, 97),
    ("right tool", 96, 92),
    ("arguments exact, one call", 90, 85),
    ("both calls exact", 80, 70),
    ("answer carries the result", 97, 95),
    ("12-turn sessions without a wrong step", 60, 45),
)


@dataclass(frozen=True, slots=True)
class Reply:
    content: str
    reasoning: str
    calls: tuple[tuple[str, str], ...]  # name, arguments as sent
    message: dict[str, Any]  # for the history


Ask = Callable[[list[dict[str, Any]], list[dict[str, Any]], float], Reply]
Scores = dict[str, list[bool]]


# -- cases --------------------------------------------------------------------------------------


def single(source: Source, kind: str) -> Session:
    """A session of one user message: one call, two calls, or a result to report."""
    while True:
        tools = offer(source, source.choice([1, 2, 3, 4]))
        twice = kind == "two" or (kind == "result" and source.chance(0.25))
        loop = both(source, tools) if twice else one_call(source, tools)
        if loop is not None:
            return Session(system_text(source, 0), [tool.schema for tool in tools], [loop], True)


def long_session(source: Source) -> Session:
    """So many replies in all: calls, results, answers, new user messages, some small talk."""
    tools = offer(source, source.choice([2, 3, 4]))
    loops: list[Loop] = []
    left = SESSION_STEPS
    while left:
        kind = source.random()
        loop = None
        if kind < 0.15:
            loop = in_turn(source, tools)
        elif kind < 0.3:
            loop = both(source, tools)
        elif kind < 0.4:
            loop = pass_on(source, tools)
        elif kind < 0.5:
            loop = chat_loop(source)
        loop = loop or one_call(source, tools)
        if len(loop.steps) > left:
            loop = chat_loop(source)
        loops.append(loop)
        left -= len(loop.steps)
    return Session(system_text(source, 0), [tool.schema for tool in tools], loops, True)


def cases(seed: int) -> list[tuple[str, Session]]:
    found: list[tuple[str, Session]] = []
    for kind, count in COUNTS.items():
        source = Source(f"held out {kind} {seed}", test=True)
        found += [(kind, long_session(source) if kind == "session" else single(source, kind)) for _ in range(count)]
    return found


# -- judging ------------------------------------------------------------------------------------


def same(sent: str, wanted: dict[str, Any]) -> bool:
    try:
        got = json.loads(sent)
    except ValueError:
        return False
    return json.dumps(got, sort_keys=True) == json.dumps(wanted, sort_keys=True)


def well_formed(reply: Reply, tools: list[dict[str, Any]]) -> bool:
    """Calls of offered tools with JSON objects as arguments, and no markup in the text."""
    offered = {tool["function"]["name"] for tool in tools}
    if not reply.calls or ("<" in reply.content and "tool_call>" in reply.content):
        return False
    try:
        return all(name in offered and isinstance(json.loads(sent), dict) for name, sent in reply.calls)
    except ValueError:
        return False


def right(step: Step, reply: Reply) -> bool:
    """Whether a reply does what the step wants."""
    if not step.calls:
        return not reply.calls and reply.content == step.content
    return len(reply.calls) == len(step.calls) and all(
        name == wanted and same(sent, arguments)
        for (name, sent), (wanted, arguments) in zip(reply.calls, step.calls, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Player:
    """Runs cases against a server, and keeps what they show."""

    ask: Ask
    temperature: float
    scores: Scores

    def play(self, kind: str, session: Session) -> None:
        tools = wire_tools(session.tools)
        history: list[dict[str, Any]] = (
            [] if session.system is None else [{"role": "system", "content": session.system}]
        )
        for loop in session.loops:
            history.append({"role": "user", "content": loop.user})
            steps = list(loop.steps)
            if kind == "result":
                history += given(steps.pop(0))
            for step in steps:
                reply = self.ask(history, tools, self.temperature)
                self.note(kind, loop, step, reply, tools)
                if kind != "session":
                    return
                if not right(step, reply):
                    self.scores[ROWS[5][0]].append(False)
                    return
                history += [reply.message, *answers(reply, step)]
        self.scores[ROWS[5][0]].append(True)

    def note(self, kind: str, loop: Loop, step: Step, reply: Reply, tools: list[dict[str, Any]]) -> None:
        if step.calls:
            self.scores[ROWS[0][0]].append(well_formed(reply, tools))
        if kind == "one":
            self.scores[ROWS[1][0]].append([name for name, _ in reply.calls] == [step.calls[0][0]])
            self.scores[ROWS[2][0]].append(right(step, reply))
        elif kind == "two":
            self.scores[ROWS[3][0]].append(right(step, reply))
        elif kind == "result":
            carried = all(result in reply.content for result in loop.steps[0].results)
            self.scores[ROWS[4][0]].append(carried and not reply.calls)


def answers(reply: Reply, step: Step) -> list[dict[str, Any]]:
    """The results of a reply's calls, as messages."""
    calls = reply.message.get("tool_calls") or []
    return [
        {"role": "tool", "tool_call_id": call["id"], "content": result}
        for call, result in zip(calls, step.results, strict=True)
    ]


def given(step: Step) -> list[dict[str, Any]]:
    """A step as history: the calls with their results."""
    calls = [
        {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
        }
        for n, (name, arguments) in enumerate(step.calls)
    ]
    message = {"role": "assistant", "content": step.content, "reasoning_content": step.think, "tool_calls": calls}
    return [
        message,
        *({"role": "tool", "tool_call_id": f"call_{n}", "content": result} for n, result in enumerate(step.results)),
    ]


def table(measured: list[Scores]) -> str:
    lines = ["| | must reach, greedy | at 0.7 | greedy | at 0.7 |", "|---|---|---|---|---|"]
    for row, *goals in ROWS:
        shares = [
            f"{100 * sum(scores[row]) / max(1, len(scores[row])):.1f}% of {len(scores[row])}" for scores in measured
        ]
        lines.append(f"| {row} | {goals[0]}% | {goals[1]}% | {' | '.join(shares)} |")
    return "\n".join(lines)


# -- the server ---------------------------------------------------------------------------------


@contextmanager
def server() -> Iterator[str]:
    """`vllm-mlx serve demo` on a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        os.path.join(os.path.dirname(sys.executable), "vllm-mlx"),
        "serve",
        "demo",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/v1/models", process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            if process.poll() is not None:
                raise SystemExit("the server ended; run `vllm-mlx serve demo` to see why") from None
            time.sleep(0.2)
    raise SystemExit("the server does not answer")


def asker(url: str) -> Ask:
    """Requests through the OpenAI SDK."""
    from openai import OpenAI

    client = OpenAI(base_url=url, api_key="none", timeout=300)
    model = client.models.list().data[0].id

    def ask(messages: list[dict[str, Any]], tools: list[dict[str, Any]], temperature: float) -> Reply:
        extra: dict[str, Any] = {"tools": tools} if tools else {}
        response = client.chat.completions.create(
            model=model, messages=messages, temperature=temperature, max_tokens=600, **extra
        )  # type: ignore[call-overload]
        message = response.choices[0].message.model_dump(exclude_none=True)
        calls = tuple(
            (call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []
        )
        return Reply(
            message.get("content") or "",
            message.get("reasoning_content") or message.get("reasoning") or "",
            calls,
            message,
        )

    return ask


def measure(ask: Ask, temperature: float, seed: int) -> Scores:
    scores: Scores = defaultdict(list)
    player = Player(ask, temperature, scores)
    with ThreadPoolExecutor(WORKERS) as pool:
        jobs = [pool.submit(player.play, kind, session) for kind, session in cases(seed)]
        for number, job in enumerate(jobs, 1):
            job.result()
            if number % 50 == 0:
                print(f"  temperature {temperature}: {number} of {len(jobs)}", file=sys.stderr)
    return scores


def evaluate(seed: int) -> None:
    """Print the table."""
    start = time.time()
    with server() as url:
        ask = asker(url)
        print(table([measure(ask, temperature, seed) for temperature in TEMPERATURES]))
    print(f"{sum(COUNTS.values())} held-out prompts for each temperature, {time.time() - start:.0f} s")
