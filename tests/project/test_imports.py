"""Importing the package is cheap: what is heavy is imported where it is used."""

from __future__ import annotations

from pathlib import Path

from tests.support.tools import check

HEAVY = {
    "openai",
    "pandas",
    "matplotlib",
    "IPython",
    "ipywidgets",
    "anywidget",
    "numpy",
    "xllamacpp",
    "pydantic",
    "sqlalchemy",
    "opentelemetry",
}
LOADED = "import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"


def test_the_public_names_come_without_anything_heavy(tmp_path: Path) -> None:
    names = "from nbagents import Agent, tool, OpenAIChatClient; assert Agent and tool and OpenAIChatClient"
    loaded = set(check("-c", f"{names}; {LOADED}", cwd=tmp_path).split())
    assert "nbagents" in loaded
    assert loaded & HEAVY == set()


def test_every_public_name_resolves(tmp_path: Path) -> None:
    named = "import nbagents; print(*[name for name in nbagents.__all__ if getattr(nbagents, name) is not None])"
    listed = "import nbagents; print(*nbagents.__all__)"
    assert check("-c", named, cwd=tmp_path).split() == check("-c", listed, cwd=tmp_path).split()
