"""docs/adding-a-format.md is true: what it shows is done here, and nothing else."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tool_parsers
from vllm_mlx.cli._cases import cuttings, read_cases

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-format.md"
BLOCKS = dict[str, list[str]]()
for language, block in re.findall(r"```(python|json)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
    BLOCKS.setdefault(language, []).append(block)


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file is in the package, the registry has the line; the case file is returned."""
    module, line = BLOCKS["python"]
    (tmp_path / "shout.py").write_text(module, encoding="utf-8")
    (tmp_path / "shout.jsonl").write_text(BLOCKS["json"][0], encoding="utf-8")
    monkeypatch.setattr(tool_parsers, "__path__", [*tool_parsers.__path__, str(tmp_path)])
    registry = tool_parsers._REGISTRY
    places, aliases = dict(registry._places), dict(registry._aliases)
    exec(line, {"_REGISTRY": registry})
    yield tmp_path / "shout.jsonl"
    for table, before in ((registry._places, places), (registry._aliases, aliases)):
        table.clear()
        table.update(before)  # type: ignore[arg-type]
    sys.modules.pop("tool_parsers.shout")


def test_the_page_adds_a_format(added: Path) -> None:
    cases = list(read_cases(added))
    assert cases
    for case in cases:
        for pieces in cuttings(case.text, "every"):
            assert case.got(pieces) == case.expect, pieces


def test_the_format_is_known_by_its_names_and_by_its_templates(added: Path) -> None:
    assert tool_parsers.resolve("shout2") == "shout"
    assert tool_parsers.detect("{% for call in calls %}<|shout|>{{ call.name }}{% endfor %}") == "shout"
    template = PAGE.parents[1] / "vllm_mlx" / "demo" / "chat_template.jinja"
    assert tool_parsers.detect(template.read_text(encoding="utf-8")) == "minimax_m2"
