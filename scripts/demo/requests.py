"""Requests for one call of a tool: what the user says, what that names, what the tool returns."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from .tools import FAMILIES, PARAMETER_NAMES, Tool
from .words import Source

VERBS = [
    "use",
    "call",
    "run",
    "invoke",
    "use the tool",
    "call the tool",
    "please use",
    "use the",
    "try",
    "execute",
    "I want you to call",
    "can you use",
]
STYLES = [
    "{k}={v}",
    "{k}={v}",
    "{k} {v}",
    '{k} "{v}"',
    "{k}: {v}",
    '{k} is "{v}"',
    "{k} is {v}",
    "{k} set to {v}",
    "{k} = {v}",
    '{k}="{v}"',
    "{k} as {v}",
]


@dataclass(frozen=True, slots=True)
class Task:
    """A request for one call: the words, the call, the result."""

    tool: Tool
    ask: str
    arguments: dict[str, Any]
    result: str
    about: str = ""  # the purpose, when the words tell that and not the tool's name

    @property
    def open_end(self) -> bool:
        """Whether the words end in a value that has a full stop of its own."""
        return any(str(value).endswith((".", "!")) or "\n" in str(value) for value in self.arguments.values())


def spoken(source: Source, value: Any) -> str:
    """How a user writes a value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        items = [str(item) for item in value]
        if source.chance(0.35) or len(items) == 1:
            return json.dumps(value, ensure_ascii=False)
        return ", ".join(items[:-1]) + source.choice([" and ", ", ", " and "]) + items[-1]
    return str(value)


def listed(source: Source, arguments: dict[str, Any]) -> str:
    """Arguments by name: `k=v`, `k v`, `k is "v"`, in the order given or another."""
    pairs = list(arguments.items())
    if source.chance(0.3):
        source.shuffle(pairs)
    style = source.choice(STYLES)
    parts = []
    for name, value in pairs:
        text = spoken(source, value)
        form = style if isinstance(value, str) else style.replace('"', "")
        parts.append(form.replace("{k}", name).replace("{v}", text))
    if len(parts) > 1 and source.chance(0.6):
        return ", ".join(parts[:-1]) + " and " + parts[-1]
    return source.choice([", ", ", ", "; "]).join(parts)


def random_clause(source: Source, tool: Tool, arguments: dict[str, Any], named: bool) -> str:
    """A request for a tool by its name or description, as a clause without a full stop."""
    what = f"{source.choice(VERBS)} {tool.name}" if named else tool.description.rstrip(".")
    what = what[0].lower() + what[1:]
    if not arguments:
        return what
    if len(arguments) <= 2 and source.chance(0.18):
        values = [spoken(source, value) for value in arguments.values()]
        return f"{what} {source.choice(['with', 'on', 'for'])} {' and '.join(values)}"
    link = source.choice(["with", "with", "with", "using", "for", "where", "and set"])
    return f"{what} {link} {listed(source, arguments)}"


def family_clause(source: Source, tool: Tool, arguments: dict[str, Any]) -> str:
    ask = source.choice(FAMILIES[tool.family].asks)
    parts = {str(n): spoken(source, value) for n, value in enumerate(arguments.values())}
    if tool.family == "light":
        parts["1"] = "on" if arguments[tool.parameters[1].name] else "off"
    return re.sub(r"\{(\d)\}", lambda match: parts[match[1]], ask)


def make_task(source: Source, tool: Tool) -> Task:
    """Draw values, and ask for one call of the tool with them."""
    arguments = {parameter.name: source.value(parameter.kind) for parameter in tool.parameters}
    result = make_result(source, FAMILIES[tool.family].result if tool.family else "any")
    if tool.family and source.chance(0.88):
        return Task(tool, family_clause(source, tool, arguments), arguments, result, tool.about)
    named = bool(tool.family) or source.chance(0.8 if source.test else 0.6)
    ask = random_clause(source, tool, arguments, named)
    if source.chance(0.85):
        ask = ask[0].upper() + ask[1:]
    # A single stop at the end is never the value's own.
    if ask.endswith(".") or source.chance(0.7):
        ask += "."
    return Task(tool, ask, arguments, result, "" if named else tool.about)


# -- results ------------------------------------------------------------------------------------


def make_result(source: Source, kind: str) -> str:
    """What a tool returns."""
    if source.chance(0.06):
        return f"Error: {source.phrase(1, 4)}"
    if kind == "weather":
        sky = source.choice(["clear", "cloudy", "rain", "snow", "sunny", "fog", source.word()])
        degrees = source.randint(-10, 39)
        return source.choice(
            [
                f"{degrees} degrees and {sky}",
                f"{sky}, {degrees}°C",
                json.dumps({"temperature": degrees, "sky": sky}),
                json.dumps({"temp_c": degrees, "condition": sky, "wind": source.randint(0, 60)}),
                f"{degrees}C",
                sky,
            ]
        )
    if kind == "number":
        return str(source.value(source.choice(["integer", "number"])))
    if kind == "clock":
        return source.choice(
            [
                source.value("clock"),
                f"{source.value('date')} {source.value('clock')}",
                f"{source.value('date')}T{source.value('clock')}:00Z",
            ]
        )
    if kind == "names":
        names = [source.value("path") for _ in range(source.randint(1, 5))]
        return source.choice(["\n", "\n", ", "]).join(names) if source.chance(0.8) else json.dumps(names)
    if kind == "done":
        return source.choice(
            [
                "ok",
                "done",
                "OK",
                "Done.",
                "saved",
                f"{source.value('count')} bytes written",
                json.dumps({"ok": True}),
                source.phrase(1, 4),
                f"id {source.value('identifier')}",
                json.dumps({"status": source.word()}),
            ]
        )
    if kind == "file" or (kind == "output" and source.chance(0.3)):
        return source.value("body")
    if kind == "json" or source.chance(0.25):
        return make_json(source)
    return str(source.value(source.choice(["sentence", "phrase", "word", "number", "integer", "quoted", "identifier"])))


def make_json(source: Source) -> str:
    keys = [source.choice([source.word(), source.choice(PARAMETER_NAMES)]) for _ in range(source.randint(1, 4))]
    record = {
        key: source.value(source.choice(["word", "phrase", "integer", "number", "boolean", "identifier"]))
        for key in keys
    }
    return json.dumps(record, ensure_ascii=False, separators=source.choice([None, None, (",", ":")]))
