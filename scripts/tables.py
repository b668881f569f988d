"""Tables of the pages in docs/, and those of results, which are printed while they are made."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [titles, ["---"] * len(titles), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def record(
    page: str, head: str, titles: Sequence[str], rows: Iterable[Any], *, good: Callable[[Any], bool], whole: bool
) -> None:
    """Prints every row, a dataclass of texts, as it comes; writes docs/`page` if they are the `whole`; exits.

    The exit code says whether all rows are good.
    """
    found = []
    for row in rows:
        print("  ".join(astuple(row)), flush=True)
        found.append(row)
    if whole:
        (DOCS / page).write_text(f"{head}\n{table(titles, map(astuple, found))}\n", encoding="utf-8")
        print(f"docs/{page} written")
    bad = sum(not good(row) for row in found)
    sys.exit(f"{bad} of {len(found)} are not right" if bad else 0)
