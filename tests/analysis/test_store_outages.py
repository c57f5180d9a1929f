"""What may happen to the database of a store, and what is said of it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import sqlite3

import pytest

from nbagents import (
    run_log,
    runs_df,
    use_store,
)
from nbagents.analysis import run_store, run_tables
from nbagents.analysis.stores import RunQuery
from nbagents.core.errors import StoreError
from tests.analysis.runs import agent


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """SQLite does not wait for a lock."""
    monkeypatch.setattr(run_tables, "BUSY_SECONDS", 0.0)


@pytest.fixture
def store(tmp_path, impatient):
    with use_store(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


@contextlib.contextmanager
def plain_sql(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None)) as connection:
        yield connection


async def test_a_locked_database_makes_nobody_wait_and_loses_nothing(store, tmp_path, monkeypatch, caplog):
    """A run goes on, it is said once, and what waits is written later."""
    monkeypatch.setattr(run_store, "PAUSES", (0.01,))
    store.flush()
    caplog.set_level(logging.WARNING)
    with plain_sql(tmp_path) as other:
        other.execute("BEGIN IMMEDIATE")
        for _ in range(3):
            await agent("Hi.").run("Hi")
            with pytest.raises(StoreError, match=r"runs\.db cannot be written.*locked") as caught:
                store.flush()
            assert caught.value.retryable
        assert len(runs_df()) == len(runs_df(store)) == 3
        other.execute("ROLLBACK")
    store.flush()
    assert (store.waiting, store.lost) == (0, 0)
    run_log().clear()
    assert len(runs_df()) == 3


async def test_the_writer_says_once_that_the_database_is_away_and_tries_again(store, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(run_store, "PAUSES", (0.01,))
    caplog.set_level(logging.WARNING)
    tried = asyncio.Event()
    loop, before = asyncio.get_running_loop(), store._failed

    def failed(error):
        before(error)
        if store._failures >= 3:
            loop.call_soon_threadsafe(tried.set)

    monkeypatch.setattr(store, "_failed", failed)
    with plain_sql(tmp_path) as other:
        other.execute("BEGIN IMMEDIATE")
        await agent("Hi.").run("Hi")
        await asyncio.wait_for(tried.wait(), 30)
        other.execute("ROLLBACK")
    said = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1
    assert "wait in memory" in said[0]
    store.flush()
    assert store.waiting == 0


async def test_while_the_database_is_away_memory_is_bounded_and_the_loss_is_said(store, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(run_store, "MAX_WAITING_RUNS", 5)
    with plain_sql(tmp_path) as other:
        other.execute("BEGIN IMMEDIATE")
        ids = [(await agent("Hi.").run("Hi")).run_id for _ in range(20)]
        assert store.waiting <= 6
        other.execute("ROLLBACK")
    store.flush()
    assert store.lost == 20 - len(list(store.records())) >= 14
    assert str(store.lost) in repr(store)
    assert [record.run_id for record in store.records()][-1] == ids[-1]
    assert "are lost" in caplog.text


async def test_a_run_that_the_database_refuses_does_not_hold_up_the_others(store, tmp_path, caplog):
    with plain_sql(tmp_path) as other:
        refuse = "CREATE TRIGGER no BEFORE INSERT ON nbagents_events WHEN NEW.events LIKE '%poison%'"
        other.execute(f"{refuse} BEGIN SELECT RAISE(ABORT, 'refused'); END")
    for word in ("one", "poison", "three"):
        await agent("Hi.").run(word)
    store.flush()
    assert [record.events[0].payload["input"][0].text for record in store.records()] == ["one", "three"]
    assert store.lost == 1
    assert "refused" in caplog.text


async def test_a_server_that_ends_the_connection_is_asked_again(postgres, postgres_url):
    with use_store(postgres_url) as store:
        await agent("Hi.").run("Hi")
        store.flush()
        postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test_%'")
        await agent("Hi.").run("Hi")
        store.flush()
        assert len(list(store.records())) == 2


async def test_what_is_lost_at_the_end_is_said(tmp_path, monkeypatch, caplog):
    store = use_store(f"sqlite:///{tmp_path}/runs.db")
    with plain_sql(tmp_path) as other:
        other.execute("BEGIN IMMEDIATE")
        await agent("Hi.").run("Hi")
        store.close()
    assert store.lost == 1
    assert "1 runs could not be written" in caplog.text
    store.close()


async def test_without_its_database_the_tables_show_what_is_in_memory(store, tmp_path):
    await agent("Hi.").run("Hi")
    store.flush()
    with plain_sql(tmp_path) as other:
        other.execute("DROP TABLE nbagents_runs")
    with pytest.warns(UserWarning, match="Only the runs in memory"):
        assert len(runs_df()) == 1
    with pytest.raises(StoreError, match=r"runs\.db cannot be read.*no such table"):
        runs_df(store)


async def test_a_run_that_cannot_be_made_json_does_not_hold_up_the_others(store, monkeypatch, caplog):
    before = run_store.stored_part

    def refuse(events, capture):
        if "poison" in str(events[0].payload):
            raise RuntimeError("dictionary changed size during iteration")
        return before(events, capture)

    monkeypatch.setattr(run_store, "stored_part", refuse)
    for word in ("one", "poison", "three"):
        await agent("Hi.").run(word)
    store.flush()
    assert [record.events[0].payload["input"][0].text for record in store.records()] == ["one", "three"]
    assert (store.lost, store.waiting) == (1, 0)
    assert "RuntimeError" in caplog.text


async def test_an_event_of_another_make_is_kept_as_it_is(store):
    response = await agent("Hi.").run("Hi")
    record = run_log().get(response.run_id)
    store.flush()
    odd = run_store.RunRecord("run_odd", [dataclasses.replace(event, run_id="run_odd") for event in record.events])
    odd.events[-1].payload = {"stop_reason": "completed", "error": None, "more": [1]}
    store._take(odd)
    assert [kept.events[-1].payload for kept in store.records(RunQuery(run_ids=["run_odd"]))] == [
        odd.events[-1].payload
    ]
