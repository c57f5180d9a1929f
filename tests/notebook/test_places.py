"""`%%agent` and `Chat` where nobody looks: nbclient and nbconvert, and a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

SETUP = """
%load_ext nbagents
from nbagents import Agent, Chat, ScriptedChatClient, tool, tool_call
@tool
def add(a: int, b: int) -> int:
    return a + b
replies = ["Let me see. ", tool_call("add", a=1, b=2)], "It is **3**.", RuntimeError("the model is gone")
helper = Agent(ScriptedChatClient(replies, delay=0.01), name="helper", tools=[add])
"""


def execute(folder: Path, *cells: str, **settings: Any) -> nbformat.NotebookNode:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (SETUP, *cells)])
    NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": folder}}, **settings).execute()
    return notebook


def test_an_executed_notebook_has_one_lasting_output_and_no_widget(tmp_path: Path) -> None:
    """C18: also `--no-wait` waits, since nobody would see what comes later."""
    notebook = execute(tmp_path, "%%agent -n helper --no-wait\nWhat is 1+2?")
    (output,) = notebook.cells[1].outputs
    assert set(output.data) == {"text/html", "text/markdown", "text/plain"}
    assert "<strong>3</strong>" in output.data["text/html"]
    assert "It is **3**." in output.data["text/plain"]
    assert "widgets" not in notebook.metadata


def test_a_failed_cell_fails_the_execution_and_keeps_the_partial_reply(tmp_path: Path) -> None:
    notebook = execute(tmp_path, *["%%agent -n helper\nGo"] * 2, allow_errors=True)
    shown, error = notebook.cells[2].outputs
    assert "the model is gone" in shown.data["text/plain"]
    assert "the model is gone" in error.evalue


def test_a_chat_is_static_and_as_new_as_its_last_run(tmp_path: Path) -> None:
    """C17, C18."""
    notebook = execute(tmp_path, "chat = Chat(helper)\nchat", "chat.send('What is 1+2?').result().text")
    (output,) = notebook.cells[1].outputs
    assert set(output.data) == {"text/html", "text/markdown", "text/plain"}
    assert "<strong>3</strong>" in output.data["text/html"]


def test_it_is_the_same_each_time(tmp_path: Path) -> None:
    """Notebooks are compared cell by cell (nbval): no id, time or duration stands in the lasting form."""
    first, second = (execute(tmp_path, "%%agent -n helper\nWhat is 1+2?") for _ in range(2))
    assert first.cells[1].outputs == second.cells[1].outputs


TERMINAL = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in {cells!r}:
    shell.run_cell(cell)
"""


BREAKS = """
from nbagents import Agent, ScriptedChatClient
from nbagents.core.errors import ServerError
client = ScriptedChatClient([["Hel", ServerError("down", headers={"retry-after": "0"})], "Hello"])
client.max_retries, client.retry_streams = 1, True
breaks = Agent(client)
"""


@pytest.mark.parametrize("options", ["-n helper", "-n helper --no-wait"])
def test_a_terminal_streams_text(tmp_path: Path, options: str) -> None:
    asked = [f"%%agent {options}\nWhat is 1+2?", "%agent -n helper Again", "%%agent -n breaks\nHi"]
    code = TERMINAL.format(cells=[SETUP, BREAKS, *asked])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert "Let me see. It is **3**.\n" in done.stdout
    assert "the model is gone" in done.stdout + done.stderr
    assert "Hel\n[The reply broke off and begins again.]\nHello\n" in done.stdout  # C92: nothing can be taken back here
