"""`nbagents demo`: a copy of the quickstart that nobody's work is lost to, in JupyterLab or run without a browser."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nbagents.cli import main
from nbagents.core.errors import ConfigurationError, NBAgentsError
from nbagents.notebook import demo
from tests.support.processes import isolated_environment, program
from tests.support.tools import ROOT

FOLDER = Path("nbagents-demo")
NOTEBOOK = FOLDER / "quickstart.ipynb"
ONE_REPLY = """\
from nbagents import Agent, ScriptedChatClient
Agent(ScriptedChatClient(["It is $x^2 < y$."])).run_sync("What is it?")"""


def write_notebook(path: Path, cells: Sequence[str | tuple[str, str]]) -> None:
    """Save code cells; a pair is a cell with its tag."""
    pairs = [(cell, "") if isinstance(cell, str) else cell for cell in cells]
    document = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell-{place}",
                "metadata": {"tags": [tag]} if tag else {},
                "execution_count": None,
                "outputs": [],
                "source": source,
            }
            for place, (source, tag) in enumerate(pairs)
        ],
    }
    path.write_text(json.dumps(document))


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small notebook in place of the quickstart."""
    path = tmp_path / "original.ipynb"
    write_notebook(path, [ONE_REPLY, ("print('the model says')", "local-model"), ("6 * 7", "usage")])
    monkeypatch.setattr(demo, "find_quickstart", lambda: path)
    return path


def copy(**options: Any) -> tuple[Path, str]:
    said: list[str] = []
    target = demo.copy_quickstart(FOLDER, say=said.append, **options)
    return target, "\n".join(said)


def test_the_quickstart_is_that_of_the_checkout() -> None:
    assert demo.find_quickstart() == ROOT / "notebooks" / "quickstart.ipynb"


def test_a_fresh_copy_is_made(original: Path) -> None:
    target, said = copy()
    assert target == NOTEBOOK
    assert target.read_bytes() == original.read_bytes()
    assert str(NOTEBOOK) in said


@pytest.mark.usefixtures("original")
def test_a_copy_that_was_only_run_is_used_again() -> None:
    copy()
    output = {"output_type": "stream", "name": "stdout", "text": "my output"}
    edit(NOTEBOOK, lambda document: document["cells"][0]["outputs"].append(output))
    target, said = copy()
    assert target == NOTEBOOK
    assert "my output" in target.read_text()
    assert "Using" in said


@pytest.mark.usefixtures("original")
def test_an_edited_copy_is_never_overwritten() -> None:
    copy()
    edit(NOTEBOOK, lambda document: document["cells"][0].update(source="my_own_work()"))
    for _ in range(2):
        target, said = copy()
        assert target == FOLDER / "quickstart-2.ipynb"
        assert "stays as it is (--force overwrites it)" in said
    assert "my_own_work" in NOTEBOOK.read_text()
    target, _ = copy(force=True)
    assert target == NOTEBOOK
    assert "my_own_work" not in target.read_text()


@pytest.mark.usefixtures("original")
def test_something_else_of_that_name_is_left_alone() -> None:
    FOLDER.mkdir()
    NOTEBOOK.write_text("no notebook")
    target, _ = copy()
    assert target.name == "quickstart-2.ipynb"
    assert NOTEBOOK.read_text() == "no notebook"


@pytest.mark.parametrize(
    ("browser", "missing", "sentence"),
    [
        (True, ["jupyterlab"], "The demo needs jupyterlab, which is not installed."),
        (False, ["nbclient"], "The demo needs nbclient, which is not installed."),
        (False, ["nbclient", "ipykernel"], "The demo needs nbclient and ipykernel, which are not installed."),
    ],
)
def test_without_the_extra_one_line_says_what_to_install(
    browser: bool,
    missing: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None if name in missing else object())
    assert main(["demo", *([] if browser else ["--no-browser"])]) == 1
    said = capsys.readouterr().err
    assert sentence in said
    assert 'pip install -e ".[lab]"' in said
    assert f"pip install {' '.join(missing)}." in said
    assert said.count("\n") == 1
    assert not FOLDER.exists()


