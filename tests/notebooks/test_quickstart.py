"""The quickstart runs from top to bottom without a key or the network, the same way each time."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import nbformat
import pytest

from nbagents.clients.local import local_extra_installed
from nbagents.clients.weights import find_weights
from tests.notebooks.execution import NOTEBOOKS, cell_with, code_cells, execute_copy, nbval, shapes, text_of

COMMITTED = NOTEBOOKS / "quickstart.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The code cells of a copy that was run elsewhere."""
    cells, folder = execute_copy(COMMITTED, tmp_path_factory)
    assert sorted(os.listdir(folder)) == [COMMITTED.name]
    return cells


def test_it_is_one_short_story(executed: list[Any]) -> None:
    assert 10 <= len(executed) < 15
    assert [cell.source for cell in executed if not cell.source.strip()] == []


def test_no_cell_fails_or_warns(executed: list[Any]) -> None:
    kinds = {output.get("name", output.output_type) for cell in executed for output in cell.outputs}
    assert kinds <= {"stdout", "display_data", "execute_result"}


def test_replies_stay_as_html_markdown_and_text(executed: list[Any]) -> None:
    for words, said in (
        ("Hello! What can you do?", "stand-in"),
        ("%%agent -n weather\nIs it warmer", "15.6 °C against 13.9 °C"),
        ("And in Oslo?", "There are no data for Oslo"),
    ):
        (output,) = cell_with(executed, words).outputs
        assert set(output.data) == {"text/html", "text/markdown", "text/plain"}
        assert all(said in text for text in output.data.values())
        assert "<script" not in output.data["text/html"]
    tool_cell = cell_with(executed, "%%agent -n weather\nIs it warmer").outputs[0].data["text/html"]
    assert tool_cell.count("temperature") >= 2
    assert "nbagents-math" in cell_with(executed, "Hello! What can you do?").outputs[0].data["text/html"]


def test_a_session_remembers(executed: list[Any]) -> None:
    assert "Your first question was: *Is it warmer in Lisbon or in Porto in April?*" in text_of(
        cell_with(executed, "What did I ask first?")
    )


def test_the_chat_shows_the_conversation_without_a_widget(executed: list[Any]) -> None:
    (output,) = cell_with(executed, "Chat(weather").outputs
    assert "application/vnd.jupyter.widget-view+json" not in output.data
    assert "Your first question was" in output.data["text/html"]


def test_the_tables_show_what_happened(executed: list[Any]) -> None:
    assert cell_with(executed, "runs_df()[columns]").outputs[0].data["text/html"].count("<td>ok</td>") == 5
    calls = text_of(cell_with(executed, "tool_calls_df()["))
    assert calls.count("temperature") >= 5
    usage = text_of(cell_with(executed, "usage_df("))
    assert "guide" in usage
    assert "weather" in usage


def test_the_plot_is_a_picture(executed: list[Any]) -> None:
    (output,) = cell_with(executed, "plot_timeline").outputs
    assert base64.b64decode(output.data["image/png"]).startswith(b"\x89PNG")


def test_the_real_model_answers_or_the_cell_says_how_to_get_it(executed: list[Any]) -> None:
    said = text_of(cell_with(executed, "LocalChatClient"))
    there = local_extra_installed() and find_weights() is not None
    assert ("install" in said) is not there
    assert len(said) > 10


def test_the_committed_outputs_are_those_of_a_run(executed: list[Any]) -> None:
    committed = code_cells(nbformat.read(COMMITTED, as_version=4))
    assert [cell.source for cell in committed] == [cell.source for cell in executed]
    assert shapes(committed) == shapes(executed)


def test_nbval_finds_the_committed_outputs_again(tmp_path: Path) -> None:
    assert "passed" in nbval(COMMITTED, tmp_path)
