"""The seam between thoughts, text and calls: what a client sees, and when."""

import pytest

from tool_parsers.events import ArgumentsDelta, CallAborted, CallEnd, CallStart, Event, Malformed, Reasoning, Text
from vllm_mlx.chat.family import MINIMAX_TURN
from vllm_mlx.chat.output import OutputParser, TurnTokens, parser_classes
from vllm_mlx.chat.reply import Reply, fold

WRITE = {
    "type": "function",
    "function": {
        "name": "write_file",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "mode": {"type": "integer"}},
        },
    },
}
HEAD = '<minimax:tool_call>\n<invoke name="write_file">\n'
TAIL = "</invoke>\n</minimax:tool_call>"


def parser(*, thinking: bool = False, tools: object = (WRITE,), reasoning: str | None = "minimax") -> OutputParser:
    tool_class, reasoning_class = parser_classes("minimax" if tools else None, reasoning)
    return OutputParser(tool_class, reasoning_class, tools=tools, thinking_open=thinking, turn=MINIMAX_TURN)


def stream(machine: OutputParser, *pieces: str) -> list[list[Event]]:
    return [*(machine.feed(piece) for piece in pieces), machine.finish()]


def reply(text: str, **options: object) -> Reply:
    """The reply to a whole text, which must be the same one character at a time."""
    whole = fold(event for events in stream(parser(**options), text) for event in events)
    single = fold(event for events in stream(parser(**options), *text) for event in events)
    assert whole == single
    return whole


def test_a_call_streams_as_it_is_written() -> None:
    machine = parser()
    assert stream(
        machine,
        HEAD,
        '<parameter name="path">a/b',
        ".py</para",
        "meter>\n<parameter ",
        'name="mode">6',
        "44</parameter>\n",
        "</invoke>",
    ) == [
        [CallStart(0, "write_file")],
        [ArgumentsDelta(0, '{"path":"a/b')],
        [ArgumentsDelta(0, ".py")],
        [],
        [ArgumentsDelta(0, '"')],
        [],
        [ArgumentsDelta(0, ',"mode":644}'), CallEnd(0)],
        [],
    ]


def test_text_is_held_back_no_longer_than_it_may_be_a_marker() -> None:
    machine = parser()
    assert stream(machine, "a < b ", "and c <", "d> <min", "imum\n", "!") == [
        [Text("a < b ")],
        [Text("and c ")],
        [Text("<d> ")],
        [Text("<minimum")],
        [Text("\n!")],
        [],
    ]


def test_an_open_inner_element_holds_a_value_back() -> None:
    machine = parser()
    machine.feed(HEAD + '<parameter name="content"><a>')
    assert machine.feed('<parameter name="x">1') == []
    assert machine.feed("</parameter> and on") == [ArgumentsDelta(0, '<parameter name=\\"x\\">1</parameter> and on')]


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_cut_call_is_aborted_and_never_whole(cut: int) -> None:
    text = HEAD + '<parameter name="path">a.py</parameter>\n<parameter name="content">x'
    events = [event for events in stream(parser(), text[: len(HEAD) + cut]) for event in events]
    assert events[0] == CallStart(0, "write_file")
    assert CallAborted(0) in events
    assert CallEnd(0) not in events
    assert fold(events).aborted


def test_thoughts_are_joined_by_a_newline() -> None:
    assert reply("one\n</think>\n\n<think>\ntwo\n</think>\n\nthree", thinking=True) == Reply(
        "one\ntwo", "three", (), False
    )


def test_blank_thought_and_answer_are_none() -> None:
    assert reply(" \n</think>\n\n \n", thinking=True) == Reply(None, None, (), False)


def test_a_turn_without_boundaries_is_verbatim() -> None:
    assert reply("\n\n  a \n\n").content == "\n\n  a \n\n"
    assert reply(" \n ").content == " \n "


def test_quoted_markup_in_a_thought_of_a_call_that_does_not_exist() -> None:
    thought = 'Write <minimax:tool_call>\n<invoke name="x">\n</invoke>\n</minimax:tool_call>, as the prompt says.'
    assert reply(f"{thought}\n</think>\n\nok", thinking=True) == Reply(thought, "ok", (), False)


def test_a_stray_close_in_a_thought_is_dropped() -> None:
    assert reply("a</minimax:tool_call>b\n</think>\n\nc", thinking=True).reasoning == "ab"


def test_a_call_in_an_open_thought_ends_it_while_streaming() -> None:
    machine = parser(thinking=True)
    assert stream(machine, "Let me.\n", "<minimax:tool_call>\n<invoke ", 'name="write_file">')[:3] == [
        [Reasoning("Let me.")],
        [],
        [CallStart(0, "write_file")],
    ]


