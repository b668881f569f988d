"""A request on its way through the engine: what it asks for, its sequences, and what they give.

Every protocol encodes the same: batches of events, and one `Finished` a sequence.
"""

import asyncio
import dataclasses
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

from tool_parsers.events import CallAborted, CallEnd, CallStart, Event, Malformed, Text
from vllm_mlx.api.errors import ApiError, of_engine, server_error
from vllm_mlx.api.record import Take
from vllm_mlx.chat.conversation import Conversation
from vllm_mlx.chat.decoder import TurnDecoder
from vllm_mlx.chat.model import Prompt
from vllm_mlx.chat.reply import Reply, fold
from vllm_mlx.engine.interface import EngineError, Generation
from vllm_mlx.engine.protocol import Delta, Progress, TokenLogprobs

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What a request of any protocol comes down to.

    `sampling` holds only what the client set, by `Sampling` names. `max_tokens` None: all that is left of the
    context. `logprobs`: how many alternatives each token is reported with (None: none are). `echo` comes before
    the reply's own text. `call_prefix` begins the id of every call.
    """

    conversation: Conversation
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
    priority: int = 0
    logprobs: int | None = None
    token_ids: bool = False
    echo: str = ""
    call_prefix: str = "call_"

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

    def __add__(self, other: "Usage") -> "Usage":
        """The usage of one prompt with several replies: the prompt counts once."""
        assert self.prompt == other.prompt
        return Usage(
            self.prompt,
            max(self.cached, other.cached),
            self.completion + other.completion,
            self.reasoning + other.reasoning,
        )


@dataclass(frozen=True, slots=True)
class Token:
    """One token that counts, for a request that wants them."""

    id: int
    logprobs: TokenLogprobs | None


@dataclass(frozen=True, slots=True)
class Finished:
    """How a sequence ended. `stop` is the stop string or the stop token's id that ended it, if one did."""

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