def prepared() -> str:
    said: list[str] = []
    demo.prepare_local_model(said.append)
    return "\n".join(said)


def test_weights_are_fetched_on_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[bool] = []
    monkeypatch.setattr(demo, "local_extra_installed", lambda: True)
    monkeypatch.setattr(demo, "find_weights", lambda: Path("there") if fetched else None)
    monkeypatch.setattr(demo, "install_weights", lambda: fetched.append(True))
    assert "Fetching" in prepared()
    assert prepared() == ""
    assert fetched == [True]


@pytest.mark.parametrize("error", [NBAgentsError("the index does not answer"), ConfigurationError("no GGUF file")])
def test_without_weights_the_demo_goes_on(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise error

    monkeypatch.setattr(demo, "local_extra_installed", lambda: True)
    monkeypatch.setattr(demo, "find_weights", lambda: None)
    monkeypatch.setattr(demo, "install_weights", refuse)
    assert f"Without a local model: {error}" in prepared()


def test_without_the_local_extra_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "local_extra_installed", lambda: False)
    assert "pip install xllamacpp" in prepared()


@pytest.mark.usefixtures("original")
def test_no_browser_runs_the_cells_and_shows_what_came_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--no-browser"]) == 0
    out, err = capsys.readouterr()
    assert "The model on this machine:\nthe model says\n\nUsage:\n42\n" in out
    for number, line in enumerate(("from nbagents import Agent", "print('the model says')", "6 * 7"), 1):
        assert re.search(rf"^\[{number}/3\] +[0-9.]+ s  {re.escape(line)}", out, re.MULTILINE)
    assert "%|" not in out + err
    assert "\r" not in out + err
    page = NOTEBOOK.with_suffix(".html").read_text()
    assert "the model says" in page
    assert re.search(r"<math.*<msup>.*&lt;.*</math>", page)
    assert re.findall(r"""(?:src|href)=["'](?!data:|#)[^"']*""", page) == []
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert [cell["execution_count"] for cell in cells] == [1, 2, 3]


def test_a_failing_cell_is_named(original: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_notebook(original, ["print('before')", "value = 1\nvalue / 0", "print('after')"])
    assert main(["demo", "--no-browser"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "nbagents: Cell 2 of quickstart.ipynb failed (value = 1): ZeroDivisionError: division by zero"
    saved = json.loads(NOTEBOOK.read_text())["cells"]
    assert saved[0]["outputs"]
    assert saved[1]["outputs"][0]["ename"] == "ZeroDivisionError"
    assert not saved[2]["outputs"]
    assert not NOTEBOOK.with_suffix(".html").exists()


def test_lab_is_allowed_to_run_as_root_only_where_the_user_is_root(monkeypatch: pytest.MonkeyPatch) -> None:
    for user, allowed in ((0, True), (1000, False)):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        assert ("--allow-root" in demo.lab_command(NOTEBOOK)) is allowed


def test_lab_opens_the_copy(tmp_path: Path) -> None:
    """The real command: JupyterLab serves the folder of the copy and asks a browser for the notebook."""
    home = tmp_path / "home"
    asked = tmp_path / "asked"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\ncp "${{1#file://}}" "{asked}" || echo "$1" > "{asked}"\n')
    browser.chmod(0o755)
    environment = {**isolated_environment(home), "BROWSER": f"{browser} %s", "NBAGENTS_LOCAL_MODEL": str(tmp_path)}
    command = [sys.executable, "-m", "nbagents", "demo"]
    with program(command, cwd=tmp_path, env=environment, ready=asked.exists, within=90) as lab:
        assert "Copied the quickstart" in lab.output() or NOTEBOOK.exists()
        (server,) = (home / "runtime").glob("jpserver-*.json")
        facts = json.loads(server.read_text())
        assert facts["pid"] == lab.pid
        assert Path(facts["root_dir"]) == (tmp_path / FOLDER).resolve()
        assert "/lab/tree/quickstart.ipynb" in asked.read_text()
