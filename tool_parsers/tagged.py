"""What the formats share that wrap raw values in tags: blocks of invokes, invokes of parameters, by any spelling."""

from abc import abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar, Literal

from tool_parsers.arguments import coerce
from tool_parsers.base import Call, Grammar, Verdict
from tool_parsers.blocks import BlockParser
from tool_parsers.events import BlockStart, Malformed
from tool_parsers.json_text import write_string
from tool_parsers.scan import Lines, Markers, Source
from tool_parsers.schema import Kind, Types
from tool_parsers.values import Value, ValueTags

# A tag longer than this is none: what looks like one must not hold back a whole file.
LONGEST_TAG = 1024


@dataclass(frozen=True, slots=True)
class Tags:
    """How a format spells its tags; for invokes and parameters, how the tag begins."""

    open: tuple[str, ...] = ()
    close: tuple[str, ...] = ()
    invoke: tuple[str, ...] = ()
    invoke_end: tuple[str, ...] = ()
    parameter: tuple[str, ...] = ()
    parameter_end: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.open, *self.close, *self.invoke, *self.invoke_end, *self.parameter, *self.parameter_end)


@dataclass(frozen=True, slots=True)
class Head:
    """The opening tag of an invoke or a parameter. `string`: it says itself whether its value is a string."""

    name: str
    length: int
    string: bool | None = None


HeadOr = Head | Literal["wait", "cut"] | None


class TaggedParser(BlockParser):
    """Reads blocks of invokes. A subclass gives the spellings and reads the opening tags."""

    tags: ClassVar[Tags]
    value_tags: ClassVar[ValueTags]
    heads: ClassVar[tuple[str, ...]] = ()
    """What every tag begins with, where a format has that."""
    value_class: ClassVar[type[Value]] = Value
    python_none: ClassVar[bool] = False
    """The template prints null as `None`."""
    undeclared_as_text: ClassVar[bool] = True
    """A value without a schema is its text; else its natural JSON value."""

    @abstractmethod
    def _read_head(self, source: Source, tag: str) -> HeadOr:
        """The opening tag that begins with `tag` at the place of reading; "cut": the text ended in it; None: none."""

    def _resolve(self, marker: str) -> Generator[None, None, str]:
        """The tag that begins with a marker."""
        yield from ()
        return marker

    def _stray(self, tag: str) -> Grammar:
        """Drops a tag that fits nowhere."""
        yield from ()
        self._drop(tag)

    def _no_head(self, tag: str) -> Grammar:
        """What begins like a tag and is none."""
        yield from self._stray(tag)

    def _structure(self, marker: str) -> Grammar:
        tag = yield from self._resolve(marker)
        if tag in self.tags.open:
            yield from self._block(tag)
        elif tag in self.tags.close:
            self._stray_closer(tag)
        elif tag in self.tags.invoke:
            yield from self._unwrapped(tag)
        else:
            yield from self._stray(tag)

    def _unwrapped(self, tag: str) -> Grammar:
        """An invoke outside a block."""
        head = yield from self._head(tag)
        if head is not None:
            self._events.append(BlockStart())
            yield from self._invoke(head)
            self._end_block()

    def _block_body(self) -> Grammar:
        markers = Markers((*(self.heads or self.tags.all), *self._escapes))
        while marker := (yield from self._until(markers, partial_is_text=False)):
            if marker in self._escapes:
                self._hand_back()
                yield
                continue
            tag = yield from self._resolve(marker)
            if tag in self.tags.close:
                self._source.take(len(tag))
                return
            if tag in self.tags.invoke:
                if head := (yield from self._head(tag)):
                    yield from self._invoke(head)
            elif tag in self.tags.parameter:
                if head := (yield from self._head(tag)):
                    self._source.take(head.length)
                    self._events.append(Malformed(f"stray {tag}", head.length))
            else:
                yield from self._stray(tag)

    def _head(self, tag: str) -> Generator[None, None, Head | None]:
        """The opening tag at the place of reading, unread; without one, what stands there is dealt with."""
        while (head := self._read_head(self._source, tag)) == "wait":
            yield
        if isinstance(head, Head):
            return head
        if head == "cut":
            self._events.append(Malformed("tag cut short", len(self._source.rest())))
        else:
            yield from self._no_head(tag)
        return None

    def _invoke(self, head: Head) -> Grammar:
        """One invoke; at the place of reading stands its opening tag."""
        self._source.take(head.length)
        if not head.name:
            self._events.append(Malformed("invoke without a name", head.length))
            yield from self._parameters(None)
            return
        call = Call(self._events, self._calls, head.name)
        self._calls += 1
        if (yield from self._parameters(call)):
            call.end()
        else:
            call.abort("the text ended inside a call")

    def _parameters(self, call: Call | None) -> Generator[None, None, bool]:
        """Everything up to the invoke's end; False: the text ended first. Without a call, all is read and dropped."""
        source, tags = self._source, self.tags
        markers = Markers(self.heads or (*tags.close, *tags.invoke, *tags.invoke_end, *tags.parameter))
        while True:
            yield from self._discard_until(markers)
            hit = markers.search(source.text, source.at)
            if hit is None:
                return False
            tag = yield from self._resolve(hit.group())
            if tag in tags.invoke_end:
                source.take(len(tag))
                return True
            if tag in tags.close or (tag in tags.invoke and (yield from self._another(tag))):
                return True
            if tag not in tags.parameter:
                source.take(len(tag))
                continue
            while (head := self._read_head(source, tag)) == "wait":
                yield
            if isinstance(head, Head):
                source.take(head.length)
                if not (yield from self._parameter(call, head)):
                    return False
            else:
                source.take(len(tag) if head is None else len(source.text))

    def _another(self, tag: str) -> Generator[None, None, bool]:
        """Whether what begins like an invoke inside one is another, so that the open one has ended."""
        yield from ()
        return True

    def _parameter(self, call: Call | None, head: Head) -> Generator[None, None, bool]:
        types = self._schema(call.name).property(head.name).types if call else Types(declared=False)
        text = self._is_text(types, head)
        streamed = call if call and text and head.name not in call.arguments else None
        value = self.value_class(self._source, self.value_tags, streamed)
        if streamed:
            streamed.send(streamed.arguments.open_string(head.name))
        if not (yield from value.read(frozenset() if text else _containers(types, head))):
            return False
        if streamed:
            streamed.send(streamed.arguments.close_string())
        elif call:
            json = write_string(value.text) if text else self._json(value.text, types, head)
            call.send(call.arguments.member(head.name, json))
        return True

    def _json(self, text: str, types: Types, head: Head) -> str:
        """The JSON of a value that is not certainly a string."""
        return coerce(text, types, undeclared_as_text=self.undeclared_as_text, python_none=self.python_none)

    def _is_text(self, types: Types, head: Head) -> bool:
        """Whether a value is a string whatever it looks like."""
        if head.string is not None:
            return head.string
        return types.only_string or (self.undeclared_as_text and not types.declared)


