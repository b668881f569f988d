"""Replay files, and the engine that plays them and knows which recorded reply belongs to which request.

A line of a replay file is a JSON object. It needs only `output`: the raw text, or a list of pieces, each of them
text, a token id, or `{"b64": ...}` for bytes that are not whole characters. A step gives one piece.
"""

import base64
import binascii
import logging
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from tool_parsers.json_text import read_json
from vllm_mlx.api.errors import ApiError
from vllm_mlx.api.protocols import CODECS
from vllm_mlx.api.requests import plain
from vllm_mlx.api.service import Service
from vllm_mlx.chat.model import ChatModel
from vllm_mlx.config import ServeConfig
from vllm_mlx.engine.protocol import EngineInfo
from vllm_mlx.engine.replay import ReplayEngine, ReplayLine

CONTEXT = 1_048_576
"""Tokens that a replay takes by default: what was recorded of a large model plays with a small one's tokenizer."""

_FIELDS = {item.name for item in fields(ReplayLine)} - {"pieces"} | {"output"}
_NOTES = {"prompt", "prompt_tokens", "tokens"}
"""What a recorder writes for people to read."""

log = logging.getLogger(__name__)


class ReplayError(ValueError):
    """A replay file that cannot be played; the message is for the user."""


def read_lines(file: Path) -> list[ReplayLine]:
    """The lines of a replay file.

    Raises:
        ReplayError: the file is no text or empty, or a line is not what it must be, with its number.
    """
    lines: list[ReplayLine] = []
    try:
        texts = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ReplayError(f"{file} cannot be read: {error}") from error
    for number, text in enumerate(texts, 1):
        if text.strip():
            try:
                line = plain(read_json(text), frozenset({"request"}))
                lines.append(parse_line(line))
            except (ValueError, ApiError) as error:
                raise ReplayError(f"{file}, line {number}: {error}") from error
            for name in sorted(line.keys() - _FIELDS - _NOTES):
                log.warning("%s, line %d: the field %.100r is unknown here and does nothing", file, number, name)
    if not lines:
        raise ReplayError(f"{file} has no lines to play")
    return lines


def parse_line(line: Any) -> ReplayLine:
    """One line's JSON object. Raises `ValueError` for a field that is not what it must be."""
    if not isinstance(line, dict) or "output" not in line:
        raise ValueError('a line is an object with "output"')
    output = line["output"]
    reason = line.get("finish_reason") or "stop"
    if reason not in ("stop", "length", "tool_calls"):
        raise ValueError(f"finish_reason {reason!r} is none of stop, length, tool_calls")
    return ReplayLine(
        pieces=tuple(_piece(piece) for piece in (output if isinstance(output, list) else [output])),
        finish_reason="length" if reason == "length" else "stop",
        prefill_ms=_number(line, "prefill_ms") or 0,
        delay_ms=_number(line, "delay_ms") or 0,
        error_after=_count(line, "error_after"),
        hang_after=_count(line, "hang_after"),
        die_after=_count(line, "die_after"),
        path=line.get("path"),
        request=line.get("request"),
    )


def _piece(piece: Any) -> bytes | int:
    match piece:
        case str():
            return piece.encode("utf-8", "surrogatepass")
        case bool():
            pass
        case int() if piece >= 0:
            return piece
        case {"b64": str(encoded)}:
            try:
                return base64.b64decode(encoded, validate=True)
            except binascii.Error as error:
                raise ValueError(f"{encoded!r} is not base64") from error
    raise ValueError(f'{piece!r} is no piece of output: text, a token id, or {{"b64": ...}}')


def _number(line: dict[str, Any], name: str) -> float | None:
    value = line.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
        raise ValueError(f"{name} must be a number of at least 0")
    return cast(float | None, value)


def _count(line: dict[str, Any], name: str) -> int | None:
    value = _number(line, name)
    if value is not None and not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number of pieces")
    return value


def replay_engine(lines: Sequence[ReplayLine], config: ServeConfig, chat: ChatModel) -> ReplayEngine:
    """Plays `lines` as `config.engine` says. Their requests are rendered here: the same prompt gets its line again.

    Raises:
        ReplayError: a token id that the tokenizer does not have.
    """
    length = config.engine.max_model_len or max(chat.max_model_len, CONTEXT)
    size = chat.tokenizer.backend.get_vocab_size()
    info = EngineInfo(max_model_len=length, vocab_size=size, device="replay", weight_bytes=0)
    engine = ReplayEngine(
        lines, info, max_num_seqs=config.engine.max_num_seqs, stall_timeout=config.engine_stall_timeout
    )
    service = Service(config, chat, engine)
    for number, line in enumerate(lines):
        for piece in line.pieces:
            if isinstance(piece, int) and chat.tokenizer.backend.id_to_token(piece) is None:
                raise ReplayError(f"line {number + 1}: the model has no token {piece}; --model says whose they are")
        codec = CODECS.get(line.path or "/v1/chat/completions")
        if line.request is None or codec is None:
            continue
        try:
            request = codec.decode(codec.wire.read(line.request), service)
            engine.expect(number, service.prompts(service.shortened(request))[0].ids)
        except ApiError as error:
            log.warning("line %d is played in its turn only: its request is refused: %s", number + 1, error)
    return engine
