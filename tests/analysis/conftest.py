"""Each test of the tables begins with an empty log."""

from __future__ import annotations

import pytest

from nbagents import run_log


@pytest.fixture(autouse=True)
def empty_log() -> None:
    run_log().clear()
