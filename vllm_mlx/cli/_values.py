"""Values of flags: what cannot be meant is refused where it is read, and the error names the flag."""

import json
import math
import re
from typing import Any

import click

from vllm_mlx.config import Form

_MOST = 2**31 - 1
"""No count of anything here is larger."""
_ANYTHING = Form(r"(?s:.*\S.*)", "a text in UTF-8")
_NOT_UTF8 = re.compile("[\ud800-\udfff]")


class Int(click.IntRange):
    """A whole number; without a `maximum` of its own it is at most 2**31 - 1."""

    def __init__(self, minimum: float | None = None, maximum: float | None = None) -> None:
        super().__init__(None if minimum is None else int(minimum), None if maximum is None else int(maximum))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = int(super().convert(value, param, ctx))
        if self.max is None and number > _MOST:
            self.fail(f"{value} is more than {_MOST}", param, ctx)
        return number


class Float(click.FloatRange):
    """A number that is none of `nan` and `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return float(number)


class Text(click.ParamType[str]):
    """A text of a form; without one it must only not be blank."""

    name = "text"

    def __init__(self, form: Form | None = None) -> None:
        self._form = form or _ANYTHING

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not self.fits(text):
            wrong = "is blank" if not text.strip() else f"is not {self._form.words}"
            self.fail(f"{text!a} {wrong}", param, ctx)
        return text

    def fits(self, text: str) -> bool:
        """Whether it is of the form, and UTF-8."""
        return re.fullmatch(self._form.pattern, text) is not None and not _NOT_UTF8.search(text)


class Texts(click.ParamType[tuple[str, ...]]):
    """A text, or a JSON list of them, as vLLM has it."""

    name = "texts"

    def __init__(self, form: Form | None = None) -> None:
        self._text = Text(form)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if not isinstance(value, str) or self._text.fits(value) or not value.startswith("["):
            return (self._text.convert(value, param, ctx),)
        try:
            items = json.loads(value)
        except ValueError as error:
            self.fail(f"{value!a} is not a JSON list: {error}", param, ctx)
        return tuple(self._text.convert(item, param, ctx) for item in items)
