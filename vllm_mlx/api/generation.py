"""Runs a request: render, submit, decode. Yields what every protocol encodes: events, then one `Finished`."""

import asyncio
import dataclasses
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from tool_parsers.events import CallAborted, CallEnd, CallStart, Event, Malformed
from vllm_mlx.api.errors import ApiError, context_length_exceeded, invalid, not_found, of_engine, server_error
from vllm_mlx.api.record import Recorder, Take
from vllm_mlx.chat.conversation import Conversation
from vllm_mlx.chat.decoder import TurnDecoder
from vllm_mlx.chat.model import ChatModel, Prompt
from vllm_mlx.chat.reply import Reply, fold
from vllm_mlx.chat.template import TemplateError
from vllm_mlx.config import ServeConfig
from vllm_mlx.engine.interface import Engine, EngineError, Generation
from vllm_mlx.engine.protocol import Delta, Sampling, Submit, Thinking

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What a request of any protocol comes down to. `sampling` holds only what the client set, by `Sampling` names."""

    conversation: Conversation
    model: str | None = None
    stream: bool = False
    n: int = 1
    max_tokens: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    stop: tuple[str, ...] = ()


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
class Finished:
    """The last thing that a sequence gives. `stop` is the stop string or the stop token's id that ended it, if one."""

    reason: Literal["stop", "length", "tool_calls"]
    stop: str | int | None
    usage: Usage


Batch = tuple[int, list[Event | Finished]]
"""What one engine step gave one choice of a request; a choice is numbered from 0."""


class Job:
    """One accepted request on its way through the engine: `n` sequences over one prompt."""

    def __init__(self, id: str, request: GenerationRequest, prompt: Prompt, turns: Sequence["Turn"]) -> None:
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
        try:
            if len(self.turns) == 1:
                async with aclosing(self.turns[0].run()) as events:
                    async for batch in events:
                        yield 0, batch
            else:
                async with aclosing(_merged(self.turns)) as batches:
                    async for merged in batches:
                        yield merged
        finally:
            self.close()

    async def replies(self) -> list[tuple[Reply, Finished]]:
        """The whole replies, one a choice: the fold of what `batches` gives. Raises `ApiError` as it does."""
        events: list[list[Event]] = [[] for _ in self.turns]
        finished: dict[int, Finished] = {}
        async with aclosing(self.batches()) as batches:
            async for choice, batch in batches:
                for event in batch:
                    if isinstance(event, Finished):
                        finished[choice] = event
                    else:
                        events[choice].append(event)
        return [(fold(of_choice), finished[choice]) for choice, of_choice in enumerate(events)]

    def close(self) -> None:
        """Frees the slots of all sequences that still run. Harmless after the end."""
        for turn in self.turns:
            turn.close()


async def _merged(turns: Sequence["Turn"]) -> AsyncGenerator[Batch, None]:
    """Several sequences as one stream."""
    queue: asyncio.Queue[Batch | ApiError | None] = asyncio.Queue()

    async def pump(choice: int, turn: "Turn") -> None:
        try:
            async for batch in turn.run():
                queue.put_nowait((choice, batch))
            queue.put_nowait(None)
        except ApiError as error:
            queue.put_nowait(error)

    tasks = [asyncio.ensure_future(pump(choice, turn)) for choice, turn in enumerate(turns)]
    running = len(tasks)
    try:
        while running:
            item = await queue.get()
            if isinstance(item, ApiError):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Turn:
    """One sequence of a job."""

    def __init__(
        self, request: GenerationRequest, prompt: Prompt, decoder: TurnDecoder, generation: Generation
    ) -> None:
        self.request = request
        self.prompt = prompt
        self.decoder = decoder
        self.generation = generation
        self.take: Take | None = None
        self.cached_tokens = 0
        self._calls = 0
        self._aborted = False
        self._running = True

    async def run(self) -> AsyncGenerator[list[Event | Finished], None]:
        """The events of each step, and `Finished` as the very last one. Raises `ApiError`."""
        try:
            async for message in self.generation:
                if isinstance(message, Delta) and (batch := self._step(message)):
                    yield batch
                if not self._running:
                    return
        except EngineError as error:
            raise of_engine(error) from error
        finally:
            self.close()
        raise server_error("the engine ended the reply without saying why", "engine_error")

    def close(self) -> None:
        """Frees the slot. Harmless after the end."""
        if self._running:
            self._running = False
            self.generation.cancel()

    def _step(self, delta: Delta) -> list[Event | Finished]:
        """One delta's events; `Finished` behind them once the reply is over, by the engine's word or the text's."""
        if self.take is not None:
            self.take.add(delta)
        if delta.cached_tokens is not None:
            self.cached_tokens = delta.cached_tokens
        batch: list[Event | Finished] = []
        enough = self._accept(self.decoder.feed(delta.tokens, delta.raw), batch)
        ended = self.decoder.ended
        if not enough and ended is None and delta.finish is None:
            return batch
        self._running = False
        if delta.finish is None:
            self.generation.finish(self.decoder.tokens if ended is None else ended.keep)
        if not enough:
            self._accept(self.decoder.finish(), batch)
        limit_hit = delta.finish == "length" and not enough and ended is None
        if self.take is not None:
            self.take.end("length" if limit_hit else "stop")
        stop = delta.stop_id if ended is None else ended.stop
        batch.append(self._finished(limit_hit, stop))
        return batch

    def _accept(self, events: Sequence[Event], batch: list[Event | Finished]) -> bool:
        """Gives calls their ids and logs what was dropped; True after the only call that the client wants."""
        for event in events:
            match event:
                case CallStart(id=None):
                    event = dataclasses.replace(event, id=new_call_id())
                case CallEnd():
                    self._calls += 1
                case CallAborted():
                    self._aborted = True
                case Malformed(reason, length, name):
                    log.warning("dropped %d characters of a call of %s: %s", length, name or "an unknown tool", reason)
            batch.append(event)
            if self._calls and not self.request.conversation.tool_choice.parallel:
                return True
        return False

    def _finished(self, limit_hit: bool, stop: str | int | None) -> Finished:
        """How the reply ended; raises `ApiError` when it must not look as if it had ended well."""
        usage = Usage(len(self.prompt.ids), self.cached_tokens, self.decoder.tokens, self.decoder.reasoning_tokens)
        if limit_hit:
            return Finished("length", None, usage)
        if self._aborted:
            raise server_error("the model's reply ended inside a tool call, which must not run", "incomplete_tool_call")
        if self._calls:
            return Finished("tool_calls", None, usage)
        if self.request.conversation.tool_choice.mode in ("required", "named"):
            raise server_error("the model made no tool call although tool_choice asks for one", "tool_call_missing")
        return Finished("stop", stop, usage)


