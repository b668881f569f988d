"""M3: what the template writes comes back, when things leave, and what broken or huge output does."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tool_parsers
from tests.properties.mutations import HIDDEN, check
from tool_parsers.events import ArgumentsDelta, CallAborted, CallEnd, CallStart, Event, ParserEvent, Text
from tool_parsers.json_text import Number, write_json
from tool_parsers.minimax_m3 import MinimaxM3
from vllm_mlx.chat.reply import Reply, fold
from vllm_mlx.cli._cases import Case, Setup

NS = "]<]minimax[>["
OPEN, CLOSE = f"{NS}<tool_call>\n", f"{NS}</tool_call>"


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


WRITE = tool(
    "write",
    path={"type": "string"},
    content={"type": "string"},
    mode={"type": "integer"},
    lines={"type": "array", "items": {"type": "integer"}},
    any={},
)


def element(key: str, inside: str) -> str:
    return f"{NS}<{key}>{inside}{NS}</{key}>"


def block(*invokes: str) -> str:
    return OPEN + "".join(invokes) + CLOSE


def invoke(name: str, inside: str) -> str:
    return f'{NS}<invoke name="{name}">{inside}{NS}</invoke>\n'


def sent(parser: MinimaxM3, text: str) -> str:
    """Feeds; returns the arguments' text that left."""
    return "".join(event.json for event in parser.feed(text) if isinstance(event, ArgumentsDelta))


def parse(text: str, tools: Any = None, size: int = 1 << 30) -> Reply:
    parser = MinimaxM3(tools)
    events: list[ParserEvent] = []
    for at in range(0, len(text), size):
        events += parser.feed(text[at : at + size])
    events += parser.finish()
    return fold(event for event in events if isinstance(event, Event))


def test_names_and_template() -> None:
    assert tool_parsers.get("minimax-m3") is tool_parsers.get("minimax_m3") is MinimaxM3
    assert MinimaxM3.speaks("{%- set ns_token = ']<]minimax[>[' -%}")
    assert not MinimaxM3.speaks("<tool_call>")


# Round trips: a small writer of the template's rules, and everything that it can express.


def xml(value: Any) -> str:
    match value:
        case dict():
            return "".join(element(key, xml(member)) for key, member in value.items())
        case list():
            return "".join(element("item", xml(item)) for item in value)
        case bool():
            return "true" if value else "false"
    return str(value)


def schema_of(value: Any) -> dict[str, Any]:
    match value:
        case dict():
            return {"type": "object", "properties": {key: schema_of(member) for key, member in value.items()}}
        case list():
            return {"type": "array", "prefixItems": [schema_of(item) for item in value]}
        case bool():
            return {"type": "boolean"}
        case Number():
            return {"type": "number"}
    return {"type": "string"}


