"""What a model folder says of itself, and what its prompts look like."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from folders import M2, OWN, ROOT, TOKENS, make_folder, real_template, write

from vllm_mlx.chat.conversation import Conversation, Message, Tool, ToolCall, ToolChoice
from vllm_mlx.chat.family import recognise
from vllm_mlx.chat.model import ChatModel, ModelError
from vllm_mlx.chat.reply import fold
from vllm_mlx.chat.template import ChatTemplate, TemplateError

USER = Message("user", "Hi")
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
TOOL = Tool("f", {"name": "f", "description": "d", "parameters": SCHEMA})


def call(arguments: str, reasoning: str | None = None, content: str = "") -> Message:
    return Message("assistant", content, reasoning=reasoning, tool_calls=(ToolCall("functions.f:0", "f", arguments),))


def talk(*messages: Message, **fields: Any) -> Conversation:
    return Conversation(messages, **fields)


def loop(message: Message) -> Conversation:
    return talk(USER, message, Message("tool", "T", tool_call_id="functions.f:0"), tools=(TOOL,))


# -- the folder ------------------------------------------------------------------------------------


def test_settings_come_from_the_folder(m2_model: ChatModel) -> None:
    token = m2_model.tokenizer.id_of
    assert (m2_model.tool_call_parser, m2_model.reasoning_parser) == ("minimax_m2", "minimax_m2")
    assert m2_model.stop_ids == (token("[e~["),)
    assert m2_model.drop_ids == {token("]~!b[")}
    assert m2_model.sampling_defaults == {"temperature": 0.7, "top_k": 40}
    assert m2_model.max_model_len == 4096
    assert m2_model.close_ids() == [token("</think>")]


def folder(tmp_path: Path, template: str | None = None) -> Path:
    return make_folder(tmp_path / "model", template or (OWN / "minimal.jinja").read_text(encoding="utf-8"), M2)


PARSERS = {
    "MiniMax-M2": ("minimax_m2", "minimax_m2"),
    "MiniMax-M2.1": ("minimax_m2", "minimax_m2"),
    "MiniMax-M2.5": ("minimax_m2", "minimax_m2"),
    "MiniMax-M2.7": ("minimax_m2", "minimax_m2"),
    "MiniMax-M3": ("minimax_m3", "minimax_m3"),
    "Qwen3-0.6B": ("hermes", "qwen3"),
    "Qwen3.5-0.8B": ("qwen3_coder", "qwen3"),
    "Qwen3.5-4B": ("qwen3_coder", "qwen3"),
    "DeepSeek-V4": ("deepseek_v4", "deepseek_v4"),
    "GLM-4.7-Flash": ("glm47", "glm45"),
    "Kimi-K2.5": ("kimi_k2", "kimi_k2"),
}


@pytest.mark.parametrize("name", TOKENS)
def test_parsers_are_chosen_by_the_template(name: str) -> None:
    source = real_template(name)
    if source is None:
        pytest.skip("the model's own template is not here")
    family = recognise(ChatTemplate(source))
    assert (family.tool_parser, family.reasoning_parser) == PARSERS[name]


def test_stops_are_found_without_generation_config(tmp_path: Path) -> None:
    made = folder(tmp_path)
    (made / "generation_config.json").unlink()
    write(made / "tokenizer_config.json", {})
    model = ChatModel.load(made)
    assert model.stop_ids == (model.tokenizer.id_of("[e~["),)
    assert model.sampling_defaults == {}


def test_a_turn_may_end_with_any_token_that_the_template_writes(tmp_path: Path) -> None:
    made = folder(tmp_path, "{% for m in messages %}]~!b[{{ m.content }}</think>{% endfor %}")
    model = ChatModel.load(made)
    assert model.tokenizer.id_of("</think>") in model.stop_ids


def test_parsers_can_be_named_or_off(tmp_path: Path) -> None:
    made = folder(tmp_path)
    model = ChatModel.load(made, tool_call_parser="MiniMax-M2", reasoning_parser="none")
    assert (model.tool_call_parser, model.reasoning_parser, model.close_ids()) == ("minimax_m2", None, [])
    with pytest.raises(ModelError, match=r"'nonsense'; there are: .*minimax_m2"):
        ChatModel.load(made, tool_call_parser="nonsense")


def test_a_template_that_no_parser_fits_is_warned_of(tmp_path: Path, m2_model: ChatModel) -> None:
    assert m2_model.warnings == []
    demo = folder(tmp_path / "demo", m2_model.template.source)
    assert ChatModel.load(demo, reasoning_parser="deepseek_r1").warnings == []
    other = "{% for m in messages %}]~b]{{ m.content }}[e~[{% endfor %}{{ tools }}"
    (auto,) = ChatModel.load(folder(tmp_path, other)).warnings
    assert "no parser reads its calls" in auto
    named = ChatModel.load(folder(tmp_path, other), tool_call_parser="minimax", reasoning_parser="minimax").warnings
    assert ["minimax_m2 reads" in text for text in named] == [True, True]


def test_folders_that_cannot_be_served(tmp_path: Path) -> None:
    made = folder(tmp_path)
    (made / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json is not JSON"):
        ChatModel.load(made)
    write(made / "config.json", {"text_config": {"max_position_embeddings": 77}})
    assert ChatModel.load(made).max_model_len == 77
    (made / "chat_template.jinja").unlink()
    write(made / "chat_template.json", {})
    with pytest.raises(ModelError, match=r"chat_template\.json does not have a chat template"):
        ChatModel.load(made)
    (made / "chat_template.json").unlink()
    with pytest.raises(ModelError, match="no chat template"):
        ChatModel.load(made)
    assert ChatModel.load(made, chat_template="{{ messages[0].content }}").render(talk(USER)).text == "Hi"
    with pytest.raises(ModelError, match="no file"):
        ChatModel.load(made, chat_template="absent.jinja")


# -- prompts ---------------------------------------------------------------------------------------


def test_equal_meaning_gives_equal_prompts(any_model: ChatModel) -> None:
    opener, closer = any_model.thought or ("", "")
    groups = [
        [loop(call('{"a":"x","n":[1,{"b":2}]}')), loop(call('{ "a" : "x",\n "n": [1, {"b": 2}]}'))],
        [loop(call('{"a":"中"}')), loop(call('{"a":"\\u4e2d"}'))],
        [loop(call("{}")), loop(call("")), loop(call(" "))],
        [loop(call("{}", reasoning=None)), loop(call("{}", reasoning=""))],
        [talk(Message("system", "S"), USER), talk(Message("developer", "S"), USER)],
    ]
    if any_model.thought:
        inline = replace(call("{}"), content=f"{opener}\nR\n{closer}\n\nC")
        groups.append([loop(call("{}", reasoning="R", content="C")), loop(inline)])
    for group in groups:
        prompts = {any_model.render(conversation).text for conversation in group}
        assert len(prompts) == 1


@pytest.mark.parametrize("spelling", ["1.00", "1e0", "-0", "123456789012345678901234567890", "1e400", "1.0", "1E+2"])
def test_numbers_keep_their_spelling(any_model: ChatModel, spelling: str) -> None:
    text = any_model.render(loop(call(f'{{"z":{spelling},"a":{{"y":[{spelling}]}}}}'))).text
    assert text.count(spelling) - any_model.render(loop(call('{"z":true,"a":{"y":[true]}}'))).text.count(spelling) == 2


def test_arguments_keep_their_order(any_model: ChatModel) -> None:
    text = any_model.render(loop(call('{"zzz":1,"mmm":2,"aaa":3}'))).text
    assert text.index("zzz") < text.index("mmm") < text.index("aaa")


def test_every_text_of_a_conversation_is_in_the_prompt(any_model: ChatModel) -> None:
    late = Message("developer", "late-rule")
    conversation = talk(
        Message("system", "first-rule"),
        Message("developer", "second-rule"),
        Message("user", "first-question"),
        Message("assistant", "first-answer"),
        late,
        Message("user", "second-question"),
        call('{"a":"given-value"}', content="comment"),
        Message("tool", "tool-result", tool_call_id="functions.f:0"),
        tools=(TOOL,),
    )
    text = any_model.render(conversation).text
    words = ["first-question", "first-answer", "late-rule", "second-question", "comment", "given-value", "tool-result"]
    places = [text.index(word) for word in words]
    assert places == sorted(places)
    assert "first-rule" in text
    assert "second-rule" in text
    head = any_model.render(talk(*conversation.messages[:3], tools=(TOOL,))).text
    assert text.startswith(head[: head.index("first-question")])


def test_nothing_is_written_for_what_is_not_there(any_model: ChatModel) -> None:
    text = any_model.render(talk(USER, Message("assistant"), USER, call("{}"), Message("tool"))).text
    assert "None" not in text
    assert "undefined" not in text.lower()


@pytest.mark.parametrize("arguments", ["[1]", "{", '"x"', "1", "nonsense"])
def test_arguments_that_are_no_object_are_refused(m2_model: ChatModel, arguments: str) -> None:
    with pytest.raises(TemplateError, match=r"messages\[1\]: the arguments of a tool call"):
        m2_model.render(loop(call(arguments)))


def test_refusals_of_the_template_reach_the_client(m2_model: ChatModel) -> None:
    with pytest.raises(TemplateError, match="must follow an assistant message"):
        m2_model.render(talk(USER, Message("tool", "T")))
    with pytest.raises(TemplateError, match="at least one message"):
        m2_model.render(talk())


def test_prompts_are_those_of_transformers() -> None:
    from transformers import AutoTokenizer

    demo = ROOT / "vllm_mlx" / "demo"
    reference = AutoTokenizer.from_pretrained(str(demo))
    made = {"name": "f", "arguments": {"a": "x\n", "b": [1, None]}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Read a.py\n\n  and b < c"},
        {"role": "assistant", "content": "C", "reasoning_content": "R", "tool_calls": [{"id": "x", "function": made}]},
        {"role": "tool", "content": "T é", "tool_call_id": "x"},
    ]
    expected = reference.apply_chat_template(
        messages, tools=[TOOL.schema], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    conversation = talk(
        Message("system", "S"),
        Message("user", "Read a.py\n\n  and b < c"),
        call('{"a":"x\\n","b":[1,null]}', reasoning="R", content="C"),
        Message("tool", "T é", tool_call_id="functions.f:0"),
        tools=(TOOL,),
    )
    assert ChatModel.load(demo).render(conversation).ids == list(expected)


# -- thinking --------------------------------------------------------------------------------------


def test_thinking_is_open_when_the_prompt_opens_it(m2_model: ChatModel) -> None:
    assert m2_model.render(talk(USER)).thinking_open
    assert not m2_model.render(talk(USER, add_generation_prompt=False)).thinking_open
    assert m2_model.render(talk(Message("user", "</think>"))).thinking_open


THINKING = [
    ("MiniMax-M2.5", {}, True),
    ("MiniMax-M3", {}, False),
    ("MiniMax-M3", {"thinking_mode": "enabled"}, True),
    ("MiniMax-M3", {"thinking_mode": "adaptive"}, False),
    ("MiniMax-M3", {"enable_thinking": True}, True),
    ("MiniMax-M3", {"enable_thinking": False}, False),
    ("MiniMax-M3", {"thinking": {"type": "enabled"}}, True),
    ("MiniMax-M3", {"reasoning_effort": "high"}, True),
    ("MiniMax-M3", {"reasoning_effort": "none"}, False),
    ("Qwen3-0.6B", {}, False),
    ("Qwen3-0.6B", {"enable_thinking": False}, False),
    ("Qwen3.5-4B", {}, True),
    ("Qwen3.5-4B", {"reasoning_effort": "none"}, False),
    ("Qwen3.5-0.8B", {}, False),
    ("Qwen3.5-0.8B", {"thinking": True}, True),
    ("GLM-4.7-Flash", {}, True),
    ("GLM-4.7-Flash", {"thinking": False}, False),
    ("Kimi-K2.5", {}, True),
    ("Kimi-K2.5", {"enable_thinking": False}, False),
    ("DeepSeek-V4", {}, False),
    ("DeepSeek-V4", {"enable_thinking": True}, True),
    ("DeepSeek-V4", {"thinking_mode": "thinking"}, True),
]


@pytest.mark.parametrize(("name", "kwargs", "expected"), THINKING)
def test_one_wish_about_thinking_in_each_templates_words(
    tmp_path: Path, name: str, kwargs: dict[str, Any], expected: bool
) -> None:
    template = real_template(name)
    if template is None:
        pytest.skip("the model's own template is not here")
    model = ChatModel.load(make_folder(tmp_path, template, TOKENS[name]))
    assert model.render(talk(USER, template_kwargs=kwargs)).thinking_open is expected


# -- a message to be continued ---------------------------------------------------------------------


def test_a_final_message_is_continued(any_model: ChatModel) -> None:
    conversation = talk(USER, Message("assistant", "The answer "), continue_final_message=True)
    prompt = any_model.render(conversation)
    assert prompt.text.endswith("The answer ")
    assert not prompt.thinking_open


def test_a_thought_is_continued(m2_model: ChatModel) -> None:
    conversation = talk(USER, Message("assistant", "", reasoning="Let me "), continue_final_message=True)
    prompt = m2_model.render(conversation)
    assert prompt.text.endswith("<think>\nLet me ")
    assert prompt.thinking_open


def test_what_cannot_be_continued_is_refused(m2_model: ChatModel) -> None:
    with pytest.raises(TemplateError, match="cannot be continued"):
        m2_model.render(replace(loop(call("{}")), messages=(USER, call("{}")), continue_final_message=True))


# -- replies ---------------------------------------------------------------------------------------

REPLY = (
    'R\n</think>\n\nC\n<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">x</parameter>\n</invoke>\n'
    "</minimax:tool_call>"
)


@pytest.mark.parametrize("mode", ["auto", "none", "no tools"])
def test_calls_are_read_only_where_they_are_wanted(m2_model: ChatModel, mode: str) -> None:
    conversation = talk(USER, tools=() if mode == "no tools" else (TOOL,))
    if mode == "none":
        conversation = replace(conversation, tool_choice=ToolChoice("none"))
    decoder = m2_model.decoder(conversation, m2_model.render(conversation))
    events = [event for token in m2_model.encode(REPLY) for event in decoder.feed([token])]
    reply = fold(events + decoder.finish())
    assert reply.reasoning == "R"
    assert ("name" in m2_model.render(conversation).text) is (mode == "auto")
    if mode == "auto":
        assert (reply.content, reply.tool_calls[0].arguments) == ("C", '{"a":"x"}')
    else:
        assert reply.tool_calls == ()
        assert "<invoke" in (reply.content or "")
