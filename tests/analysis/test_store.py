"""Runs in a database: what is kept, what comes back, and what may happen to the database."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
import traceback

import pandas as pd
import pytest

from nbagents import (
    Agent,
    AgentSession,
    ScriptedChatClient,
    events_df,
    messages_df,
    requests_df,
    run_log,
    runs_df,
    tool_call,
    tool_calls_df,
    usage_df,
    use_store,
)
from nbagents.analysis import run_store
from nbagents.analysis.run_store import RunStore
from nbagents.analysis.stores import RunQuery, stored_records
from nbagents.core.errors import ConfigurationError, StoreError
from nbagents.core.events import RunEvent
from nbagents.core.notes import note
from nbagents.core.secrets import register_secret
from tests.analysis.runs import Gate, agent, reported, run_that_fails, run_that_is_cancelled

TABLES = [runs_df, requests_df, messages_df, tool_calls_df, events_df, usage_df]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
def store(tmp_path):
    with use_store(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


@contextlib.contextmanager
def plain_sql(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as connection:
        yield connection


async def runs_of_all_kinds(session: AgentSession) -> None:
    helper = agent([tool_call("add", a=1, b=2), tool_call("fail", reason="no")], [reported(input_tokens=3), "3"])
    await helper.run("1+2", session=session, options={"temperature": 0.5})
    await agent(["Hm. ", tool_call("remove", path="x")], name="cleaner").run("Clean")
    await run_that_fails()
    await run_that_is_cancelled()


async def test_the_tables_of_a_store_are_those_of_the_log(url):
    """C113: what comes from a database has the same values, columns and dtypes."""
    with use_store(url) as store:
        await runs_of_all_kinds(AgentSession("trip"))
        for table in TABLES:
            pd.testing.assert_frame_equal(table(store), table())
        for mine, kept in zip(run_log().runs(), store.records(), strict=True):
            assert [event.payload for event in kept.events] == [event.payload for event in mine.events]


async def test_runs_of_last_week_and_of_now_stand_in_one_table_once_each(url):
    with use_store(url):
        await runs_of_all_kinds(AgentSession("trip"))
    ids = runs_df().run_id.tolist()
    run_log().clear()
    with use_store(url):
        await agent("Hello.").run("Hi", session=AgentSession("trip"))
        assert runs_df().run_id.tolist()[:-1] == ids
        assert runs_df().run_id.is_unique
        assert messages_df(session_id="trip").turn.tolist()[-1] == 2
    assert len(runs_df()) == 1
    use_store(None)


async def test_runs_and_events_can_be_counted_with_plain_sql(store, tmp_path):
    await runs_of_all_kinds(AgentSession("trip"))
    store.flush()
    with plain_sql(tmp_path) as connection:
        rows = connection.execute("SELECT status, session_id = 'trip', ended_at > started_at FROM nbagents_runs")
        assert [(status, is_trip, ended) for status, is_trip, ended in rows] == [
            ("ok", 1, 1),
            ("approval", 0, 1),
            ("error", 0, 1),
            ("cancelled", 0, 1),
        ]
        events = "FROM nbagents_events, json_each(events)"
        failed = f"SELECT value ->> '$.payload.tool_id' {events} WHERE value ->> '$.name' = 'tool.failed'"
        assert connection.execute(failed).fetchall() == [("fail",)]
        assert connection.execute(f"SELECT count(*) {events}").fetchone() == (len(events_df()),)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("SELECT version FROM nbagents_runs_schema").fetchall() == [(1,)]


async def test_a_run_that_still_goes_is_there_with_what_it_has(url, tmp_path):
    with use_store(url) as store:
        gate = Gate()
        going = asyncio.create_task(Agent(ScriptedChatClient([[tool_call("wait")], "Done."]), tools=[gate]).run("Go"))
        await gate.begun.wait()
        store.flush()
        with contextlib.closing(run_store.RunStore(url)) as other:  # as another program sees it
            (begun,) = other.records()
            assert begun.events[-1].name == "tool.called"
            assert [r.run_id for r in other.records(RunQuery(statuses=[None]))] == [begun.run_id]
            assert not list(other.records(RunQuery(statuses=["ok"])))
            gate.opened.set()
            await going
            store.flush()
            (ended,) = other.records(RunQuery(statuses=["ok"]))
        assert [event.sequence for event in ended.events] == list(range(1, len(ended.events) + 1))
        assert ended.events[: len(begun.events)] == begun.events


async def test_runs_that_were_going_when_the_store_came_are_taken_up(tmp_path):
    gate = Gate()
    going = asyncio.create_task(Agent(ScriptedChatClient([[tool_call("wait")], "Done."]), tools=[gate]).run("Go"))
    await gate.begun.wait()
    with use_store(f"sqlite:///{tmp_path}/runs.db") as store:
        gate.opened.set()
        response = await going
        assert [(run.run_id, run.ended) for run in store.records()] == [(response.run_id, True)]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [0, 1, 2, 3]),
        ({"ids": []}, []),
        ({"ids": ["trip"]}, [0, 2]),
        ({"ids": ["RUN 1", "trip"]}, [0, 1, 2]),
        ({"run_ids": ["RUN 1", "RUN 2"]}, [1, 2]),
        ({"run_ids": ["RUN 1", "RUN 2"], "session_ids": ["trip"]}, [2]),
        ({"run_ids": ["RUN 1", *map(str, range(40_000))]}, [1]),
        ({"session_ids": ["trip", *map(str, range(40_000))]}, [0, 2]),
        ({"session_ids": ["é\\u0000", "é\0"]}, [1]),
        ({"session_ids": ["x" * 5_000]}, [3]),
        ({"session_ids": ["x" * 4_999]}, []),
        ({"agents": ["b"]}, [1, 3]),
        ({"agents": ["b"], "statuses": ["error"]}, [3]),
        ({"since": 1}, [1, 2, 3]),
        ({"since": 1, "until": 3}, [1, 2]),
    ],
)
async def test_a_store_gives_the_runs_that_are_wanted(url, wanted, found):
    with use_store(url) as store:
        for name, session in (("a", "trip"), ("b", "é\0"), ("a", "trip")):
            await agent("Hi.", name=name).run("Hi", session=AgentSession(session))
        await run_that_fails_as("b", AgentSession("x" * 5_000))
        runs = [record.run_id for record in run_log().runs()]
        times = [record.events[0].timestamp for record in run_log().runs()]
        query = {name: times[value] if name in ("since", "until") else value for name, value in wanted.items()}
        query = {
            name: [runs[int(v[4:])] if v.startswith("RUN ") else v for v in value] if name.endswith("ids") else value
            for name, value in query.items()
        }
        assert [r.run_id for r in store.records(RunQuery(**query))] == [runs[place] for place in found]
        assert [r.run_id for r in stored_records(RunQuery(**query))] == [runs[place] for place in found]


async def run_that_fails_as(name: str, session: AgentSession) -> None:
    with contextlib.suppress(Exception):
        await agent(ConnectionError("gone"), name=name).run("Hi", session=session)


async def test_many_runs_come_page_by_page_and_in_order(store, monkeypatch):
    monkeypatch.setattr("nbagents.analysis.run_tables.PAGE", 7)
    helper = agent(*["Hi."] * 30)
    ids = [(await helper.run("Hi")).run_id for _ in range(30)]
    run_log().clear()
    assert runs_df().run_id.tolist() == ids
    assert runs_df([ids[3], ids[29]]).run_id.tolist() == [ids[3], ids[29]]


async def test_secrets_never_enter_the_file(tmp_path):
    """C108: not in the database, its log, or a file of runs."""
    register_secret("hunter2hunter2")

    def connect(api_key: str) -> str:
        """Connect."""
        raise ValueError("not with sk-inerror0123456789")

    with use_store(f"sqlite:///{tmp_path}/runs.db") as store:
        helper = agent([tool_call("connect", api_key="abcdefgh1234")], "It is hunter2hunter2.")
        session = AgentSession("hunter2hunter2")
        metadata = {"metadata": {"password": "fjords-and-fjords"}}
        await helper.run("Use sk-verysecret-0123456789", options=metadata, tools=[connect], session=session)
        note(run_log().runs()[-1].run_id, "was sk-innote0123456789")
        store.flush()
        raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert b"connect" in raw
        for secret in (b"hunter2", b"inerror", b"abcdefgh", b"fjords", b"verysecret", b"innote"):
            assert secret not in raw


async def test_metadata_has_counts_times_and_names_and_nobodys_words(tmp_path):
    with use_store(f"sqlite:///{tmp_path}/runs.db", capture="metadata") as store:
        helper = agent(
            [tool_call("add", a=1, b=2), tool_call("fail", reason="wordsintool")],
            [reported(input_tokens=30, output_tokens=4), "wordsinreply"],
            instructions="wordsinprompt",
        )
        await helper.run("wordsininput", options={"temperature": 0.25, "stop": ["wordsinstop"]})
        with contextlib.suppress(Exception):
            await agent(ValueError("wordsinerror")).run("wordsininput")
        note(run_log().runs()[0].run_id, "wordsinnote", thumbs="down")
        store.flush()
        raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert b"words" not in raw
        ours, kept = runs_df().drop(columns="notes"), runs_df(store).drop(columns="notes")
        words = ["params", "error_message", "input_text", "output_text"]
        pd.testing.assert_frame_equal(kept.drop(columns=words), ours.drop(columns=words))
        assert kept[["error_message", "input_text", "output_text"]].isna().all(axis=None)
        assert kept.params.tolist()[0] == '{"temperature":0.25}'
        pd.testing.assert_frame_equal(requests_df(store), requests_df())
        calls = tool_calls_df(store)
        assert calls[["tool", "status", "error_type"]].values.tolist() == [
            ["add", "ok", pd.NA],
            ["fail", "error", "ValueError"],
        ]
        assert calls[["arguments", "result", "error_message"]].isna().all(axis=None)
        assert messages_df(store).role.tolist() == messages_df().role.tolist()


async def test_notes_reach_runs_that_only_the_store_has(url):
    with use_store(url):
        response = await agent("Hello.").run("Hi")
        note(response, "good")
        run_log().clear()
        note(response.run_id, "too short", thumbs="down")
        (row,) = runs_df().itertuples()
        assert ("good" in row.notes, "too short" in row.notes, row.thumbs) == (True, True, "down")
        with pytest.raises(ConfigurationError, match="no run"):
            note("run_of_nobody", thumbs="up")


@pytest.mark.parametrize("capture", ["full", "metadata"])
async def test_notes_of_another_program_stand_beside_those_of_this_one(url, capture):
    """As of somebody who reads the runs that a kernel makes; the run is still in this program's log."""
    with use_store(url, capture=capture) as store:
        response = await agent("Hello.").run("Hi")
        note(response, "mine", thumbs="up")
        other = RunStore(url)
        other._note(RunEvent(response.run_id, 0, "run.noted", time.time(), {"text": "theirs", "thumbs": "down"}))
        other.close()
        for _ in range(2):
            (row,) = runs_df().itertuples()
            assert (row.notes, row.thumbs) == ("mine\ntheirs", "down")
        note(response, thumbs="up")
        (row,) = runs_df().itertuples()
        assert (row.notes, row.thumbs) == ("mine\ntheirs", "up")
        assert events_df().event_id.is_unique
        assert events_df().kind.tolist() == [*events_df(store).kind]
        assert [record.events[-1].sequence for record in run_log().runs()] == [8]


