"""What tables keep of runs that they have read: never more, and never anything older, than the log says."""

from __future__ import annotations

import pandas as pd
import pytest

from nbagents import (
    AgentSession,
    Message,
    artifacts_df,
    events_df,
    messages_df,
    requests_df,
    run_log,
    runs_df,
    set_price,
    tool_call,
    tool_calls_df,
    usage_df,
)
from nbagents.analysis import load_runs, save_runs
from nbagents.analysis.facts import RunFacts
from tests.analysis.runs import agent

ALL = (runs_df, requests_df, messages_df, tool_calls_df, events_df, artifacts_df, usage_df)


def contents() -> list[list[dict[str, object]]]:
    return [table().astype(object).where(lambda frame: frame.notna(), None).to_dict("records") for table in ALL]


async def runs_of_all_kinds() -> AgentSession:
    """Runs with calls, a call that waits and is approved, and a session that goes on."""
    helper = agent([tool_call("add", a=1, b=2)], "3", [tool_call("remove", path="a")], "Removed.", "Bye.")
    session = helper.create_session()
    await helper.run("1+2", session=session)
    waiting = await helper.run("Remove a", session=session)
    await helper.run([one.approve() for one in waiting.approvals], session=session)
    await helper.run("Bye", session=session)
    return session


async def test_a_table_that_is_read_again_is_the_same() -> None:
    await runs_of_all_kinds()
    first = contents()
    assert [len(rows) for rows in first] == [4, 5, 10, 2, len(events_df()), 0, 1]
    assert contents() == first


async def test_runs_are_read_again_without_looking_at_their_events(monkeypatch) -> None:
    await runs_of_all_kinds()
    first = contents()
    monkeypatch.setattr(RunFacts, "_read_parts", lambda run: pytest.fail("read again"))
    monkeypatch.setattr("nbagents.analysis.tables.stored_payloads", lambda *args: pytest.fail("written again"))
    assert contents() == first


async def test_a_note_to_a_run_that_was_read_is_there() -> None:
    response = await agent("Hi.").run("Hello")
    assert runs_df().notes.isna().all()
    events = len(events_df())
    response.note("too short", thumbs="down")
    assert runs_df()[["notes", "thumbs"]].iloc[0].tolist() == ["too short", "down"]
    assert events_df().kind.tolist()[events:] == ["run.noted"]


async def test_a_price_that_is_set_after_the_first_reading_counts_everywhere(monkeypatch) -> None:
    monkeypatch.setattr("nbagents.core.prices._own", {})
    await agent("Hi.").run("Hello")
    tokens = int(requests_df().input_tokens[0])
    assert [table().cost_usd.tolist() for table in (runs_df, requests_df, usage_df)] == [[pd.NA]] * 3
    for dollars in (2, 3):
        set_price("scripted", input=dollars * 1e6, output=0.0)
        assert [table().cost_usd.tolist() for table in (runs_df, requests_df, usage_df)] == [[tokens * dollars]] * 3


async def test_a_call_that_was_read_while_it_waited_is_settled_by_the_run_that_comes_later() -> None:
    helper = agent([tool_call("remove", path="a")], "Removed.")
    session = helper.create_session()
    waiting = await helper.run("Remove a", session=session)
    before = tool_calls_df().iloc[0]
    assert (before.approval, pd.isna(before.status)) == ("waiting", True)
    await helper.run([one.approve() for one in waiting.approvals], session=session)
    for _ in range(2):
        call = tool_calls_df().iloc[0]
        assert (call.approval, call.status, call.result) == ("approved", "ok", "removed a")
    assert tool_calls_df(waiting).status.tolist() == ["ok"]


async def test_what_a_later_run_tells_stays_out_of_tables_without_it(tmp_path) -> None:
    """Kept is what a run tells of itself: the end of a call that waited does not stay in the run that made it."""
    helper = agent([tool_call("remove", path="a")], "Removed.")
    session = helper.create_session()
    waiting = await helper.run("Remove a", session=session)
    save_runs(tmp_path / "waiting.jsonl")
    await helper.run([one.approve() for one in waiting.approvals], session=session)
    alone = load_runs(tmp_path / "waiting.jsonl")
    assert tool_calls_df().status.tolist() == ["ok"]
    (record,) = [record for record in run_log().runs() if record.run_id == waiting.run_id]
    assert [call.status for call in RunFacts(record).calls] == [None]
    assert tool_calls_df(alone).status.isna().all()


async def test_a_run_that_goes_on_is_not_kept() -> None:
    async with agent("One two three").run("Count", stream=True) as stream:
        async for _ in stream:
            break
        assert [len(table()) for table in (runs_df, messages_df)] == [1, 1]
        (record,) = run_log().runs()
        assert record.views is None
    assert runs_df().status.tolist() == ["cancelled"]


async def test_ids_that_come_again_stay_unique_beside_ids_that_look_like_them() -> None:
    helper = agent("Hi.", "Hi.")
    await helper.run(
        [Message("user", "1", message_id="m"), Message("assistant", "-"), Message("user", "2", message_id="m#2")]
    )
    await helper.run([Message("user", "3", message_id="m")])
    ids = messages_df().message_id
    assert ids.is_unique
    assert ids.str.startswith("m#").sum() == 2
