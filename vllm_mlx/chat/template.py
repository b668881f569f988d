"""Chat templates: compiled once, rendered in a sandbox as transformers does, with JSON that keeps number spellings."""

import datetime
import json
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring, encode_basestring_ascii
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class TemplateError(ValueError):
    """The chat template refuses this conversation; the message is for the client (a 400)."""


class Number(float):
    """A JSON number that Python would spell in another way (`1.00`, `1e0`, `-0`, `1e400`).

    It is a number to a template's tests, and prints as it was written.
    """

    __slots__ = ("spelling",)
    spelling: str

    def __new__(cls, spelling: str) -> "Number":
        number = super().__new__(cls, spelling)
        number.spelling = spelling
        return number

    def __repr__(self) -> str:
        return self.spelling

    __str__ = __repr__


def number(spelling: str) -> int | float:
    """The number of a JSON spelling; whatever its type, `str` gives the spelling back."""
    # int() refuses more than 4,300 digits.
    if spelling.lstrip("-").isdigit() and len(spelling) < 4000:
        integer = int(spelling)
        return integer if str(integer) == spelling else Number(spelling)
    value = float(spelling)
    return value if repr(value) == spelling else Number(spelling)


def write_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """What templates call `tojson`: json.dumps's spacing, key order and number spellings kept, no HTML escapes."""
    quote = encode_basestring_ascii if ensure_ascii else encode_basestring
    between, colon = separators or (", " if indent is None else ",", ": ")
    step = " " * indent if isinstance(indent, int) else indent

    def join(items: list[str], brackets: str, depth: int) -> str:
        if not items or step is None:
            return brackets[0] + between.join(items) + brackets[1]
        line = "\n" + step * (depth + 1)
        return brackets[0] + line + (between + line).join(items) + "\n" + step * depth + brackets[1]

    def write(value: Any, depth: int) -> str:
        if isinstance(value, str):
            return quote(value)
        if isinstance(value, Number):
            return value.spelling
        if value is None or isinstance(value, bool | int | float):
            return json.dumps(value)
        if isinstance(value, Mapping):
            pairs = sorted(value.items()) if sort_keys else value.items()
            return join([f"{quote(_key(k))}{colon}{write(v, depth + 1)}" for k, v in pairs], "{}", depth)
        if isinstance(value, list | tuple):
            return join([write(item, depth + 1) for item in value], "[]", depth)
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")

    return write(value, 0)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else write_json(key)


class _Generation(Extension):
    """`{% generation %}`: marks a model's own text for training; here it is just its body."""

    tags = {"generation"}  # noqa: RUF012  (Jinja's own shape)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> str:
    raise TemplateError(message)


def _now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = write_json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    return environment


RESERVED = ("messages", "tools", "add_generation_prompt")
"""Variables that no template argument may set."""


class ChatTemplate:
    """A compiled chat template. `variables` are the names it always sees, such as `bos_token`."""

    def __init__(self, source: str, variables: Mapping[str, Any] | None = None) -> None:
        """
        Raises:
            TemplateError: the source is not valid Jinja.
        """
        self.source = source
        self._variables = dict(variables or {})
        environment = _environment()
        try:
            self._template = environment.from_string(source)
            self.reads = meta.find_undeclared_variables(environment.parse(source))
            """Names of the variables that it looks up."""
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"the chat template is not valid, line {error.lineno}: {error.message}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        *,
        add_generation_prompt: bool,
        kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text.

        Raises:
            TemplateError: the template raised, or could not use what it was given.
        """
        kwargs = dict(kwargs or {})
        for name in RESERVED:
            if name in kwargs:
                raise TemplateError(f"chat_template_kwargs may not set {name!r}")
        variables = {**self._variables, **kwargs, "messages": messages, "tools": tools or None}
        try:
            return self._template.render(variables, add_generation_prompt=add_generation_prompt)
        except TemplateError:
            raise
        except RecursionError as error:
            raise TemplateError("the conversation is nested too deep for the chat template") from error
        except (jinja2.TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise TemplateError(f"the chat template cannot render this conversation: {error}") from error


def find_source(folder: Path, settings: Mapping[str, Any], override: str | None = None) -> str | None:
    """Jinja source of a model folder's chat template; `override` is a file's path or the source itself.

    `settings` is the content of tokenizer_config.json. None: the folder has no template.

    Raises:
        TemplateError: a file cannot be read or has no template in it, or `override` is neither a file nor Jinja.
    """
    if override is not None:
        return override if "{" in override else _given(override)
    if (path := folder / "chat_template.jinja").is_file():
        return _text(path)
    if (path := folder / "chat_template.json").is_file():
        text = _text(path)
        try:
            found = json.loads(text)["chat_template"]
        except (ValueError, KeyError, TypeError) as error:
            raise _no_template(path) from error
        return _chosen(found, path)
    return _chosen(settings.get("chat_template"), folder / "tokenizer_config.json")


def _given(file: str) -> str:
    path = Path(file).expanduser()
    if not path.is_file():
        raise TemplateError(f"--chat-template: {file} is no file")
    try:
        return _text(path)
    except TemplateError as error:
        raise TemplateError(f"--chat-template: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"{path} cannot be read: {error}") from error


def _chosen(found: Any, path: Path) -> str | None:
    """The template of a JSON file; of several with names, the one for tools."""
    if isinstance(found, list):
        try:
            named = {item["name"]: item["template"] for item in found}
        except (KeyError, TypeError) as error:
            raise _no_template(path) from error
        found = named.get("tool_use") or named.get("default")
    if found is None or isinstance(found, str):
        return found
    raise _no_template(path)


def _no_template(path: Path) -> TemplateError:
    shape = '{"chat_template": ...}, the source or a list of {"name": ..., "template": ...}'
    return TemplateError(f"{path} does not have a chat template as {shape}")
