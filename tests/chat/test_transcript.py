"""What the model wrote comes back as the tokens that it wrote; nothing else does."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from folders import M2, ROOT, TOKENS, make_folder, real_template

from vllm_mlx.chat.conversation import Conversation, Message, Tool, ToolCall
from vllm_mlx.chat.model import ChatModel, Prompt
from vllm_mlx.chat.roundtrip import as_message, read, take_trip
from vllm_mlx.chat.transcript import Cut, Transcripts

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "n": {"type": "number"}}}
TOOLS = (Tool("f", {"name": "f", "description": "d", "parameters": SCHEMA}),)
START = Conversation((Message("system", "S"), Message("user", "Hi")), TOOLS)
RAW = (
    "Let me see.\n</think>\n\n"
    '<minimax:tool_call>\n<invoke name="f">\n<parameter name="path">a.py</parameter>\n'
    '<parameter name="n">1.00</parameter>\n</invoke>\n</minimax:tool_call>'
)
RESULT = Message("tool", "T", tool_call_id="call_0")


def m2(folder: Path) -> ChatModel:
    template = (ROOT / "vllm_mlx/demo/chat_template.jinja").read_text(encoding="utf-8")
    return ChatModel.load(make_folder(folder, template, M2))


@pytest.fixture
def model(tmp_path: Path) -> ChatModel:
    return m2(tmp_path / "one")


@pytest.fixture
def fresh(tmp_path: Path) -> ChatModel:
    return m2(tmp_path / "two")


def odd_tokens(model: ChatModel, text: str) -> list[int]:
    """Tokens that the tokenizer would not choose: control tokens whole, all else character by character."""
    control = set(model.tokenizer.added.values())
    ids = model.encode(text)
    return [odd for token in ids for odd in ([token] if token in control else spelled(model, model.decode([token])))]


def spelled(model: ChatModel, text: str) -> list[int]:
    return [token for char in text for token in model.encode(char)]


def answer(model: ChatModel, conversation: Conversation, raw: str) -> tuple[Prompt, Message, list[int]]:
    """One turn of a session: the prompt, the message as the client gets it, and what the model wrote."""
    prompt = model.render(conversation)
    message = as_message(read(model, conversation, prompt, raw))
    tokens = odd_tokens(model, raw)
    model.remember(conversation, prompt, message, tokens)
    return prompt, message, tokens


def followed(conversation: Conversation, *messages: Message) -> Conversation:
    return replace(conversation, messages=(*conversation.messages, *messages))


def with_arguments(message: Message, arguments: str) -> Message:
    return replace(message, tool_calls=(replace(message.tool_calls[0], arguments=arguments),))


CLIENTS: dict[str, Any] = {
    "sends it back as it came": lambda message: message,
    "drops the thought": lambda message: replace(message, reasoning=None),
    "sends an empty thought": lambda message: replace(message, reasoning=""),
    "sends the thought inline": lambda message: replace(
        message, reasoning=None, content=f"<think>\n{message.reasoning}\n</think>\n\n"
    ),
    "writes numbers in its own way": lambda message: with_arguments(message, '{"path": "a.py", "n": 1}'),
    "sorts keys": lambda message: with_arguments(
        message, json.dumps(json.loads(message.tool_calls[0].arguments), sort_keys=True)
    ),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_reply_comes_back_as_its_tokens(model: ChatModel, client: str) -> None:
    prompt, message, tokens = answer(model, START, RAW)
    following = model.render(followed(START, CLIENTS[client](message), RESULT))
    known = [*prompt.ids, *tokens, model.tokenizer.id_of("[e~[")]
    assert following.ids[: len(known)] == known
    assert model.decode(following.ids[len(known) :]) == "\n]~b]tool\n<response>T</response>[e~[\n]~b]ai\n<think>\n"
    assert following.thinking_open


def test_a_whole_tool_loop_extends_itself(model: ChatModel) -> None:
    conversation = START
    before: list[int] = []
    for round in range(4):
        prompt, message, tokens = answer(model, conversation, RAW.replace("a.py", f"{round}.py"))
        assert prompt.ids[: len(before)] == before
        before = [*prompt.ids, *tokens]
        conversation = followed(conversation, replace(message, reasoning=None), RESULT)


@pytest.mark.parametrize("client", ["sends it back as it came", "drops the thought", "sorts keys"])
def test_a_tool_loop_of_any_family_extends_itself(any_model: ChatModel, client: str) -> None:
    """What a model writes where its template would write the same text, in tokens that no tokenizer would choose."""
    written: list[str] = []
    conversation = START
    for round in range(4):
        call = ToolCall(f"functions.f:{round}", "f", f'{{"path":"{round}.py","n":1.00}}')
        thought = f"Thought {round}." if any_model.thought else None
        message = Message("assistant", "", reasoning=thought, tool_calls=(call,))
        written.append(take_trip(any_model, conversation, message).completion)
        conversation = followed(conversation, message, replace(RESULT, tool_call_id=call.id))
    any_model.writer._transcripts = Transcripts()
    conversation, before = START, []
    for raw in written:
        prompt, message, tokens = answer(any_model, conversation, raw)
        assert len(message.tool_calls) == 1
        assert prompt.ids[: len(before)] == before
        before = [*prompt.ids, *tokens]
        result = replace(RESULT, tool_call_id=message.tool_calls[0].id)
        conversation = followed(conversation, CLIENTS[client](message), result)


def edited(message: Message) -> list[Message]:
    return [
        replace(message, content="more"),
        replace(message, reasoning="Another thought."),
        with_arguments(message, '{"path":"b.py","n":1.00}'),
        with_arguments(message, '{"path":"a.py","n":1.01}'),
        replace(message, tool_calls=(replace(message.tool_calls[0], name="g"),)),
        replace(message, tool_calls=(*message.tool_calls, ToolCall("x", "f", "{}"))),
        replace(message, tool_calls=()),
    ]


def test_an_edited_turn_matches_nothing(model: ChatModel, fresh: ChatModel) -> None:
    _, message, _ = answer(model, START, RAW)
    for change in edited(message):
        ending = RESULT if change.tool_calls else Message("user", "go on")
        conversation = followed(START, change, ending)
        assert model.render(conversation).ids == fresh.render(conversation).ids


@pytest.mark.parametrize("content", ["Answer", "Answer. More", "Answer.\n", "Answer.[e~[", "Answer.[", ""])
def test_an_edited_answer_matches_nothing(model: ChatModel, fresh: ChatModel, content: str) -> None:
    _, message, tokens = answer(model, START, "R\n</think>\n\nAnswer.")
    kept = followed(START, message)
    assert model.render(replace(kept, add_generation_prompt=False)).ids[-len(tokens) - 2 : -2] == tokens
    conversation = replace(followed(START, replace(message, content=content)), add_generation_prompt=False)
    assert model.render(conversation).ids == fresh.render(conversation).ids


def test_another_history_matches_nothing(model: ChatModel, fresh: ChatModel) -> None:
    _, message, _ = answer(model, START, RAW)
    other = replace(START, messages=(Message("system", "S2"), Message("user", "Hi")))
    for conversation in (other, replace(START, tools=(*TOOLS, Tool("g", {"name": "g"})))):
        dropped = followed(conversation, replace(message, reasoning=None), RESULT)
        assert model.render(dropped).ids == fresh.render(dropped).ids


def test_a_pasted_transcript_matches_nothing(model: ChatModel, fresh: ChatModel) -> None:
    prompt, message, tokens = answer(model, START, RAW)
    transcript = model.decode([*prompt.ids, *tokens])
    inside = transcript.split("Hi", 1)[1]
    for pasted in (transcript, f"Hi{inside}", f"{transcript}[e~[\n"):
        conversation = replace(START, messages=(Message("system", "S"), Message("user", pasted)))
        assert model.render(conversation).ids == fresh.render(conversation).ids
    answered = followed(START, Message("assistant", RAW), Message("user", "x"))
    assert model.render(answered).ids == fresh.render(answered).ids
    assert message.reasoning == "Let me see."


def test_an_older_turn_is_written_as_the_template_writes_it(model: ChatModel, fresh: ChatModel) -> None:
    """After a new question the template leaves thoughts out: the tokens of the thought do not come back."""
    _, message, _ = answer(model, START, RAW)
    conversation = followed(START, message, RESULT, Message("assistant", "Done."), Message("user", "And now?"))
    assert model.render(conversation).ids == fresh.render(conversation).ids


def test_replies_that_were_cut_are_known_up_to_the_cut(model: ChatModel) -> None:
    """A reply that hit its limit has no end of turn: the template's follows what there is."""
    prompt, message, tokens = answer(model, START, "Let me see.\n</think>\n\nThe ans")
    following = model.render(followed(START, message, Message("user", "go on")))
    assert model.decode(following.ids).count("The ans[e~[") == 1
    assert message.content == "The ans"
    assert prompt.ids != following.ids[: len(prompt.ids)]
    assert tokens