class Turn:
    """One sequence of a job.

    `on_close` is called once, when the sequence no longer runs; `end` says then how it went (`abort`: the client
    left). Times are of `time.monotonic`: `begun` is when the engine took the sequence up, `first` and `last` are its
    first and latest tokens, `gaps` the seconds between steps.
    """

    def __init__(
        self,
        choice: int,
        request: GenerationRequest,
        prompt: Prompt,
        decoder: TurnDecoder,
        generation: Generation,
        *,
        on_close: Callable[["Turn"], None],
    ) -> None:
        self.choice = choice
        self.request = request
        self.prompt = prompt
        self.take: Take | None = None
        self.cached_tokens = 0
        self.submitted = time.monotonic()
        self.begun: float | None = None
        self.first: float | None = None
        self.last: float | None = None
        self.gaps: list[float] = []
        self.finished: Finished | None = None
        self.end: Literal["stop", "length", "tool_calls", "error", "abort"] = "abort"
        self._decoder = decoder
        self._generation = generation
        self._on_close = on_close
        self._calls = 0
        self._aborted = False
        self._running = True
        self._closed = False

    @property
    def usage(self) -> Usage:
        """The counts until now."""
        return Usage(len(self.prompt.ids), self.cached_tokens, self._decoder.tokens, self._decoder.reasoning_tokens)

    async def run(self) -> AsyncGenerator[Batch, None]:
        """A batch for each step that gave something; the last one has `finished`. Raises `ApiError`."""
        if self.request.echo:
            yield Batch(self.choice, [Text(self.request.echo)])
        try:
            async for message in self._generation:
                if self.begun is None:
                    self.begun = time.monotonic()
                if isinstance(message, Progress):
                    continue
                batch = self._step(message)
                if batch.events or batch.tokens or batch.finished:
                    yield batch
                if batch.finished:
                    return
            raise server_error("the engine ended the reply without saying why", "engine_error")
        except (ApiError, EngineError) as error:
            self.end = "error"
            raise (error if isinstance(error, ApiError) else of_engine(error)) from error
        finally:
            self.close()

    def close(self) -> None:
        """Frees the slot. Harmless after the end."""
        if self._running:
            self._running = False
            self._generation.cancel()
        if not self._closed:
            self._closed = True
            self._on_close(self)

    def _step(self, delta: Delta) -> Batch:
        """One delta's events; `finished` once the reply is over, by the engine's word or by the text's."""
        self._note(delta)
        before = self._decoder.tokens
        events: list[Event] = []
        enough = self._accept(self._decoder.feed(delta.tokens, delta.raw), events)
        tokens = self._tokens(delta, self._decoder.tokens - before)
        ended = self._decoder.ended
        if not enough and ended is None and delta.finish is None:
            return Batch(self.choice, events, tokens)
        self._running = False
        if delta.finish is None:
            self._generation.finish(self._decoder.tokens if ended is None else ended.keep)
        if not enough:
            self._accept(self._decoder.finish(), events)
        limit_hit = delta.finish == "length" and not enough and ended is None
        if self.take is not None:
            self.take.end("length" if limit_hit else "stop")
        self.finished = self._finish(limit_hit, delta.stop_id if ended is None else ended.stop)
        self.end = self.finished.reason
        return Batch(self.choice, events, tokens, self.finished)

    def _note(self, delta: Delta) -> None:
        now = time.monotonic()
        if self.last is None:
            self.first = now
        else:
            self.gaps.append(now - self.last)
        self.last = now
        if self.take is not None:
            self.take.add(delta)
        if delta.cached_tokens is not None:
            self.cached_tokens = delta.cached_tokens

    def _tokens(self, delta: Delta, counted: int) -> list[Token]:
        if not self.request.wants_tokens:
            return []
        logprobs: Sequence[TokenLogprobs | None] = delta.logprobs or [None] * len(delta.tokens)
        return [Token(*pair) for pair in zip(delta.tokens[:counted], logprobs, strict=False)]

    def _accept(self, events: Sequence[Event], kept: list[Event]) -> bool:
        """Gives calls their ids and logs what was dropped; True after the only call that the client wants."""
        for event in events:
            match event:
                case CallStart(id=None):
                    event = dataclasses.replace(event, id=new_call_id(self.request.call_prefix))
                case CallEnd():
                    self._calls += 1
                case CallAborted():
                    self._aborted = True
                case Malformed(reason, length, name):
                    log.warning("dropped %d characters of a call of %s: %s", length, name or "an unknown tool", reason)
            kept.append(event)
            if self._calls and not self.request.conversation.tool_choice.parallel:
                return True
        return False

    def _finish(self, limit_hit: bool, stop: str | int | None) -> Finished:
        """How the reply ended; raises `ApiError` when it must not look as if it had ended well."""
        if limit_hit:
            return Finished("length", None, self.usage)
        if self._aborted:
            raise server_error("the model's reply ended inside a tool call, which must not run", "incomplete_tool_call")
        if self._calls:
            return Finished("tool_calls", None, self.usage)
        if self.request.conversation.tool_choice.mode in ("required", "named"):
            raise server_error("the model made no tool call although tool_choice asks for one", "tool_call_missing")
        return Finished("stop", stop, self.usage)


class Job:
    """One accepted request: `n` sequences over one prompt."""

    def __init__(self, id: str, request: GenerationRequest, prompt: Prompt, turns: Sequence[Turn]) -> None:
        self.id = id
        self.request = request
        self.prompt = prompt
        self.turns = turns
        self.created = int(time.time())

    @property
    def prompt_tokens(self) -> int:
        """How many tokens the prompt has, known before the engine has seen it."""
        return len(self.prompt.ids)

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
        events: list[list[Event]] = [[] for _ in self.turns]
        tokens: list[list[Token]] = [[] for _ in self.turns]
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                events[batch.choice] += batch.events
                tokens[batch.choice] += batch.tokens
        outcomes = []
        for turn in self.turns:
            assert turn.finished is not None
            outcomes.append(Outcome(fold(events[turn.choice]), tokens[turn.choice], turn.finished))
        return outcomes

    def close(self) -> None:
        """Frees the slots of all sequences that still run. Harmless after the end."""
        for turn in self.turns:
            turn.close()


async def _merged(turns: Sequence[Turn]) -> AsyncGenerator[Batch, None]:
    """Several sequences as one stream."""
    queue: asyncio.Queue[Batch | BaseException | None] = asyncio.Queue()

    async def pump(turn: Turn) -> None:
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


def new_call_id(prefix: str) -> str:
    """An id that no other call has, in any request or any run of the server."""
    return prefix + secrets.token_hex(12)
