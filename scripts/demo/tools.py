"""Tools for the generated data: families with a known purpose, and wholly random ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .words import Source, held_out, material, sentences

Schema = dict[str, Any]
Wanted = tuple[tuple[str, ...], str, str]  # names, JSON type, value kind


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str  # string, integer, number, boolean, strings, integers
    kind: str  # a value kind of `Source`


@dataclass(frozen=True, slots=True)
class Family:
    """A purpose that many tools have: `asks` are its requests, {0} {1} its parameters."""

    names: tuple[str, ...]
    verbs: tuple[str, ...]
    nouns: tuple[str, ...]
    descriptions: tuple[str, ...]
    parameters: tuple[Wanted, ...]
    asks: tuple[str, ...]
    result: str
    about: str  # what a thought calls it


def family_from(key: str, entry: dict[str, Any]) -> Family:
    words = (tuple(entry[key].split()) for key in ("names", "verbs", "nouns"))
    wanted = tuple((tuple(p["names"].split()), p["type"], p["kind"]) for p in entry["parameters"])
    about = entry.get("about", key)
    return Family(*words, tuple(entry["descriptions"]), wanted, tuple(entry["asks"]), entry["result"], about)


FAMILIES = {key: family_from(key, entry) for key, entry in material("families").items()}
JSON_TYPES = {
    "strings": {"type": "array", "items": {"type": "string"}},
    "integers": {"type": "array", "items": {"type": "integer"}},
}
PARAMETER_NAMES = [
    "name",
    "id",
    "value",
    "key",
    "text",
    "query",
    "path",
    "city",
    "date",
    "time",
    "count",
    "size",
    "limit",
    "offset",
    "page",
    "format",
    "mode",
    "type",
    "level",
    "user",
    "title",
    "body",
    "message",
    "url",
    "host",
    "port",
    "color",
    "unit",
    "language",
    "amount",
    "price",
    "width",
    "height",
    "speed",
    "target",
    "source",
    "category",
    "label",
    "tags",
    "items",
    "numbers",
    "enabled",
    "force",
    "verbose",
    "recursive",
    "active",
    "depth",
    "rate",
    "ratio",
    "weight",
    "score",
    "threshold",
    "timeout",
    "retries",
    "index",
    "total",
    "comment",
    "reason",
    "status",
    "version",
    "branch",
    "tag",
    "topic",
    "channel",
    "group",
    "project",
    "owner",
    "email",
    "phone",
    "street",
    "country",
    "zone",
    "start",
    "end",
    "min",
    "max",
    "step",
    "scale",
]
TYPE_KINDS = {
    "string": (
        "word",
        "word",
        "word",
        "phrase",
        "path",
        "city",
        "person",
        "identifier",
        "date",
        "clock",
        "url",
        "mail",
        "sentence",
        "zone",
        "quoted",
    ),
    "integer": ("integer", "count"),
    "number": ("number",),
    "boolean": ("boolean",),
    "strings": ("words",),
    "integers": ("integers",),
}


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    parameters: tuple[Parameter, ...]
    schema: Schema
    about: str  # the word that tells its purpose
    family: str = ""


# -- names and schemas --------------------------------------------------------------------------


def join(source: Source, parts: list[str]) -> str:
    """Words as one identifier, in one of the usual spellings."""
    style = source.random()
    if style < 0.65:
        return "_".join(parts)
    if style < 0.82:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    if style < 0.87:
        return "".join(part.capitalize() for part in parts)
    return ("-" if style < 0.95 else "").join(parts)


def odd_name(source: Source) -> str:
    def draw() -> str:
        return join(source, [source.term().lower() for _ in range(source.choice([1, 2, 2, 2, 3]))])

    return str(source.fresh(draw))


def family_name(source: Source, family: Family) -> str:
    """A name that fits a family, or one that does not: often enough in training that names are read, not guessed."""
    if source.chance(0.06 if source.test else 0.3):
        return odd_name(source)
    if not source.test and source.chance(0.15):
        return source.choice(family.names)

    def draw() -> str:
        verb, noun, word = source.choice(family.verbs), source.choice(family.nouns), source.word()
        usual = [verb, noun]
        forms = [usual, usual, usual, [noun, verb], [noun], [*usual, word], [word, *usual]]
        return join(source, source.choice(forms if source.test else [*forms, [word, noun], [word, *usual]]))

    return str(source.fresh(draw))


def parameter_name(source: Source, names: tuple[str, ...]) -> str:
    """One of the fitting names, with a word before or after it when they are used up."""
    if source.chance(0.06 if source.test else 0.15):
        return odd_parameter(source)
    if not source.test and source.chance(0.15):
        return names[0]

    def draw() -> str:
        name, word = source.choice(names), source.word()
        if source.chance(0.4):
            return name
        return join(source, source.choice([[name, word], [word, name]]))

    return str(source.fresh(draw))


def odd_parameter(source: Source) -> str:
    kind = source.random()
    if kind < 0.25 and not source.test:
        return str(source.fresh(lambda: source.choice(PARAMETER_NAMES)))
    if kind < 0.75:
        return str(source.fresh(lambda: join(source, [source.choice(PARAMETER_NAMES), source.term().lower()])))
    return odd_name(source)


def property_schema(source: Source, parameter: Parameter) -> Schema:
    entry: Schema = dict(JSON_TYPES.get(parameter.type, {"type": parameter.type}))
    if source.chance(0.25):
        text = source.choice([f"The {parameter.name}", f"{parameter.name} of the {source.word()}", source.phrase(2, 6)])
        return {**entry, "description": text} if source.chance(0.8) else {"description": text, **entry}
    if source.chance(0.04):
        entry["title"] = parameter.name.capitalize()
    return entry


def optional_schema(source: Source, parameter: Parameter) -> Schema:
    entry = property_schema(source, parameter)
    if source.chance(0.3):
        if parameter.type == "string":
            entry["enum"] = [source.word() for _ in range(source.choice([2, 2, 3]))]
        else:
            entry["default"] = source.value("count" if parameter.type == "integer" else "boolean")
    return entry


def build_schema(
    source: Source, name: str, description: str, wanted: tuple[Parameter, ...], extra: list[Parameter]
) -> Schema:
    """A function schema in one of the shapes that clients send."""
    properties = {parameter.name: property_schema(source, parameter) for parameter in wanted}
    properties |= {parameter.name: optional_schema(source, parameter) for parameter in extra}
    body: Schema = {"type": "object", "properties": properties}
    if source.chance(0.88) and (wanted or source.chance(0.5)):
        body["required"] = [parameter.name for parameter in wanted]
    if source.chance(0.12):
        body["additionalProperties"] = False
    if source.chance(0.03):
        body = {"$schema": "http://json-schema.org/draft-07/schema#", **body}
    schema = {"name": name, "description": description, "parameters": reorder(source, body, 0.1)}
    if not description:
        del schema["description"]
    if source.chance(0.08):
        schema["strict"] = source.chance(0.7)
    return reorder(source, schema, 0.15)


def reorder(source: Source, mapping: Schema, share: float) -> Schema:
    if not source.chance(share):
        return mapping
    keys = list(mapping)
    source.shuffle(keys)
    return {key: mapping[key] for key in keys}


def extras(source: Source, taken: set[str]) -> list[Parameter]:
    """Optional parameters that nobody asks for."""
    found: list[Parameter] = []
    for _ in range(source.choice([0, 0, 0, 0, 0, 0, 0, 1, 1, 2])):
        name = odd_parameter(source)
        if name not in taken:
            taken.add(name)
            kind = source.choice(["string", "integer", "boolean"])
            found.append(Parameter(name, kind, kind))
    return found


def make_tool(
    source: Source, name: str, description: str, wanted: tuple[Wanted, ...], about: str, *, family: str = ""
) -> Tool:
    taken: set[str] = set()
    parameters: list[Parameter] = []
    for names, kind_type, kind in wanted:
        chosen = ""
        while not chosen or chosen in taken:
            chosen = parameter_name(source, names) if names else odd_parameter(source)
        taken.add(chosen)
        parameters.append(Parameter(chosen, kind_type, kind))
    fixed = tuple(parameters)
    schema = build_schema(source, name, description, fixed, extras(source, taken))
    return Tool(name, description, fixed, schema, about, family)


def family_tool(source: Source, key: str) -> Tool:
    family = FAMILIES[key]
    description = source.choice(family.descriptions)
    if source.chance(0.1):
        more = [source.phrase(3, 8).capitalize() + ".", "Returns text.", "Use it when the user asks."]
        more += [source.choice(sentences()) for _ in range(2)]
        description += " " + " ".join(source.sample(more, source.choice([1, 1, 1, 2, 3])))
    if source.chance(0.04):
        description = ""
    return make_tool(source, family_name(source, family), description, family.parameters, family.about, family=key)


def random_tool(source: Source) -> Tool:
    count = source.choice([0, 1, 1, 1, 2, 2, 2, 3, 3, 4])
    types = source.choices(list(TYPE_KINDS), [58, 17, 11, 8, 4, 2], k=count)
    wanted = tuple(((), kind, source.choice(TYPE_KINDS[kind])) for kind in types)
    words = [source.word() if source.chance(0.9) else source.term().lower() for _ in range(source.randint(3, 6))]
    verb, noun = words[0].capitalize(), words[1]
    style = source.random()
    if style < 0.45:
        description = f"{verb} the {noun}."
    elif style < 0.7:
        description = f"{verb}{'' if verb.endswith('s') else 's'} a {noun} {words[2]}."
    else:
        description = f"{verb} {' '.join(words[1:])}."
    name = odd_name(source)
    if source.chance(0.7):  # as most tools: called what it does
        spelling = join(source, words[: source.choice([2, 2, 3])])
        name = spelling if held_out(spelling) == source.test else name
    return make_tool(source, name, description, wanted, noun)
