"""`bench agent`: sessions as coding agents have them, and how much of each prompt a server did not compute again."""

import asyncio
import json
import random
import statistics
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vllm_mlx.bench.http import BenchError, Stream, post_json, stream_chat

Client = Literal["keeps", "drops", "reserialises"]
Kind = Literal["first", "tool", "user"]
CLIENTS: tuple[Client, ...] = ("keeps", "drops", "reserialises")
"""What becomes of a reply on its way back: all is kept, the thought is dropped, or arguments are written anew."""

_FILES = ("README.md", "main.py", "config.yaml", "notes.txt", "server.log", "setup.cfg", "index.html")
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]},
        },
    }
    for name, description, key in (
        ("read_file", "Read a file and return its text.", "path"),
        ("list_dir", "List a directory.", "path"),
        ("run_command", "Run a shell command.", "command"),
    )
]


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of a session. `reusable` is how far the prompt goes on from the last one and its reply."""

    session: str
    kind: Kind
    prompt: int
    reusable: int
    reused: int
    ttft_ms: float


@dataclass(slots=True)
class _Session:
    """One conversation and what is known of its last request."""

    name: str
    client: Client
    rng: random.Random
    messages: list[dict[str, Any]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    last: Stream | None = None

    def text(self, words: int) -> str:
        sizes = [self.rng.randint(2, 7) for _ in range(words)]
        return " ".join("".join(self.rng.choices(string.ascii_lowercase, k=size)) for size in sizes)

    def ask(self) -> None:
        """A new message of the user's."""
        self.messages.append({"role": "user", "content": f"Read {self.rng.choice(_FILES)}"})

    def answer(self, reply: Stream) -> None:
        """Takes the reply into the history as this client does, with results for its calls; a cut call is none."""
        calls = reply.calls if reply.finish == "tool_calls" else []
        message: dict[str, Any] = {"role": "assistant", "content": reply.content or None}
        if reply.reasoning and self.client != "drops":
            message["reasoning_content"] = reply.reasoning
        if calls:
            message["tool_calls"] = [self._returned(call) for call in calls]
        self.messages.append(message)
        if not calls:
            self.ask()
        for call in calls:
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": self.text(25)})

    def _returned(self, call: dict[str, Any]) -> dict[str, Any]:
        if self.client != "reserialises":
            return call
        function = call["function"]
        arguments = json.dumps(json.loads(function["arguments"] or "{}"), indent=1, sort_keys=True)
        return call | {"function": function | {"arguments": arguments}}


async def play(
    base_url: str,
    *,
    model: str,
    turns: int,
    pause: float,
    seed: int,
    progress: Callable[[int, int], None],
) -> list[Turn]:
    """For each kind of client two sessions, one request of each in turn: `turns` in a tool loop, and after `pause`
    seconds a new message of the user's. Raises `BenchError`.
    """
    rng = random.Random(seed)
    played: list[Turn] = []
    total = len(CLIENTS) * 2 * (turns + 1)
    for client in CLIENTS:
        sessions = [_Session(f"{client}-{letter}", client, random.Random(rng.random())) for letter in "ab"]
        for session in sessions:
            session.messages.append({"role": "system", "content": f"You are an agent. {session.text(30)}"})
            session.ask()
        for turn in range(turns):
            for session in sessions:
                kind: Kind = "tool" if turn else "first"
                played.append(await _request(base_url, model, session, kind, rng.getrandbits(31)))
                progress(len(played), total)
        for session in sessions:
            session.ask()
            await asyncio.sleep(pause)
            played.append(await _request(base_url, model, session, "user", rng.getrandbits(31)))
            progress(len(played), total)
    return played


async def _request(base_url: str, model: str, session: _Session, kind: Kind, seed: int) -> Turn:
    body = {
        "model": model,
        "messages": session.messages,
        "tools": _TOOLS,
        "tool_choice": "required",
        "temperature": 1.0,
        "seed": seed,
        "max_tokens": 128,
    }
    described = await post_json(f"{base_url.removesuffix('/v1')}/tokenize", {"model": model, **_prompt(body)})
    reply = await stream_chat(base_url, body)
    prompt = int(reply.usage.get("prompt_tokens", 0))
    ids: list[int] = described["tokens"] if described else []
    turn = Turn(session.name, kind, prompt, _reusable(session, ids, prompt), reply.cached_tokens, 1000 * reply.ttft)
    session.ids, session.last = ids, reply
    session.answer(reply)
    return turn


def _prompt(body: dict[str, Any]) -> dict[str, Any]:
    return {"messages": body["messages"], "tools": body["tools"]}


def _reusable(session: _Session, ids: Sequence[int], prompt: int) -> int:
    """What of the prompt was in the last prompt and its reply; a server without `/tokenize` is believed to go on."""
    if session.last is None:
        return 0
    before = session.last.usage
    whole = int(before.get("prompt_tokens", 0)) + int(before.get("completion_tokens", 0))
    shared = next(
        (i for i, (a, b) in enumerate(zip(session.ids, ids, strict=False)) if a != b), min(len(session.ids), len(ids))
    )
    if session.ids and shared < len(session.ids):
        return shared
    return min(whole, prompt - 1)


def summary(turns: Sequence[Turn]) -> list[tuple[str, str, int, float, float]]:
    """By client and kind: how many turns, reused over reusable, median TTFT in milliseconds."""
    rows: list[tuple[str, str, int, float, float]] = []
    for client in CLIENTS:
        for kind in ("first", "tool", "user"):
            chosen = [turn for turn in turns if turn.session.startswith(client) and turn.kind == kind]
            if not chosen:
                raise BenchError("no turn was played")
            reusable = sum(turn.reusable for turn in chosen)
            share = sum(min(turn.reused, turn.reusable) for turn in chosen) / reusable if reusable else 1.0
            rows.append((client, kind, len(chosen), share, statistics.median(turn.ttft_ms for turn in chosen)))
    return rows
