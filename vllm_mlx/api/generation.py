"""A request on its way through the engine: what it asks for, its sequences, and what they give.

Every protocol encodes the same: batches of events, and one `Finished` a sequence.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tool_parsers.events import Event
from vllm_mlx.chat.conversation import Conversation
from vllm_mlx.chat.model import Prompt
from vllm_mlx.chat.reply import Reply, fold
from vllm_mlx.engine.protocol import Structured, TokenLogprobs

if TYPE_CHECKING:
    from vllm_mlx.api.turn import Turn


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What a request of any protocol comes down to.

    `prompts` are continued as they are, instead of the conversation, and nothing in their replies is parsed; `n`
    replies each. `sampling` holds only what the client set, by `Sampling` names. `max_tokens` None: all that
    is left of the context. `logprobs`: how many alternatives each token is reported with (None: none are). `echo`
    comes before the reply's own text. `call_prefix` begins the id of every call. `answer` is the form of the visible
    text. `drop_turns`: the oldest turns may be left out of a conversation that does not fit.
    """

    conversation: Conversation
    prompts: tuple[Prompt, ...] = ()
    model: str | None = None
    stream: bool = False
    n: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    sampling: Mapping[str, Any] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    thinking_budget: int | None = None
    truncate_prompt: int | None = None
    drop_turns: bool = False
    priority: int = 0
    logprobs: int | None = None
    token_ids: bool = False
    echo: str = ""
    call_prefix: str = "call_"
    answer: Structured | None = None

    @property
    def wants_tokens(self) -> bool:
        """Whether the reply reports its tokens beside its text."""
        return self.token_ids or self.logprobs is not None


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one sequence; `cached` is part of `prompt`, `reasoning` is part of `completion`."""

    prompt: int
    cached: int
    completion: int
    reasoning: int

    @property
    def total(self) -> int:
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True)
class Token:
    """One token that counts, for a request that wants them."""

    id: int
    logprobs: TokenLogprobs | None


@dataclass(frozen=True, slots=True)
class Finished:
    """How a sequence ended. `stop` is what ended it of what the client gave: a stop string, a stop token's id."""

    reason: Literal["stop", "length", "tool_calls"]
    stop: str | int | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class Batch:
    """What one engine step gave one choice of a request (numbered from 0); `finished` is on its last batch."""

    choice: int
    events: Sequence[Event]
    tokens: Sequence[Token] = ()
    finished: Finished | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The whole reply of one choice: the fold of its batches."""

    reply: Reply
    tokens: Sequence[Token]
    finished: Finished
    batches: Sequence[Batch]


class Job:
    """One accepted request: `n` sequences over each of its prompts."""

    def __init__(self, id: str, request: GenerationRequest, turns: Sequence["Turn"]) -> None:
        self.id = id
        self.request = request
        self.turns = turns
        self.created = int(time.time())

    @property
    def prompt(self) -> Prompt:
        """The first prompt, and for conversations the only one."""
        return self.turns[0].prompt

    @property
    def prompt_tokens(self) -> int:
        """How many tokens the prompt has, known before the engine has seen it."""
        return len(self.prompt.ids)

    @property
    def usage(self) -> Usage:
        """The counts until now, of all sequences; each prompt counts once."""
        usages = [turn.usage for turn in self.turns]
        firsts = usages[:: self.request.n]
        return Usage(
            sum(usage.prompt for usage in firsts),
            sum(usage.cached for usage in firsts),
            sum(usage.completion for usage in usages),
            sum(usage.reasoning for usage in usages),
        )

    @property
    def cached_tokens(self) -> int:
        """How many of them were not prefilled; 0 until the engine's first step."""
        return max(turn.cached_tokens for turn in self.turns)

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Everything that the sequences give, as it comes. May be iterated once.

        Raises:
            ApiError: a sequence failed; the others are cancelled.
        """
        source = self.turns[0].run() if len(self.turns) == 1 else _merged(self.turns)
        try:
            async with aclosing(source):
                async for batch in source:
                    yield batch
        finally:
            self.close()

    async def outcomes(self) -> list[Outcome]:
        """The whole replies, one a choice: the fold of what `batches` gives. Raises `ApiError` as it does."""
        given: list[list[Batch]] = [[] for _ in self.turns]
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                given[batch.choice].append(batch)
        return [_outcome(batches) for batches in given]

    def close(self) -> None:
        """Frees the slots of all sequences that still run. Harmless after the end."""
        for turn in self.turns:
            turn.close()


def _outcome(batches: Sequence[Batch]) -> Outcome:
    finished = batches[-1].finished
    assert finished is not None
    reply = fold(event for batch in batches for event in batch.events)
    return Outcome(reply, [token for batch in batches for token in batch.tokens], finished, batches)


async def _merged(turns: Sequence["Turn"]) -> AsyncGenerator[Batch, None]:
    """Several sequences as one stream."""
    queue: asyncio.Queue[Batch | BaseException | None] = asyncio.Queue()

    async def pump(turn: "Turn") -> None:
        async for batch in turn.run():
            queue.put_nowait(batch)

    def ended(task: asyncio.Task[None]) -> None:
        queue.put_nowait(None if task.cancelled() else task.exception())

    tasks = [asyncio.create_task(pump(turn)) for turn in turns]
    for task in tasks:
        task.add_done_callback(ended)
    running = len(tasks)
    try:
        while running:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
