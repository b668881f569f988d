"""Our grammars of MiniMax's formats beside those that xgrammar has built in: where it is installed."""

import pytest
from grammar_formats import FORMATS, function
from test_grammar_calls import Words

xgrammar = pytest.importorskip("xgrammar", reason="xgrammar, which needs torch, is not installed", exc_type=ImportError)
accepts = pytest.importorskip("xgrammar.testing")._is_grammar_accept_string

TOOLS = [
    function(
        "edit",
        {
            "path": {"type": "string"},
            "mode": {"type": "string", "enum": ["all", "one"]},
            "n": {"type": "integer"},
            "on": {"type": "boolean"},
        },
        ["path", "mode"],
        additionalProperties=False,
    ),
    function("ping", {"host": {"type": "string"}}, ["host"], additionalProperties=False),
]
NS = FORMATS["minimax_m3"].tokens[0]


def m2(*calls):
    inner = "".join(
        f'<invoke name="{name}">\n'
        + "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in arguments.items())
        + "</invoke>\n"
        for name, arguments in calls
    )
    return f"<minimax:tool_call>\n{inner}</minimax:tool_call>"


def m3(*calls):
    inner = "".join(
        f'{NS}<invoke name="{name}">'
        + "".join(f"{NS}<{key}>{value}{NS}</{key}>" for key, value in arguments.items())
        + f"{NS}</invoke>\n"
        for name, arguments in calls
    )
    return f"{NS}<tool_call>\n{inner}{NS}</tool_call>"


EDIT = {"path": "a b/ü.py", "mode": "all"}
SAMPLE = {
    "a call": ([("edit", EDIT)], True),
    "all parameters": ([("edit", EDIT | {"n": "-3", "on": "true"})], True),
    "another order": ([("edit", {"on": "false", "mode": "one", "path": "x"})], True),
    "two calls": ([("edit", EDIT), ("ping", {"host": "h"})], True),
    "a text of several lines": ([("ping", {"host": "  if a < b:\n    return 1\n"})], True),
    "an empty text": ([("ping", {"host": ""})], True),
    "no call": ([], False),
    "an unknown tool": ([("pong", {"host": "h"})], False),
    "a required parameter is missing": ([("edit", {"path": "x"})], False),
    "all of them are": ([("ping", {})], False),
    "no member of the enum": ([("edit", EDIT | {"mode": "some"})], False),
    "no integer": ([("edit", EDIT | {"n": "3x"})], False),
    "no boolean": ([("edit", EDIT | {"on": "perhaps"})], False),
    "an undeclared parameter": ([("ping", {"host": "h", "port": "1"})], False),
}


@pytest.fixture(
    scope="module",
    params=[
        ("minimax_m2", "minimax", "\n</think>\n\n\n\n\n", m2),
        ("minimax_m3", "minimax_m3", "", m3),
    ],
    ids=["minimax_m2", "minimax_m3"],
)
def both(request, demo_folder, tmp_path_factory):
    """Whether ours accepts calls as a whole reply, and whether xgrammar's does."""
    format, model, before, write = request.param
    words = Words(demo_folder, tmp_path_factory.mktemp("peer"), format)
    tag = xgrammar.get_model_structural_tag(
        model, tools=TOOLS, tool_choice="required", reasoning="disabled", any_order=True
    )
    grammar = xgrammar.Grammar.from_structural_tag(tag)

    def ours(calls):
        constraint = words.constraint(TOOLS, required=True)
        return words.refused(constraint, write(*calls)) is None and bool(words.allowed(constraint)[words.end])

    return ours, lambda calls: accepts(grammar, before + write(*calls))


@pytest.mark.parametrize("name", SAMPLE)
def test_both_accept_the_same(both, name):
    calls, valid = SAMPLE[name]
    ours, theirs = both
    assert (ours(calls), theirs(calls)) == (valid, valid)
