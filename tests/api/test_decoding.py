"""What the histories and tools of Anthropic messages and of the Responses API are to the model."""

import json

import pytest

from vllm_mlx.api import chat_completions, messages, responses
from vllm_mlx.api.errors import ApiError
from vllm_mlx.api.playback import parse_line, replay_engine
from vllm_mlx.api.requests import parse_json
from vllm_mlx.api.sealed import seal
from vllm_mlx.api.service import Service
from vllm_mlx.chat.conversation import Message, ToolCall, ToolChoice
from vllm_mlx.config import EngineConfig, ServeConfig

USER = Message("user", "hi")


@pytest.fixture
def service(chat):
    config = ServeConfig(engine=EngineConfig(model="demo"))
    service = Service(config, chat, replay_engine([parse_line({"output": "x"})], config, chat))
    yield service
    service.close()


def decoded(codec, service, request):
    """A request, as its JSON would be read."""
    return codec.decode(codec.wire.read(parse_json(json.dumps(request).encode())), service)


def assistant(content="", reasoning=None, *calls):
    return Message("assistant", content, reasoning=reasoning, tool_calls=calls)


def result(id, content):
    return {"type": "tool_result", "tool_use_id": id, **content}


TOOL_USE = {"type": "tool_use", "id": "t1", "name": "ls", "input": {"p": "."}}
LS = ToolCall("t1", "ls", '{"p":"."}')

