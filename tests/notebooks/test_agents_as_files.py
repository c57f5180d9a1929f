"""The notebook of agents as files and of the stream of a run: executed without a key or the network."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.notebooks.execution import NOTEBOOKS, cell_with, code_cells, execute_copy, nbval, shapes, text_of

COMMITTED = NOTEBOOKS / "agents-as-files.ipynb"
PLACE = re.compile(r"(?<![\w.:/<])/(?!/)[\w.-]+/|\b[A-Z]:\\|/site-packages/|127\.0\.0\.1:\d")


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The code cells of a copy that was run elsewhere; it leaves nothing there."""
    cells, folder = execute_copy(COMMITTED, tmp_path_factory)
    assert os.listdir(folder) == [COMMITTED.name]
    return cells


def test_it_is_one_story_of_short_cells(executed: list[Any]) -> None:
    assert 10 <= len(executed) <= 15
    assert all(0 < len(cell.source.splitlines()) <= 32 for cell in executed)


def test_no_cell_fails_or_warns(executed: list[Any]) -> None:
    kinds = {output.get("name", output.output_type) for cell in executed for output in cell.outputs}
    assert kinds == {"stdout", "execute_result"}


def test_the_file_and_the_code_send_the_same_bytes(executed: list[Any]) -> None:
    shown = text_of(cell_with(executed, "in_code = Agent("))
    assert shown.startswith("the same bytes: True\n")
    assert '"model": "gpt-5-mini"' in shown  # from the settings
    assert "get_specials" in shown
    assert "close_kitchen" not in shown


def test_faults_are_told_with_line_path_and_suggestion(executed: list[Any]) -> None:
    faults = text_of(cell_with(executed, "except SpecError")).strip().splitlines()
    assert len(faults) == 3
    assert all(re.match(r"line \d+, [\w.\[\]]+: .* Did you mean '.+'\?$", fault) for fault in faults)


def test_streams_come_in_a_cell_with_and_without_await(executed: list[Any]) -> None:
    rows = [line.split() for line in text_of(cell_with(executed, "async for chunk in runtime")).splitlines()]
    assert [row[1] for row in rows if row[0].isdigit()] == [
        *("run.started", "llm.delta", "llm.finished", "tool.started", "tool.finished"),
        *(["llm.delta"] * 5),
        *("llm.finished", "run.finished"),
    ]
    assert text_of(cell_with(executed, "stream_agent_with_dict(")) == "Let me see. There is clam chowder today."


def test_the_second_reply_fits(executed: list[Any]) -> None:
    shown = text_of(cell_with(executed, "output_type=Dish"))
    assert "validation.retry price: Input should be a valid number" in shown
    assert shown.endswith("Dish(name='clam chowder', price=8.5)")


def test_a_resumed_run_asks_once(executed: list[Any]) -> None:
    assert text_of(cell_with(executed, "second.resume(")).strip().endswith("There is clam chowder today. | 1 request")


def test_the_committed_outputs_are_those_of_a_run_and_name_no_place_of_a_machine(executed: list[Any]) -> None:
    document = nbformat.read(COMMITTED, as_version=4)
    committed = code_cells(document)
    assert [cell.source for cell in committed] == [cell.source for cell in executed]
    assert shapes(committed) == shapes(executed)
    assert [cell.metadata for cell in document.cells if cell.metadata] == []
    assert set(document.metadata) == {"kernelspec", "language_info"}
    for cell in committed:
        if cell.outputs:
            assert not PLACE.search(text_of(cell)), cell.source


def test_nbval_finds_the_committed_outputs_again(tmp_path: Path) -> None:
    assert "passed" in nbval(COMMITTED, tmp_path)
