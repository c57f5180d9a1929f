"""The analysis notebook answers its ten questions from a recording and a file of runs, without a key or the network."""

from __future__ import annotations

import base64
import filecmp
import os
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.notebooks.execution import NOTEBOOKS, cell_with, code_cells, execute_copy, nbval, shapes, text_of
from tests.notebooks.make_support_runs import RECORDING, WEEK
from tests.support.tools import check

COMMITTED = NOTEBOOKS / "analysis.ipynb"
QUESTIONS = [
    "Where did the money go?",
    "Which tool fails?",
    "What is slow?",
    "What changed since yesterday?",
    "Which runs did not end well, and why?",
    "What does a conversation cost?",
    "How much of the input came from the cache?",
    "Did the new prompt do better?",
    "What did this run do?",
    "Which answers did people dislike?",
]
PLACE = re.compile(r"(?<![\w.:/])/(?!/)[\w.-]+/|\b[A-Z]:\\|/site-packages/")


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The code cells of a copy that was run elsewhere, beside copies of the two files that it reads."""
    cells, folder = execute_copy(COMMITTED, tmp_path_factory, RECORDING, WEEK)
    assert sorted(os.listdir(folder)) == sorted([COMMITTED.name, "data", "recordings"])
    assert filecmp.cmp(folder / RECORDING, NOTEBOOKS / RECORDING, shallow=False)
    return cells


def test_ten_questions_are_asked_and_each_is_answered_in_one_or_two_lines() -> None:
    headings: list[str] = []
    answers: dict[str, list[Any]] = {}
    for cell in nbformat.read(COMMITTED, as_version=4).cells:
        if cell.cell_type == "markdown" and cell.source.startswith("#"):
            headings.append(cell.source.splitlines()[0].lstrip("# "))
        elif cell.cell_type == "code":
            answers.setdefault(headings[-1], []).append(cell)
    numbered = [f"{number}. {question}" for number, question in enumerate(QUESTIONS, 1)]
    assert [heading for heading in headings if heading[0].isdigit()] == numbered
    for question in numbered:
        assert all(len(cell.source.splitlines()) <= 2 and cell.outputs for cell in answers[question])


def test_no_cell_fails_or_warns(executed: list[Any]) -> None:
    kinds = {output.get("name", output.output_type) for cell in executed for output in cell.outputs}
    assert kinds == {"stdout", "display_data", "execute_result"}


def test_the_live_replies_come_from_the_recording(executed: list[Any]) -> None:
    assert "on the van** and should reach you today" in text_of(cell_with(executed, "order 1042?"))
    letter = cell_with(executed, "tyre of order 1043").outputs[0].data
    assert set(letter) == {"text/html", "text/markdown", "text/plain"}
    assert "a fine belt" in letter["text/html"]
    live = cell_with(executed, "runs_df()[[").outputs[0].data["text/html"]
    assert live.count("<tr") == 5
    assert "&lt;NA&gt;" not in live  # each has its tokens and its cost


def test_cost_that_is_not_known_is_missing_and_said(executed: list[Any]) -> None:
    lines = text_of(cell_with(executed, "costs[[")).splitlines()
    assert [line.split()[-2:] for line in lines[2:]] == [["0.141", "False"], ["0.055", "True"], ["<NA>", "False"]]


def test_the_plots_are_pictures(executed: list[Any]) -> None:
    pictures = [
        output.data["image/png"]
        for cell in executed
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 5
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)


def test_the_committed_outputs_are_those_of_a_run_and_name_no_place_of_a_machine(executed: list[Any]) -> None:
    committed = code_cells(nbformat.read(COMMITTED, as_version=4))
    assert [cell.source for cell in committed] == [cell.source for cell in executed]
    assert shapes(committed) == shapes(executed)
    for cell in committed:
        for output in cell.outputs:
            texts = [text for kind, text in output.get("data", {}).items() if kind in ("text/plain", "text/markdown")]
            assert not PLACE.search("\n".join([*texts, output.get("text", "")])), cell.source


def test_the_files_hold_no_traceback_and_are_made_again_by_their_script(tmp_path: Path) -> None:
    check("-m", "tests.notebooks.make_support_runs", tmp_path)
    for name in (RECORDING, WEEK):
        assert (tmp_path / name).read_text() == (NOTEBOOKS / name).read_text()
        assert not re.search(r"Traceback|\.py\b", (NOTEBOOKS / name).read_text())
    assert (NOTEBOOKS / WEEK).stat().st_size < 700_000


def test_nbval_finds_the_committed_outputs_again(tmp_path: Path) -> None:
    assert "passed" in nbval(COMMITTED, tmp_path)
