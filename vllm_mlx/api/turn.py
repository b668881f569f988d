"""One sequence of a request: from the engine's deltas to batches of events."""

import dataclasses
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Literal

from tool_parsers.events import CallAborted, CallEnd, CallStart, Event, Malformed, Text
from vllm_mlx.api.errors import ApiError, of_engine, server_error
from vllm_mlx.api.generation import Batch, Finished, GenerationRequest, Token, Usage
from vllm_mlx.api.loops import TOKENS, repeats
from vllm_mlx.api.record import Take
from vllm_mlx.chat.conversation import new_call_id
from vllm_mlx.chat.decoder import TurnDecoder
from vllm_mlx.chat.model import Prompt
from vllm_mlx.chat.reply import Reply, fold
from vllm_mlx.engine.interface import EngineError, Generation
from vllm_mlx.engine.protocol import Delta, Miss, Progress, TokenLogprobs

log = logging.getLogger(__name__)

TELL_SECONDS = 10.0
"""How often the log says how far a long prefill is."""
LOOK_TOKENS = 64
"""How often an answer that has a form is looked at for endless repetition."""


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
        self.miss: Miss | None = None
        self.prefilled = 0
        self.submitted = self._told = time.monotonic()
        self.begun: float | None = None
        self.first: float | None = None
        self.last: float | None = None
        self.gaps: list[float] = []
        self.unconstrained_calls = 0
        self.finished: Finished | None = None
        self.end: Literal["stop", "length", "tool_calls", "error", "abort"] = "abort"
        self._decoder = decoder
        self._generation = generation
        self._on_close = on_close
        self._events: list[Event] = []
        self._ids: list[int] = []
        self._look = TOKENS
        self._whole = True
        self._calls = 0
        self._aborted = False
        self._running = True
        self._closed = False

    @property
    def usage(self) -> Usage:
        """The counts until now."""
        return Usage(len(self.prompt.ids), self.cached_tokens, self._decoder.tokens, self._decoder.reasoning_tokens)

    def summary(self) -> str:
        """How it went, for the log: numbers only."""
        usage = self.usage
        parts = [f"{self.end}, {usage.prompt} prompt tokens ({usage.cached} cached), {usage.completion} generated"]
        if self.first is not None and self.last is not None:
            parts.append(f"first after {self.first - self.submitted:.2f} s")
            if self.gaps and self.last > self.first:
                parts.append(f"then {len(self.gaps) / (self.last - self.first):.1f} steps/s")
        return ", ".join(parts)

    def state(self) -> dict[str, Any]:
        """How far it is: numbers only."""
        phase = "waiting" if self.begun is None else "prefill" if self.first is None else "decode"
        return {
            "state": phase,
            "seconds": round(time.monotonic() - self.submitted, 1),
            "prompt_tokens": self.usage.prompt,
            "prefilled_tokens": self.prefilled if self.first is None else self.usage.prompt,
            "generated_tokens": self.usage.completion,
        }

    @property
    def reply(self) -> Reply:
        """What the client got until now, but for what it was echoed."""
        return fold(self._events)

    @property
    def written(self) -> list[int] | None:
        """All token ids of the reply: nothing but its limit cut it short, nor was it or its prompt altered."""
        altered = self.request.echo or self.request.truncate_prompt
        return None if altered or not self._whole or self.end not in ("stop", "tool_calls", "length") else self._ids

    async def run(self) -> AsyncGenerator[Batch, None]:
        """A batch for each step that gave something; the last one has `finished`.

        Raises:
            ApiError: the engine failed, or the reply ended in a way that must not look as if all were well.
        """
        if self.request.echo:
            yield Batch(self.choice, [Text(self.request.echo)])
        try:
            async for message in self._generation:
                if self.begun is None:
                    self.begun = time.monotonic()
                if isinstance(message, Progress):
                    self._note_progress(message)
                    continue
                batch = self._step(message)
                if batch.events or batch.tokens or batch.finished:
                    yield batch
                if batch.finished:
                    return
                if not self._running:
                    raise self._failure()
            raise EngineError("internal", "the engine ended the reply without saying why")
        except (ApiError, EngineError) as error:
            self.end = "error"
            if self.take is not None and isinstance(error, EngineError):
                self.take.end(None)
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
        stuck = delta.finish is None and self._repeats()
        if not enough and ended is None and delta.finish is None and not stuck:
            return Batch(self.choice, events, tokens)
        self._running = False
        if delta.finish is None:
            self._generation.finish(self._decoder.tokens if ended is None else ended.keep)
        if not enough:
            self._accept(self._decoder.finish(), events)
        self._whole = self._whole and not enough and ended is None
        limit_hit = (delta.finish == "length" or stuck) and not enough and ended is None
        if self.take is not None:
            self.take.end("length" if limit_hit else "stop")
        stop_id = delta.stop_id if delta.stop_id in self.request.stop_token_ids else None
        self.finished = self._finish(limit_hit, stop_id if ended is None else ended.stop)
        if self.finished is not None:
            self.end = self.finished.reason
        return Batch(self.choice, events, tokens, self.finished)

    def _repeats(self) -> bool:
        """Whether the answer will not end by itself: its form may not let it."""
        request, count = self.request, len(self._ids)
        if request.answer is None or request.ignore_eos or count < max(self._look, request.min_tokens):
            return False
        self._look = count + LOOK_TOKENS
        found = repeats(self._ids)
        if found:
            log.warning("an answer repeats itself without end: it is cut after %d tokens", count)
        return found

    def _note_progress(self, progress: Progress) -> None:
        self.prefilled = progress.done
        now = time.monotonic()
        if now - self._told >= TELL_SECONDS:
            self._told = now
            log.info("%s: %d of %d prompt tokens are prefilled", progress.id, progress.done, progress.total)

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
            self.miss = delta.miss
        self.unconstrained_calls += delta.unconstrained_calls
        self._ids += delta.tokens
        self._whole = self._whole and delta.raw is None

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
            self._events.append(event)
            if self._calls and not self.request.conversation.tool_choice.parallel:
                return True
        return False

    def _finish(self, limit_hit: bool, stop: str | int | None) -> Finished | None:
        """How the reply ended; None: it must not look as if it had ended well, and `_failure` says why."""
        if limit_hit:
            return Finished("length", None, self.usage)
        if self._aborted:
            return None
        if self._calls:
            return Finished("tool_calls", None, self.usage)
        forced = self.request.conversation.tool_choice.mode in ("required", "named")
        return None if forced else Finished("stop", stop, self.usage)

    def _failure(self) -> ApiError:
        if self._aborted:
            return server_error(
                "the model's reply ended inside a tool call, which must not run", "incomplete_tool_call"
            )
        return server_error("the model made no tool call although tool_choice asks for one", "tool_call_missing")
