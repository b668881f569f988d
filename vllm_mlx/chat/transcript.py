"""Token-true history: what the model wrote comes back as the tokens that it wrote.

Two memories, both bounded. Replies are kept by meaning, under the messages before them: a client that drops the
thought, or writes numbers and JSON in its own way, gets the reply back as it was. Known beginnings of rendered
conversations are kept by their marked text: their ids are taken as they were in the model's context, and only what
follows is tokenized. A pasted transcript is marked otherwise, an edited turn is another text: neither is known.
"""

import json
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from tool_parsers.json_text import Number, read_json
from vllm_mlx.chat.conversation import Conversation, Message


@dataclass(slots=True)
class Beginning:
    """A known beginning: `length` characters of marked text are the first `count` of `ids`.

    `closed`: it ends with a control token, so that any text may follow; else a control token must.
    """

    length: int
    count: int
    closed: bool
    ids: "array[int]"

    @property
    def tokens(self) -> list[int]:
        return self.ids[: self.count].tolist()


@dataclass(frozen=True, slots=True)
class Cut:
    """A place where a rendered text and its ids can be cut alike."""

    length: int
    count: int
    closed: bool


class Transcripts:
    """What is known of the conversations of a model."""

    def __init__(self, *, max_tokens: int = 8_000_000, max_entries: int = 4096, restore_reasoning: bool = True) -> None:
        """
        Args:
            max_tokens: how many ids are kept at most, 4 bytes each.
            restore_reasoning: a reply is known again also without its thought.
        """
        self._restore_reasoning = restore_reasoning
        self._max_tokens = max_tokens
        self._max_entries = max_entries
        self._replies: OrderedDict[bytes, Message] = OrderedDict()
        self._known: OrderedDict[bytes, Beginning] = OrderedDict()
        self._lengths: Counter[int] = Counter()
        self._uses: Counter[int] = Counter()
        self.tokens = 0
        """How many ids are held now."""

    def restore(self, conversation: Conversation) -> Conversation:
        """Puts the model's own replies in the place of what clients made of them."""
        history = History(conversation)
        messages: list[Message] = []
        for message in conversation.messages:
            if message.role == "assistant":
                key = history.key(message)
                known = self._replies.get(key)
                if known is not None and self._same_thought(message, known):
                    self._replies.move_to_end(key)
                    message = known
            history.add(message)
            messages.append(message)
        return replace(conversation, messages=tuple(messages))

    def remember(self, conversation: Conversation, reply: Message) -> None:
        """Keeps a reply under the conversation that it answered. Both are normalised."""
        history = History(conversation)
        for message in conversation.messages:
            history.add(message)
        self._replies[history.key(reply)] = reply
        while len(self._replies) > self._max_entries:
            self._replies.popitem(last=False)

    def beginnings(self, text: str) -> list[Beginning]:
        """All known beginnings of a marked text, the longest first."""
        lengths = sorted(length for length in self._lengths if length <= len(text))
        found: list[Beginning] = []
        for _, digest in _digests(text, lengths):
            known = self._known.get(digest)
            if known is not None:
                self._known.move_to_end(digest)
                found.append(known)
        return found[::-1]

    def learn(self, text: str, ids: Sequence[int], cuts: Iterable[Cut]) -> None:
        """Makes the beginnings of a marked text known, up to each of `cuts`."""
        whole = array("I", ids)
        places = {cut.length: cut for cut in cuts}
        # Beginnings that are known already move to the new ids where these agree, so that one list serves them all.
        lengths = sorted({*places, *(length for length in self._lengths if length <= len(text))})
        for length, digest in _digests(text, lengths):
            known = self._known.get(digest)
            if length in places:
                self._put(digest, Beginning(length, places[length].count, places[length].closed, whole))
            elif known is not None and known.ids[: known.count] == whole[: known.count]:
                self._put(digest, Beginning(length, known.count, known.closed, whole))
        while self._known and (self.tokens > self._max_tokens or len(self._known) > self._max_entries):
            self._drop(next(iter(self._known)))

    def _same_thought(self, message: Message, known: Message) -> bool:
        if not message.reasoning and self._restore_reasoning:
            return True
        return (message.reasoning or "").strip() == (known.reasoning or "").strip()

    def _put(self, digest: bytes, new: Beginning) -> None:
        if digest in self._known:
            self._drop(digest)
        self._known[digest] = new
        self._lengths[new.length] += 1
        if not self._uses[id(new.ids)]:
            self.tokens += len(new.ids)
        self._uses[id(new.ids)] += 1

    def _drop(self, digest: bytes) -> None:
        old = self._known.pop(digest)
        self._lengths[old.length] -= 1
        if not self._lengths[old.length]:
            del self._lengths[old.length]
        self._uses[id(old.ids)] -= 1
        if not self._uses[id(old.ids)]:
            del self._uses[id(old.ids)]
            self.tokens -= len(old.ids)


class History:
    """A running hash of what a conversation means: texts as they are, arguments by value."""

    def __init__(self, conversation: Conversation) -> None:
        self._hash = blake2b(digest_size=16)
        schemas = [tool.schema for tool in conversation.offered]
        self._hash.update(_bytes([schemas, dict(conversation.template_kwargs)]))

    def key(self, message: Message) -> bytes:
        """Stands for this message after all that were added."""
        with_message = self._hash.copy()
        with_message.update(_meaning(message))
        return with_message.digest()

    def add(self, message: Message) -> None:
        self._hash.update(_meaning(message))


def _meaning(message: Message) -> bytes:
    """A thought is no part of it: clients may leave it out."""
    calls = [[call.id, call.name, _arguments(call.arguments)] for call in message.tool_calls]
    return _bytes([message.role, message.content, calls, message.tool_call_id, message.name])


def _arguments(text: str) -> Any:
    try:
        return _by_value(read_json(text or "{}"))
    except ValueError:
        return text


def _by_value(value: Any) -> Any:
    """Numbers as a client that reads them as doubles would write them; what a double cannot hold is null."""
    if isinstance(value, Number):
        double = float(value)
        return None if double in (float("inf"), float("-inf")) else double
    if isinstance(value, dict):
        return {key: _by_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_by_value(item) for item in value]
    return value


def _bytes(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, default=str)
    return f"{len(text)}:{text}".encode()


def _digests(text: str, lengths: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """The hashes of a text's beginnings, in one pass."""
    running, at = blake2b(digest_size=16), 0
    for length in lengths:
        running.update(text[at:length].encode())
        at = length
        yield length, running.digest()
