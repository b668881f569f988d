"""`bench agent`: sessions as coding agents have them, and how much of each prompt a server did not compute again."""

import asyncio
import json
import random
import statistics
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, get_args

from vllm_mlx.bench.http import BenchError, Stream, post_json, stream_chat

Client = Literal["keeps", "drops", "reserialises"]
Kind = Literal["first", "tool", "answer", "user"]
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
    """One request of a session. `reusable` is how far the prompt goes on from the last one and its reply.

    `reused` is None where the server does not say.
    """

    session: str
    kind: Kind
    prompt: int
    reusable: int
    reused: int | None
    ttft_ms: float


@dataclass(slots=True)
class _Session:
    """One conversation and what is known of its last request.

    `replayed`: the session goes on with calls of its own instead of the model's. `ids` are the last prompt's, where a
    server tells them; `known` is how many tokens the server has of the session, which the next prompt may go on from.
    """

    name: str
    client: Client
    rng: random.Random
    replayed: bool = False
    messages: list[dict[str, Any]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    known: int = 0

    def text(self, words: int) -> str:
        sizes = [self.rng.randint(2, 7) for _ in range(words)]
        return " ".join("".join(self.rng.choices(string.ascii_lowercase, k=size)) for size in sizes)

    def ask(self) -> None:
        """A new message of the user's."""
        self.messages.append({"role": "user", "content": f"Read {self.rng.choice(_FILES)}"})

    def go_on(self, kind: Kind, reply: Stream) -> None:
        """Takes the reply into the history as this client does, with results for its calls or a new question.

        A call that was cut is none.
        """
        self.known = int(reply.usage.get("prompt_tokens", 0))
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if self.replayed and kind != "answer":
            calls = [self._call()]
        else:
            self.known += int(reply.usage.get("completion_tokens", 0))
            calls = reply.calls if reply.finish == "tool_calls" else []
            message["content"] = reply.content or None
            if reply.reasoning and self.client != "drops":
                message["reasoning_content"] = reply.reasoning
        if calls:
            message["tool_calls"] = [self._returned(call) for call in calls]
        self.messages.append(message)
        if not calls:
            self.ask()
        for call in calls:
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": self.text(25)})

    def _call(self) -> dict[str, Any]:
        arguments = json.dumps({"path": self.rng.choice(_FILES)})
        id = f"call_{self.rng.getrandbits(96):024x}"
        return {"id": id, "type": "function", "function": {"name": "read_file", "arguments": arguments}}

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
    replayed: bool = False,
    tool_choice: str = "required",
    reference_url: str | None = None,
    progress: Callable[[int, int], None],
) -> list[Turn]:
    """For each kind of client two sessions, one request of each in turn: `turns` in a tool loop, then one that
    may be answered without calls, and after `pause` seconds one for a new message of the user's.

    Args:
        replayed: the sessions' calls are made up here, for a model that makes none.
        tool_choice: `required` makes loops of calls; `auto` is for a server that cannot be held to them.
        reference_url: a server of the same model that has `/tokenize`, where the measured one does not.

    Raises:
        BenchError: a server did not answer as it should.
    """
    rng = random.Random(seed)
    tokenize_url = (reference_url or base_url).removesuffix("/v1") + "/tokenize"
    played: list[Turn] = []
    total, done = len(CLIENTS) * 2 * (turns + 2), count(1)

    async def request(session: _Session, kind: Kind) -> Turn:
        fields = {"model": model, "temperature": 1.0, "seed": rng.getrandbits(31)}
        if kind == "answer":
            fields["max_tokens"] = 64
        else:
            fields |= {"max_tokens": 8} if replayed else {"max_tokens": 128, "tool_choice": tool_choice}
        turn = await _played(base_url, tokenize_url, session, kind, fields)
        progress(next(done), total)
        return turn

    for client in CLIENTS:
        sessions = [_Session(f"{client}-{letter}", client, random.Random(rng.random()), replayed) for letter in "ab"]
        for session in sessions:
            session.messages.append({"role": "system", "content": f"You are an agent. {session.text(30)}"})
            session.ask()
        for turn in range(turns + 1):
            kind: Kind = "answer" if turn == turns else "tool" if turn else "first"
            played += [await request(session, kind) for session in sessions]
        for session in sessions:
            await asyncio.sleep(pause)
            played.append(await request(session, "user"))
    return played


async def _played(base_url: str, tokenize_url: str, session: _Session, kind: Kind, fields: dict[str, Any]) -> Turn:
    """One request, with these fields beside the conversation, and what the session makes of its reply."""
    conversation = {"messages": session.messages, "tools": _TOOLS}
    described = await post_json(tokenize_url, conversation)
    reply = await stream_chat(base_url, {**conversation, **fields})
    prompt = int(reply.usage.get("prompt_tokens", 0))
    ids: list[int] = described["tokens"] if described else []
    turn = Turn(session.name, kind, prompt, _reusable(session, ids, prompt), reply.cached_tokens, 1000 * reply.ttft)
    session.ids = ids
    session.go_on(kind, reply)
    return turn


def _reusable(session: _Session, ids: Sequence[int], prompt: int) -> int:
    """What of the prompt the server has had before; where none tokenizes, the prompt is believed to go on."""
    if not session.known:
        return 0
    shared = next(
        (i for i, (a, b) in enumerate(zip(session.ids, ids, strict=False)) if a != b), min(len(session.ids), len(ids))
    )
    if session.ids and shared < len(session.ids):
        return shared
    return min(session.known, prompt - 1)


@dataclass(frozen=True, slots=True)
class Summary:
    """Turns of one kind of client: reused of reusable tokens, and medians of tokens computed and of milliseconds.

    The first two are None where the server does not say what it reuses.
    """

    client: Client
    kind: Kind
    turns: int
    share: float | None
    computed: float | None
    ttft_ms: float


def summary(turns: Sequence[Turn]) -> list[Summary]:
    """By client and kind."""
    rows: list[Summary] = []
    for client in CLIENTS:
        for kind in get_args(Kind):
            chosen = [turn for turn in turns if turn.session.startswith(client) and turn.kind == kind]
            if not chosen:
                raise BenchError("no turn was played")
            ttft = statistics.median(turn.ttft_ms for turn in chosen)
            rows.append(Summary(client, kind, len(chosen), _share(chosen), _computed(chosen), ttft))
    return rows


def _share(turns: Sequence[Turn]) -> float | None:
    told = [(min(turn.reused, turn.reusable), turn.reusable) for turn in turns if turn.reused is not None]
    reusable = sum(of for _, of in told)
    return (sum(part for part, _ in told) / reusable if reusable else 1.0) if told else None


def _computed(turns: Sequence[Turn]) -> float | None:
    told = [turn.prompt - turn.reused for turn in turns if turn.reused is not None]
    return statistics.median(told) if told else None