def new_call_id() -> str:
    """An id that no other call has, in any request or any run of the server."""
    return f"call_{secrets.token_hex(12)}"


class Service:
    """What all routes share: settings, the model's text side, the engine."""

    def __init__(self, config: ServeConfig, chat: ChatModel, engine: Engine, recorder: Recorder | None = None) -> None:
        self.config = config
        self.chat = chat
        self.engine = engine
        self.recorder = recorder
        self.started = int(time.time())

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the model is served under; the first is the one that replies carry."""
        return self.config.served_model_name or (self.config.engine.model,)

    @property
    def max_model_len(self) -> int:
        """The context in tokens, prompt and reply together."""
        return self.engine.info.max_model_len

    def check_model(self, name: str | None) -> None:
        """Any name is answered unless the server is strict; an empty one never is."""
        if name == "":
            raise invalid("model must not be empty", "model")
        if name is not None and self.config.strict_model_name and name not in self.names:
            known = ", ".join(self.names)
            raise not_found(f"the model '{name}' does not exist; this server has {known}", "model", "model_not_found")

    def render(self, conversation: Conversation) -> Prompt:
        """The prompt of a conversation. Raises `ApiError` when the chat template refuses it."""
        try:
            return self.chat.render(conversation)
        except TemplateError as error:
            raise invalid(str(error), "messages", "template_error") from error

    def start(self, id: str, request: GenerationRequest) -> Job:
        """Renders the prompt and submits its sequences.

        Raises:
            ApiError: the prompt does not fit the context, cannot be rendered, or no engine runs.
        """
        self.check_model(request.model)
        prompt = self.render(request.conversation)
        room = self.max_model_len - len(prompt.ids)
        if room < 1:
            raise context_length_exceeded(len(prompt.ids), self.max_model_len)
        turns: list[Turn] = []
        try:
            for choice in range(request.n):
                generation = self.engine.submit(self._submit(f"{id}-{choice}", choice, request, prompt, room))
                turns.append(Turn(request, prompt, self._decoder(request, prompt), generation))
        except EngineError as error:
            for turn in turns:
                turn.close()
            raise of_engine(error) from error
        return Job(id, request, prompt, turns)

    def _decoder(self, request: GenerationRequest, prompt: Prompt) -> TurnDecoder:
        streaming = self.config.tool_call_streaming
        return self.chat.decoder(request.conversation, prompt, stop=request.stop, streaming=streaming)

    def _submit(self, id: str, choice: int, request: GenerationRequest, prompt: Prompt, room: int) -> Submit:
        sampling = Sampling(**{**self.chat.sampling_defaults, **request.sampling})
        if sampling.seed is not None and choice:
            sampling = msgspec.structs.replace(sampling, seed=sampling.seed + choice)
        return Submit(
            id=id,
            prompt=list(prompt.ids),
            max_tokens=room if request.max_tokens is None else min(room, request.max_tokens),
            sampling=sampling,
            stop_ids=list(self.chat.stop_ids),
            thinking=Thinking(open=prompt.thinking_open, close_ids=list(self.chat.close_ids())),
        )
