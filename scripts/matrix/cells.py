"""Cases, the results of ours and of peers on them, and what a result is called."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import reasoning_parsers
import tool_parsers
from vllm_mlx.chat.family import MINIMAX_TURN
from vllm_mlx.cli._cases import Case, parsers_of, read_cases

Result = dict[str, Any]
Status = Literal["ok", "wrong", "leak", "error", "none"]
PEER = Path(__file__).with_name("peer.py")


@dataclass(frozen=True, slots=True)
class Row:
    """A case with its line as it stands in the file."""

    file: str
    line: Result
    case: Case

    @property
    def key(self) -> str:
        """Changes when anything that a parser reads changes."""
        read = [self.line[name] for name in ("family", "text")], self.line.get("tools"), self.case.setup.thinking_open
        return hashlib.sha256(json.dumps(read, ensure_ascii=False).encode()).hexdigest()[:16]


def read_rows(folders: Iterable[Path]) -> list[Row]:
    """The cases of all files, each once; the families that this project is about come first."""
    rows: dict[tuple[str, str], Row] = {}
    for folder in folders:
        for file in sorted(folder.glob("*.jsonl")):
            lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
            for line, case in zip(lines, read_cases(file), strict=True):
                row = Row(file.stem, json.loads(line), case)
                rows.setdefault((case.id, row.key), row)
    return sorted(rows.values(), key=lambda row: not row.line["family"].startswith("minimax"))


def expected(row: Row) -> Result:
    """What must come out, in the shape of a result."""
    return _result(row.case.expect)


def _result(found: Result) -> Result:
    return {name: found[name] for name in ("reasoning", "content", "tool_calls")}


def ours(row: Row) -> tuple[Result, Result]:
    """Whole, and one character at a time."""
    whole, streamed = (row.case.got(pieces) for pieces in ([row.case.text], list(row.case.text)))
    return _result(whole), _result(streamed)


def status(row: Row, result: Result | None, *, exact: bool) -> Status:
    """`leak`: markup or a turn token that should not be there stands in the content.

    `exact`: arguments must have the very bytes; else white space and escapes in them are free, numbers are not.
    """
    if result is None:
        return "none"
    if "error" in result:
        return "error"
    want = expected(row)
    if result == want or (not exact and _loose(result) == _loose(want)):
        return "ok"
    shown, due = result["content"] or "", want["content"] or ""
    return "leak" if any(shown.count(tag) > due.count(tag) for tag in tags(row.line["family"])) else "wrong"


def tags(family: str) -> tuple[str, ...]:
    """Everything of a family that is markup: what begins a tag, and turn tokens."""
    tool, reasoning = parsers_of(family)
    names = {*tool_parsers.get(tool).markers, *_think_tags(reasoning), *MINIMAX_TURN.spellings}
    return tuple(sorted(names))


def _think_tags(reasoning: str | None) -> tuple[str, ...]:
    return reasoning_parsers.get(reasoning).markers() if reasoning else ()


def _loose(result: Result) -> Any:
    calls = [(call["name"], _spelled(call["arguments_json"])) for call in result["tool_calls"]]
    return result["reasoning"], result["content"], calls


def _spelled(text: str) -> Any:
    """JSON as written: numbers as spelled, members in order."""
    try:
        return json.loads(text, parse_int=_Number, parse_float=_Number, object_pairs_hook=_Members)
    except ValueError:
        return text


class _Number(tuple[str]):
    """A number's spelling, which is no string."""

    def __new__(cls, digits: str) -> "_Number":
        return super().__new__(cls, (digits,))


class _Members(list[tuple[str, Any]]):
    """An object's members in order."""


def run_peer(name: str, python: str, rows: Sequence[Row]) -> tuple[str | None, dict[str, list[Result | None]]]:
    """A peer's version and, by key, its whole and its streamed result. Version None: it is not installed there."""
    asked = [question for row in rows for question in _questions(row)]
    answers: list[Result | None] = []
    version = None
    while len(answers) < len(asked):
        told = list(_ask(name, python, asked[len(answers) :]))
        if not told:
            return None, {}
        version, *results = (told[0]["version"], *told[1:])
        answers += [None if "none" in result else result.get("result", result) for result in results]
        if len(answers) < len(asked):
            answers.append({"error": "the process ended"})
    pairs = zip(answers[::2], answers[1::2], strict=True)
    return version, {row.key: list(pair) for row, pair in zip(rows, pairs, strict=True)}


def _questions(row: Row) -> Iterator[Result]:
    tool, reasoning = parsers_of(row.line["family"])
    openers = list(getattr(tool_parsers.get(tool), "openers", ()))
    question = {
        "family": row.line["family"],
        "tools": row.line.get("tools"),
        "thinking": row.case.setup.thinking_open,
        "think": list(_think_tags(reasoning)),
        "openers": openers,
        "text": row.case.text,
    }
    yield {**question, "pieces": [row.case.text]}
    yield {**question, "pieces": pieces(row.case.text, tags(row.line["family"])) or [""]}


def pieces(text: str, whole: Sequence[str]) -> list[str]:
    """A text as a model's tokens bring it: tags that are one token whole, the rest in words and signs."""
    marks = "|".join(map(re.escape, sorted(whole, key=len, reverse=True)))
    return re.findall(rf"{marks}| ?\w+|\s+|.", text, re.DOTALL)


def _ask(name: str, python: str, questions: Sequence[Mapping[str, Any]]) -> Iterator[Result]:
    text = "".join(json.dumps(question) + "\n" for question in questions)
    done = subprocess.run([python, PEER, name], input=text, capture_output=True, encoding="utf-8", check=False)
    if not done.stdout and done.stderr:
        sys.stderr.write(f"{name}: {done.stderr.strip().splitlines()[-1]}\n")
    yield from (json.loads(line) for line in done.stdout.splitlines())
