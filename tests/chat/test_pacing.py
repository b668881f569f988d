"""How eagerly a call's arguments leave, however the model's text is cut."""

import pytest

from tool_parsers.events import ArgumentsDelta, CallAborted, CallEnd, CallStart
from tool_parsers.minimax_m2 import MinimaxM2
from vllm_mlx.chat.pacing import Pacer

PROPERTIES = {"path": {"type": "string"}, "limit": {"type": "number"}, "text": {"type": "string"}}
TOOLS = [{"type": "function", "function": {"name": "write", "parameters": {"properties": PROPERTIES}}}]
CUT = """<minimax:tool_call>
<invoke name="write">
<parameter name="path">a, "b"</parameter>
<parameter name="limit">1.00</parameter>
<parameter name="text">x, y"""
WHOLE = CUT + "</parameter>\n</invoke>\n</minimax:tool_call>"
PATH, LIMIT, TEXT = r'{"path":"a, \"b\""', ',"limit":1.00', ',"text":"x, y"'


def paced(pace, text, size):
    parser, pacer = MinimaxM2(TOOLS), Pacer(pace)
    events = [event for at in range(0, len(text), size) for event in pacer.feed(parser.feed(text[at : at + size]))]
    return [
        event.json if isinstance(event, ArgumentsDelta) else type(event)
        for event in [*events, *pacer.feed(parser.finish())]
        if isinstance(event, ArgumentsDelta | CallStart | CallEnd | CallAborted)
    ]


@pytest.mark.parametrize("size", [1, 2, 7])
def test_whole_parameters_leave_one_by_one(size):
    assert paced("parameter", WHOLE, size) == [CallStart, PATH, LIMIT, TEXT + "}", CallEnd]
    # What a cut call held back is never sent.
    assert paced("parameter", CUT, size) == [CallStart, PATH, LIMIT, CallAborted]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_whole_call_leaves_at_once(size):
    assert paced("call", WHOLE, size) == [CallStart, PATH + LIMIT + TEXT + "}", CallEnd]
    assert paced("call", CUT, size) == [CallAborted]


def test_values_leave_as_they_are_written():
    sent = paced("value", WHOLE, 1)
    assert "".join(piece for piece in sent if isinstance(piece, str)) == PATH + LIMIT + TEXT + "}"
    assert [piece for piece in sent if isinstance(piece, str)][:3] == ['{"path":"', "a", ","]
