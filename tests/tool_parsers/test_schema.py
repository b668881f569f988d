"""Schemas that refer to themselves."""

from typing import Any

from tool_parsers.schema import Schema


def test_branches_of_a_recursive_schema_do_not_double() -> None:
    def operation(name: str) -> dict[str, Any]:
        operands = {side: {"$ref": "#/$defs/expression"} for side in ("left", "right")}
        return {"type": "object", "properties": {"op": {"const": name}, **operands}}

    root = {"$defs": {"expression": {"anyOf": [operation("add"), operation("mul"), {"type": "number"}]}}}
    schema = Schema([{"$ref": "#/$defs/expression"}], root)
    for _ in range(100):
        schema = schema.property("left")
        assert schema.types.kinds == ("object", "number")
    assert schema.property("op").types.kinds == ("string",)


def test_unions_of_themselves() -> None:
    reference = {"$ref": "#/$defs/loop"}
    root = {"$defs": {"loop": {"anyOf": [dict(reference) for _ in range(8)] + [{"type": "integer"}]}}}
    assert Schema([reference], root).types.kinds == ("integer",)
    assert Schema([reference], root).property("x").types.declared is False


def test_a_reference_used_twice_keeps_what_stands_beside_it() -> None:
    root = {"$defs": {"name": {"type": "string"}}}
    twice = {"anyOf": [{"$ref": "#/$defs/name"}, {"$ref": "#/$defs/name", "nullable": True}]}
    assert Schema([twice], root).types.kinds == ("string", "null")
