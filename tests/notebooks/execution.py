"""Runs copies of the notebooks elsewhere, without a key or the network, and reads their cells."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.processes import isolated_environment
from tests.support.tools import ROOT, check

NOTEBOOKS = ROOT / "notebooks"
NO_NETWORK = """
import socket

connect = socket.socket.connect


def connect_here(self, address):
    if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise OSError(f"no network in this test: {address}")
    return connect(self, address)


socket.socket.connect = connect_here
"""


def code_cells(document: Any) -> list[Any]:
    return [cell for cell in document.cells if cell.cell_type == "code"]


def cell_with(cells: list[Any], words: str) -> Any:
    (found,) = [cell for cell in cells if words in cell.source]
    return found


def text_of(cell: Any) -> str:
    return "\n".join(output.get("text") or output["data"]["text/plain"] for output in cell.outputs)


def execute_copy(notebook: Path, tmp_path_factory: pytest.TempPathFactory, *read: str) -> tuple[list[Any], Path]:
    """Return the code cells of a copy that was run, and its folder, where there was nothing but what it may `read`.

    Its kernel reaches nothing but this machine.
    """
    home = tmp_path_factory.mktemp("home")
    startup = home / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "00-no-network.py").write_text(NO_NETWORK)
    folder = tmp_path_factory.mktemp("elsewhere")
    for name in (notebook.name, *read):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(NOTEBOOKS / name, folder / name)
    document = nbformat.read(folder / notebook.name, as_version=4)
    for cell in code_cells(document):
        cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        document,
        resources={"metadata": {"path": str(folder)}},
        store_widget_state=False,
        coalesce_streams=True,
    )
    environment = isolated_environment(home)
    environment.pop("MPLBACKEND", None)  # that of a notebook
    client.execute(env=environment)
    return code_cells(document), folder


def shapes(cells: list[Any]) -> list[list[list[str]]]:
    """Return the kinds of the outputs of each cell."""
    return [[sorted(output.get("data", {})) for output in cell.outputs] for cell in cells]


def nbval(notebook: Path, tmp_path: Path) -> str:
    """Run a notebook again, compare its outputs with those that it holds, and return what was said."""
    return check(
        *("-m", "pytest", "--nbval", "--nbval-sanitize-with", ROOT / "tests" / "nbval.cfg", "--nbval-current-env"),
        *("-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'nbval'}", notebook),
    )
