"""A call leaves as it is written: its name at the header, a string as it comes, nothing that is undecided."""

import pytest

import tool_parsers
from tool_parsers.events import ArgumentsDelta, CallAborted, CallEnd, CallStart, ParserEvent
from vllm_mlx.cli._cases import Setup

PROPERTIES = {"body": {"type": "string"}, "size": {"type": "integer"}}
TOOLS = [{"type": "function", "function": {"name": "save", "parameters": {"properties": PROPERTIES}}}]
OF_CALLS = (CallStart, ArgumentsDelta, CallEnd, CallAborted)
START, END = CallStart(0, "save"), CallEnd(0)


def sent(json: str) -> ArgumentsDelta:
    return ArgumentsDelta(0, json)


Steps = list[tuple[str, list[ParserEvent]]]

HERMES: Steps = [
    ('<tool_call>\n{"name": "sav', []),
    ('e"', [START]),
    (', "arguments": {"bo', [sent('{"bo')]),
    ('dy":  "</tool_', [sent('dy":  "</tool_')]),
    ("call>\n", [sent("call>\\n")]),
    ('"}', [sent('"}')]),
    ("}", [END]),
    ("\n</tool_call>", []),
]
HERMES_NAME_LAST: Steps = [
    ('<tool_call>\n{"arguments": {"body": ', []),
    ('"x"}, "name": "save"', [START, sent('{"body": "x"}')]),
    ("}", [END]),
]
KIMI: Steps = [
    ("<|tool_calls_section_begin|><|tool_call_begin|>functions.save:4<|tool_call_argument_", []),
    ("begin|>", [CallStart(0, "save", "functions.save:4")]),
    ('{"a": 1', [sent('{"a": 1')]),
    ("}", [sent("}"), END]),
    ("<|tool_call_end|>", []),
]
DEEPSEEK_V3: Steps = [
    ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>sa", []),
    ("ve\n``", [START]),
    ("`json\n{", [sent("{")]),
    ("}\n", [sent("}")]),
    ("```<｜tool▁call▁end｜>", [END]),
]
CODER: Steps = [
    ("<tool_call>\n<function=save", []),
    (">\n<parameter=body>\n", [START, sent('{"body":"')]),
    ("a <b\n", [sent("a <b")]),
    ("\nc\n</param", [sent("\\n\\nc")]),
    ("eter>", []),
    ("\n<parameter=", [sent('"')]),
    ("size>\n1", []),
    ("2\n</parameter>\n</", []),
    ("function>", [sent(',"size":12'), sent("}"), END]),
]
GLM: Steps = [
    ("<tool_call>save", []),
    ("<arg_key>body</arg_key><arg_value>", [START, sent('{"body":"')]),
    ("a\n", [sent("a")]),
    ("b</arg_va", [sent("\\nb")]),
    ("lue></tool", []),
    ("_call>", [sent('"'), sent("}"), END]),
]
DSML: Steps = [
    ('<｜DSML｜tool_calls>\n<｜DSML｜invoke name="save"', []),
    (">\n", [START]),
    ('<｜DSML｜parameter name="size" string="true">', [sent('{"size":"')]),
    ("a</｜DSML", [sent("a")]),
    ('｜parameter>\n<｜DSML｜parameter name="body" string="false">[1', [sent('"')]),
    (", 2]</｜DSML｜parameter>\n</｜DSML｜invoke>", [sent(',"body":[1,2]'), sent("}"), END]),
]


@pytest.mark.parametrize(
    ("name", "steps"),
    [("hermes", HERMES), ("hermes", HERMES_NAME_LAST), ("kimi_k2", KIMI), ("deepseek_v3", DEEPSEEK_V3),
     ("qwen3_coder", CODER), ("glm47", GLM), ("deepseek_v4", DSML)],
)  # fmt: skip
def test_steps(name: str, steps: Steps) -> None:
    machine = tool_parsers.get(name)(TOOLS)
    for piece, events in steps:
        got = [event for event in machine.feed(piece) if isinstance(event, OF_CALLS)]
        assert [*_joined(got)] == [*_joined(events)], piece
    assert not any(isinstance(event, OF_CALLS) for event in machine.finish())


def _joined(events: list[ParserEvent]) -> list[ParserEvent]:
    """Slices next to each other are one."""
    out: list[ParserEvent] = []
    for event in events:
        if isinstance(event, ArgumentsDelta) and out and isinstance(before := out[-1], ArgumentsDelta):
            out[-1] = sent(before.json + event.json)
        else:
            out.append(event)
    return out


HEADS = {
    "hermes": '<tool_call>\n{"name": "save", "arguments": {"body": "',
    "kimi_k2": '<|tool_call_begin|>functions.save:0<|tool_call_argument_begin|>{"body": "',
    "deepseek_v31": '<｜tool▁call▁begin｜>save<｜tool▁sep｜>{"body": "',
    "qwen3_coder": "<tool_call>\n<function=save>\n<parameter=body>\n",
    "glm47": "<tool_call>save<arg_key>body</arg_key><arg_value>",
    "deepseek_v4": '<｜DSML｜invoke name="save">\n<｜DSML｜parameter name="body" string="true">',
}


@pytest.mark.parametrize("name", HEADS)
def test_a_cut_call_is_aborted(name: str) -> None:
    machine = tool_parsers.get(name)(TOOLS)
    machine.feed(HEADS[name] + "half")
    assert [event for event in machine.finish() if isinstance(event, OF_CALLS)] == [CallAborted(0)]


@pytest.mark.parametrize("name", HEADS)
def test_a_megabyte_in_small_pieces(name: str) -> None:
    """Were the time not linear in the text, this would not come to an end."""
    text = HEADS[name] + "if a < b:  # {x}\\n    y\\n" * 40_000
    reply = Setup(name, None, TOOLS, False).read([text[at : at + 4] for at in range(0, len(text), 4)])
    assert reply.aborted
    assert reply.content is None
