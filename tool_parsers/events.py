"""The one way out of a parser: what a piece of model output is.

Tool parsers emit everything here but `Reasoning`; reasoning parsers emit `Reasoning`, `Text` and
`Escape`. A client's reply, streamed or not, is a fold over these events.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """Visible text, exactly as the model wrote it."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of a thought."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call's header is complete. `index` counts the calls of a turn from 0; `id` only where the format has ids."""

    index: int
    name: str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """The next slice of a call's arguments. The slices of a call that ends with `CallEnd` join to one JSON object."""

    index: int
    json: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The call is whole and counts."""

    index: int


@dataclass(frozen=True, slots=True)
class CallAborted:
    """The text ended, or the format broke, inside the call: it must not run. Slices already sent stay sent."""

    index: int


@dataclass(frozen=True, slots=True)
class Malformed:
    """Markup that was dropped, for the log: why, how many characters, and the tool's name if it was known."""

    reason: str
    length: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class BlockStart:
    """A tool call block opens here: the template's newlines before it are layout, not text."""


@dataclass(frozen=True, slots=True)
class BlockEnd:
    """A tool call block closed here."""


@dataclass(frozen=True, slots=True)
class ThoughtStart:
    """A thought's opening tag stood here."""


@dataclass(frozen=True, slots=True)
class ThoughtEnd:
    """A thought's closing tag stood here; without an open thought it is dropped, but what it divides stays divided."""


@dataclass(frozen=True, slots=True)
class Escape:
    """The parser met, in plain text, a marker that it was told is another's; `rest` begins with it. Always last."""

    rest: str


Event = Text | Reasoning | CallStart | ArgumentsDelta | CallEnd | CallAborted | Malformed
"""What a reply is made of."""

ParserEvent = Event | BlockStart | BlockEnd | ThoughtStart | ThoughtEnd | Escape
"""What parsers tell: also where layout may stand, and where another has to go on."""
