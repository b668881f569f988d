"""The text side of a model folder: its tokenizer, chat template, parsers and stops. No MLX, no transformers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_mlx.chat.conversation import Conversation
from vllm_mlx.chat.output import TurnDecoder


class ModelError(ValueError):
    """A model folder that cannot be served; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation. `thinking_open`: its tail leaves a thought open."""

    text: str
    ids: list[int]
    thinking_open: bool


class ChatModel:
    """What turns conversations into prompts and token ids back into events."""

    tool_call_parser: str | None
    """Resolved name; None: the model's template writes no format that a parser knows."""
    reasoning_parser: str | None
    stop_ids: tuple[int, ...]
    """Ids that end a turn, also where generation_config lacks them."""
    sampling_defaults: Mapping[str, float | int]
    """What generation_config says of temperature, top_p, top_k, min_p, repetition_penalty."""
    max_model_len: int
    """Context in tokens, from config."""

    @classmethod
    def load(
        cls,
        folder: Path,
        *,
        tool_call_parser: str = "auto",
        reasoning_parser: str = "auto",
        chat_template: str | None = None,
        trust_remote_code: bool = False,
    ) -> "ChatModel":
        """Reads tokenizer, template and configs. `chat_template` is a file's path or the Jinja source itself.

        Raises:
            ModelError: something is missing or unknown, with what is available.
        """
        raise NotImplementedError

    def render(self, conversation: Conversation) -> Prompt:
        """Renders and tokenizes.

        Raises:
            TemplateError: the template refuses the conversation (a 400).
        """
        raise NotImplementedError

    def encode(self, text: str, add_special: bool = False) -> list[int]:
        """Ids of plain text, added tokens included; `add_special` puts the tokenizer's own begin of text before it."""
        raise NotImplementedError

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, every token kept."""
        raise NotImplementedError

    def decoder(
        self,
        conversation: Conversation,
        prompt: Prompt,
        *,
        stop: Sequence[str] = (),
        include_stop: bool = False,
        streaming: str = "value",
    ) -> TurnDecoder:
        """What reads the reply to `prompt`. Calls are parsed only if the request has tools and may use them."""
        raise NotImplementedError

    def close_ids(self) -> Sequence[int]:
        """Ids that close a thought (for `protocol.Thinking`)."""
        raise NotImplementedError


__all__ = ["Any", "ChatModel", "ModelError", "Prompt"]
