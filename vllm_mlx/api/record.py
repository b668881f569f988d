"""`serve --record` and what `replay` reads: one JSON line a sequence, with its request and the raw output it got."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tool_parsers.json_text import write_json
from vllm_mlx.engine.protocol import Delta

if TYPE_CHECKING:
    from vllm_mlx.api.generation import Job


class Take:
    """One sequence while it runs."""

    def __init__(self, recorder: "Recorder", head: dict[str, Any]) -> None:
        self._recorder = recorder
        self._head = head
        self._pieces: list[bytes] = []
        self._tokens: list[int] = []

    def add(self, delta: Delta) -> None:
        """One step of the engine."""
        self._tokens += delta.tokens
        if delta.raw is not None:
            self._pieces.append(delta.raw)
        self._pieces += (self._recorder.token_bytes(token) for token in delta.tokens)

    def end(self, finish_reason: str | None) -> None:
        """The sequence is over; None: the engine failed. A sequence that nobody waited for is never written."""
        output = [_piece(piece) for piece in self._pieces]
        ending = {"error_after": len(output)} if finish_reason is None else {"finish_reason": finish_reason}
        self._recorder.write({**self._head, **ending, "output": output, "tokens": self._tokens})


class Recorder:
    """Appends to a file. Pieces are text, so that a recording plays under any tokenizer."""

    def __init__(self, path: Path, token_bytes: Callable[[int], bytes]) -> None:
        self.token_bytes = token_bytes
        self._file = path.open("a", encoding="utf-8")

    def begin(self, path: str, body: Any, job: "Job") -> None:
        """Records every sequence of a job."""
        for turn in job.turns:
            prompt = turn.prompt
            head = {"path": path, "request": body, "prompt": prompt.text, "prompt_tokens": len(prompt.ids)}
            turn.take = Take(self, head)

    def write(self, line: dict[str, Any]) -> None:
        self._file.write(write_json(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _piece(piece: bytes) -> str | dict[str, str]:
    """Text where the bytes are whole characters, else base64."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(piece).decode()}
