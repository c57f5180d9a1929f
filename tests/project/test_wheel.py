"""The wheel, built and installed into a fresh environment, is complete and works."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pytest

from tests.support.tools import ROOT, check

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    own_backend = ["--no-isolation"] if importlib.util.find_spec("hatchling") else []
    check("-m", "build", "--wheel", "--outdir", out, *own_backend, ROOT)
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_the_package_its_widgets_and_the_quickstart(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    sources = [path for path in (ROOT / "nbagents").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {str(path.relative_to(ROOT)) for path in sources} <= packed
    assert "nbagents/notebooks/quickstart.ipynb" in packed
    assert any(name.startswith("nbagents/widgets/static/") and name.endswith(".js") for name in packed)
    assert not [name for name in packed if name.startswith(("tests/", "binder/"))]


def test_an_installed_wheel_works_on_its_own(wheel: Path, tmp_path: Path) -> None:
    check("-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    check("-m", "pip", "install", "-q", "--disable-pip-version-check", wheel, python=python)
    check("-m", "pip", "check", python=python)
    assert "demo" in check(tmp_path / "venv" / "bin" / "nbagents", "--help", python=python, cwd=tmp_path)
    assert "demo" in check("-m", "nbagents", "--help", python=python, cwd=tmp_path)
    where = check("-c", "import nbagents; print(nbagents.__file__)", python=python, cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path)
    said = check("-c", ONE_RUN, python=python, cwd=tmp_path)
    assert said == "Hello from the wheel\n"


ONE_RUN = """
from nbagents import Agent, ScriptedChatClient
print(Agent(ScriptedChatClient(["Hello from the wheel"])).run_sync("Hi").text)
"""
