"""`truncation: auto`: the oldest turns of a conversation that is longer than the context are left out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from vllm_mlx.chat.conversation import Conversation, Message

INSTRUCTIONS = ("system", "developer")


def shortened(conversation: Conversation, context: int, fits: Callable[[Conversation], bool]) -> Conversation:
    """The conversation without its oldest turns, as few as will do.

    Instructions stay, and all from the last user's message on, whether that fits or not; a call goes with its results.
    Turns go by the quarter of a context of so many tokens, so that the prompt does not begin anew at every request.
    """
    if fits(conversation):
        return conversation
    messages = conversation.messages
    left = conversation
    for start in _starts(messages, context):
        instructions = [message for message in messages[:start] if message.role in INSTRUCTIONS]
        left = replace(conversation, messages=(*instructions, *messages[start:]))
        if fits(left):
            break
    return left


def _starts(messages: Sequence[Message], step: int) -> Iterator[int]:
    """Where the rest may begin. A character is taken for a quarter of a token."""
    last = max((i for i, message in enumerate(messages) if message.role == "user"), default=len(messages) - 1)
    dropped, next_stop = 0, step
    for at, message in enumerate(messages[:last]):
        if message.role in INSTRUCTIONS:
            continue
        dropped += len(message.content) + len(message.reasoning or "")
        dropped += sum(len(call.arguments) for call in message.tool_calls)
        if dropped >= next_stop and messages[at + 1].role != "tool":
            next_stop = dropped + step
            yield at + 1
    yield last