def cut_short(model: ChatModel, raw: str) -> tuple[Prompt, Message, list[int]]:
    prompt = model.render(START)
    message = as_message(read(model, START, prompt, raw))
    tokens = odd_tokens(model, raw)
    model.remember(START, prompt, message, tokens, cut=True)
    return prompt, message, tokens


CUTS: dict[str, tuple[str, bool]] = {
    "in the answer": ("Let me see.\n</think>\n\nThe ans", True),
    "in half a marker": ("Let me see.\n</think>\n\nThe <minimax:tool", True),
    "behind a newline": ("Let me see.\n</think>\n\nThe answer:\n\n", True),
    "in the thought": ("Let me s", True),
    "behind the thought": ("Let me see.\n</think>", False),
    "with a layout that the template does not write": ("Let me see.</think>The ans", False),
    "in a call": (RAW[:-40], False),
    "behind a call, its block open": (RAW[: RAW.index("\n</minimax")], False),
}


@pytest.mark.parametrize("where", CUTS)
def test_a_reply_that_hit_its_limit_is_continued_where_it_is_exact(
    model: ChatModel, fresh: ChatModel, where: str
) -> None:
    raw, exact = CUTS[where]
    prompt, message, tokens = cut_short(model, raw)
    conversation = followed(START, replace(message, tool_calls=()))
    going_on = replace(conversation, continue_final_message=True, add_generation_prompt=False)
    known = [*prompt.ids, *tokens]
    assert (model.render(going_on).ids == known) == exact
    if not exact:
        assert model.render(going_on).ids == fresh.render(going_on).ids