def test_a_bare_call_in_a_fence_of_a_thought_stays_a_thought() -> None:
    bare = '<invoke name="write_file">\n<parameter name="path">a</parameter>\n</invoke>'
    fenced = f"Like so:\n```\n{bare}\n```\nThen:\n"
    assert reply(fenced + bare, thinking=True).reasoning == fenced.rstrip("\n")
    assert len(reply(fenced + bare, thinking=True).tool_calls) == 1


class TestTurnTokens:
    def test_the_end_of_a_turn_ends_it(self) -> None:
        assert reply("Done.[e~[\n]~b]user\nhello").content == "Done."

    def test_in_a_thought_too(self) -> None:
        assert reply("hm[e~[ more", thinking=True) == Reply("hm", None, (), False)

    def test_a_repeated_header_is_dropped(self) -> None:
        assert reply("]~b]ai\n<think>\nhm\n</think>\n\nHi", thinking=True) == Reply("hm", "Hi", (), False)
        assert reply("]~b]ai\nHi").content == "Hi"

    @pytest.mark.parametrize("end", ["[e~[", "]~b]user"])
    @pytest.mark.parametrize(
        "opener", ["<minimax:tool_call>", "<minimax:tool_call>\n", "<minimax:tool_call>\n<invoke na"]
    )
    def test_a_call_that_the_end_of_the_turn_cuts_in_a_thought(self, opener: str, end: str) -> None:
        assert reply(f"Look.\n{opener}{end} x", thinking=True) == Reply("Look.", None, (), False)

    def test_a_role_is_a_short_word_however_the_text_is_cut(self) -> None:
        assert reply("]~b]" + "a" * 40 + "b").content == "a" * 24 + "b"

    def test_a_later_header_ends_the_turn(self) -> None:
        assert reply("Hi ]~b]user\nmore").content == "Hi "

    def test_begin_of_text_is_dropped(self) -> None:
        assert reply("a]~!b[b").content == "ab"

    def test_in_an_argument_they_are_text(self) -> None:
        text = HEAD + '<parameter name="path">[e~[ ]~b]ai ]~!b[ </think></parameter>\n' + TAIL
        assert reply(text).tool_calls[0].arguments == '{"path":"[e~[ ]~b]ai ]~!b[ </think>"}'

    def test_pieces_that_meet_do_not_make_one(self) -> None:
        assert "[e~[" not in (reply("[e</minimax:tool_call>~[ x").content or "")

    def test_without_any_parser(self) -> None:
        machine = OutputParser(None, None, turn=MINIMAX_TURN)
        events = [event for events in stream(machine, *"a]~!b[b]<]minimax[>[c[e~[d") for event in events]
        assert fold(events).content == "abc"

    def test_the_rest_of_a_call_that_the_turn_ends_is_aborted(self) -> None:
        assert reply(HEAD + '<parameter name="path">a</parameter>\n[e~[').aborted


class TestWithoutTools:
    def test_markup_is_text(self) -> None:
        text = HEAD + TAIL
        assert reply(text, tools=None).content == text

    def test_thoughts_are_still_split(self) -> None:
        assert reply(f"a {HEAD} b\n</think>\n\nc", thinking=True, tools=None) == Reply(f"a {HEAD} b", "c", (), False)


class TestInlineThoughts:
    def test_nothing_generated_is_nothing(self) -> None:
        assert reply("", thinking=True, reasoning="minimax_append_think").content is None

    def test_quoted_markup_stays(self) -> None:
        text = "I write <minimax:tool_call> soon.\n</think>\n\nok"
        got = reply(text, thinking=True, reasoning="minimax_append_think")
        assert got.content == "<think>" + text


def test_dropped_markup_is_reported() -> None:
    events = [
        event for events in stream(parser(), "<minimax:tool_call>\n<invoke>\n</invoke>\n", TAIL) for event in events
    ]
    assert [event.reason for event in events if isinstance(event, Malformed)] == [
        "invoke without a name",
        "stray </invoke>",
    ]


def test_other_families_have_no_turn_tokens() -> None:
    machine = OutputParser(None, None, turn=TurnTokens())
    assert fold(event for events in stream(machine, "x[e~[y") for event in events).content == "x[e~[y"


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("Done.]<]minimax[>[</tool_call>", "Done."),
        ("a]<]minimax[>[<tool_call>b", "ab"),
        ("a]<]minimax[>[ <b>c", "a <b>c"),
        ("a]<]minimax[>[<b", "a<b"),
        ("a]<]minimax[>[< 3", "a< 3"),
        ("a]<]minimax[>[<<b>", "a<<b>"),
    ],
)
def test_a_token_that_nobody_may_see_takes_its_tag_along_where_no_calls_are_read(text: str, content: str) -> None:
    assert reply(text, tools=None).content == content


def test_where_calls_are_read_a_tag_behind_such_a_token_is_text() -> None:
    assert reply("use Vec]<]minimax[>[<T> here").content == "use Vec<T> here"
