"""The conformance matrix: what a result is called, a peer that fails, and the page as its own record."""

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

from matrix import cells, page  # noqa: E402

ROWS = {row.case.id: row for row in cells.read_rows([ROOT / "tests" / "cases"])}
ROW = ROWS["m2-070"]  # a number that keeps its trailing zeros


def result(**changes: Any) -> dict[str, Any]:
    return {**cells.expected(ROW), **changes}


def calls(arguments: str) -> list[dict[str, str]]:
    return [{"name": "set_value", "arguments_json": arguments}]


@pytest.mark.parametrize(
    ("given", "exact", "word"),
    [
        (result(), True, "ok"),
        (result(tool_calls=calls('{"num": 5.00}')), False, "ok"),
        (result(tool_calls=calls('{"num": 5.00}')), True, "wrong"),
        (result(tool_calls=calls('{"num":5.0}')), False, "wrong"),
        (result(tool_calls=calls('{"num":"5.00"}')), False, "wrong"),
        (result(tool_calls=calls('{"num":')), False, "wrong"),
        (result(content="\n"), False, "wrong"),
        (result(content="a</minimax:tool_call>"), False, "leak"),
        (result(content="a[e~["), False, "leak"),
        ({"error": "ValueError: no"}, False, "error"),
        (None, False, "none"),
    ],
)
def test_what_a_result_is_called(given: dict[str, Any] | None, exact: bool, word: str) -> None:
    assert cells.status(ROW, given, exact=exact) == word


def test_pieces_keep_the_text_and_its_tags() -> None:
    text = ROW.case.text
    pieces = cells.pieces(text, cells.tags("minimax_m2"))
    assert "".join(pieces) == text
    assert {"<minimax:tool_call>", "</minimax:tool_call>"} <= set(pieces)


@pytest.fixture
def dies_at_the_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A peer that answers one question and then is gone."""
    peer = tmp_path / "peer.py"
    peer.write_text('print("{\\"version\\": \\"1\\"}")\ninput()\nprint("{\\"none\\": true}", flush=True)\n')
    monkeypatch.setattr(cells, "PEER", peer)
    return sys.executable


def test_a_peer_that_dies_costs_the_case_it_died_of(dies_at_the_second: str) -> None:
    rows = [ROW, ROWS["m2-071"]]
    version, results = cells.run_peer("any", dies_at_the_second, rows)
    assert version == "1"
    assert [results[row.key] for row in rows] == [[None, {"error": "the process ended"}]] * 2


def test_the_page_is_its_own_record(tmp_path: Path) -> None:
    given = result(content="</script><script>alert(1)</script>")
    engines = [{"name": "one", "version": "1", "results": {ROW.key: [given, None]}}]
    words = {(f"{ROW.case.id} {ROW.key}", "one", column): word for column, word in enumerate(("wrong", "none"))}
    file = tmp_path / "page.html"
    file.write_text(page.write([ROW], engines, words), encoding="utf-8")
    assert file.read_text(encoding="utf-8").count("<script>alert") == 0
    recorded = page.read(file)
    assert recorded["engines"][0]["results"] == {ROW.key: [given, None]}
    assert recorded["cases"][0]["want"] == cells.expected(ROW)
