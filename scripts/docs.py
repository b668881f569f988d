"""Writes the generated pages of docs/; `--check` only says whether they are current."""

import sys
from collections.abc import Iterable
from inspect import cleandoc
from types import ModuleType
from typing import get_args

import click
from tables import DOCS, table

import reasoning_parsers
import tool_parsers
from vllm_mlx.api.messages import CountTokensRequest
from vllm_mlx.api.protocols import CODECS
from vllm_mlx.api.requests import Wire, WireRequest
from vllm_mlx.api.responses import ResponsesRequest
from vllm_mlx.api.tokenize import DetokenizeRequest, TokenizeRequest
from vllm_mlx.cli import main
from vllm_mlx.cli._cases import FAMILIES, parsers_of
from vllm_mlx.cli._flags import ALIASES

NOTE = "<!-- Written by `make docs` from the code: change the code. -->"


def flags_page() -> str:
    """Every command with its flags."""
    parts = ["# Commands and flags"]
    for name, command in _commands(main):
        context = click.Context(command)
        rows = [_flag_row(param, context) for param in command.params if isinstance(param, click.Option)]
        usage = " ".join([f"vllm-mlx {name}", *command.collect_usage_pieces(context)])
        parts += [f"## {name}", f"`{usage}`", cleandoc(command.help or "")]
        if rows:
            parts.append(table(("Flag", "Default", "Meaning"), rows))
    parts += ["## Other spellings", "In the flags of `serve` and `replay`, underscores may stand for hyphens."]
    parts.append(table(("Written", "Means"), [(f"`{alias}`", f"`{flag}`") for alias, flag in ALIASES.items()]))
    return "\n\n".join(parts)


def _commands(group: click.Group, prefix: str = "") -> Iterable[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


def _flag_row(option: click.Option, context: click.Context) -> tuple[str, str, str]:
    spelling = " / ".join([*option.opts, *option.secondary_opts])
    if not option.is_flag:
        spelling += f" {option.make_metavar(context)}"
    meaning, _, default = (option.help or "").partition("  [default: ")
    if isinstance(option.show_default, str):
        default = option.show_default
    elif option.show_default:
        default = str(option.default)
    return f"`{spelling}`", default.removesuffix("]").replace("None", ""), meaning


def parsers_page() -> str:
    """Every parser with its other names."""
    parts = ["# Parsers"]
    parts.append(
        "Names are insensitive to case, `-` and `_`. `auto`, the default of `serve`, takes the parsers whose format "
        "the model's chat template writes; `none` is none."
    )
    for title, registry in (("Tool call parsers", tool_parsers), ("Reasoning parsers", reasoning_parsers)):
        parts += [f"## {title}", table(("Name", "Other names", "Format"), _parser_rows(registry))]
    families = [*FAMILIES, *tool_parsers.names()]
    rows = [(f"`{family}`", *(f"`{name}`" for name in parsers_of(family))) for family in families]
    parts += ["## Families of case files", "The family of a case is a tool call parser, by any name, or another pair."]
    parts.append(table(("Family", "Tool call parser", "Reasoning parser"), rows))
    return "\n\n".join(parts)


def _parser_rows(registry: ModuleType) -> Iterable[tuple[str, str, str]]:
    for name in registry.names():
        cls = registry.get(name)
        # A module tells of the parser that it is named after; another one in it tells of itself.
        told = sys.modules[cls.__module__] if cls.__module__.endswith(f".{name}") else cls
        summary = (told.__doc__ or "").split("\n\n")[0].replace("\n", " ")
        yield f"`{name}`", ", ".join(f"`{alias}`" for alias in registry.aliases(name)), summary


def api_page() -> str:
    """Every field of a request: whether it acts, is ignored, or is refused."""
    parts = ["# Request fields"]
    parts.append(
        "A field that acts is checked: a wrong type or a value out of range is a 400 that names it. Null and missing "
        "are the same. A refused field is a 400 unless it is null, false or empty. A field that is not here does "
        "nothing, and the log says so once, also for one inside an object that is read here."
    )
    wires: dict[type[WireRequest], list[str]] = {}
    for path, wire in [*((path, codec.wire) for path, codec in CODECS.items()), *OTHER_BODIES]:
        wires.setdefault(wire, []).append(f"`{path}`")
    for wire, paths in wires.items():
        own = wire.model_fields
        rows = [
            *((f"`{name}`", "acts", field.description or "") for name, field in sorted(own.items())),
            *((f"`{name}`", "ignored", why) for name, why in sorted(_ignored(wire).items()) if name not in own),
            *((f"`{name}`", "refused", why) for name, why in sorted(wire.refused.items())),
        ]
        parts += [f"## POST {', '.join(paths)}", table(("Field", "", "Note"), rows)]
    return "\n\n".join(parts)


def _ignored(wire: type[Wire]) -> dict[str, str]:
    """The ignored fields of a body and of the objects in it."""
    found = dict(wire.ignored)
    for name, field in wire.model_fields.items():
        for inner in get_args(field.annotation):
            if isinstance(inner, type) and issubclass(inner, Wire):
                found |= {f"{name}.{key}": why for key, why in _ignored(inner).items()}
    return found


PAGES = {"api.md": api_page, "flags.md": flags_page, "parsers.md": parsers_page}
OTHER_BODIES: list[tuple[str, type[WireRequest]]] = [
    ("/v1/responses/input_tokens", ResponsesRequest),
    ("/v1/messages/count_tokens", CountTokensRequest),
    ("/tokenize", TokenizeRequest),
    ("/detokenize", DetokenizeRequest),
]


def write_or_check(check: bool) -> int:
    """Returns how many pages are not current (and writes them, unless it only checks)."""
    stale = 0
    for name, page in PAGES.items():
        text = f"{NOTE}\n\n{page()}\n"
        file = DOCS / name
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(f"docs/{name} {'is not current: run `make docs`' if check else 'written'}")
        if not check:
            file.write_text(text, encoding="utf-8")
    return stale


if __name__ == "__main__":
    only_check = "--check" in sys.argv[1:]
    sys.exit(1 if write_or_check(only_check) and only_check else 0)