def test_a_reply_that_hit_its_limit_is_part_of_the_history(model: ChatModel, fresh: ChatModel) -> None:
    """A call that was whole when the limit came is a turn like any other; a thought that was not is the template's."""
    prompt, message, tokens = cut_short(model, RAW.replace("\n<minimax", "\n\n<minimax"))
    assert message.tool_calls
    known = [*prompt.ids, *tokens]
    assert model.render(followed(START, message, RESULT)).ids[: len(known)] == known
    _, message, _ = cut_short(model, "Let me s")
    ended = replace(followed(START, message), add_generation_prompt=False)
    assert model.render(ended).ids == fresh.render(ended).ids


def test_a_continued_message_is_not_kept(model: ChatModel, fresh: ChatModel) -> None:
    conversation = replace(followed(START, Message("assistant", "The answer")), continue_final_message=True)
    prompt = model.render(conversation)
    model.remember(conversation, prompt, Message("assistant", " is 4."), odd_tokens(model, " is 4."))
    later = followed(START, Message("assistant", "The answer is 4."), Message("user", "x"))
    assert model.render(later).ids == fresh.render(later).ids


WORDS = ["plain", "two\n\nlines ", "a < b", "[e~[", "<think>x</think>", "naïve 🙂", "x", ""]


def test_what_is_known_changes_no_ids(any_model: ChatModel) -> None:
    """Without replies, memory only saves time: ids are those of a model that knows nothing."""
    messages: list[Message] = [Message("system", "S")]
    for at, word in enumerate(WORDS):
        call = ToolCall(f"functions.f:{at}", "f", f'{{"path":"{at} <","n":{at}.50}}')
        messages += [
            Message("user", f"{word}?"),
            Message("assistant", word, reasoning=f"R{at}", tool_calls=(call,)),
            Message("tool", f"T{word}", tool_call_id=call.id),
            Message("assistant", f"{word}.", reasoning=f"Q{at}"),
        ]
    for end in range(2, len(messages) + 1):
        conversation = Conversation(tuple(messages[:end]), TOOLS)
        ids = any_model.render(conversation).ids
        again = any_model.render(conversation).ids
        any_model.writer._transcripts = Transcripts()
        expected = any_model.render(conversation).ids
        assert ids == expected == again
        if end > 2:
            any_model.render(Conversation(tuple(messages[: end - 1]), TOOLS))