ANTHROPIC = {
    # the messages, what they are
    "a string": ([{"role": "user", "content": "hi"}], [USER]),
    "blocks join": (
        [{"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}],
        [USER],
    ),
    "a cache mark changes nothing": (
        [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}],
        [USER],
    ),
    "system inside": (
        [{"role": "user", "content": "hi"}, {"role": "system", "content": [{"type": "text", "text": "S"}]}],
        [USER, Message("system", "S")],
    ),
    "thinking, text and calls": (
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "any"},
                    {"type": "text", "text": "I look."},
                    TOOL_USE,
                ],
            }
        ],
        [assistant("I look.", "hm", LS)],
    ),
    "thinking without a signature": (
        [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}],
        [assistant("", "hm")],
    ),
    "thinking inside its signature": (
        [{"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": seal("hm")}]}],
        [assistant("", "hm")],
    ),
    "thinking from elsewhere": (
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "thinking", "thinking": "", "signature": "thought1.x"},
                    {"type": "text", "text": "a"},
                ],
            }
        ],
        [assistant("a")],
    ),
    "what ran elsewhere": (
        [{"role": "assistant", "content": [{"type": "server_tool_use", "id": "s"}, {"type": "text", "text": "a"}]}],
        [assistant("a")],
    ),
    "results before the text beside them": (
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi"},
                    result("a", {"content": "1"}),
                    result("b", {"content": "2"}),
                ],
            }
        ],
        [Message("tool", "1", tool_call_id="a"), Message("tool", "2", tool_call_id="b"), USER],
    ),
    "a result of blocks": (
        [
            {
                "role": "user",
                "content": [result("a", {"content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]})],
            }
        ],
        [Message("tool", "12", tool_call_id="a")],
    ),
    "a result of nothing": ([{"role": "user", "content": [result("a", {})]}], [Message("tool", "", tool_call_id="a")]),
    "a result that is an error": (
        [{"role": "user", "content": [result("a", {"content": "no", "is_error": True})]}],
        [Message("tool", "[error]\nno", tool_call_id="a")],
    ),
    "a result with an image": (
        [
            {
                "role": "user",
                "content": [result("a", {"content": [{"type": "text", "text": "T"}, {"type": "image", "source": {}}]})],
            }
        ],
        [Message("tool", "T[image left out: this model reads text only]", tool_call_id="a")],
    ),
    "text behind its result": (
        [{"role": "user", "content": [result("a", {"content": "1"}), {"type": "text", "text": "hi"}]}],
        [Message("tool", "1", tool_call_id="a"), USER],
    ),
    "null where a thought would be": (
        [{"role": "assistant", "content": [{"type": "thinking", "thinking": None, "signature": None}]}],
        [assistant("")],
    ),
    "a result that names a tool": (
        [{"role": "user", "content": [result("a", {"content": [{"type": "tool_reference", "tool_name": "f"}]})]}],
        [Message("tool", "[tool: f]", tool_call_id="a")],
    ),
    "a document of text": (
        [
            {
                "role": "user",
                "content": [{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}}],
            }
        ],
        [USER],
    ),
}


@pytest.mark.parametrize(("wire", "expected"), ANTHROPIC.values(), ids=ANTHROPIC)
def test_anthropic_messages(service, wire, expected):
    request = decoded(messages.CODEC, service, {"max_tokens": 5, "messages": wire})
    assert list(request.conversation.messages) == expected


TEXTS = [{"type": "text", "text": "a"}]
MISREAD = [
    # the messages' fields, the field at fault
    ("assistant", [*TEXTS, {"type": "thinking", "thinking": 1}], "content[1].thinking"),
    ("assistant", [{"type": "thinking", "thinking": ["a"]}], "content[0].thinking"),
    ("assistant", [{"type": "thinking", "thinking": "", "signature": 5}], "content[0].signature"),
    ("assistant", [{"type": "redacted_thinking", "data": 5}], "content[0].data"),
    ("assistant", [*TEXTS, {"type": "text", "text": None}], "content[1].text"),
    ("assistant", [{"type": "tool_use", "id": 5, "name": "f"}], "content[0].id"),
    ("user", [result("a", {}), {"type": "document", "source": {}}], "content[1]"),
    ("user", [*TEXTS, {}], "content[1]"),
    ("user", [{"type": "document", "source": {"type": "content", "content": [*TEXTS, 5]}}],
     "content[0].source.content[1]"),
]  # fmt: skip


@pytest.mark.parametrize(("role", "content", "param"), MISREAD)
def test_a_block_at_fault_is_named_where_it_stands(service, role, content, param):
    with pytest.raises(ApiError) as refused:
        decoded(messages.CODEC, service, {"max_tokens": 5, "messages": [{"role": role, "content": content}]})
    assert (refused.value.status, refused.value.param) == (400, f"messages[0].{param}")


def test_a_system_block_at_fault_is_named_behind_a_billing_block(service):
    billing = {"type": "text", "text": "x-anthropic-billing-header: a"}
    wire = {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "system": [billing, {"type": "image"}]}
    with pytest.raises(ApiError) as refused:
        decoded(messages.CODEC, service, wire)
    assert refused.value.param == "system[1]"


CHAT = {
    # the messages, what they are
    "a result with an image": (
        [{"role": "tool", "tool_call_id": "a", "content": [*TEXTS, {"type": "image_url", "image_url": {"url": "x"}}]}],
        [Message("tool", "a[image left out: this model reads text only]", tool_call_id="a")],
    ),
    "a refusal": ([{"role": "assistant", "content": None, "refusal": "no"}], [assistant("no")]),
    "a refusal beside a text": ([{"role": "assistant", "content": "a", "refusal": "no"}], [assistant("a")]),
    "a call of the older form": (
        [
            {"role": "assistant", "content": None, "function_call": {"name": "ls", "arguments": '{"p":"."}'}},
            {"role": "function", "name": "ls", "content": "r"},
        ],
        [assistant("", None, ToolCall("", "ls", '{"p":"."}')), Message("tool", "r", name="ls")],
    ),
    "a thought under its second name": (
        [{"role": "assistant", "content": "a", "reasoning_content": "", "reasoning": "hm"}],
        [assistant("a", "hm")],
    ),
    "a thought in details": (
        [{"role": "assistant", "content": "a", "reasoning": "", "reasoning_details": [{"text": "h"}, {"text": "m"}]}],
        [assistant("a", "hm")],
    ),
}


@pytest.mark.parametrize(("wire", "expected"), CHAT.values(), ids=CHAT)
def test_chat_messages(service, wire, expected):
    assert list(decoded(chat_completions.CODEC, service, {"messages": wire}).conversation.messages) == expected


SYSTEMS = {
    # the system field, its text
    "a string": ("be brief", "be brief"),
    "blocks": ([{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}], "be brief"),
    "a billing block": (
        [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; n=2;"},
            {"type": "text", "text": "be brief"},
        ],
        "be brief",
    ),
    "a billing line": ("x-anthropic-billing-header: cc_version=1;\nbe brief", "be brief"),
    "a billing line in a block": ([{"type": "text", "text": "x-anthropic-billing-header: a\nbe brief"}], "be brief"),
    "nothing else": ("x-anthropic-billing-header: cc_version=1;", None),
    "a later mention": ("be brief\nx-anthropic-billing-header: a", "be brief\nx-anthropic-billing-header: a"),
}


@pytest.mark.parametrize(("system", "text"), SYSTEMS.values(), ids=SYSTEMS)
def test_the_system_text_stands_first(service, system, text):
    wire = {"max_tokens": 5, "system": system, "messages": [{"role": "user", "content": "hi"}]}
    request = decoded(messages.CODEC, service, wire)
    assert list(request.conversation.messages) == ([] if text is None else [Message("system", text)]) + [USER]


def test_only_what_the_model_reads_of_a_tool_is_offered(service):
    tool = {
        "name": "ls",
        "description": "Lists.",
        "input_schema": {"type": "object", "maximum": 1.50},
        "cache_control": {"type": "ephemeral"},
        "eager_input_streaming": True,
        "defer_loading": True,
    }
    hosted = {"type": "web_search_20250305", "name": "web_search"}
    wire = {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}], "tools": [tool, hosted]}
    (offered,) = decoded(messages.CODEC, service, wire).conversation.tools
    schema = tool["input_schema"] | {"maximum": "1.5"}
    assert offered.function == {"name": "ls", "description": "Lists.", "parameters": schema}
    assert list(offered.function) == ["name", "description", "parameters"]