async def test_odd_values_are_kept_by_the_rules_of_the_tables(store):
    """A NaN is missing, half of a surrogate pair a question mark, an object its text."""
    odd = {"nan": float("nan"), "half": "\ud83d", "nul": "\0", "object": object(), "deep": [[{"x": (1, {2})}]]}
    run_id = (await agent("Hi \udc00 \0.").run("Hi", options={"metadata": odd})).run_id
    frames = [table(run_id) for table in (runs_df, events_df, messages_df)]
    run_log().clear()
    for before, after in zip(frames, [table(run_id) for table in (runs_df, events_df, messages_df)], strict=True):
        pd.testing.assert_frame_equal(after, before)


async def test_a_closed_store_takes_no_more_runs_and_says_so(tmp_path):
    """C80"""
    store = use_store(f"sqlite:///{tmp_path}/runs.db")
    use_store(None)
    await agent("Hi.").run("Hi")
    assert len(runs_df()) == 1
    with pytest.raises(StoreError, match="closed"):
        runs_df(store)
    store.close()
    with use_store(f"sqlite:///{tmp_path}/runs.db") as again:
        assert runs_df(again).empty


async def test_one_store_after_the_other(tmp_path):
    first = use_store(f"sqlite:///{tmp_path}/1.db")
    one = await agent("Hi.").run("Hi")
    second = use_store(f"sqlite:///{tmp_path}/2.db")
    assert first.closed
    two = await agent("Hi.").run("Hi")
    assert runs_df(second).run_id.tolist() == [two.run_id]
    with use_store(f"sqlite:///{tmp_path}/1.db") as again:
        assert runs_df(again).run_id.tolist() == [one.run_id]
    assert second.closed


