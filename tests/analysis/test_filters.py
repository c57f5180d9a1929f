"""All tables share their filters: what they let through, and what they say of a wrong one."""

from __future__ import annotations

import inspect
from datetime import UTC, date, datetime, timedelta, timezone

import pandas as pd
import pytest

import nbagents
from nbagents import (
    artifacts_df,
    events_df,
    messages_df,
    requests_df,
    run_log,
    runs_df,
    tool_call,
    tool_calls_df,
    usage_df,
)
from nbagents.analysis.selection import FILTERS
from nbagents.core.errors import ConfigurationError
from tests.analysis.runs import agent, run_over_budget, run_that_fails, run_that_is_cancelled

ALL = [runs_df, requests_df, messages_df, tool_calls_df, events_df, artifacts_df, usage_df]
TABLES = pytest.mark.parametrize("table", ALL, ids=lambda table: table.__name__)


def agents(**filters: object) -> list[str]:
    return runs_df(**filters).agent.tolist()


async def test_runs_are_found_by_agent_model_and_status() -> None:
    await agent("a", name="one").run("1")
    await agent("b", name="two").run("2", options={"model": "larger"})
    await run_that_fails()
    await run_that_is_cancelled()
    await run_over_budget()
    assert agents(agent="one") == ["one"]
    assert agents(agent=["two", "one", "nobody"]) == ["one", "two"]
    assert agents(agent=[]) == agents(model=[]) == agents(status=[]) == []
    assert agents(model="larger") == ["two"]
    assert agents(model="scripted", agent="one") == ["one"]
    assert runs_df(status=["error", "limit"]).status.tolist() == ["error", "limit"]
    assert runs_df(status="cancelled").stop_reason.tolist() == ["cancelled"]
    assert usage_df(agent="two", by="agent").n_runs.tolist() == [1]


async def test_runs_are_found_by_their_tags() -> None:
    helper = agent(*"abcd")
    with nbagents.tags(experiment="a", fold=1):
        await helper.run("1")
        with nbagents.tags(fold=2, good=True):
            await helper.run("2")
    with nbagents.tags(experiment="b", fold=1.0):
        await helper.run("3")
    await helper.run("4")

    def found(tag: dict[str, object]) -> list[str]:
        return runs_df(tag=tag).input_text.tolist()

    assert found({"experiment": "a"}) == ["1", "2"]
    assert found({"experiment": "a", "fold": 2}) == ["2"]
    assert found({"experiment": ["a", "b"], "fold": [1]}) == ["1", "3"]
    assert found({"good": True}) == ["2"]
    assert found({"good": 1}) == found({"fold": True}) == found({"experiment": []}) == found({"nothing": "a"}) == []
    assert found({}) == ["1", "2", "3", "4"]
    assert runs_df(tag={"fold": 2}).tags.tolist() == ['{"experiment":"a","fold":2,"good":true}']


async def test_runs_are_found_by_the_time_they_began() -> None:
    for text in "123":
        await agent(text).run(text)
    first, second, third = (record.events[0].timestamp for record in run_log().runs())
    at = [datetime.fromtimestamp(moment, UTC) for moment in (first, second, third)]
    assert runs_df(since=at[1]).input_text.tolist() == ["2", "3"]
    assert runs_df(until=at[1]).input_text.tolist() == ["1"]
    assert runs_df(since=at[1], until=at[2]).input_text.tolist() == ["2"]
    assert runs_df(since=at[1].astimezone(timezone(timedelta(hours=-7)))).input_text.tolist() == ["2", "3"]
    assert len(runs_df(since=pd.Timestamp.now("UTC") - pd.Timedelta("1D"))) == 3
    assert runs_df(since=at[2], until=at[0]).empty


