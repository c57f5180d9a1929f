"""Each test of the tables begins with an empty log."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import pytest

from nbagents import run_log
from nbagents.core.runlog import RunLog


@pytest.fixture(autouse=True)
def empty_log() -> None:
    run_log().clear()


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A log of the test's own, for many runs and some that never end; the default style; no figure is left open."""
    monkeypatch.setattr("nbagents.core.runlog._log", RunLog(max_runs=20_000))
    plt.close("all")
    with plt.style.context("default"):
        yield
    plt.close("all")
