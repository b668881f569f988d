"""What all routes share: settings, the model's text side, the engine. Turns a request into a running job."""

import dataclasses
import time

import msgspec

from vllm_mlx.api.errors import context_length_exceeded, invalid, not_found, of_engine, overloaded
from vllm_mlx.api.generation import GenerationRequest, Job, Turn
from vllm_mlx.api.metrics import Metrics
from vllm_mlx.api.record import Recorder
from vllm_mlx.api.response_store import ResponseStore
from vllm_mlx.chat.conversation import Conversation
from vllm_mlx.chat.decoder import TurnDecoder
from vllm_mlx.chat.model import ChatModel, Prompt
from vllm_mlx.chat.template import TemplateError
from vllm_mlx.config import ServeConfig
from vllm_mlx.engine.interface import Engine, EngineError
from vllm_mlx.engine.protocol import Sampling, Submit, Thinking


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
        self.metrics = Metrics(self.names[0], self.live)

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

    def start(self, id: str, request: GenerationRequest, prompt: Prompt | None = None) -> Job:
        """Submits the sequences of a request, whose conversation is rendered unless it has a prompt of its own.

        Raises:
            ApiError: the prompt does not fit the context or cannot be rendered, there is no room, or no engine runs.
        """
        self.check_model(request.model)
        self._check_room(request.n)
        prompt = self._truncated(self.render(request.conversation) if prompt is None else prompt, request)
        room = self.max_model_len - len(prompt.ids)
        if room < 1:
            raise context_length_exceeded(len(prompt.ids), self.max_model_len)
        turns: list[Turn] = []
        try:
            for choice in range(request.n):
                generation = self.engine.submit(self._submit(f"{id}-{choice}", choice, request, prompt, room))
                turn = Turn(choice, request, prompt, self._decoder(request, prompt), generation, on_close=self._closed)
                turns.append(turn)
                self.live.add(turn)
        except EngineError as error:
            for turn in turns:
                turn.close()
            raise of_engine(error) from error
        return Job(id, request, prompt, turns)

    def _closed(self, turn: Turn) -> None:
        self.live.discard(turn)
        self.metrics.ended(turn)

    def _check_room(self, wanted: int) -> None:
        settings = self.config.engine
        most = settings.max_num_seqs + settings.max_waiting_seqs
        if len(self.live) + wanted > most:
            raise overloaded(f"{len(self.live)} sequences run or wait already, of at most {most}", "queue_full", 5)

    def _truncated(self, prompt: Prompt, request: GenerationRequest) -> Prompt:
        """The prompt's last tokens, if the client asked for no more of it; -1: as many as leave room for the reply."""
        keep = request.truncate_prompt
        if keep is None:
            return prompt
        if keep == -1:
            keep = max(1, self.max_model_len - (request.max_tokens or 1))
        return dataclasses.replace(prompt, ids=list(prompt.ids[-keep:]))

    def _decoder(self, request: GenerationRequest, prompt: Prompt) -> TurnDecoder:
        return self.chat.decoder(
            request.conversation,
            prompt,
            stop=request.stop,
            include_stop=request.include_stop,
            streaming=self.config.tool_call_streaming,
        )

    def _submit(self, id: str, choice: int, request: GenerationRequest, prompt: Prompt, room: int) -> Submit:
        sampling = Sampling(**{**self.chat.sampling_defaults, **request.sampling})
        if sampling.seed is not None and choice:
            sampling = msgspec.structs.replace(sampling, seed=sampling.seed + choice)
        max_tokens = room if request.max_tokens is None else min(room, request.max_tokens)
        return Submit(
            id=id,
            prompt=list(prompt.ids),
            max_tokens=max_tokens,
            sampling=sampling,
            stop_ids=[*self.chat.stop_ids, *request.stop_token_ids],
            # What may not be drawn before the limit is never drawn.
            min_tokens=max_tokens if request.ignore_eos else min(request.min_tokens, max_tokens),
            thinking=Thinking(
                open=prompt.thinking_open, close_ids=list(self.chat.close_ids()), budget=request.thinking_budget
            ),
            logprobs=request.logprobs,
            priority=request.priority,
        )