@pytest.mark.parametrize("strict", [True, False, None])
def test_a_strict_tool_stays_one(service, strict):
    flag = {} if strict is None else {"strict": strict}
    anthropic = {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    found = [
        decoded(messages.CODEC, service, {**anthropic, "tools": [{"name": "f", "input_schema": {}, **flag}]}),
        decoded(responses.CODEC, service, {"input": "hi", "tools": [{"type": "function", "name": "f", **flag}]}),
    ]
    assert [request.conversation.tools[0].function.get("strict", False) for request in found] == [bool(strict)] * 2


def test_what_anthropic_fields_become(service):
    wire = {
        "model": "m",
        "max_tokens": 5,
        "stream": True,
        "stop_sequences": ["X"],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 20,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"effort": "high"},
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "f", "input_schema": {}}],
        "tool_choice": {"type": "tool", "name": "f"},
        "context_management": {"edits": []},
        "some_beta": {"x": 1},
    }
    request = decoded(messages.CODEC, service, wire)
    assert (request.model, request.stream, request.max_tokens, request.stop) == ("m", True, 5, ("X",))
    assert request.sampling == {"temperature": 0.5, "top_p": 0.9, "top_k": 20}
    assert request.thinking_budget == 1024
    assert request.conversation.tool_choice == ToolChoice("named", "f")
    assert request.conversation.template_kwargs == {"thinking": {"type": "enabled"}, "reasoning_effort": "high"}


@pytest.mark.parametrize("last", [{"role": "assistant", "content": "One, "}, {"role": "user", "content": "x"}])
def test_a_reply_goes_on_where_the_client_has_begun_it(service, last):
    wire = {"max_tokens": 5, "messages": [{"role": "user", "content": "count"}, last]}
    conversation = decoded(messages.CODEC, service, wire).conversation
    assert conversation.continue_final_message is (last["role"] == "assistant")


def call(name="ls", arguments='{"p": "."}', id="c1", **more):
    return {"type": "function_call", "call_id": id, "name": name, "arguments": arguments, **more}


def output(value, id="c1"):
    return {"type": "function_call_output", "call_id": id, "output": value}


def thought(**fields):
    return {"type": "reasoning", "id": "rs_1", "summary": [], **fields}


