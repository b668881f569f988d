"""What all routes share: settings, the model's text side, the engine. Turns a request into a running job."""

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import msgspec

from vllm_mlx.api.constraints import constraint_of
from vllm_mlx.api.errors import context_length_exceeded, invalid, not_found, of_engine, overloaded
from vllm_mlx.api.generation import GenerationRequest, Job
from vllm_mlx.api.metrics import Metrics
from vllm_mlx.api.record import Recorder
from vllm_mlx.api.response_store import ResponseStore
from vllm_mlx.api.truncation import shortened
from vllm_mlx.api.turn import Turn
from vllm_mlx.chat.conversation import Conversation, Message, ToolCall
from vllm_mlx.chat.decoder import TurnDecoder
from vllm_mlx.chat.model import ChatModel, Prompt
from vllm_mlx.chat.output import OutputParser
from vllm_mlx.chat.pacing import Pacer
from vllm_mlx.chat.stops import StopStrings
from vllm_mlx.chat.template import TemplateError
from vllm_mlx.config import ServeConfig
from vllm_mlx.engine.interface import Engine, EngineError
from vllm_mlx.engine.protocol import Sampling, Submit, Thinking

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger(__name__)


class Service:
    """One model behind all protocols."""

    def __init__(self, config: ServeConfig, chat: ChatModel, engine: Engine, recorder: Recorder | None = None) -> None:
        self.config = config
        self.chat = chat
        self.engine = engine
        self.recorder = recorder
        self.started = int(time.time())
        self.responses = ResponseStore()
        self.live: set[Turn] = set()
        """Sequences that run or wait."""
        self.metrics = Metrics(self.names[0], self.live, lambda: engine.info.kv_tokens)
        # One thread, so that a reply is remembered before the next prompt is rendered.
        self._text = ThreadPoolExecutor(1, "text")

    def close(self) -> None:
        """Waits for what is still being remembered."""
        self._text.shutdown()

    async def off_loop(self, work: Callable[[T], R], argument: T) -> R:
        """Renders and tokenizes aside: a long prompt takes a second, and running streams must not wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._text, work, argument)

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

    def known_ids(self, ids: Sequence[int], param: str) -> list[int]:
        """Token ids of the model. Raises `ApiError` for others."""
        size = self.engine.info.vocab_size
        for index, id in enumerate(ids):
            if not 0 <= id < size:
                where = f"{param}[{index}]"
                raise invalid(f"{where}: {id} is no token of this model, which has {size}", where)
        return list(ids)

    def render(self, conversation: Conversation) -> Prompt:
        """The prompt of a conversation. Raises `ApiError` when the chat template refuses it."""
        try:
            return self.chat.render(conversation)
        except TemplateError as error:
            raise invalid(str(error), "messages", "template_error") from error

    def prompts(self, request: GenerationRequest) -> Sequence[Prompt]:
        """What the model continues, cut to what the client wants of it. Raises `ApiError` for what does not fit."""
        prompts = request.prompts or (self.render(request.conversation),)
        return [self._fitted(prompt, request) for prompt in prompts]

    def shortened(self, request: GenerationRequest) -> GenerationRequest:
        """The request without the turns that it may drop and that leave no room for a reply. Raises `ApiError`."""
        if not request.drop_turns:
            return request
        most = self.max_model_len
        room = min(request.max_tokens or most, most // 4)
        conversation = shortened(request.conversation, most, lambda some: len(self.render(some).ids) + room <= most)
        gone = len(request.conversation.messages) - len(conversation.messages)
        if gone:
            log.info("truncation auto: the %d oldest messages are left out", gone)
        return dataclasses.replace(request, conversation=conversation)

    async def start(self, id: str, request: GenerationRequest) -> Job:
        """Submits the sequences of a request.

        Raises:
            ApiError: a prompt does not fit the context or cannot be rendered, there is no room, or no engine runs.
        """
        self.check_model(request.model)
        self._check_tokens(request)
        request = await self.off_loop(self.shortened, request)
        prompts = await self.off_loop(self.prompts, request)
        self.metrics.restored(sum(prompt.restored for prompt in prompts))
        self._check_room(request.n * len(prompts))
        turns: list[Turn] = []
        try:
            for choice in range(request.n * len(prompts)):
                prompt = prompts[choice // request.n]
                name = f"{id}-{choice}"
                generation = self.engine.submit(self._submit(name, choice, request, prompt))
                decoder = self._decoder(request, prompt)
                turn = Turn(choice, request, prompt, decoder, generation, on_close=partial(self._closed, name))
                turns.append(turn)
                self.live.add(turn)
        except EngineError as error:
            for turn in turns:
                turn.close()
            raise of_engine(error) from error
        return Job(id, request, turns)

    def _closed(self, name: str, turn: Turn) -> None:
        self.live.discard(turn)
        self.metrics.ended(turn)
        log.info("%s: %s", name, turn.summary())
        if turn.miss is not None:
            log.info("%s: the cache ends at token %d: %s", name, turn.miss.at, turn.miss.kind)
            if log.isEnabledFor(logging.DEBUG):
                cached, prompt = self.chat.decode(turn.miss.cached), self.chat.decode(turn.miss.prompt)
                log.debug("%s: the cache goes on with %r, the prompt with %r", name, cached, prompt)
        if turn.finished is not None and not turn.request.prompts:
            loop = asyncio.get_running_loop()
            self._text.submit(self._remember, turn, loop).add_done_callback(Future.result)

    def _remember(self, turn: Turn, loop: asyncio.AbstractEventLoop) -> None:
        """Keeps a reply's thought, and its ids, so that the prompt of the next turn begins with the ids of this one.

        A user may answer a reply without calls next: what the conversation will look like then can be prefilled.
        """
        reply, conversation = turn.reply, turn.request.conversation
        calls = tuple(ToolCall(call.id or "", call.name, call.arguments) for call in reply.tool_calls)
        message = Message("assistant", reply.content or "", reasoning=reply.reasoning, tool_calls=calls)
        self.chat.remember_thought(conversation, message)
        if turn.written is not None:
            self.chat.remember(conversation, turn.prompt, message, turn.written, cut=turn.end == "length")
        if self.config.engine.prewarm and not calls and turn.choice == 0:
            coming = self.chat.upcoming(conversation, message)
            with contextlib.suppress(RuntimeError):  # The loop is closed: the server stops.
                loop.call_soon_threadsafe(self.engine.prewarm, coming)

    def _check_room(self, wanted: int) -> None:
        settings = self.config.engine
        most = settings.max_num_seqs + settings.max_waiting_seqs
        if len(self.live) + wanted > most:
            raise overloaded(f"{len(self.live)} sequences run or wait already, of at most {most}", "queue_full", 5)

    def _check_tokens(self, request: GenerationRequest) -> None:
        size = self.engine.info.vocab_size
        for name, ids in (
            ("logit_bias", request.sampling.get("logit_bias", ())),
            ("stop_token_ids", request.stop_token_ids),
        ):
            if unknown := next((id for id in ids if id >= size), None):
                raise invalid(f"{name}: {unknown} is no token of this model, which has {size}", name)

    def _fitted(self, prompt: Prompt, request: GenerationRequest) -> Prompt:
        """The prompt's last tokens, if the client asked for no more of it; -1: as many as leave room for the reply."""
        keep = request.truncate_prompt
        if keep == -1:
            keep = max(1, self.max_model_len - (request.max_tokens or 1))
        if keep is not None:
            prompt = dataclasses.replace(prompt, ids=list(prompt.ids[-keep:]))
        if len(prompt.ids) >= self.max_model_len:
            raise context_length_exceeded(len(prompt.ids), self.max_model_len)
        return prompt

    def _decoder(self, request: GenerationRequest, prompt: Prompt) -> TurnDecoder:
        if request.prompts:
            parser = OutputParser(None, None, turn=self.chat.family.turn)
            stops = StopStrings(request.stop, include=request.include_stop)
            return TurnDecoder(self.chat.detokenizer(), parser, stops, Pacer("value"))
        return self.chat.decoder(
            request.conversation,
            prompt,
            stop=request.stop,
            include_stop=request.include_stop,
            streaming=self.config.tool_call_streaming,
        )

    def _submit(self, id: str, choice: int, request: GenerationRequest, prompt: Prompt) -> Submit:
        sampling = Sampling(**{**self.chat.sampling_defaults, **request.sampling})
        if sampling.seed is not None:
            sampling = msgspec.structs.replace(sampling, seed=sampling.seed + choice % request.n)
        room = self.max_model_len - len(prompt.ids)
        max_tokens = room if request.max_tokens is None else min(room, request.max_tokens)
        # What may not be drawn before the limit is never drawn.
        min_tokens = max_tokens if request.ignore_eos else min(request.min_tokens, max_tokens)
        # A role's opener is no stop, since a model may repeat the one that the prompt ends with.
        openers = self.chat.role_ids if min_tokens else ()
        return Submit(
            id=id,
            prompt=list(prompt.ids),
            max_tokens=max_tokens,
            sampling=sampling,
            stop_ids=[*self.chat.stop_ids, *request.stop_token_ids, *openers],
            min_tokens=min_tokens,
            thinking=Thinking(
                open=prompt.thinking_open,
                close_ids=list(self.chat.close_ids()),
                budget=request.thinking_budget,
                open_ids=[] if request.prompts else self.chat.open_ids(),
            ),
            logprobs=request.logprobs,
            priority=request.priority,
            grammar=constraint_of(request, self.chat, self.config.constrain_tool_calls),
        )
