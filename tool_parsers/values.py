"""Where a raw value between tags ends. Nothing in it is escaped, so only what follows a closing tag tells.

A closing tag ends the value iff structure follows it and no opener inside the value waits for it. Since that can
fail only in files about the very format, the end of the call gives the first closing tag that structure followed
a second chance; without any, a closing tag is missing, and the value ends there too.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from tool_parsers.arguments import CONTAINERS, WHITESPACE
from tool_parsers.base import Call
from tool_parsers.json_text import JsonScanner, Scan, read_json
from tool_parsers.scan import Markers, Source
from tool_parsers.schema import Kind


@dataclass(frozen=True, slots=True)
class ValueTags:
    """The tags that matter inside a value; each field lists its spellings."""

    openers: tuple[str, ...]
    closers: tuple[str, ...]
    followers: tuple[str, ...]
    """What may follow a closer that ends the value, after white space."""
    wrappers: tuple[tuple[str, str], ...]
    """Pairs that, whole inside a value, belong to it."""
    ends: tuple[str, ...]
    """What ends a call; with one of `after_ends` behind it, outside inner wrappers, it ends the value too."""
    after_ends: tuple[str, ...]
    padded: bool = False
    """A newline on each side of a value is layout."""
    markers: Markers = field(init=False)

    def __post_init__(self) -> None:
        wrappers = (tag for pair in self.wrappers for tag in pair)
        object.__setattr__(self, "markers", Markers((*self.openers, *self.closers, *self.ends, *wrappers)))


class Value:
    """One value: reads to its end and past its closing tag.

    With a `call`, whose string member must be open, the text is sent on as soon as it is certain to be the value's.
    """

    def __init__(self, source: Source, tags: ValueTags, call: Call | None) -> None:
        self._source = source
        self._tags = tags
        self._call = call
        self._held: list[str] = []
        self._started = False
        self._depth = 0
        self._wrappers = 0
        self._candidate: int | None = None

    @property
    def text(self) -> str:
        """The value, as far as it was not sent on."""
        return "".join(self._held)

    def read(self, containers: frozenset[Kind]) -> Generator[None, None, bool]:
        """False: the text ended inside the value, and what may be no part of it was not sent.

        `containers`: what it may be as JSON.
        """
        if containers and (done := (yield from self._json(containers))) is not None:
            return done
        while not (yield from self._step()):
            if self._source.ended and self._source.at == len(self._source.text):
                return False
        self._send()
        return True

    def _json(self, containers: frozenset[Kind]) -> Generator[None, None, bool | None]:
        """An object or array ends where its JSON ends, if a closing tag follows. None: it was something else."""
        source = self._source
        lead = ""
        while source.past_gap(source.at) == len(source.text):
            lead += source.rest()
            if source.ended:
                break
            yield
        lead += source.take(source.past_gap(source.at) - source.at)
        self._held.append(lead)
        if CONTAINERS.get(source.text[source.at : source.at + 1]) in containers:
            scanner = JsonScanner()
            while scanner.state is Scan.OPEN:
                if source.at == len(source.text):
                    if source.ended:
                        return False
                    yield
                self._held.append(source.take(scanner.feed(source.text[source.at :])))
            if scanner.state is Scan.COMPLETE and is_json(self.text):
                while (end := source.follows(source.at, *self._tags.closers)) is None:
                    yield
                if end:
                    source.at = source.past_gap(source.at)
                    source.take(len(self._here(self._tags.closers)))
                    return True
        source.unread(self.text)
        self._held.clear()
        return None

    def _here(self, spellings: tuple[str, ...]) -> str:
        return next(filter(self._source.starts_with, spellings))

    def _step(self) -> Generator[None, None, bool]:
        """Reads up to the next marker and past it; True: the value has ended."""
        source, tags = self._source, self._tags
        hit = tags.markers.search(source.text, source.at)
        if hit is None:
            self._keep(max(0, tags.markers.held_from(source.text) - source.at))
            if source.ended:
                source.rest()
            else:
                yield
            return False
        self._keep(hit.start() - source.at)
        tag = hit.group()
        if tag in tags.closers:
            return (yield from self._closer(tag))
        if tag in tags.openers:
            self._depth += yield from self._opens(tag)
        if tag in tags.ends and not self._wrappers:
            proved = yield from self._call_ends(tag)
            if proved is not False:
                return proved is True
        self._wrappers += any(tag == opener for opener, _ in tags.wrappers)
        self._wrappers = max(0, self._wrappers - any(tag == closer for _, closer in tags.wrappers))
        self._keep(len(tag))
        return False

    def _keep(self, count: int) -> None:
        """Reads on; while the end is open to doubt, nothing is sent."""
        if count:
            self._held.append(self._source.take(count))
        if self._call and not self._depth and self._candidate is None:
            self._send(spare_newline=True)

    def _send(self, *, spare_newline: bool = False) -> None:
        """Sends what is held, or leaves it ready; a newline at the end is spared, since it may be layout."""
        text = self.text
        if text and not self._started:
            self._started = True
            text = text.removeprefix("\n") if self._tags.padded else text
        if spare_newline:
            spared = "\n" if text.endswith("\n") else ""
        else:
            spared = ""
            text = text.removesuffix("\n") if self._tags.padded else text
        self._held = [spared if self._call else text]
        if self._call and len(text) > len(spared):
            self._call.send(self._call.arguments.string(text[: len(text) - len(spared)]))

    def _closer(self, closer: str) -> Generator[None, None, bool]:
        """A closer inside an open element belongs to it; one that structure follows is the end."""
        source = self._source
        after = len(closer)
        end = yield from self._told(lambda: self._structure_follows(source.at + after))
        if end is None:
            source.rest()
            return False
        if end and (not self._depth or source.worn):
            source.take(after)
            return True
        if end and self._candidate is None:
            self._candidate = len(self.text)
        self._depth = max(0, self._depth - 1)
        self._keep(after)
        return False

    def _told(self, look: Callable[[], bool | None]) -> Generator[None, None, bool | None]:
        """Waits until a look ahead can tell; None: the text ended before it could, and with it the call."""
        while (answer := look()) is None:
            yield
        if answer or not self._source.ended:
            return answer
        self._source.ended = False
        answer = look()
        self._source.ended = True
        return answer

    def _opens(self, opener: str) -> Generator[None, None, bool]:
        """Whether the opener at the place of reading is one."""
        yield from ()
        return True

    def _structure_follows(self, at: int) -> bool | None:
        """Whether what stands at `at` shows that the value has ended; None: more text must tell."""
        return self._source.follows(at, *self._tags.followers)

    def _call_ends(self, end: str) -> Generator[None, None, bool | None]:
        """The end of a call proves that the value ended before."""
        source = self._source
        proved = yield from self._told(lambda: source.follows(source.at + len(end), *self._tags.after_ends))
        if proved is None and not self._ends_with(end):
            source.rest()
            return None
        if proved is False:
            return False
        text = self.text
        if self._candidate is not None:
            closer = next(closer for closer in self._tags.closers if text.startswith(closer, self._candidate))
            source.reread(text[self._candidate + len(closer) :])
            text = text[: self._candidate]
        elif not self._tags.padded:
            text = text.removesuffix("\n")
        self._held = [text]
        return True

    def _ends_with(self, end: str) -> bool:
        """The text ends with a closer and the end of the call, which is as good as what may follow a call."""
        source, text = self._source, self.text
        behind = source.text[source.at + len(end) :]
        before = text[self._candidate :] if self._candidate is not None else "none"
        return not behind.strip(WHITESPACE) and before.strip(WHITESPACE) in self._tags.closers


def is_json(text: str) -> bool:
    """Whether a text is one JSON value."""
    try:
        read_json(text, strict=True)
    except ValueError:
        return False
    return True
