"""The progress bar: where it shows, and where not."""

from __future__ import annotations

import io

import pytest

from nbagents.analysis import load_runs, runs_df, save_runs
from nbagents.analysis import progress as module
from nbagents.analysis.progress import progress
from tests.analysis.runs import agent


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("file", "delay", "shows"), [(Terminal, 0, True), (Terminal, 60, False), (io.StringIO, 0, False)]
)
def test_a_bar_shows_in_a_terminal_when_it_takes_long_and_not_in_a_log_file(monkeypatch, file, delay, shows):
    monkeypatch.setattr(module, "DELAY_SECONDS", delay)
    screen = file()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.delitem(module.sys.modules, "ipykernel", raising=False)
    assert list(progress(range(3), "Loading", total=3)) == [0, 1, 2]
    assert ("Loading" in screen.getvalue()) is shows


async def test_saving_loading_and_reading_many_runs_show_how_far_they_are(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "DELAY_SECONDS", 0)
    monkeypatch.setattr("sys.stderr", screen := Terminal())
    monkeypatch.delitem(module.sys.modules, "ipykernel", raising=False)
    await agent("Hi.").run("Hello")
    save_runs(tmp_path / "runs.jsonl")
    runs_df(load_runs(tmp_path / "runs.jsonl"))
    assert "Saving: 1runs" in screen.getvalue()
    assert "Loading runs.jsonl: 1events" in screen.getvalue()
    assert "Reading: 1runs" in screen.getvalue()


def test_a_bar_shows_in_a_notebook(kernel):
    code = """
from nbagents.analysis import progress as module
module.DELAY_SECONDS = 0
for _ in module.progress(range(3), "Loading", total=3): pass
"""
    result = kernel.run(code)
    assert result.ok
    assert any("Loading" in str(output) for output in result.outputs)
