"""A whole reply: the fold of a turn's events. What is not streamed is made here, from what is streamed."""

from collections.abc import Iterable
from dataclasses import dataclass

from tool_parsers.events import ArgumentsDelta, CallAborted, CallEnd, CallStart, Event, Reasoning, Text


@dataclass(frozen=True, slots=True)
class ReplyCall:
    """A whole call. `id` is the model's own where its format has ids."""

    index: int
    name: str
    arguments: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """Reasoning and content are None, never "", where there is none. `aborted`: at least one call was cut."""

    reasoning: str | None
    content: str | None
    tool_calls: tuple[ReplyCall, ...]
    aborted: bool


def fold(events: Iterable[Event]) -> Reply:
    """Joins events to a reply; a call counts only when it ended whole."""
    reasoning: list[str] = []
    content: list[str] = []
    started: dict[int, tuple[CallStart, list[str]]] = {}
    calls: list[ReplyCall] = []
    aborted = False
    for event in events:
        match event:
            case Text(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case CallStart(index):
                started[index] = (event, [])
            case ArgumentsDelta(index, json):
                started[index][1].append(json)
            case CallEnd(index):
                start, slices = started[index]
                calls.append(ReplyCall(index, start.name, "".join(slices), start.id))
            case CallAborted():
                aborted = True
    return Reply("".join(reasoning) or None, "".join(content) or None, tuple(calls), aborted)
