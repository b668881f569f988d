"""What the cases leave out: markup that is longer than any tag may be."""

import pytest

from tool_parsers.minimax_m2 import CLOSE, NAMESPACE, OPEN
from tool_parsers.scan import LONGEST_GAP, MOST_REREADS, Source
from tool_parsers.tagged import LONGEST_TAG
from vllm_mlx.cli._cases import Setup

SETUP = Setup("minimax_m2", "minimax_m2", None, thinking_open=False)


def call(name: str, key: str) -> str:
    return f'{OPEN}\n<invoke name="{name}">\n<parameter name="{key}">v</parameter>\n</invoke>\n{CLOSE}'


@pytest.mark.parametrize(
    "text",
    [
        call("n" * (LONGEST_TAG + 8), "k"),
        call("n", "k" * (LONGEST_TAG + 8)),
        call("n", "k").replace("<parameter ", "<parameter " + " " * LONGEST_TAG),
        call("n", "k").replace("v<", "v</parameter>\n<parameter " + " " * LONGEST_GAP + 'name="x">w<'),
        f"a {NAMESPACE}<parameter{' ' * LONGEST_TAG}> b",
    ],
)
def test_what_is_too_long_for_a_tag_is_read_alike_however_it_is_cut(text: str) -> None:
    whole = SETUP.read([text])
    assert SETUP.read(list(text)) == whole
    for at in range(1, len(text), 97):
        assert SETUP.read([text[:at], text[at:]]) == whole, at


def test_a_long_name_within_the_limit_is_a_name() -> None:
    name = "n" * (LONGEST_TAG - 20)
    for pieces in ([call(name, name)], list(call(name, name))):
        (got,) = SETUP.read(pieces).tool_calls
        assert (got.name, got.arguments) == (name, f'{{"{name}":"v"}}')


def test_a_call_is_read_again_a_few_times_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value seems to hold an opener, and only the call's end shows where it ended."""
    reread, counted = Source.reread, []
    monkeypatch.setattr(Source, "reread", lambda source, text: (counted.append(len(text)), reread(source, text))[1])
    values = "".join(f'<parameter name="k{n}">a<parameter x</parameter>\n' for n in range(100))
    (got,) = SETUP.read([f'{OPEN}\n<invoke name="w">\n{values}</invoke>\n{CLOSE}']).tool_calls
    assert got.arguments == "{" + ",".join(f'"k{n}":"a<parameter x"' for n in range(100)) + "}"
    assert len(counted) == MOST_REREADS
