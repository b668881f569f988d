"""docs/conformance.html: one file with its data, its style and its script, and the way back from it to the data."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matrix.cells import Result, Row, expected
from vllm_mlx.chat.family import MINIMAX_TURN

TEMPLATE = Path(__file__).with_name("page.html")
BEGIN, END = '<script type="application/json" id="data">', "</script>"


def write(rows: Sequence[Row], engines: Sequence[Result], cells: Mapping[tuple[str, str, int], str]) -> str:
    """The page. A result that several engines share is written once."""
    cases = []
    for row in rows:
        results: list[Result] = []
        given: dict[str, list[list[Any]]] = {}
        for engine in engines:
            given[engine["name"]] = []
            for column, result in enumerate(engine["results"].get(row.key, [None, None])):
                if result is not None and result not in results:
                    results.append(result)
                word = cells[f"{row.case.id} {row.key}", engine["name"], column]
                given[engine["name"]].append([word, None if result is None else results.index(result)])
        line = row.line
        cases.append(
            {
                "id": row.case.id,
                "key": row.key,
                "family": line["family"],
                "about": line.get("description", ""),
                "basis": line.get("basis", ""),
                "thinking": row.case.setup.thinking_open,
                "text": row.case.text,
                "want": expected(row),
                "results": results,
                "given": given,
            }
        )
    names = [{"name": engine["name"], "version": engine["version"]} for engine in engines]
    data = {"engines": names, "muted": [*MINIMAX_TURN.spellings, *MINIMAX_TURN.hidden], "cases": cases}
    # No "<" in the data: nothing in it can end the script.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return TEMPLATE.read_text(encoding="utf-8").replace("{{data}}", text)


def read(file: Path) -> Result:
    """What a page records: its cases, and by engine the results by the cases' keys. Without a page: nothing."""
    if not file.exists():
        return {"engines": [], "cases": []}
    text = file.read_text(encoding="utf-8")
    data = json.loads(text[text.index(BEGIN) + len(BEGIN) : text.index(END, text.index(BEGIN))])
    for engine in data["engines"]:
        engine["results"] = {
            case["key"]: [None if at is None else case["results"][at] for _, at in case["given"][engine["name"]]]
            for case in data["cases"]
            if engine["name"] in case["given"]
        }
    result: Result = data
    return result