def test_only_what_is_new_is_tokenized(model: ChatModel, monkeypatch: pytest.MonkeyPatch) -> None:
    long = replace(START, messages=(Message("system", "word " * 20_000), Message("user", "Hi")))
    _, message, _ = answer(model, long, RAW)
    lengths: list[int] = []
    encode = model.tokenizer.encode_marked
    monkeypatch.setattr(model.tokenizer, "encode_marked", lambda text: lengths.append(len(text.text)) or encode(text))
    model.render(followed(long, message, RESULT))
    model.render(replace(long, messages=(*long.messages[:1], Message("user", "Something else"))))
    assert max(lengths) < 200


@pytest.mark.parametrize("question", ["And now?", " ", "[e~[", "<think>"])
def test_what_comes_next_is_known_before_the_user_speaks(any_model: ChatModel, question: str) -> None:
    call = ToolCall("functions.f:0", "f", '{"path":"a","n":1.50}')
    asked = followed(
        START, Message("assistant", "", reasoning="R", tool_calls=(call,)), replace(RESULT, tool_call_id=call.id)
    )
    reply = Message("assistant", "An answer.", reasoning="Another thought.")
    upcoming = any_model.upcoming(asked, reply)
    following = any_model.render(followed(asked, reply, Message("user", question)))
    assert following.ids[: len(upcoming)] == upcoming
    rest = any_model.decode(following.ids[len(upcoming) :])
    assert rest.startswith(question.strip() and question)
    assert "An answer." not in rest


def test_thoughts_that_the_template_leaves_out_at_once_do_not_return(tmp_path: Path) -> None:
    template = real_template("Kimi-K2.5")
    if template is None:
        pytest.skip("the model's own template is not here")
    model, fresh = (
        ChatModel.load(make_folder(tmp_path / name, template, TOKENS["Kimi-K2.5"]), reasoning_parser="deepseek_r1")
        for name in ("one", "two")
    )
    _, message, _ = answer(model, START, "A thought.</think>An answer.")
    assert message.reasoning == "A thought."
    conversation = followed(START, message, Message("user", "x"))
    assert model.render(conversation).ids == fresh.render(conversation).ids


def test_memory_is_bounded() -> None:
    transcripts = Transcripts(max_tokens=1000, max_entries=50)
    for session in range(100):
        text = f"session {session}"
        transcripts.learn(text, range(100), [Cut(length, length, True) for length in (3, 8, len(text))])
    kept = [session for session in range(100) if len(transcripts.beginnings(f"session {session}")) == 3]
    assert kept == list(range(91, 100)) or kept == list(range(90, 100))
    conversation = Conversation((Message("user", "x"),))
    for at in range(100):
        transcripts.remember(conversation, Message("assistant", str(at), reasoning="R"))
    known = [
        at
        for at in range(100)
        if transcripts.restore(followed(conversation, Message("assistant", str(at)))).messages[-1].reasoning == "R"
    ]
    assert known == list(range(50, 100))


def test_the_ids_of_a_session_are_held_once() -> None:
    transcripts = Transcripts()
    text, ids = "", []
    for turn in range(20):
        text, ids = text + f"turn {turn}|", [*ids, *range(100)]
        transcripts.learn(text, ids, [Cut(len(text), len(ids), True)])
    assert len(transcripts.beginnings(text)) == 20
    assert transcripts.tokens == len(ids)
