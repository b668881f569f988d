"""Who may write down the models' markup: the parsers. Everyone else asks them."""

from collections.abc import Iterator
from pathlib import Path

import reasoning_parsers
import tool_parsers
from vllm_mlx.chat.family import MINIMAX_TURN

ROOT = Path(__file__).parents[1]
TURNS = ROOT / "vllm_mlx" / "chat" / "family.py"
MAKES_THE_MODEL = ("demo", "train_demo.py")
PLAYS_WRITTEN_REPLIES = ("agents", "clients", "reports")
"""Tests of clients: they have replies of a model as data, as tests/ does."""


def markup_of_calls() -> set[str]:
    """What begins a tag in some format of calls."""
    found: set[str] = set()
    for name in tool_parsers.names():
        cls = tool_parsers.get(name)
        tags = getattr(cls, "tags", None)
        found |= {*cls.markers, *cls.hidden, *(tags.all if tags else ())}
    return found


def markup() -> set[str]:
    """What begins a tag in some format."""
    return markup_of_calls().union(*(reasoning_parsers.get(name).markers() for name in reasoning_parsers.names()))


def sources() -> Iterator[Path]:
    yield from (ROOT / "vllm_mlx").rglob("*.py")
    for path in (ROOT / "scripts").rglob("*"):
        room = path.relative_to(ROOT / "scripts").parts[0]
        if (
            path.suffix in (".py", ".html", "")
            and path.is_file()
            and room not in MAKES_THE_MODEL + PLAYS_WRITTEN_REPLIES
        ):
            yield path


def test_markup_is_found_where_it_may_stand() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tool_parsers").glob("*.py"))
    text += "".join(path.read_text(encoding="utf-8") for path in (ROOT / "reasoning_parsers").glob("*.py"))
    assert len(markup()) > 30
    assert sum(marker in text for marker in markup()) > 20


def test_no_markup_stands_outside_the_parsers() -> None:
    turns = {*MINIMAX_TURN.spellings, *MINIMAX_TURN.hidden}
    for path in sources():
        text = path.read_text(encoding="utf-8")
        found = {marker for marker in markup() | turns if marker in text}
        assert not found - (turns if path == TURNS else set()), path


def test_no_markup_of_calls_stands_in_the_reasoning_parsers() -> None:
    thoughts = {marker for name in reasoning_parsers.names() for marker in reasoning_parsers.get(name).markers()}
    for path in (ROOT / "reasoning_parsers").glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not {marker for marker in markup_of_calls() - thoughts if marker in text}, path
