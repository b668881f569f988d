"""What a whole answer may be, as llguidance's Lark: JSON Schema, a regex, a list of choices. No MLX.

The API checks here what it is sent, the engine compiles the same text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark

from vllm_mlx.engine.protocol import Structured

_GAP = r"/\n{0,2}/"
"""What may stand before JSON: models begin an answer with newlines."""
_OPTIONS = {"whitespace_pattern": r"[ ]?|\r?\n[ \t]{0,40}", "coerce_one_of": True}
"""White space is bounded: a model must not lose itself in it. `oneOf` is read as `anyOf`."""
_ESCAPES = re.compile(r"\\.|/", re.DOTALL)
_ROOT = re.compile(r"^\s*root\s*::=", re.MULTILINE)


def json_answer(schema: Mapping[str, Any]) -> Structured:
    """An answer that is JSON and fits a schema."""
    own = schema.get("x-guidance")
    options = {**_OPTIONS, **(own if isinstance(own, Mapping) else {})}
    text = json.dumps({**schema, "x-guidance": options}, ensure_ascii=False)
    return Structured(f"%llguidance {{}}\nstart: {_GAP} json\njson: %json {text}\n")


def regex_answer(pattern: str) -> Structured:
    """An answer that a regular expression matches from end to end."""
    escaped = _ESCAPES.sub(lambda found: "\\/" if found[0] == "/" else found[0], pattern).replace("\n", "\\n")
    return Structured(f"%llguidance {{}}\nstart: /{escaped}/\n")


def choice_answer(choices: Sequence[str]) -> Structured:
    """An answer that is one of several texts."""
    texts = " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
    return Structured(f"%llguidance {{}}\nstart: {texts}\n")


def grammar_answer(text: str) -> Structured:
    """An answer that follows a grammar: llguidance's Lark, or GBNF with a `root`. Raises `ValueError`."""
    if "::=" not in text:
        return Structured(text)
    if not _ROOT.search(text):
        raise ValueError("the grammar has no rule named root")
    try:
        return Structured(str(gbnf_to_lark(text)))
    except GbnfToLarkError as error:
        raise ValueError(str(error)) from error


def check(answer: Structured) -> None:
    """Raises `ValueError`, in one line, for what cannot be compiled: a keyword of JSON Schema, a regex, a grammar."""
    found = LLMatcher.validate_grammar(LLMatcher.grammar_from_lark(answer.lark))
    if found:
        raise ValueError(_one_line(found))


def _one_line(message: str) -> str:
    """What the library says, without the excerpt of our own wrapping."""
    lines = [line.strip() for line in message.splitlines()]
    kept = [line for line in lines if line and not line[0].isdigit() and set(line) != {"^"} and "|" not in line[:8]]
    first = lines[0].partition("): ")[2] or lines[0]
    errors = [line for line in kept if line.startswith("error:")]
    where = "pattern: " if first.startswith("failed to compile JSON") and "regex parse error" in message else ""
    return where + " ".join((first, *(line.removeprefix("error: ") for line in errors)))[:300]
