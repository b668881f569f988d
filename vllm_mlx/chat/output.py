"""From token ids to events: owns the state of one turn, the seam between thinking and calls, and layout newlines.

Works without MLX; `vllm-mlx parse` is a thin wrapper around `OutputParser`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tool_parsers.base import ToolParser
from tool_parsers.events import Event


@dataclass(frozen=True, slots=True)
class TurnTokens:
    """Spellings of a family's turn structure: begin of text, role opener, end of turn. None of them reaches a client."""

    begin: str | None = None
    role: str | None = None
    end: str | None = None


class OutputParser:
    """Splits a turn's text into thoughts, visible text and tool calls."""

    def __init__(
        self,
        tool_parser: ToolParser | None,
        reasoning_parser: object | None,
        *,
        thinking_open: bool,
        turn: TurnTokens = TurnTokens(),
    ) -> None:
        """`tool_parser` None: the request has no tools (nothing is ever parsed as a call)."""
        self.ended = False
        """The text itself ended the turn; what follows is discarded."""
        raise NotImplementedError

    def feed(self, text: str) -> list[Event]:
        """Takes the next piece of text; returns what is decided."""
        raise NotImplementedError

    def finish(self) -> list[Event]:
        """The text has ended: returns the rest."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Ended:
    """The API, not the engine, found the end: the first `keep` tokens count. `stop`: the stop string found, if one."""

    keep: int
    stop: str | None = None


class TurnDecoder:
    """Token ids (or raw bytes of a replay) to events: detokenizer, `OutputParser`, stop strings, call pacing."""

    ended: Ended | None = None
    """Set once the text has ended the turn: the caller tells the engine to finish, and feeds no more."""
    tokens: int = 0
    """Completion tokens that count."""
    reasoning_tokens: int = 0
    """Of these, how many were part of a thought."""

    def feed(self, tokens: Sequence[int], raw: bytes | None = None) -> list[Event]:
        """Takes one delta of the engine."""
        raise NotImplementedError

    def finish(self) -> list[Event]:
        """Generation has ended."""
        raise NotImplementedError
