"""What Binder builds, built here by running what its files say, runs the quickstart with a real model."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nbagents.clients.weights import PACKAGE
from tests.support.processes import isolated_environment
from tests.support.tools import ROOT, check, tracked_files

BINDER = ROOT / "binder"


def test_the_files_are_those_that_binder_reads() -> None:
    assert sorted(path.name for path in BINDER.iterdir()) == ["postBuild", "requirements.txt", "runtime.txt"]
    assert os.access(BINDER / "postBuild", os.X_OK)
    assert (BINDER / "postBuild").read_text().startswith("#!")
    assert (BINDER / "runtime.txt").read_text() == "python-3.11\n"
    assert f"--no-deps {PACKAGE}" in (BINDER / "postBuild").read_text()


def test_no_secret_is_in_them() -> None:
    for path in BINDER.iterdir():
        text = path.read_text().lower()
        assert not [word for word in ("api_key", "token", "password", "secret") if word in text], path.name


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_image_runs_the_quickstart(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for path in tracked_files():
        target = checkout / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)
    scripts = tmp_path / "venv" / "bin"
    check("-m", "venv", scripts.parent)
    environment = {
        **isolated_environment(tmp_path),
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    for command in (
        ["pip", "install", "-q", "-r", "binder/requirements.txt"],
        ["binder/postBuild"],
        ["jupyter", "execute", "--inplace", "notebooks/quickstart.ipynb"],
    ):
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    packed = check("-c", PACKED_QUICKSTART, cwd=tmp_path, python=scripts / "python")
    assert Path(packed.strip()).is_relative_to(scripts.parent)
    said = check("-c", LOCAL_ANSWER, cwd=checkout, python=sys.executable)
    assert said.strip()
    assert "nbagents local install" not in said


PACKED_QUICKSTART = "from nbagents.notebook.demo import find_quickstart; print(find_quickstart())"
LOCAL_ANSWER = """
import nbformat
cells = nbformat.read("notebooks/quickstart.ipynb", as_version=4).cells
(cell,) = [cell for cell in cells if "local-model" in cell.metadata.get("tags", ())]
print(*(output.text for output in cell.outputs))
"""
