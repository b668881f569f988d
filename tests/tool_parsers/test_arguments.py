"""Values: what a schema makes of a text, and spellings that survive."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tool_parsers.arguments import ObjectWriter, coerce, is_integral, read_number
from tool_parsers.json_text import JsonScanner, Members, Scan, escape, read_json, write_json, write_string
from tool_parsers.schema import Schema, Types


def types(schema: object) -> Types:
    return Schema([schema], schema).types


@pytest.mark.parametrize(
    ("schema", "text", "json_text"),
    [
        ({"type": "string"}, "1e5", '"1e5"'),
        ({"type": "string"}, " null\n", '" null\\n"'),
        ({"type": ["string", "null"]}, " null\n", "null"),
        ({"type": ["string", "integer"]}, "42", '"42"'),
        ({"type": ["integer", "string"]}, "42", "42"),
        ({"type": "integer"}, "1e3", "1e3"),
        ({"type": "integer"}, "1" * 5000, "1" * 5000),
        ({"type": "integer"}, "1,000", '"1,000"'),
        ({"type": "integer"}, "1_000", '"1_000"'),
        ({"type": ["integer", "string"]}, "2.5", '"2.5"'),
        ({"type": "number"}, "-.5", "-0.5"),
        ({"type": "number"}, "-0", "-0"),
        ({"type": "number"}, "1e400", "1e400"),
        ({"type": "number"}, "Infinity", '"Infinity"'),
        ({"type": "number"}, ".", '"."'),
        ({"type": "number"}, "e5", '"e5"'),
        ({"type": "boolean"}, "TRUE", "true"),
        ({"type": "boolean"}, "0", "false"),
        ({"type": "boolean"}, "yes", '"yes"'),
        ({"type": "object"}, '{"a": NaN}', '"{\\"a\\": NaN}"'),
        ({"type": "object"}, '{"a":1,"b":2,"a":3}', '{"a":3,"b":2}'),
        ({"type": "object"}, '{"a": "\\ud800"}', '{"a":"\\ud800"}'),
        ({"type": "object"}, "", "{}"),
        ({"type": ["object", "null"]}, " ", "{}"),
        ({"type": ["boolean", "null"]}, "", "null"),
        ({"type": "array"}, '{"a": 1}', '"{\\"a\\": 1}"'),
        ({"type": "dict"}, '{"a": 1}', '{"a":1}'),
        ({"type": "float"}, "1.50", "1.50"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "null", "null"),
        ({"type": "integer", "nullable": True}, "null", "null"),
        ({"enum": [1, 2]}, "2", "2"),
        ({"enum": ["1", "2"]}, "2", '"2"'),
        ({"enum": [True, "auto"]}, "true", "true"),
        ({"const": None}, "null", "null"),
        ({"properties": {}}, "{}", "{}"),
        ({"items": {}}, "[1.0]", "[1.0]"),
        ({}, "1.0", "1.0"),
        ({}, "01", '"01"'),
        ({}, "True", '"True"'),
        ({}, '"x"', '"\\"x\\""'),
        (True, "5", "5"),
    ],
)
def test_coerce(schema: object, text: str, json_text: str) -> None:
    assert coerce(text, types(schema)) == json_text


def test_undeclared_values() -> None:
    assert coerce("5", Types(declared=False)) == "5"
    assert coerce("5", Types(declared=False), undeclared_as_text=True) == '"5"'


def test_python_none_where_the_template_prints_it() -> None:
    assert coerce("None", types({"type": ["string", "null"]})) == '"None"'
    assert coerce("None", types({"type": ["string", "null"]}), python_none=True) == "null"


@pytest.mark.parametrize(
    ("number", "whole"),
    [("5.0", True), ("1e3", True), ("2.50e1", True), ("2.5", False), ("1e-1", False), ("100e-2", True), ("0e-9", True),
     ("1e99999999999999999999", True), ("1e-99999999999999999999", False)],
)  # fmt: skip
def test_integral(number: str, whole: bool) -> None:
    assert is_integral(number) is whole


def test_references_and_branches() -> None:
    root = {
        "$defs": {"a/b c": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}},
        "anyOf": [{"properties": {"v": {"type": "string"}}}, {"properties": {"v": {"type": "object"}}}],
        "properties": {
            "r": {"$ref": "#/%24defs/a~1b%20c"},
            "l": {"$ref": "#/$defs/loop"},
            "x": {"$ref": "http://elsewhere/#"},
        },
        "additionalProperties": {"type": "boolean"},
    }
    schema = Schema([root], root)
    assert schema.property("r").types.kinds == ("integer",)
    assert schema.property("v").types.kinds == ("string", "object")
    assert schema.property("l").types.kinds == ()
    assert schema.property("x").types.kinds == ()
    assert schema.property("other").types.kinds == ("boolean",)
    assert Schema([{"properties": {}}], None).property("other").types == Types(declared=False)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.text()
    | st.from_regex(r"\A-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,3})?\Z"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_json_survives(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert write_json(read_json(text), comma=", ", colon=": ") == text


@given(st.text(), st.integers(0, 50))
def test_escaped_pieces_join(text: str, cut: int) -> None:
    assert f'"{escape(text[:cut])}{escape(text[cut:])}"' == write_string(text)
    assert json.loads(write_string(text)) == text


@given(st.dictionaries(st.text(), VALUES) | st.lists(VALUES), st.text(), st.integers(1, 9))
def test_the_scanner_finds_the_end(value: object, tail: str, size: int) -> None:
    text = json.dumps(value, ensure_ascii=False)
    scanner = JsonScanner()
    read = 0
    both = text + tail
    for at in range(0, len(both), size):
        read += scanner.feed(both[at : at + size])
    assert scanner.state is Scan.COMPLETE
    assert read == len(text)


@pytest.mark.parametrize("text", ["{'a'", "[1}", '{"a\n', "{<", "[1, x"])
def test_the_scanner_gives_up_early(text: str) -> None:
    scanner = JsonScanner()
    scanner.feed(text)
    assert scanner.state is Scan.INVALID


@given(st.dictionaries(st.text(), VALUES, min_size=1), st.integers(1, 9))
def test_members_end_where_they_end(value: dict[str, object], size: int) -> None:
    text = json.dumps(value, separators=(",", ":"))
    members = Members()
    wholes = [(at, members.feed(text[at : at + size])) for at in range(0, len(text), size)]
    ends = [at + whole for at, whole in wholes if whole >= 0]
    assert ends[-1] == len(text)
    assert len(ends) == len(value) or size > 1
    for end in ends[:-1]:
        assert isinstance(json.loads(text[:end] + "}"), dict)


def test_deep_nesting_is_no_value() -> None:
    deep = "[" * 100_000 + "]" * 100_000
    assert coerce(deep, types({"type": "array"})) == f'"{deep}"'


def test_numbers() -> None:
    assert read_number("+007.") == "7.0"
    assert read_number("１２") is None


def test_a_written_object() -> None:
    writer = ObjectWriter()
    slices = [
        writer.member("a", "1"),
        writer.open_string("b"),
        writer.string('x"'),
        writer.string("y"),
        writer.close_string(),
    ]
    slices += [writer.member("a", "1"), writer.member("b", '"x\\"y"'), writer.member("a", "2"), writer.close()]
    assert "".join(slices) == '{"a":1,"b":"x\\"y","a":2}'
    assert ObjectWriter().close() == "{}"
