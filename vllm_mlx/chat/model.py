"""The text side of a model folder: its tokenizer, chat template, parsers and stops. No MLX, no transformers."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm_mlx.chat.conversation import Conversation, Message
from vllm_mlx.chat.decoder import TurnDecoder
from vllm_mlx.chat.detokenize import Detokenizer, Vocabulary
from vllm_mlx.chat.family import Family, recognise
from vllm_mlx.chat.marks import Marked, unmark
from vllm_mlx.chat.output import OutputParser
from vllm_mlx.chat.pacing import Pace, Pacer
from vllm_mlx.chat.prompt import Prompt, PromptWriter
from vllm_mlx.chat.stops import StopStrings
from vllm_mlx.chat.template import ChatTemplate, TemplateError, find_source
from vllm_mlx.chat.tokenizer import Tokenizer, TokenizerError

__all__ = ["ChatModel", "ModelError", "Prompt"]

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_CONTEXT = ("max_position_embeddings", "max_sequence_length", "seq_length", "n_positions", "model_max_length")
_DEFAULT_CONTEXT = 4096


class ModelError(ValueError):
    """A model folder that cannot be served; the message is for the user."""


class ChatModel:
    """What turns conversations into prompts and token ids back into events."""

    family: Family
    tool_call_parser: str | None
    """Resolved name; None: the model's template writes no format that a parser knows."""
    reasoning_parser: str | None
    stop_ids: tuple[int, ...]
    """Ids that end a turn, also where the model's files lack them."""
    role_ids: frozenset[int]
    """Ids that open another's turn, and so end this one."""
    configured_stop_ids: tuple[int, ...]
    """Those that the files name."""
    markers: tuple[str, ...]
    """What the parsers look for."""
    thought: tuple[str, str] | None
    """The markers around a thought."""
    drop_ids: frozenset[int]
    """Ids without text: begin of text, padding."""
    sampling_defaults: Mapping[str, float | int]
    """What generation_config says of temperature, top_p, top_k, min_p, repetition_penalty."""
    max_model_len: int
    """Context in tokens, from config."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        family: Family,
        *,
        special: Mapping[str, str] | None = None,
        generation: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        restore_reasoning: bool = True,
    ) -> None:
        """`special` names tokens by role (`bos_token`, ...); `generation` and `config` are the model's JSON files."""
        special, generation, config = special or {}, generation or {}, config or {}
        self.tokenizer = tokenizer
        self.template = template
        self.family = family
        self.tool_call_parser = family.tool_parser
        self.reasoning_parser = family.reasoning_parser
        self.vocabulary = Vocabulary(tokenizer.backend)
        self.sampling_defaults = {name: generation[name] for name in _SAMPLING if generation.get(name) is not None}
        self.max_model_len = _context(config)
        self._tool_class, self._reasoning_class = family.parser_classes
        reasoning, tools = self._reasoning_class, self._tool_class
        self.thought = reasoning.markers() if reasoning else None
        self.markers = (*(self.thought or ()), *(tools.markers if tools else ()))
        configured = {*_ids(generation.get("eos_token_id")), *_ids(config.get("eos_token_id"))}
        configured |= set(self._known_ids(special.get("eos_token")))
        self.configured_stop_ids = tuple(sorted(configured))
        self.stop_ids = tuple(sorted(configured | {*self._turn_ends(), *self._known_ids(family.turn.end)}))
        self.writer = PromptWriter(
            tokenizer,
            template,
            thought=self.thought,
            markers=self.markers,
            ends=[tokenizer.decode([token]) for token in self.stop_ids],
            late_system=family.late_system,
            restore_reasoning=restore_reasoning,
        )
        self.role_ids = frozenset(self._known_ids(family.turn.role))
        silent = self._known_ids(family.turn.begin, special.get("bos_token"), special.get("pad_token"))
        self.drop_ids = frozenset(silent) - frozenset(self.stop_ids)

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        tool_call_parser: str = "auto",
        reasoning_parser: str = "auto",
        chat_template: str | None = None,
        trust_remote_code: bool = False,
        restore_reasoning: bool = True,
    ) -> "ChatModel":
        """Reads tokenizer, template and configs. A parser is `auto`, `none` or a name.

        `chat_template` is a file's path or the Jinja source itself.

        Raises:
            ModelError: something is missing or unknown, with what is available.
        """
        settings = _read(folder / "tokenizer_config.json")
        special = _special(settings) | _special(_read(folder / "special_tokens_map.json"))
        try:
            source = find_source(folder, settings, chat_template)
            if source is None:
                raise ModelError(f"{folder} has no chat template; give one with --chat-template FILE")
            template = ChatTemplate(source, special)
            tokenizer = Tokenizer.load(folder, trust_remote_code=trust_remote_code)
        except (TemplateError, TokenizerError) as error:
            raise ModelError(str(error)) from error
        try:
            family = recognise(template, tool_parser=tool_call_parser, reasoning_parser=reasoning_parser)
        except KeyError as error:
            raise ModelError(str(error.args[0])) from error
        generation, config = _read(folder / "generation_config.json"), _read(folder / "config.json")
        return cls(
            tokenizer,
            template,
            family,
            special=special,
            generation=generation,
            config=config,
            restore_reasoning=restore_reasoning,
        )

    @property
    def warnings(self) -> list[str]:
        """Where template and parsers disagree: what the model will write is not what is read."""
        template, found = self.template, []
        if self._tool_class is None and "tools" in template.reads:
            found.append("the chat template knows tools, but no parser reads its calls: calls will be text")
        if self._tool_class is not None and not self._tool_class.speaks(template.source):
            found.append(f"the chat template does not write the calls that the parser {self.tool_call_parser} reads")
        if self.thought is not None and self.thought[1] not in template.source:
            found.append(f"the chat template does not write the thoughts that {self.reasoning_parser} reads")
        return found

    def render(self, conversation: Conversation) -> Prompt:
        """Renders and tokenizes.

        Raises:
            TemplateError: the template refuses the conversation (a 400).
        """
        return self.writer.render(conversation)

    def remember(
        self, conversation: Conversation, prompt: Prompt, reply: Message, tokens: Sequence[int], *, cut: bool = False
    ) -> None:
        """Keeps a reply: when it comes back in a history, its ids are those that the model wrote.

        `reply` is the message as the client got it, with the calls' ids; `tokens` are all of its ids and no more:
        without the stop token, and not for a reply that a stop string or a broken call cut short. `cut`: its limit did.
        """
        self.writer.remember(conversation, prompt, reply, tokens, cut=cut)

    def remember_thought(self, conversation: Conversation, reply: Message) -> None:
        """Keeps the thought of any reply, also of one that was cut: it is put back for clients that leave it out."""
        self.writer.remember_thought(conversation, reply)

    def upcoming(self, conversation: Conversation, reply: Message) -> list[int]:
        """The ids that the next prompt begins with, should the user answer `reply`: they can be prefilled before."""
        return self.writer.upcoming(conversation, reply)

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """Ids of plain text, added tokens included; `add_special` puts the tokenizer's own begin of text before it."""
        return self.tokenizer.encode(text, add_special)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, every token kept."""
        return self.tokenizer.decode(ids)

    def close_ids(self) -> list[int]:
        """Ids that close a thought (for the engine's thinking budget); empty where the model has none."""
        return self.tokenizer.encode(self.thought[1]) if self.thought else []

    def open_ids(self) -> list[int]:
        """Ids with which a reply begins a thought of its own accord; empty where the model has none."""
        return self.tokenizer.encode(self.thought[0]) if self.thought else []

    def detokenizer(self) -> Detokenizer:
        """A new turn's ids to text."""
        return Detokenizer(self.vocabulary, self.drop_ids)

    def output_parser(self, conversation: Conversation, *, thinking_open: bool) -> OutputParser:
        """A new turn's text to events. Calls are parsed only if the request has tools and may use them."""
        return OutputParser(
            self._tool_class if conversation.offered else None,
            self._reasoning_class,
            tools=[tool.schema for tool in conversation.offered],
            thinking_open=thinking_open,
            turn=self.family.turn,
        )

    def decoder(
        self,
        conversation: Conversation,
        prompt: Prompt,
        *,
        stop: Sequence[str] = (),
        include_stop: bool = False,
        streaming: Pace = "value",
    ) -> TurnDecoder:
        """What reads the reply to `prompt`."""
        return TurnDecoder(
            self.detokenizer(),
            self.output_parser(conversation, thinking_open=prompt.thinking_open),
            StopStrings(stop, include=include_stop),
            Pacer(streaming),
            end_ids=self.role_ids,
        )

    def _known_ids(self, *tokens: str | None) -> list[int]:
        return [found for token in tokens if (found := self.tokenizer.id_of(token)) is not None]

    def _turn_ends(self) -> Iterator[int]:
        """What the template writes after an answer, and after a call: the tokens that the model ends turns with."""
        text = "the-answer"
        question = {"role": "user", "content": "question"}
        answer = {"role": "assistant", "content": text, "reasoning_content": ""}
        for start, marked in self._written(text, question, answer, question):
            first = next(self.tokenizer.tokens_in(marked, start), None)
            if first is not None and not marked.text[start : first[0]].strip():
                yield first[2]
        if not self.tool_call_parser:
            return
        call = {"id": "call", "type": "function", "function": {"name": "f", "arguments": {"x": text}}}
        calling = {**answer, "content": "", "tool_calls": [call]}
        for start, marked in self._written(
            text, question, calling, {"role": "tool", "content": "", "tool_call_id": "call"}
        ):
            control = (found for _, _, found in self.tokenizer.tokens_in(marked, start))
            end = next((found for found in control if found in self.tokenizer.special_ids), None)
            if end is not None and self.tokenizer.control[end] not in self.markers:
                yield end

    def _written(self, text: str, *messages: dict[str, Any]) -> Iterator[tuple[int, Marked]]:
        """A rendered history and where in it `text` ends; nothing if the template does not write it."""
        try:
            marked = unmark(self.template.render(list(messages), None, add_generation_prompt=False))
        except TemplateError:
            return
        if text in marked.text:
            yield marked.text.index(text) + len(text), marked


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}") from error
    return content if isinstance(content, dict) else {}


def _special(settings: Mapping[str, Any]) -> dict[str, str]:
    found = {name: settings.get(name) for name in _SPECIAL}
    texts = {name: value.get("content") if isinstance(value, dict) else value for name, value in found.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


def _ids(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else list(value or ())


def _context(config: Mapping[str, Any]) -> int:
    for settings in (config, config.get("text_config") or {}):
        for name in _CONTEXT:
            if isinstance(settings.get(name), int):
                return int(settings[name])
    return _DEFAULT_CONTEXT
