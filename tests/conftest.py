"""Settings of the whole test run: no keys, the fixtures of `tests/support`, no servers left on SIGTERM."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator

import pytest

from tests.support import processes, require

__all__ = ["require"]

pytest_plugins = [
    "tests.support.leaks",
    "tests.support.raw_server",
    "tests.support.responses_server",
    "tests.support.servers",
    "tests.support.postgres",
    "tests.support.kernels",
    "tests.support.lab",
]

KEPT = {"NBAGENTS_REQUIRE_ALL", "NBAGENTS_TEST_CACHE"}


def reaches_a_provider(name: str) -> bool:
    """Tell whether an environment variable could send a test to a paid endpoint or through a proxy."""
    upper = name.upper()
    ours = upper.startswith("NBAGENTS_") and upper not in KEPT
    provider = upper.startswith(("OPENAI_", "AZURE_OPENAI_", "ANTHROPIC_")) or upper.endswith("_API_KEY")
    return ours or provider or upper in {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}


def pytest_configure(config: pytest.Config) -> None:
    processes.stop_all_on_sigterm()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections.extend(processes.recent_output())
    return report


@pytest.fixture(scope="session", autouse=True)
def clean_environment() -> Iterator[None]:
    """Tests never spend money: they and their subprocesses see no key, endpoint, setting or proxy."""
    with pytest.MonkeyPatch.context() as patch:
        for name in filter(reaches_a_provider, list(os.environ)):
            patch.delenv(name)
        patch.setenv("MPLBACKEND", "Agg")
        yield


@pytest.fixture(autouse=True)
def empty_run_log() -> None:
    """Each test sees only its own runs; the package is not imported for a test that does not use it."""
    if runlog := sys.modules.get("nbagents.core.runlog"):
        runlog.run_log().clear()
