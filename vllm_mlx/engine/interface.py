"""What the API needs of an engine. `client.EngineClient` is the real one, `replay.ReplayEngine` a recorded one."""

from collections.abc import AsyncIterator
from typing import Literal, Protocol

from vllm_mlx.engine.protocol import CacheReport, Delta, EngineInfo, FailureKind, Progress, Submit

HealthState = Literal["starting", "ready", "restarting", "failed"]


class EngineError(Exception):
    """A sequence ended wrong; `kind` says whose fault it was (`died`: the engine process ended under it)."""

    def __init__(self, kind: FailureKind | Literal["died"], message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Generation(Protocol):
    """One running sequence: iterate for its deltas. Leaving early without `finish` must be a `cancel`."""

    def __aiter__(self) -> AsyncIterator[Delta | Progress]:
        """Yields `Progress` while the prompt is prefilled, then a `Delta` a step; ends after `Delta.finish`.

        Raises:
            EngineError: the sequence failed or the engine died.
        """
        ...

    def finish(self, keep: int) -> None:
        """Stops the sequence; only its first `keep` tokens count (cache, history)."""
        ...

    def cancel(self) -> None:
        """Frees the slot by the next step. Harmless after the end."""
        ...


class Engine(Protocol):
    """A model that continues token ids."""

    @property
    def info(self) -> EngineInfo:
        """Facts of the loaded model; available once `start` has returned."""
        ...

    @property
    def health(self) -> HealthState: ...

    async def start(self) -> None:
        """Returns when the model is loaded. Raises `EngineError` with a message for the user if it cannot be."""
        ...

    async def close(self) -> None:
        """Ends the engine process, whatever it is doing."""
        ...

    def prewarm(self, prompt: list[int]) -> None:
        """This prompt is likely to come: it may be prefilled while nothing else is to do. Harmless at any time."""
        ...

    async def cache_report(self) -> CacheReport:
        """What the prefix cache holds, and why prompts found no more. Raises `EngineError` when no engine runs."""
        ...

    def submit(self, request: Submit) -> Generation:
        """Queues one sequence. Raises `EngineError` at once when no engine runs."""
        ...