@pytest.mark.parametrize("wrong", ["", "runs.db", "memory", "mysql://ada:Zx8Qw3Rt5Yu7@h/x", "sqlite+aiosqlite:///x.db"])
def test_an_address_that_does_not_fit_is_an_error_at_once_and_leaves_the_store(store, wrong):
    with pytest.raises(ConfigurationError, match=r"sqlite:///\w+\.db") as caught:
        use_store(wrong)
    assert "redacted" not in caught.value.hint
    assert "Zx8Qw3" not in "".join(traceback.format_exception(caught.value))
    assert not store.closed


def test_other_arguments_that_do_not_fit(tmp_path):
    with pytest.raises(ConfigurationError, match="int"):
        use_store(3)
    with pytest.raises(ConfigurationError, match="'metadata'"):
        use_store(f"sqlite:///{tmp_path}/x.db", capture="some")
    with pytest.raises(ConfigurationError, match=r"use_store has no argument 'caputre'\. Did you mean 'capture'\?"):
        use_store(f"sqlite:///{tmp_path}/x.db", caputre="metadata")
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_another_version_or_of_others_is_an_error_and_left_alone(url):
    from sqlalchemy import create_engine, text

    def execute(statement):
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(text(statement))
        engine.dispose()

    execute("CREATE TABLE nbagents_runs (x INTEGER)")
    with pytest.raises(StoreError, match="has a table nbagents_runs that is not of nbagents"):
        use_store(url)
    execute("DROP TABLE nbagents_runs")
    use_store(url).close()
    execute("UPDATE nbagents_runs_schema SET version = 7")
    with pytest.raises(StoreError, match="version 7; this nbagents knows version 1"):
        use_store(url)


