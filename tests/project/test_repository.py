"""What is committed: the agreed top level, no leftovers, no places of one machine, notebooks that were run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.tools import ROOT, tracked_files

TOP_LEVEL = {"pyproject.toml", "nbagents", "notebooks", "tests", "binder", "README.md", "LICENSE"}
LEFTOVERS = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X]|HA[C]K)\b")
ONE_MACHINE = re.compile(
    r"/(?:work|root|opt/nb)/|/home/[a-z]|/Users/[a-z]|/tmp/(?:pytest|tmp)"
    r"|registry\.npmjs|\bpypi\.org|pythonhoste[d]|deb\.debian"
)
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def lines_with(pattern: re.Pattern[str]) -> Iterator[str]:
    for path in tracked_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # a picture
        for number, line in enumerate(lines, 1):
            if pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number}: {line.strip()[:160]}"


def test_the_top_level_holds_the_agreed_names() -> None:
    names = {path.relative_to(ROOT).parts[0] for path in tracked_files()}
    assert {name for name in names if not name.startswith(".")} <= TOP_LEVEL


def test_nothing_is_left_for_later() -> None:
    assert list(lines_with(LEFTOVERS)) == []


def test_no_path_of_one_machine_and_no_host_of_a_package_index() -> None:
    assert list(lines_with(ONE_MACHINE)) == []


def test_modules_stay_small() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in (ROOT / "nbagents").rglob("*.py")}
    assert {str(path.relative_to(ROOT)): size for path, size in sizes.items() if size > 450} == {}


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


def code_cells(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_committed_notebook_was_run_from_top_to_bottom(path: Path) -> None:
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert [output for output in outputs if output["output_type"] == "error"] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_committed_notebook_is_readable_without_widgets(path: Path) -> None:
    for cell in code_cells(path):
        for output in cell["outputs"]:
            data = output.get("data", {})
            assert "application/vnd.jupyter.widget-view+json" not in data or "text/html" in data, cell["source"]