HM = {"content": [{"type": "reasoning_text", "text": "hm"}]}
C1 = ToolCall("c1", "ls", '{"p": "."}')
TEXT = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}

ITEMS = {
    # the input, what it is
    "a string": ("hi", [USER]),
    "easy messages": (
        [{"role": "developer", "content": "D"}, {"role": "user", "content": "hi"}],
        [Message("developer", "D"), USER],
    ),
    "message items": (
        [{"type": "message", "id": "m", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        [USER],
    ),
    "one reply is one message": (
        [thought(**HM), TEXT, call(), output("r")],
        [assistant("I look.", "hm", C1), Message("tool", "r", tool_call_id="c1")],
    ),
    "two calls": (
        [call(), call(id="c2"), output("1"), output("2", "c2")],
        [
            assistant("", None, C1, ToolCall("c2", "ls", C1.arguments)),
            Message("tool", "1", tool_call_id="c1"),
            Message("tool", "2", tool_call_id="c2"),
        ],
    ),
    "two turns": (
        [call(), output("1"), call(id="c2"), output("2", "c2")],
        [
            assistant("", None, C1),
            Message("tool", "1", tool_call_id="c1"),
            assistant("", None, ToolCall("c2", "ls", C1.arguments)),
            Message("tool", "2", tool_call_id="c2"),
        ],
    ),
    "two messages are two turns": (
        [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
        [assistant("a"), assistant("b")],
    ),
    "text around a call": ([TEXT, call(), {**TEXT, "content": " Done."}], [assistant("I look. Done.", None, C1)]),
    "a packed thought": ([thought(encrypted_content=seal("hm")), TEXT], [assistant("I look.", "hm")]),
    "a foreign packed thought": ([thought(encrypted_content="gAAAA"), TEXT], [assistant("I look.")]),
    "a summary": ([thought(summary=[{"type": "summary_text", "text": "hm"}]), TEXT], [assistant("I look.", "hm")]),
    "null content": ([thought(content=None, encrypted_content=None), TEXT], [assistant("I look.")]),
    "an output of parts": (
        [call(), output([{"type": "input_text", "text": "T"}, {"type": "input_image", "image_url": "x"}])],
        [assistant("", None, C1), Message("tool", "T[image left out: this model reads text only]", tool_call_id="c1")],
    ),
    "a custom call": (
        [
            {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": 'a\n"b"'},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
        ],
        [
            assistant("", None, ToolCall("c1", "patch", '{"input":"a\\n\\"b\\""}')),
            Message("tool", "ok", tool_call_id="c1"),
        ],
    ),
    "broken arguments": (
        [call(arguments='{"p": "'), output("r")],
        [
            assistant("", None, ToolCall("c1", "ls", '{"arguments":"{\\"p\\": \\""}')),
            Message("tool", "r", tool_call_id="c1"),
        ],
    ),
    "what ran elsewhere": ([{"type": "web_search_call", "id": "w"}, {"role": "user", "content": "hi"}], [USER]),
    "an unknown reference without a type": ([{"id": "rs_9"}, {"role": "user", "content": "hi"}], [USER]),
    "a message whose type is null": ([{"type": None, "role": "user", "content": "hi"}], [USER]),
    "an unknown reference": ([{"type": "item_reference", "id": "rs_9"}, {"role": "user", "content": "hi"}], [USER]),
}


@pytest.mark.parametrize(("wire", "expected"), ITEMS.values(), ids=ITEMS)
def test_items(service, wire, expected):
    request = decoded(responses.CODEC, service, {"input": wire})
    assert list(request.conversation.messages) == expected


def test_instructions_stand_first(service):
    request = decoded(responses.CODEC, service, {"input": "hi", "instructions": "I0"})
    assert list(request.conversation.messages) == [Message("system", "I0"), USER]


SPAWN = {
    "type": "function",
    "name": "spawn",
    "description": "Spawns.",
    "parameters": {"type": "object"},
    "strict": False,
}
PATCH = {
    "type": "custom",
    "name": "patch",
    "description": "Edits.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: X"},
}


def test_tools_are_functions_to_the_model(service):
    namespace = {"type": "namespace", "name": "agents", "description": "", "tools": [SPAWN]}
    tools = [namespace, PATCH, {"type": "web_search"}]
    history = [call("spawn", namespace="agents"), output("r")]
    request = decoded(responses.CODEC, service, {"input": history, "tools": tools})
    spawn, patch = [tool.function for tool in request.conversation.tools]
    assert spawn == {"name": "spawn", "description": "Spawns.", "parameters": {"type": "object"}}
    assert patch["name"] == "patch"
    assert patch["description"] == "Edits.\n\nThe input follows this lark grammar:\nstart: X"
    assert patch["parameters"]["required"] == ["input"]
    assert patch["parameters"]["properties"]["input"]["type"] == "string"
    assert request.conversation.messages[0].tool_calls[0].name == "spawn"


def test_tools_between_the_messages_are_offered_after_the_others(service):
    added = {"type": "additional_tools", "role": "developer", "tools": [PATCH]}
    wire = {"input": [added, {"role": "user", "content": "hi"}], "tools": [SPAWN]}
    conversation = decoded(responses.CODEC, service, wire).conversation
    assert [tool.name for tool in conversation.tools] == ["spawn", "patch"]
    assert list(conversation.messages) == [USER]


def test_what_follows_a_stored_response_is_named_by_its_own_place(service):
    user = {"type": "message", "role": "user", "content": "hi"}
    service.responses.put("resp_1", b"{}", [user], [{**TEXT, "id": "msg_1"}])
    wire = {"input": [{"id": "rs_9"}, {"role": "robot"}], "previous_response_id": "resp_1"}
    with pytest.raises(ApiError) as refused:
        decoded(responses.CODEC, service, wire)
    assert refused.value.param == "input[1].role"


def test_a_stored_response_needs_no_input(service):
    user = {"type": "message", "role": "user", "content": "hi"}
    service.responses.put("resp_1", b"{}", [user], [{**TEXT, "id": "msg_1"}])
    request = decoded(responses.CODEC, service, {"previous_response_id": "resp_1"})
    assert list(request.conversation.messages) == [USER, assistant("I look.")]


def test_a_name_that_two_namespaces_have_goes_by_both_names(service):
    tools = [{"type": "namespace", "name": name, "tools": [SPAWN]} for name in ("a", "b")]
    history = [call("spawn", namespace="b"), output("r")]
    conversation = decoded(responses.CODEC, service, {"input": history, "tools": tools}).conversation
    assert [tool.name for tool in conversation.tools] == ["a__spawn", "b__spawn"]
    assert conversation.messages[0].tool_calls[0].name == "b__spawn"


def allowed(*tools, **more):
    return {"type": "allowed_tools", "mode": "auto", "tools": list(tools), **more}


def nested(kind, name):
    """A tool of a choice as chat completions write it."""
    return {"type": kind, kind: {"name": name}}


CHOICES = [
    # the choice, the mode, the name, the tools that are allowed of those that are offered
    (None, "auto", None, None),
    ("required", "required", None, None),
    ("none", "none", None, None),
    ({"type": "function", "name": "spawn"}, "named", "spawn", None),
    ({"type": "custom", "name": "patch"}, "named", "patch", None),
    (allowed({"type": "custom", "name": "patch"}, mode="required"), "required", None, ("patch",)),
    (allowed({"type": "custom", "name": "patch"}, {"type": "mcp", "server_label": "s"}), "auto", None, ("patch",)),
    (allowed({"type": "web_search"}), "none", None, ()),
]


@pytest.mark.parametrize(("choice", "mode", "name", "only"), CHOICES)
def test_tool_choice_of_responses(service, choice, mode, name, only):
    wire = {"input": "hi", "tools": [SPAWN, PATCH], "tool_choice": choice, "parallel_tool_calls": False}
    conversation = decoded(responses.CODEC, service, wire).conversation
    assert conversation.tool_choice == ToolChoice(mode, name, parallel=False, allowed=only)
    assert [tool.name for tool in conversation.offered] == ([] if mode == "none" else ["spawn", "patch"])


def test_an_allowed_tool_of_a_namespace_is_known_by_both_names(service):
    tools = [{"type": "namespace", "name": name, "tools": [SPAWN]} for name in ("a", "b")]
    choice = allowed({"type": "function", "name": "spawn", "namespace": "b"})
    request = decoded(responses.CODEC, service, {"input": "hi", "tools": tools, "tool_choice": choice})
    assert request.conversation.tool_choice.allowed == ("b__spawn",)


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_of_chat_completions(service, mode):
    tools = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [nested("function", "g")]}}
    wire = {"messages": [{"role": "user", "content": "hi"}], "tools": tools, "tool_choice": choice}
    conversation = decoded(chat_completions.CODEC, service, wire).conversation
    assert conversation.tool_choice == ToolChoice(mode, allowed=("g",))
    assert [tool.name for tool in conversation.offered] == ["f", "g"]


REFUSED = [
    # the request, the field at fault
    ({}, "input"),
    ({"input": []}, "input"),
    ({"input": 5}, "input"),
    ({"input": [5]}, "input[0]"),
    ({"input": [{"content": "x"}]}, "input[0].type"),
    ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
    ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
    ({"input": [{"type": "function_call_output", "output": "f"}]}, "input[0].call_id"),
    ({"input": "x", "tools": [{"type": "function"}]}, "tools[0].name"),
    ({"input": "x", "tools": [{}]}, "tools[0].type"),
    ({"input": "x", "tools": [SPAWN, SPAWN]}, "tools[1].name"),
    ({"input": "x", "tools": [{"type": "namespace", "name": "n"}]}, "tools[0].tools"),
    ({"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": [5]}]}, "tools[0].tools[0]"),
    ({"input": [{"type": "additional_tools"}]}, "input[0].tools"),
    ({"input": [{"type": "additional_tools", "tools": [SPAWN]}], "tools": [SPAWN]}, "input[0].tools[0].name"),
    ({"input": "x", "tool_choice": "required"}, "tool_choice"),
    ({"input": "x", "tool_choice": {"type": "web_search"}}, "tool_choice"),
    ({"input": "x", "tools": [SPAWN], "tool_choice": {"type": "function", "name": "nope"}}, "tool_choice"),
    ({"input": "x", "tools": [SPAWN], "tool_choice": allowed(mode=None)}, "tool_choice.mode"),
    ({"input": "x", "tools": [SPAWN], "tool_choice": allowed(mode="none")}, "tool_choice.mode"),
    ({"input": "x", "tools": [SPAWN], "tool_choice": allowed(tools=None)}, "tool_choice.tools"),
    ({"input": "x", "tools": [SPAWN], "tool_choice": allowed("spawn")}, "tool_choice.tools[0]"),
    ({"input": "x", "tools": [SPAWN], "tool_choice": allowed(SPAWN, {**SPAWN, "name": "f"})}, "tool_choice.tools[1]"),
    ({"input": "x", "tools": [SPAWN], "tool_choice": allowed({"type": "mcp"}, mode="required")}, "tool_choice"),
    ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
    ({"input": "x", "max_output_tokens": 10**30}, "max_output_tokens"),
    ({"input": "x", "temperature": -1}, "temperature"),
    ({"input": "x", "background": True}, "background"),
    ({"input": "x", "conversation": "c"}, "conversation"),
    ({"input": "x", "prompt": {"id": "p"}}, "prompt"),
    ({"input": "x", "truncation": "all"}, "truncation"),
    ({"input": "x", "top_logprobs": 2}, "top_logprobs"),
    ({"input": "x", "top_logprobs": 21, "include": ["message.output_text.logprobs"]}, "top_logprobs"),
    ({"input": "x", "previous_response_id": "resp_9"}, "previous_response_id"),
]


@pytest.mark.parametrize(("wire", "param"), REFUSED)
def test_what_responses_cannot_serve_is_refused_by_name(service, wire, param):
    with pytest.raises(ApiError) as refused:
        decoded(responses.CODEC, service, wire)
    assert refused.value.param == param
    assert refused.value.status == (404 if param == "previous_response_id" else 400)