def test_a_file_that_is_no_database_is_an_error_and_left_alone(tmp_path):
    notes = tmp_path / "notes.md"
    notes.write_text("# My notes\n" * 100)
    with pytest.raises(StoreError, match=r"notes\.md cannot be .*not a database.* use another path"):
        use_store(f"sqlite:///{notes}")
    assert notes.read_text() == "# My notes\n" * 100


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE nbagents_events SET events = '{'", "no JSON"),
        ("UPDATE nbagents_events SET events = '3'", "no list of events"),
        ("UPDATE nbagents_events SET events = '[{}]'", "no list of events"),
        ("UPDATE nbagents_events SET events = replace(events, 'message\"', 'm\"')", "'message.added' without message"),
        ("UPDATE nbagents_events SET events = replace(events, '\"user\"', '\"boss\"')", "cannot be read"),
        ("UPDATE nbagents_events SET events = replace(events, 'run.ended', 'run.sold')", "'run.sold'.*newer nbagents"),
        ("DELETE FROM nbagents_events", "without its beginning"),
        ("UPDATE nbagents_events SET events = json_remove(events, '$[2]')", "a request that is not there"),
    ],
)
async def test_a_row_that_is_wrong_names_its_run(store, tmp_path, change, said):
    response = await agent("Hi.").run("Hi")
    store.flush()
    with plain_sql(tmp_path) as other:
        other.execute(change)
    with pytest.raises(StoreError, match=rf"{response.run_id} in sqlite:///.*runs\.db holds .*{said}"):
        runs_df(store)


async def test_the_password_is_in_no_repr_and_no_error(postgres, postgres_url):
    """C108"""
    with use_store(postgres_url) as store:
        assert f"127.0.0.1:{postgres.port}" in repr(store)
        assert postgres.password not in repr(store) + repr(vars(store))
    with pytest.raises(StoreError) as caught:
        use_store(postgres_url.replace(postgres.password, f"{postgres.password}x"))
    assert postgres.password not in "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))


async def test_a_store_in_memory_has_all_runs(monkeypatch):
    with use_store("sqlite://") as store:
        await runs_of_all_kinds(AgentSession("trip"))
        run_log().clear()
        assert len(runs_df()) == len(list(store.records())) == 4
