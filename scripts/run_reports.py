"""Runs public reports against this server: python scripts/run_reports.py FILE.jsonl [ID ...]

Entries of kind `scripted` and `request` are run on every API, family, variant and cutting that they list; the others
are counted as not run, with the test that stands for them or the reason why there is none (reports/other.toml).
"""

import asyncio
import json
import logging
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from reports.cases import NotRun, read
from reports.checks import problems
from reports.server import Server

OTHER = tomllib.loads((Path(__file__).parent / "reports/other.toml").read_text())
SHOWN = 3
"""Failed cases of one entry that are printed."""


async def run(entries: list[dict[str, Any]]) -> Counter[str]:
    """Prints each failure; returns how many entries passed, failed and were not run."""
    counts: Counter[str] = Counter()
    not_run: list[str] = []
    async with Server.running() as server:
        for entry in entries:
            found = read(entry)
            failures: list[str] = []
            for case in found.cases:
                try:
                    failures += [f"{case.label}: {problem}" for problem in problems(await server.answer(case))]
                except NotRun as error:
                    found.reasons.append(f"{case.label}: {error}")
                except Exception as error:  # An answer that no reader expects is a failure, and the rest must go on.
                    failures.append(f"{case.label}: {type(error).__name__}: {error}")
            if failures:
                counts["failed"] += 1
                print(f"FAILED {found.id}: {entry['summary']}")
                print("".join(f"    {failure}\n" for failure in failures[:SHOWN]), end="")
                if len(failures) > SHOWN:
                    print(f"    and {len(failures) - SHOWN} more")
            elif found.reasons:
                counts["not run"] += 1
                not_run.append(f"{found.id} ({entry['theme']}): {why(entry, found.reasons[0])}")
            else:
                counts["passed"] += 1
    for line in not_run:
        print(f"not run {line}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['not run']} not run")
    return counts


def why(entry: dict[str, Any], reason: str) -> str:
    """What stands for an entry that is not run."""
    known = OTHER.get(entry["id"]) or OTHER["kinds"].get(entry["repro"]["kind"]) or reason
    return "its tests: " + ", ".join(known) if isinstance(known, list) else known


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    logging.basicConfig(level=logging.CRITICAL)
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines if line.strip()]
    if wanted := sys.argv[2:]:
        entries = [entry for entry in entries if entry["id"] in wanted]
    sys.exit(1 if asyncio.run(run(entries))["failed"] else 0)


if __name__ == "__main__":
    main()
