"""An id that nothing knows is said: an empty table alone looks like a run without rows."""

from __future__ import annotations

import warnings

import pytest

from nbagents import (
    AgentSession,
    artifacts_df,
    events_df,
    messages_df,
    requests_df,
    run_log,
    runs_df,
    tool_calls_df,
    usage_df,
    use_store,
)
from nbagents.analysis import load_runs, plot_cost, plot_latency, plot_timeline, plot_tools, plot_usage, save_runs
from nbagents.core.runlog import RunLog
from tests.analysis.runs import agent

TABLES = (runs_df, requests_df, messages_df, tool_calls_df, events_df, artifacts_df, usage_df)
PLOTS = (plot_cost, plot_latency, plot_timeline, plot_tools, plot_usage)


@pytest.mark.parametrize("view", [*TABLES, *PLOTS], ids=lambda view: view.__name__)
async def test_an_id_that_nothing_knows_is_said_once_at_the_users_line(view, recwarn) -> None:
    response = await agent("Hi.").run("Hello")
    view([response, "run_x", "run_y", response.session])
    (told,) = recwarn.list
    assert str(told.message).startswith(
        "No run and no session has the id 'run_x' (and 1 more). The log has the runs of"
    )
    assert told.filename == __file__


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ({"run_id": "run_x"}, r"load_runs\(\) and use_store\(\) give those of others"),
        ({"session_id": ["trip"]}, r"load_runs\(\) and use_store\(\) give those of others"),
        ("runs/today.jsonl", r"a file by load_runs\('today.jsonl'\)"),
        ("agent", r"To sum by it: usage_df\(by='agent'\)"),
        ("tags.experiment", r"usage_df\(by='tags.experiment'\)"),
        ("helper", "agent='helper'"),
        ("scripted", "model='scripted'"),
        ("error", "status='error'"),
    ],
)
async def test_what_was_probably_meant_is_named(asked, hint) -> None:
    await agent("Hi.", name="helper").run("Hello")
    with pytest.warns(UserWarning, match=hint):
        frame = runs_df(**asked) if isinstance(asked, dict) else runs_df(asked)
    assert frame.empty


async def test_a_run_that_has_left_the_log_is_said_with_how_to_keep_it(monkeypatch) -> None:
    monkeypatch.setattr("nbagents.core.runlog._log", RunLog(max_runs=2))
    monkeypatch.setattr("nbagents.analysis.unknown_ids.MAX_RUNS", 2)
    helper = agent("1", "2", "3")
    first = await helper.run("1")
    await helper.run("2")
    await helper.run("3")
    with pytest.warns(UserWarning, match=r"The log has the last 2 runs; use_store\(\) keeps more"):
        assert runs_df(first).empty


async def test_what_is_known_and_left_out_by_another_filter_is_not_said(tmp_path) -> None:
    response = await agent("Hi.").run("Hello")
    save_runs(tmp_path / "runs.jsonl")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert runs_df(response, status="error").empty
        assert tool_calls_df(run_id=response.run_id, tag={"a": 1}).empty
        assert messages_df(response.session, agent="nobody").empty
        assert len(runs_df(load_runs(tmp_path / "runs.jsonl"), run_id=response.run_id)) == 1


async def test_nothing_asked_is_nothing_missing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for table in TABLES:
            assert table([]).empty
        assert runs_df(AgentSession()).empty  # it may have no run yet


async def test_ids_that_only_a_store_has_are_known(tmp_path) -> None:
    with use_store(f"sqlite:///{tmp_path}/runs.db"):
        response = await agent("Hi.").run("Hello")
        run_log().clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(runs_df([response, response.session])) == 1
        with pytest.warns(UserWarning, match="Runs that were not kept"):
            runs_df([response, "run_x"])