plain = st.text(st.sampled_from('ab {}"\\/&;\n\t<>[]-1é数🧐') | st.characters(codec="utf-8"), max_size=20)
strings = (
    plain | plain.map(lambda text: text * 40) | st.sampled_from(["null", "1.0", "</k>", "<mm:think>", NS[:-1], "]<"])
)
keys = (
    st.sampled_from(["item", "tool_call", "invoke", "-A", "$text", "文件", "a b", "x.y", "", "a<b"])
    | st.text(st.characters(codec="utf-8", exclude_characters=">"), max_size=6)
).filter(lambda key: key == key.strip(" \t\r\n") and not key.startswith("/") and not key.startswith("invoke "))
numbers = st.sampled_from(["0", "-0", "1.00", "1e0", "1E400", "12345678901234567890123456789.50"]).map(Number)
values = st.recursive(
    strings | numbers | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
calls = st.tuples(st.sampled_from(["f", "g.h", "名"]), st.dictionaries(keys, values, max_size=4))
prose = plain.filter(lambda text: not any(spelling in text for spelling in (*HIDDEN, "mm:think")))


def pieces(text: str, seed: int) -> list[str]:
    rng = random.Random(seed)
    points = sorted(rng.randint(0, len(text)) for _ in range(rng.randint(0, 40)))
    return [text[a:b] for a, b in zip([0, *points], [*points, len(text)], strict=True)]


@settings(max_examples=200, deadline=None)
@given(
    thought=prose, content=prose, turn=st.lists(calls, max_size=3, unique_by=lambda call: call[0]), seed=st.integers()
)
def test_what_the_template_writes_comes_back(
    thought: str, content: str, turn: list[tuple[str, dict[str, Any]]], seed: int
) -> None:
    tools = [tool(name, **schema_of(arguments)["properties"]) for name, arguments in turn]
    text = f"<mm:think>{thought}</mm:think>" if thought else "</mm:think>"
    text += content + (block(*(invoke(name, xml(arguments)) for name, arguments in turn)) if turn else "")
    for cut in ([text], list(text), pieces(text, seed)):
        reply = Setup("minimax_m3", "minimax_m3", tools, thinking_open=False).read(cut)
        assert reply.reasoning == (thought if thought.strip(" \t\r\n") else None)
        assert reply.content == (content if content.strip(" \t\r\n") else None)
        assert [(call.name, call.arguments) for call in reply.tool_calls] == [
            (name, write_json(arguments)) for name, arguments in turn
        ]


SOUP = (
    NS, f"{NS}<", f"{NS}</", OPEN, CLOSE, f'{NS}<invoke name="write">', f'{NS}<invoke name="x', f"{NS}<invoke>",
    f"{NS}</invoke>", f"{NS}<path>", f"{NS}</path>", f"{NS}<content>", f"{NS}</content>", f"{NS}<lines>",
    f"{NS}</lines>", f"{NS}<any>", f"{NS}</any>", f"{NS}<item>", f"{NS}</item>", "<mm:think>", "</mm:think>", "[e~[",
    "x" * 256, "1", "a", "]", "[", "<", ">", "\n", " ", '"', "]<]mini", "max[>[",
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    soup=st.lists(st.sampled_from(SOUP), max_size=30), thinking=st.booleans(), schemas=st.booleans(), seed=st.integers()
)
def test_whatever_is_written(soup: list[str], thinking: bool, schemas: bool, seed: int) -> None:
    text = "".join(soup)
    case = Case("soup", text, Setup("minimax_m3", "minimax_m3", [WRITE] if schemas else None, thinking), {})
    check(case, text, random.Random(seed))


# When things leave.


def test_the_name_leaves_with_the_header() -> None:
    parser = MinimaxM3([WRITE])
    assert not any(isinstance(event, CallStart) for event in parser.feed(OPEN + f'{NS}<invoke name="write"'))
    assert parser.feed(">") == [CallStart(0, "write")]


def test_a_long_string_leaves_as_it_is_written() -> None:
    parser = MinimaxM3([WRITE])
    assert sent(parser, OPEN + f'{NS}<invoke name="write">{NS}<content>' + "x" * 255) == ""
    assert sent(parser, "y") == '{"content":"' + "x" * 255 + "y"
    assert sent(parser, '"\n') == '\\"\\n'
    assert sent(parser, f"]{NS[:5]}") == "]"
    assert sent(parser, "a") == NS[:5] + "a"
    assert sent(parser, f"{NS}</content>") == '"'


def test_a_short_string_leaves_when_another_tag_follows() -> None:
    parser = MinimaxM3([WRITE])
    assert sent(parser, OPEN + f'{NS}<invoke name="write">' + element("path", "a")) == ""
    assert sent(parser, f"{NS}<content") == ""
    assert sent(parser, ">") == '{"path":"a"'
    assert sent(parser, f"b{NS}</content>{NS}</invoke>") == ',"content":"b"}'


def test_a_list_of_items_leaves_when_another_tag_follows() -> None:
    parser = MinimaxM3([WRITE])
    assert sent(parser, OPEN + f'{NS}<invoke name="write">' + element("lines", element("item", "1"))) == ""
    assert sent(parser, f"{NS}<mode>") == '{"lines":[1]'


@pytest.mark.parametrize("key", ["lines", "any", "undeclared"])
def test_a_text_that_may_be_repeated_waits_for_the_end(key: str) -> None:
    parser = MinimaxM3([WRITE])
    assert sent(parser, OPEN + f'{NS}<invoke name="write">' + element("path", "a") + element(key, "1")) == '{"path":"a"'
    assert sent(parser, element("content", "x" * 300) + element("mode", "2")) == ""
    assert sent(parser, f"{NS}</invoke>").endswith(',"content":"' + "x" * 300 + '","mode":2}')


@pytest.mark.parametrize("tail", ["]", "]<", NS[:-1]])
def test_text_is_held_only_while_it_may_be_the_token(tail: str) -> None:
    parser = MinimaxM3([WRITE])
    assert parser.feed("see [1" + tail) == [Text("see [1")]
    assert parser.feed("!") == [Text(tail + "!")]
    assert [*parser.feed(tail), *parser.finish()] == [Text(tail)]


def test_a_cut_call_is_aborted() -> None:
    parser = MinimaxM3([WRITE])
    events = parser.feed(block(invoke("write", element("path", "a"))).replace(CLOSE, "") + f'{NS}<invoke name="write">')
    events += parser.feed(element("path", "b") + f"{NS}<content>c")
    events += parser.finish()
    assert [event.index for event in events if isinstance(event, CallEnd)] == [0]
    assert [event.index for event in events if isinstance(event, CallAborted)] == [1]


# Sizes.


@pytest.mark.parametrize("tools", [[WRITE], None])
def test_what_is_read_is_not_kept(tools: Any) -> None:
    """Each piece costs its own length: nothing but a possible marker is read twice."""
    parser = MinimaxM3(tools)
    parser.feed(OPEN + f'{NS}<invoke name="write">{NS}<content>')
    for _ in range(2000):
        parser.feed("x]< ")
        assert len(parser._source.text) <= 4 + len(NS)


@pytest.mark.parametrize("key", ["k", "item", "tool_call"])
@pytest.mark.parametrize("tools", [[WRITE], None])
def test_depth_is_the_models(key: str, tools: Any) -> None:
    depth = 20_000
    inside = f"{NS}<{key}>" * depth + "x" + f"{NS}</{key}>" * depth
    (call,) = parse(block(invoke("write", element("any", inside))), tools).tool_calls
    opening = "[" if key == "item" else f'{{"{key}":'
    assert call.arguments == '{"any":' + opening * depth + '"x"' + ("]" if key == "item" else "}") * depth + "}"
    assert parse(OPEN + f'{NS}<invoke name="write">{NS}<any>' + inside, tools).aborted


def test_deep_json_is_a_string() -> None:
    text = "[" * 100_000 + "]" * 100_000
    (call,) = parse(block(invoke("write", element("any", text))), [WRITE]).tool_calls
    assert call.arguments == '{"any":"' + text + '"}'


def test_a_list_of_itself() -> None:
    endless = tool("f", x={"$ref": "#/$defs/list"})
    endless["function"]["parameters"]["$defs"] = {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}}
    (call,) = parse(block(invoke("f", element("x", "1"))), [endless]).tool_calls
    assert call.arguments.strip('{"x:[]}') == "1"


@pytest.mark.parametrize("tools", [[{}], [{"function": None}], [{"function": {"name": "write", "parameters": []}}], []])
def test_tools_without_schemas(tools: Any) -> None:
    (call,) = parse(block(invoke("write", element("path", "1"))), tools).tool_calls
    assert call.arguments == '{"path":"1"}'


def test_an_endless_tag_is_text() -> None:
    text = f"a {NS}<" + "b" * 2000
    assert parse(text, size=7).content == parse(text).content == "a <" + "b" * 2000