@pytest.mark.parametrize("name", ["since", "until"])
@pytest.mark.parametrize(
    "wrong", [datetime(2026, 1, 1), pd.Timestamp("2026-01-01"), pd.NaT, date(2026, 1, 1), "today", 3]
)
def test_a_time_without_zone_is_a_clear_error(name: str, wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is a datetime with a time zone; .*astimezone"):
        runs_df(**{name: wrong})


@TABLES
def test_a_mistyped_filter_is_named_with_the_nearest(table) -> None:
    with pytest.raises(ConfigurationError, match=r"no filter 'sesion_id'.*Did you mean 'session_id'\?"):
        table(sesion_id="x")
    with pytest.raises(ConfigurationError, match=r"status 'canceled'.*Did you mean 'cancelled'\?"):
        table(status="canceled")
    with pytest.raises(ConfigurationError, match=r"status 'invalid'.*filter the frame by its own columns"):
        table(status=["ok", "invalid"])


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"agent": agent("a")}, "agent is a name or a list of names, not Agent"),
        ({"model": [None]}, "model is a name or a list of names, not NoneType"),
        ({"run_id": [{"a": 1}]}, "run_id is an id or a list of ids, not dict"),
        ({"tag": "experiment"}, "tag is a dict of names and values"),
        ({"tag": {1: "a"}}, "tag is a dict of names and values"),
        ({"tag": {"a": None}}, "The tag 'a' is a text, a number or a bool, not None"),
        ({"tag": {"a": [{"b": 1}]}}, "The tag 'a' is a text"),
    ],
)
def test_a_value_that_a_filter_cannot_have_is_named(filters, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        runs_df(**filters)


class Ensemble:
    """Something that consists of several runs."""

    def __init__(self, *run_ids: str) -> None:
        self.run_ids = run_ids


async def test_what_has_run_ids_stands_for_these_runs() -> None:
    responses = [await agent(text).run(text) for text in "abc"]
    ensemble = Ensemble(responses[0].run_id, responses[2].run_id)
    assert runs_df(ensemble).input_text.tolist() == ["a", "c"]
    assert runs_df([Ensemble(), responses[1], ensemble]).input_text.tolist() == ["a", "b", "c"]
    assert runs_df(Ensemble()).empty
    assert runs_df(run_log().runs()[1]).input_text.tolist() == ["b"]
    assert runs_df([runs_df().iloc[2]]).input_text.tolist() == ["c"]
    assert messages_df(ensemble).role.tolist() == ["user", "assistant"] * 2


async def test_messages_and_calls_keep_their_places_when_other_runs_are_left_out() -> None:
    helper = agent([tool_call("remove", path="a")], "Done.", "Yes.")
    session = helper.create_session()
    asked = await helper.run("Clean up", session=session)
    answered = await helper.run([asked.approvals[0].approve()], session=session)
    last = await helper.run("Sure?", session=session)
    assert tool_calls_df(run_id=asked.run_id).status.tolist() == ["ok"]
    assert tool_calls_df(run_id=answered.run_id).empty
    everything = messages_df()
    for response in (asked, answered, last):
        frame = messages_df(response).reset_index(drop=True)
        expected = everything[everything.run_id == response.run_id].reset_index(drop=True)
        pd.testing.assert_frame_equal(frame, expected)
    assert messages_df(last).turn.tolist() == [2, 2]


async def test_no_row_is_left_out_for_being_one_of_many(monkeypatch) -> None:
    monkeypatch.setattr("nbagents.analysis.frames.VALUES_TOGETHER", 20)
    helper = agent(*(str(i) for i in range(50)))
    for i in range(50):
        await helper.run(str(i))
    assert runs_df().input_text.tolist() == [str(i) for i in range(50)]
    events = events_df()
    assert len(events) == sum(len(record.events) for record in run_log().runs())
    assert events.index.tolist() == list(range(len(events)))
    assert events.dtypes.equals(events_df([]).dtypes)
    assert events.attrs["schema_version"] == 1


@TABLES
def test_editors_and_help_know_the_filters(table) -> None:
    parameters = inspect.signature(table).parameters
    assert [name for name in parameters if name not in ("selection", "by")] == list(FILTERS)
    assert all(f"        {name}: " in table.__doc__ for name in FILTERS)
