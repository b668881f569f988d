"""Whether a model's text side works: what it speaks, and whether turns survive history, parsers and tokenizer."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from vllm_mlx.chat.conversation import Conversation, Message, Tool, ToolCall
from vllm_mlx.chat.model import ChatModel
from vllm_mlx.chat.prompt import Prompt
from vllm_mlx.chat.roundtrip import Trip, take_trip
from vllm_mlx.chat.template import TemplateError

Status = Literal["pass", "warn", "fail", "info"]

_QUESTION = Conversation(
    (Message("system", "Be short."), Message("user", "What is the weather?")),
    (
        Tool(
            "get_weather",
            {
                "name": "get_weather",
                "description": "Looks out of the window.",
                "parameters": {"type": "object", "properties": {"location": {"type": "string"}}},
            },
        ),
        Tool(
            "add",
            {
                "name": "add",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "x": {"type": "integer"},
                        "y": {"type": "number"},
                        "items": {"type": "array", "items": {"type": "string"}},
                    },
                },
            },
        ),
    ),
)
_ANSWER = Message("assistant", "It is sunny.\n\n- no clouds", reasoning="The user asks.\n\nI know it.")
_CALLS = Message(
    "assistant",
    "I will look.",
    reasoning="I need both tools.",
    tool_calls=(
        ToolCall("functions.get_weather:0", "get_weather", '{"location":"Shanghai, <old> town\\n"}'),
        ToolCall("functions.add:1", "add", '{"y":1.0,"x":2,"items":["left","right"]}'),
    ),
)
_WITH_THINKING = {"enable_thinking": True}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a report. A `fail` needs the user; a `warn` says what will not be as good as it could be."""

    name: str
    status: Status
    detail: str


def checks(model: ChatModel) -> list[Check]:
    """Everything that can be checked without weights."""
    question = _thinking_question(model)
    try:
        return [
            _parsers(model),
            _thoughts(model),
            *_ends(model),
            _dropped(model),
            _round_trip(model, question, "Answers come back", _ANSWER),
            *_calls(model, question),
            _ids(model, question),
            _pasted(model),
            _late_system(model),
        ]
    except TemplateError as error:
        return [Check("Chat template", "fail", str(error))]


def _thinking_question(model: ChatModel) -> Conversation:
    """The question as it is asked when the model is to think, if that can be chosen."""
    return replace(_QUESTION, template_kwargs=_WITH_THINKING) if model.reasoning_parser else _QUESTION


def _parsers(model: ChatModel) -> Check:
    name = "Tool call parser"
    if model.warnings:
        return Check(name, "fail", f"{model.tool_call_parser or 'none'}: {'; '.join(model.warnings)}")
    if model.tool_call_parser:
        return Check(name, "pass", model.tool_call_parser)
    return Check(name, "warn", "none: the chat template knows no tools")


def _thoughts(model: ChatModel) -> Check:
    if not model.reasoning_parser:
        return Check("Reasoning parser", "info", "none: the chat template writes no thoughts")
    opened = [_opened(model.render(replace(_QUESTION, template_kwargs=kwargs))) for kwargs in ({}, _WITH_THINKING)]
    switched = "" if opened[0] == opened[1] else f"; with enable_thinking: {opened[1]}"
    return Check("Reasoning parser", "pass", f"{model.reasoning_parser}; {opened[0]}{switched}")


def _opened(prompt: Prompt) -> str:
    return "the prompt opens a thought" if prompt.thinking_open else "the prompt opens no thought"


def _ends(model: ChatModel) -> Iterator[Check]:
    if not model.stop_ids:
        yield Check("End of turn", "fail", "no stop token is known: every reply would run to its token limit")
        return
    yield Check("End of turn", "pass", _tokens(model, model.stop_ids))
    if missing := set(model.stop_ids) - set(model.configured_stop_ids):
        yield Check("End of turn in the configs", "warn", f"{_tokens(model, missing)} missing there, and used anyway")


def _dropped(model: ChatModel) -> Check:
    skipped = [token for token in model.markers if model.tokenizer.added.get(token) in model.tokenizer.special_ids]
    detail = f"left out of replies: {_tokens(model, model.drop_ids) or 'none'}"
    if skipped:
        detail += f"; decoding that skips special tokens would also lose {' '.join(skipped)}"
    return Check("Special tokens", "info", detail)


def _round_trip(model: ChatModel, question: Conversation, name: str, message: Message) -> Check:
    trip = _trip(model, question, message)
    if trip.problem is None:
        return Check(name, "pass", "rendered, parsed and rendered again, the text is the same")
    thought = message.reasoning
    if (
        thought
        and thought not in trip.history.text
        and _trip(model, question, replace(message, reasoning=None)).problem is None
    ):
        return Check(name, "warn", "the template leaves their thoughts out: a next turn costs these tokens again")
    return Check(name, "fail", trip.problem)


def _calls(model: ChatModel, question: Conversation) -> Iterator[Check]:
    if not model.tool_call_parser:
        return
    name = "Tool calls come back"
    completion = _trip(model, question, _CALLS).completion
    if _CALLS.tool_calls[0].name not in completion:
        yield Check(name, "fail", "the chat template does not write the calls of a message; was it edited?")
        return
    check = _round_trip(model, question, name, _CALLS)
    edited = "; was the chat template edited? --chat-template takes the original" if check.status == "fail" else ""
    yield replace(check, detail=check.detail + edited)


def _trip(model: ChatModel, question: Conversation, message: Message) -> Trip:
    return take_trip(model, question, message if model.reasoning_parser else replace(message, reasoning=None))


def _ids(model: ChatModel, question: Conversation) -> Check:
    """Whether the tokens of prompt and reply are those of the history, before anything is remembered."""
    name = "Token ids survive a turn"
    message = _CALLS if model.tool_call_parser else _ANSWER
    trip = _trip(model, question, message)
    written = [*trip.prompt.ids, *model.encode(trip.completion)]
    if trip.history.ids[: len(written)] == written:
        return Check(name, "pass", "the history begins with the ids of prompt and reply")
    if trip.history.ids[: len(trip.prompt.ids)] == trip.prompt.ids:
        return Check(name, "warn", "the reply's ids change when it is history; the server puts the written ones back")
    return Check(name, "warn", "the prompt's last ids change when the reply is history: these are prefilled again")


def _pasted(model: ChatModel) -> Check:
    name = "Pasted control tokens stay text"
    tokens = [token for token in model.tokenizer.added if token.strip()]
    control = set(model.tokenizer.control)

    def structure(text: str) -> list[int]:
        prompt = model.render(Conversation((Message("user", text),), _QUESTION.tools))
        return [token for token in prompt.ids if token in control]

    harmless = structure("x")
    for token in tokens:
        if structure(f"x{token}x") != harmless:
            return Check(name, "fail", f"a message that spells {token} changes the prompt's structure")
    return Check(name, "pass", f"{len(tokens)} spellings tried")


def _late_system(model: ChatModel) -> Check:
    how = "written where they stand" if model.family.late_system else "written as user messages where they stand"
    return Check("Later system messages", "info", how)


def _tokens(model: ChatModel, ids: set[int] | frozenset[int] | tuple[int, ...]) -> str:
    return ", ".join(f"{model.decode([token])} ({token})" for token in sorted(ids))
