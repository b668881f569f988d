"""A turn there and back: written as history by the template, read by the parsers, written again."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tool_parsers.json_text import read_json, write_json
from vllm_mlx.chat.conversation import Conversation, Message, ToolCall
from vllm_mlx.chat.model import ChatModel, Prompt
from vllm_mlx.chat.reply import Reply, fold


@dataclass(frozen=True, slots=True)
class Trip:
    """What happened to one assistant message."""

    message: Message
    prompt: Prompt
    """What the model would have been given before it wrote the message."""
    history: Prompt
    """The conversation with the message in it."""
    completion: str
    """What the model would have written: history behind prompt, up to the end of the turn."""
    back: Message
    """The message that the parsers made of the completion."""
    again: Prompt
    """The conversation with that message in it."""

    @property
    def problem(self) -> str | None:
        """What was lost of the text, in words for the user; None: nothing."""
        if not self.history.text.startswith(self.prompt.text):
            return "the history does not begin with the prompt that the model was given"
        for what, before, after in _fields(self.message, self.back):
            if before != after:
                return f"{what} came back changed: {before!r} as {after!r}"
        if self.again.text != self.history.text:
            return f"the text changed {_difference(self.history.text, self.again.text)}"
        return None


def take_trip(model: ChatModel, before: Conversation, message: Message, *, piece: int = 7) -> Trip:
    """Sends an assistant message through history and parsers; the parsers get `piece` characters at a time.

    Raises:
        TemplateError: the template refuses the conversation.
    """
    prompt = model.render(before)
    history = with_message(model, before, message)
    completion = completion_of(model, prompt, history)
    back = as_message(read(model, before, prompt, completion, piece=piece))
    return Trip(message, prompt, history, completion, back, with_message(model, before, back))


def with_message(model: ChatModel, before: Conversation, message: Message) -> Prompt:
    """The conversation with one more message, up to the end of its turn."""
    return model.render(replace(before, messages=(*before.messages, message), add_generation_prompt=False))


def completion_of(model: ChatModel, prompt: Prompt, history: Prompt) -> str:
    """The part of a history that its last message's model would have written, the end of the turn left out."""
    text = history.text[len(prompt.text) :]
    return text[: model.writer.end_of_turn(text)]


def read(model: ChatModel, before: Conversation, prompt: Prompt, completion: str, *, piece: int = 7) -> Reply:
    """The reply that the parsers make of a completion."""
    parser = model.output_parser(before, thinking_open=prompt.thinking_open)
    pieces = (completion[at : at + piece] for at in range(0, len(completion), piece))
    events = [event for text in pieces for event in parser.feed(text)]
    return fold(events + parser.finish())


def as_message(reply: Reply) -> Message:
    """A reply as the client sends it back."""
    calls = tuple(ToolCall(call.id or f"call_{call.index}", call.name, call.arguments) for call in reply.tool_calls)
    return Message("assistant", reply.content or "", reasoning=reply.reasoning, tool_calls=calls)


def _fields(before: Message, after: Message) -> Iterator[tuple[str, str, str]]:
    yield "the thought", before.reasoning or "", after.reasoning or ""
    yield "the content", before.content, after.content
    yield "the calls", _calls(before), _calls(after)


def _calls(message: Message) -> str:
    return "; ".join(f"{call.name} {write_json(read_json(call.arguments))}" for call in message.tool_calls)


def _difference(before: str, after: str) -> str:
    at = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), len(before))
    start = max(0, at - 20)
    return f"at character {at}: {before[start : at + 20]!r} became {after[start : at + 20]!r}"
