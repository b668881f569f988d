"""A whole reply: the fold of a turn's events. What is not streamed is made here, from what is streamed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import cast

from tool_parsers.events import ArgumentsDelta, CallAborted, CallEnd, CallStart, Event, Malformed, Reasoning, Text


@dataclass(frozen=True, slots=True)
class ReplyCall:
    """A whole call. `id` is the model's own where its format has ids."""

    index: int
    name: str
    arguments: str
    id: str | None = None


Part = Text | Reasoning | ReplyCall | CallAborted


@dataclass(frozen=True, slots=True)
class Reply:
    """Reasoning and content are None, never "", where there is none. `aborted`: at least one call was cut.

    `parts` are the same in the order in which they came, for protocols whose replies are lists.
    """

    reasoning: str | None
    content: str | None
    tool_calls: tuple[ReplyCall, ...]
    aborted: bool
    parts: tuple[Part, ...] = field(default=(), compare=False)


def fold(events: Iterable[Event]) -> Reply:
    """Joins events to a reply; a call counts only when it ended whole."""
    parts = tuple(_parts(events))
    return Reply(
        "".join(part.text for part in parts if isinstance(part, Reasoning)) or None,
        "".join(part.text for part in parts if isinstance(part, Text)) or None,
        tuple(part for part in parts if isinstance(part, ReplyCall)),
        any(isinstance(part, CallAborted) for part in parts),
        parts,
    )


def _parts(events: Iterable[Event]) -> Iterable[Part]:
    started: dict[int, tuple[CallStart, list[str]]] = {}
    for kind, run in groupby((event for event in events if not isinstance(event, Malformed)), key=type):
        if kind is Text or kind is Reasoning:
            yield kind("".join(cast(Text | Reasoning, event).text for event in run))
            continue
        for event in run:
            match event:
                case CallStart(index):
                    started[index] = (event, [])
                case ArgumentsDelta(index, json):
                    started[index][1].append(json)
                case CallEnd(index):
                    start, slices = started[index]
                    yield ReplyCall(index, start.name, "".join(slices), start.id)
                case CallAborted():
                    yield event
