"""Whatever calls a family's template writes come back as they were, however the text is cut or cut short."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tool_parsers.formats import FORMATS, Call, Format
from tool_parsers.events import ArgumentsDelta, Event
from vllm_mlx.chat.output import OutputParser, parser_classes
from vllm_mlx.chat.reply import fold

PARAMETERS = {
    "text": {"type": "string"},
    "-n": {"type": "integer"},
    "ratio": {"type": "number"},
    "on": {"type": "boolean"},
    "box": {"type": "object"},
    "items": {"type": "array"},
    "nothing": {"type": "null"},
    "数": {"type": ["string", "null"]},
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": PARAMETERS}}}
    for name in ("run", "fs.read", "write-file_2")
]
LETTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from("<>/\\\"'{}[]`|\n\r\t \x00｜")
ANY_TEXT = st.text(LETTERS, max_size=20)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3), max_leaves=6
)
WORDS = st.text(LETTERS, min_size=1, max_size=20).map(lambda text: text.replace("<", "").replace("｜", "").strip())


def strings(fmt: Format) -> st.SearchStrategy[str]:
    """Any text, also with what looks like the format's ends; not the two words that mean null."""
    parts = st.lists(ANY_TEXT | st.sampled_from(fmt.fragments), max_size=4)
    return parts.map("".join).filter(lambda text: text.strip() not in ("null", "None"))


def calls(fmt: Format) -> st.SearchStrategy[list[Call]]:
    by_key = {
        "text": strings(fmt),
        "-n": st.integers(),
        "ratio": st.floats(allow_nan=False, allow_infinity=False),
        "on": st.booleans(),
        "box": st.dictionaries(ANY_TEXT, VALUES, max_size=3),
        "items": st.lists(VALUES, max_size=3),
        "nothing": st.none(),
        "数": st.none() | strings(fmt),
    }
    member = st.sampled_from(list(by_key)).flatmap(lambda key: st.tuples(st.just(key), by_key[key]))
    arguments = st.lists(member, max_size=5).map(dict)
    return st.lists(st.tuples(st.sampled_from(["run", "fs.read", "write-file_2"]), arguments), max_size=3)


def read(fmt: Format, text: str, sizes: list[int]) -> list[Event]:
    machine = OutputParser(*parser_classes(fmt.tool_parser, fmt.reasoning_parser), tools=TOOLS, thinking_open=True)
    events: list[Event] = []
    at = 0
    for turn in range(len(text)):
        if at >= len(text):
            break
        size = sizes[turn % len(sizes)]
        events += machine.feed(text[at : at + size])
        at += size
    return [*events, *machine.finish()]


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_what_is_written_comes_back(name: str, data: st.DataObject) -> None:
    fmt = FORMATS[name]
    thought, words = data.draw(WORDS.filter(bool), "thought"), data.draw(WORDS, "words")
    written = data.draw(calls(fmt), "calls")
    text = fmt.render(thought, words, written)
    events = read(fmt, text, data.draw(st.lists(st.integers(1, 9), min_size=1), "sizes"))
    reply = fold(events)
    assert (reply.reasoning, reply.content) == (thought, words or None)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [
        (called, fmt.arguments(arguments)) for called, arguments in written
    ]
    assert not reply.aborted


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_text_cut_short_keeps_its_whole_calls(name: str, data: st.DataObject) -> None:
    """No call counts that is not the whole text's, and what was sent of one cut is the beginning of it."""
    fmt = FORMATS[name]
    text = fmt.render("t", "", data.draw(calls(fmt).filter(bool), "calls"))
    whole = fold(read(fmt, text, [len(text)])).tool_calls
    events = read(fmt, text[: data.draw(st.integers(0, len(text)), "end")], [3])
    kept = fold(events).tool_calls
    assert kept == whole[: len(kept)]
    for index, call in enumerate(whole):
        sent = "".join(event.json for event in events if isinstance(event, ArgumentsDelta) and event.index == index)
        assert call.arguments.startswith(sent)
