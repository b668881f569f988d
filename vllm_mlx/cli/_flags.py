"""Flags from settings: each field of a config class that was made with `setting` is one. Owns the aliases."""

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from itertools import chain
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click

from vllm_mlx.cli._values import Float, Int, Text, Texts

ALIASES = {
    "--enable-prefix-cache": "--enable-prefix-caching",
    "--no-enable-prefix-cache": "--no-enable-prefix-caching",
    "--disable-prefix-cache": "--no-enable-prefix-caching",
    "--context-length": "--max-model-len",
    "--max-num-batched-tokens": "--prefill-step-size",
    "--uvicorn-log-level": "--log-level",
}
"""Other spellings that users paste, and the flag that each means. Underscores for hyphens are taken everywhere."""

METAVARS = {int: "N", float: "SECONDS", str: "TEXT"}

Command = TypeVar("Command", bound=Callable[..., Any])


class FlagCommand(click.Command):
    """A command that takes aliases, underscores, and several values after a flag once its argument is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Brings `args` to the canonical spelling; an unknown flag fails with what there is."""
        try:
            return super().parse_args(ctx, self._canonical(args))
        except click.NoSuchOption as error:
            names = [name for param in self.params for name in (*param.opts, *param.secondary_opts) if name[:2] == "--"]
            close = get_close_matches(error.option_name, [*names, *ALIASES], n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            ctx.fail(f"no flag {error.option_name}; {hint}there are: {' '.join(sorted(names))}")

    def _canonical(self, args: Sequence[str]) -> list[str]:
        options = {name: param for param in self.params for name in param.opts if isinstance(param, click.Option)}
        result: list[str] = []
        given = False
        rest = list(args)
        while rest:
            word = rest.pop(0)
            if word == "--":
                return [*result, word, *rest]
            if not word.startswith("-") or word == "-":
                given = True
                result.append(word)
                continue
            name, equals, value = _spelling(word)
            option = options.get(name)
            if name == "--model" and option is None and (equals or rest):
                # Other servers have a flag for what is an argument here.
                result.append(value if equals else rest.pop(0))
                given = True
                continue
            result.append(name + equals + value)
            if option is None or option.is_flag:
                continue
            if not equals and rest:
                result.append(rest.pop(0))
            while option.multiple and given and rest and not rest[0].startswith("-"):
                result += [name, rest.pop(0)]
        return result


def _spelling(word: str) -> tuple[str, str, str]:
    name, equals, value = word.partition("=")
    if name.startswith("--"):
        name = name.replace("_", "-")
        name = ALIASES.get(name, name)
    return name, equals, value


def flags(*configs: type, without: Sequence[str] = ()) -> Callable[[Command], Command]:
    """Adds to a command the flag of every setting of `configs`, but for the fields named in `without`."""

    def decorate(command: Command) -> Command:
        for config in reversed(configs):
            types_ = get_type_hints(config)
            for item in reversed(fields(config)):
                if "help" in item.metadata and item.name not in without:
                    command = _option(item, types_[item.name])(command)
        return command

    return decorate


def settings(config: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a command's parsed `values` that are fields of `config`; several values become a tuple."""
    return {item.name: values[item.name] for item in fields(config) if item.name in values}


def _option(item: Field[Any], annotation: Any) -> Callable[[Command], Command]:
    name = "--" + item.name.replace("_", "-")
    assert item.default is not MISSING
    keywords: dict[str, Any] = {"help": item.metadata["help"], "default": item.default, "show_default": True}
    if item.metadata["env"]:
        keywords |= {"envvar": item.metadata["env"], "show_envvar": True}
    if get_origin(annotation) in (Union, types.UnionType):
        annotation = next(kind for kind in get_args(annotation) if kind is not type(None))
    if get_origin(annotation) is tuple:
        keywords |= {"multiple": True, "show_default": False}
        annotation = get_args(annotation)[0]
    if annotation is bool:
        keywords["show_default"] = "on" if item.default else "off"
        return click.option(f"{name}/--no-{name[2:]}", **keywords)
    keywords["metavar"] = item.metadata["metavar"] or METAVARS.get(annotation)
    if item.metadata["json_list"]:
        keywords["callback"] = lambda _context, _option, values: tuple(chain.from_iterable(values))
    return click.option(name, type=_kind(annotation, item.metadata), **keywords)


def _kind(annotation: Any, bounds: Mapping[str, Any]) -> click.ParamType[Any]:
    if get_origin(annotation) is Literal:
        return click.Choice(get_args(annotation))
    if annotation is int:
        return Int(bounds["minimum"], bounds["maximum"])
    if annotation is float:
        return Float(bounds["minimum"], bounds["maximum"])
    assert annotation is str, annotation
    return Texts(bounds["form"]) if bounds["json_list"] else Text(bounds["form"])
