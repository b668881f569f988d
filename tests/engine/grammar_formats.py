"""What grammars are tried with: the formats that have one, and tools with schemas that are hard to keep."""

import json
from dataclasses import dataclass

NS = "]<]minimax[>["


@dataclass(frozen=True, slots=True)
class Format:
    """A format's case files, the tokens of its own that it has, and what ends its values and calls."""

    cases: str
    tokens: tuple[str, ...]
    ends: str


FORMATS = {
    "minimax_m2": Format(
        "m2*.jsonl",
        ("<minimax:tool_call>", "</minimax:tool_call>"),
        "</parameter>\n</invoke>\n</minimax:tool_call>",
    ),
    "minimax_m3": Format("m3*.jsonl", (NS,), f"{NS}</invoke>{NS}</tool_call>{NS}</item>"),
    "qwen3_coder": Format(
        "qwen3_coder.jsonl",
        ("<tool_call>", "</tool_call>"),
        "\n</parameter>\n</function>\n</tool_call>",
    ),
    "glm47": Format(
        "glm47.jsonl",
        ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        "</arg_value></tool_call>",
    ),
    "deepseek_v4": Format(
        "deepseek_v4.jsonl",
        ("｜DSML｜",),
        "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    ),
    "hermes": Format("qwen3.jsonl", ("<tool_call>", "</tool_call>"), "}}</tool_call>"),
    "kimi_k2": Format(
        "kimi_k2.jsonl",
        (
            "<|tool_calls_section_begin|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
            "<|tool_calls_section_end|>",
        ),
        "}<|tool_call_end|><|tool_calls_section_end|>",
    ),
    "deepseek_v3": Format(
        "deepseek_v3.jsonl",
        (
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            "<｜tool▁calls▁end｜>",
        ),
        "}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
}


def _json(arguments):
    return json.dumps(arguments, ensure_ascii=False)


def _tagged(head, parameter, tail):
    """A writer of calls whose values, all strings, stand in tags."""
    return lambda name, arguments: (
        head.replace("NAME", name)
        + "".join(parameter.replace("KEY", key).replace("VALUE", value) for key, value in arguments.items())
        + tail
    )


WRITTEN = {
    "minimax_m2": _tagged(
        '<minimax:tool_call>\n<invoke name="NAME">\n',
        '<parameter name="KEY">VALUE</parameter>\n',
        "</invoke>\n</minimax:tool_call>",
    ),
    "minimax_m3": _tagged(
        f'{NS}<tool_call>\n{NS}<invoke name="NAME">',
        f"{NS}<KEY>VALUE{NS}</KEY>",
        f"{NS}</invoke>\n{NS}</tool_call>",
    ),
    "qwen3_coder": _tagged(
        "<tool_call>\n<function=NAME>\n", "<parameter=KEY>\nVALUE\n</parameter>\n", "</function>\n</tool_call>"
    ),
    "glm47": _tagged("<tool_call>NAME", "<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>", "</tool_call>"),
    "deepseek_v4": _tagged(
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="NAME">\n',
        '<｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter>\n',
        "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
    ),
    "hermes": lambda name, arguments: (
        f'<tool_call>\n{{"name": "{name}", "arguments": {_json(arguments)}}}\n</tool_call>'
    ),
    "kimi_k2": lambda name, arguments: (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>"
        f"{_json(arguments)}<|tool_call_end|><|tool_calls_section_end|>"
    ),
    "deepseek_v3": lambda name, arguments: (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{_json(arguments)}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
}
"""How each format writes a call."""
VALUE_ENDS = ('"', "}", "]", "1", "true", "null")


def parameters(properties, required=(), **more):
    return {"type": "object", "properties": properties, "required": list(required), **more}


def function(name, *schema, **fields):
    return {"type": "function", "function": {"name": name, "parameters": parameters(*schema, **fields)}}


TEXT = {"type": "string"}
TOOLS = [
    {"type": "function", "function": {"name": "ping"}},
    function("no-parameters", {}, additionalProperties=False),
    function("write_file", {"path": TEXT, "content": TEXT}, ["path", "content"]),
    function(
        "ns.edit-file",
        {
            "mode": {"enum": ["åland", "数据", "x y", 3, None]},
            "n": {"type": "integer"},
            "x": {"type": "number", "minimum": 0, "maximum": 10},
            "on": {"type": ["boolean", "null"]},
            "id": {"type": "string", "pattern": "^[a-f]{3}-[0-9]+$"},
            "short": {"type": "string", "minLength": 2, "maxLength": 5},
        },
        ["mode", "n", "on"],
        additionalProperties=False,
    ),
    function(
        "deep",
        {
            "a": {
                "type": "object",
                "properties": {
                    "list": {"type": "array", "items": {"type": "number"}, "minItems": 1},
                    "b": {"$ref": "#/$defs/b"},
                    "flag": {"type": "boolean"},
                },
                "required": ["list"],
                "additionalProperties": False,
            },
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "rows": {"type": "array", "items": {"type": "object", "properties": {"k": {"const": "v"}}}},
            "either": {
                "anyOf": [
                    {"type": "object", "properties": {"t": {"const": "p"}, "p": TEXT}, "required": ["t"]},
                    {"type": "object", "properties": {"t": {"const": "q"}, "q": {"type": "null"}}, "required": ["t"]},
                    {"type": "integer"},
                ]
            },
        },
        ["a"],
        **{"$defs": {"b": {"anyOf": [TEXT, {"type": "null"}, {"$ref": "#/$defs/c"}]}, "c": {"enum": [1]}}},
    ),
]
"""What every test draws from."""

MORE_TOOLS = [
    function(
        "tree.of-nodes",
        {"root": {"$ref": "#/definitions/node"}},
        ["root"],
        definitions={
            "node": parameters(
                {"value": {"type": "integer"}, "children": {"type": "array", "items": {"$ref": "#/definitions/node"}}},
                ["value"],
                additionalProperties=False,
            )
        },
    ),
    function("any_map", {}, additionalProperties={"type": "array", "items": {"enum": ["ä", "ö"]}}),
    function("keys", {"a.b-c": TEXT, "$type": {"const": "数据"}, "ключ": {"type": "boolean"}}, ["$type", "ключ"]),
    function("anything", {"value": {}, "other": True}, ["value"]),
    function(
        "tuple",
        {
            "pair": {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"enum": ["å", "b"]}],
                "items": False,
                "minItems": 2,
            },
            "grid": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}},
        },
        ["pair"],
    ),
    function(
        "named",
        {
            "slug": {"type": "string", "pattern": "^[a-z0-9-]+$", "minLength": 3, "maxLength": 12},
            "code": {"type": "string", "pattern": "[0-9]{2}", "maxLength": 6},
            "one": {"oneOf": [{"type": "string", "maxLength": 3}, {"type": "integer", "minimum": 100}]},
            "all": {"allOf": [{"type": "string"}, {"minLength": 1}, {"maxLength": 4}]},
        },
        ["slug", "one"],
        additionalProperties=False,
    ),
    {
        "type": "function",
        "function": {
            "name": "by.id-or.name",
            "parameters": {
                "anyOf": [
                    parameters({"id": {"type": "integer"}}, ["id"], additionalProperties=False),
                    parameters({"name": TEXT, "exact": {"type": "boolean"}}, ["name"], additionalProperties=False),
                ]
            },
        },
    },
]
"""Still harder ones."""
