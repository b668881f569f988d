"""Thoughts that clients leave out: the model needs its own back while it works with tools, and many do not send them.

A reply is known again by the ids of its calls, which no other call has, or else by its meaning after all that was said
before it. Instructions count for nothing there: clients put the time of day into them.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from vllm_mlx.chat.conversation import Conversation, Message, is_own_call_id
from vllm_mlx.chat.transcript import History


class Thoughts:
    """The latest thoughts, within bounds."""

    def __init__(self, *, max_entries: int = 16384, max_characters: int = 32 * 2**20) -> None:
        self._max_entries = max_entries
        self._max_characters = max_characters
        self._known: OrderedDict[str | bytes, str] = OrderedDict()
        self._characters = 0

    def remember(self, history: Sequence[Message], reply: Message) -> None:
        """Keeps the thought of a reply to `history`, both normalised."""
        if not reply.reasoning:
            return
        for key in _keys(reply, _chain(history)):
            self._put(key, reply.reasoning)

    def restore(self, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The messages, normalised, with the thoughts that their client left out."""
        restored: list[Message] = []
        chain = History(Conversation(()))
        for message in messages:
            if message.role == "assistant" and not message.reasoning:
                thought = next((found for key in _keys(message, chain) if (found := self._get(key))), None)
                restored.append(message if thought is None else replace(message, reasoning=thought))
            else:
                restored.append(message)
            _follow(chain, message)
        return tuple(restored)

    def _put(self, key: str | bytes, thought: str) -> None:
        self._characters += len(thought) - len(self._known.pop(key, ""))
        self._known[key] = thought
        while self._characters > self._max_characters or len(self._known) > self._max_entries:
            _, old = self._known.popitem(last=False)
            self._characters -= len(old)

    def _get(self, key: str | bytes) -> str | None:
        thought = self._known.get(key)
        if thought is not None:
            self._known.move_to_end(key)
        return thought


def _chain(messages: Iterable[Message]) -> History:
    chain = History(Conversation(()))
    for message in messages:
        _follow(chain, message)
    return chain


def _follow(chain: History, message: Message) -> None:
    if message.role not in ("system", "developer"):
        chain.add(message)


def _keys(message: Message, chain: History) -> Iterator[str | bytes]:
    yield from (call.id for call in message.tool_calls if is_own_call_id(call.id))
    yield chain.key(message)