class PlainTagsParser(TaggedParser):
    """A format whose invoke and parameter tags are ordinary text.

    Outside a block an invoke counts only if it is declared, stands alone at the start of a line, outside code fences,
    and has a body. What begins like a tag and is none is a word.
    """

    def judge(self, text: str, lines: Lines, *, ended: bool) -> Verdict | None:
        tag = self._tag_at(text, ended=ended)
        if tag is None or tag not in self.tags.invoke:
            return super().judge(text, lines, ended=ended)
        source = Source()
        source.push(text)
        source.ended = ended
        bare = self._bare(source, lines, tag)
        return None if bare is None else Verdict("call") if bare else Verdict("text", len(tag))

    def _bare(self, source: Source, lines: Lines, tag: str) -> bool | None:
        """Whether an invoke without a wrapper begins at the place of reading; None: more text must tell."""
        if not lines.blank or lines.fenced:
            return False
        head = self._read_head(source, tag)
        if head == "wait":
            return None
        if not isinstance(head, Head) or self._schemas is None or not self._declared(head.name):
            return False
        return self._has_body(source, source.at + head.length)

    def _has_body(self, source: Source, at: int) -> bool | None:
        """Whether a parameter or the end of the invoke stands at `at`."""
        return source.follows(at, *self.tags.parameter, *self.tags.invoke_end)

    def _no_head(self, tag: str) -> Grammar:
        yield from ()
        self._emit_text(self._source.take(len(tag)))

    def _unwrapped(self, tag: str) -> Grammar:
        while (bare := self._bare(self._source, self._lines, tag)) is None:
            yield
        if bare:
            yield from super()._unwrapped(tag)
        else:
            yield from self._no_head(tag)


def _containers(types: Types, head: Head) -> frozenset[Kind]:
    kinds: tuple[Kind, ...] = ("object", "array")
    return frozenset(kind for kind in kinds if head.string is False or types.permits(kind))
