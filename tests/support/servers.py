"""Two OpenAI-compatible servers written by others, and a port where nothing listens."""

from __future__ import annotations

import pytest

from tests.support.processes import free_port


@pytest.fixture
def unused_port() -> int:
    return free_port()
