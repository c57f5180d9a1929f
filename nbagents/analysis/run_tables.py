"""The tables of a run store and what is done with them. It blocks, and imports SQLAlchemy: import it late."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pydantic_core import from_json
from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Double,
    ForeignKey,
    Integer,
    MetaData,
    Table,
    Text,
    and_,
    func,
    or_,
    select,
    tuple_,
)

from nbagents.analysis.queries import RunQuery
from nbagents.analysis.stored_events import check_record, read_part
from nbagents.core.databases import Database, Tables, database_text, version_table
from nbagents.core.errors import ConfigurationError, StoreError
from nbagents.core.events import RunEvent
from nbagents.core.run import STATUS_OF_STOP_REASON
from nbagents.core.runlog import RunRecord
from nbagents.core.secrets import MASK

BUSY_SECONDS = 5.0
"""How long a batch waits for another program that writes; then it is tried again later."""
PAGE_BYTES = 16_384
"""Of a new SQLite file: the events of a run seldom fit into one of the usual pages, of 4,096."""
PAGE = 200
"""Runs that are read together."""
MAX_CHOICES = 500
"""More alternatives than that are not put into a statement, but looked at here."""
_KEY_CHARACTERS = 200
_ROWS_AT_ONCE = (256, 32, 4, 1)

_metadata = MetaData()
_tables = Tables(_metadata, version_table("nbagents_runs_schema", _metadata), version=1, error=StoreError)
_Id = BigInteger().with_variant(Integer, "sqlite")
_runs = Table(
    "nbagents_runs",
    _metadata,
    Column("id", _Id, primary_key=True),
    Column("run_id", Text, nullable=False, unique=True),
    Column("parent_run_id", Text),
    Column("session_id", Text, nullable=False, index=True),
    Column("agent", Text),
    Column("model", Text),
    Column("started_at", Double, nullable=False, index=True),
    Column("ended_at", Double),
    Column("status", Text),
)
_events = Table(
    "nbagents_events",
    _metadata,
    Column("run", ForeignKey(_runs.c.id), primary_key=True),
    Column("first", Integer, primary_key=True, autoincrement=False),
    Column("last", Integer, nullable=False),
    Column("events", Text, nullable=False),
)

_LONGER = (
    "ON CONFLICT (run, first) DO UPDATE SET last = excluded.last, events = excluded.events "
    "WHERE excluded.last > nbagents_events.last"
)
"""Nobody knows whether a write that failed at its very end is there: it is written again, by then perhaps with more."""

Row = tuple[Any, ...]


@dataclass(slots=True)
class RunPart:
    """What is to be written of one run.

    Attributes:
        run_id: the run.
        row: its row in `nbagents_runs` without the id, where it is new or has changed.
        events: the sequence of the first and last of its events that are new, and these as JSON.
    """

    run_id: str
    row: Row | None
    events: tuple[int, int, str]


class RunDatabase(Database):
    """The runs in one database: a row for each run, and one for the events of it that were written together, as JSON.

    A row for each event would take half as much time again. In SQL they are counted so:
    `SELECT value ->> '$.name', count(*) FROM nbagents_events, json_each(events) GROUP BY 1`.
    """

    def __init__(self, url: URL) -> None:
        if url.get_backend_name() not in ("sqlite", "postgresql"):
            raise ConfigurationError(
                f"Runs are kept in SQLite or PostgreSQL, not in {url.get_backend_name()}.",
                hint='Pass e.g. "sqlite:///runs.db".',
            )
        self.row_of, self.part_of = run_row, RunPart  # for those who import nothing of databases themselves
        super().__init__(url, _tables, busy_seconds=BUSY_SECONDS, page_bytes=PAGE_BYTES)
        self._ids: dict[str, int] = {}

    def prepare(self) -> None:
        """Make the tables if they are not there.

        Raises:
            StoreError: the database cannot be used.
        """
        with self.writing():
            pass

    def write(self, parts: Sequence[RunPart]) -> None:
        """Write all `parts` or none; what is there already stays as it is.

        Raises:
            StoreError: the database cannot be written.
        """
        with self.writing() as connection:
            ids = self._ids | self._write_runs(connection, [part.row for part in parts if part.row is not None])
            values = [value for part in parts for value in (ids[part.run_id], *part.events)]
            _insert(connection, _events, values, _LONGER)
        self._ids = ids

    def forget(self, run_id: str) -> None:
        """Take note that nothing more of this run will be written."""
        self._ids.pop(run_id, None)

    def note(self, run_id: str, event_at: Callable[[int], str]) -> bool:
        """Add an event behind the last one of a run; False if the run is not there.

        Args:
            run_id: the run.
            event_at: gives the stored form of the event for its sequence.
        """
        with self.writing() as connection:
            run = connection.scalar(select(_runs.c.id).where(_runs.c.run_id == run_id).with_for_update())
            if run is None:
                return False
            place = 1 + (connection.scalar(select(func.max(_events.c.last)).where(_events.c.run == run)) or 0)
            _insert(connection, _events, [run, place, place, event_at(place)], "")
        return True

    def notes(self, run_ids: Sequence[str]) -> dict[str, list[RunEvent]]:
        """Return the notes to these runs, each of which stands in a row of its own."""
        found: dict[str, list[RunEvent]] = {}
        with self.reading() as connection:
            for begin in range(0, len(run_ids), MAX_CHOICES):
                asked = (
                    select(_runs.c.run_id, _events.c.events)
                    .join(_events, _events.c.run == _runs.c.id)
                    .where(_runs.c.run_id.in_(run_ids[begin : begin + MAX_CHOICES]), _events.c.first == _events.c.last)
                    .where(_events.c.first > 1, _events.c.events.contains('"name":"run.noted"'))
                    .order_by(_events.c.first)
                )
                for run_id, events in connection.execute(asked):
                    notes = [event for event in read_part(run_id, events) if event.name == "run.noted"]
                    found.setdefault(run_id, []).extend(notes)
        return found

    def records(self, query: RunQuery, apart_from: AbstractSet[str]) -> Iterator[RunRecord]:
        """Yield the runs that `query` wants and that are not `apart_from`, oldest first, page by page."""
        conditions = list(_conditions(query))
        allowed = _allowed(query)
        after: tuple[float, int] = (-math.inf, 0)
        while True:
            with self.reading() as connection:
                page = connection.execute(_page(after, conditions)).all()
                chosen = [row for row in page if row.run_id not in apart_from and allowed(row)]
                payloads = _payloads(connection, [row.id for row in chosen])
            for row in chosen:
                record = self._record(row.run_id, payloads.get(row.id, ()))
                if query.matches(record):
                    yield record
            if len(page) < PAGE:
                return
            after = (page[-1].started_at, page[-1].id)

    def _record(self, run_id: str, rows: Sequence[Row]) -> RunRecord:
        try:
            record = RunRecord(run_id, [event for _, events in rows for event in read_part(run_id, events)])
            check_record(record)
        except StoreError as error:
            raise StoreError(f"The run {run_id} in {self.name} {error.message}", hint=error.hint) from error.__cause__
        return record

    def _write_runs(self, connection: Connection, rows: list[Row]) -> dict[str, int]:
        _insert(
            connection,
            _runs,
            list(chain.from_iterable(rows)),
            "ON CONFLICT (run_id) DO UPDATE SET ended_at = coalesce(excluded.ended_at, nbagents_runs.ended_at), "
            "status = coalesce(excluded.status, nbagents_runs.status)",
        )
        ids: dict[str, int] = {}
        for begin in range(0, len(rows), MAX_CHOICES):
            names = tuple(row[0] for row in rows[begin : begin + MAX_CHOICES])
            marks = ", ".join([_mark(connection)] * len(names))
            asked = f"SELECT run_id, id FROM {_runs.name} WHERE run_id IN ({marks})"
            ids.update((run_id, key) for run_id, key in connection.exec_driver_sql(asked, names))
        return ids


def key_text(text: str | None) -> str | None:
    """Return `text` as it stands in a column that is searched: what no database takes is escaped, long ones are cut."""
    if text is None or (text.isascii() and text.isprintable() and "\\" not in text):
        return text and text[:_KEY_CHARACTERS]
    return database_text(text)[:_KEY_CHARACTERS]


def run_row(begin: RunEvent, payload: str, end: RunEvent | None) -> Row:
    """Return the row of a run in `nbagents_runs`, without the id.

    Args:
        begin: the event with which it began.
        payload: what is stored of it.
        end: the event with which it ended, if it has.
    """
    facts = from_json(payload) if MASK in payload else begin.payload
    return (
        begin.run_id,
        facts["parent_run_id"],
        key_text(facts["session_id"]),
        key_text(facts["agent"]),
        key_text(facts["model"]),
        begin.timestamp,
        end.timestamp if end is not None else None,
        STATUS_OF_STOP_REASON[end.payload["stop_reason"]] if end is not None else None,
    )


def _insert(connection: Connection, table: Table, values: list[Any], otherwise: str) -> None:
    """Insert rows, whose `values` stand one after the other, many with one statement.

    Each statement waits for its turn at the interpreter lock.
    """
    names = [column.name for column in table.columns if not (table is _runs and column.name == "id")]
    one = f"({', '.join([_mark(connection)] * len(names))})"
    begin = 0
    for n_rows in _ROWS_AT_ONCE:
        statement = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES {', '.join([one] * n_rows)} {otherwise}"
        size = n_rows * len(names)
        while len(values) - begin >= size:
            connection.exec_driver_sql(statement, tuple(values[begin : begin + size]))
            begin += size


def _mark(connection: Connection) -> str:
    """What stands for a value in a statement that goes to the driver as it is."""
    return "?" if connection.dialect.paramstyle == "qmark" else "%s"


def _page(after: tuple[float, int], conditions: list[ColumnElement[bool]]) -> Any:
    columns = (_runs.c.id, _runs.c.run_id, _runs.c.session_id, _runs.c.started_at)
    place = tuple_(_runs.c.started_at, _runs.c.id)
    begin = [place > tuple_(*after)] if after[0] > -math.inf else []
    return select(*columns).where(*begin, *conditions).order_by(_runs.c.started_at, _runs.c.id).limit(PAGE)


def _payloads(connection: Connection, runs: Sequence[int]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    if runs:
        columns = (_events.c.run, _events.c.events)
        asked = select(*columns).where(_events.c.run.in_(runs)).order_by(_events.c.run, _events.c.first)
        for row in connection.execute(asked):
            found.setdefault(row[0], []).append(tuple(row))
    return found


def _conditions(query: RunQuery) -> Iterator[ColumnElement[bool]]:
    """What of `query` a database can decide; it lets through too much rather than too little."""
    if query.ids is not None and len(query.ids) <= MAX_CHOICES:
        ids = [key_text(one) for one in query.ids]
        yield or_(_runs.c.run_id.in_(ids), _runs.c.session_id.in_(ids))
    if query.run_ids is not None and len(query.run_ids) <= MAX_CHOICES:
        yield _runs.c.run_id.in_([key_text(one) for one in query.run_ids])
    if query.session_ids is not None and len(query.session_ids) <= MAX_CHOICES:
        yield _runs.c.session_id.in_([key_text(one) for one in query.session_ids])
    if query.agents is not None and len(query.agents) <= MAX_CHOICES:
        yield _among(_runs.c.agent, [key_text(one) for one in query.agents])
    if query.statuses is not None:
        yield _among(_runs.c.status, query.statuses)
    if query.since is not None:
        yield _runs.c.started_at >= query.since
    if query.until is not None:
        yield _runs.c.started_at < query.until


def _among(column: Column[Any], values: Collection[str | None]) -> ColumnElement[bool]:
    is_known = column.in_([value for value in values if value is not None])
    return or_(column.is_(None), is_known) if None in values else and_(is_known)


def _allowed(query: RunQuery) -> Any:
    """Return a test of a row of `nbagents_runs` for what is too much for a statement, so that fewer events are read."""
    ids = None if query.ids is None else {key_text(one) for one in query.ids}
    run_ids = None if query.run_ids is None else set(query.run_ids)
    return lambda row: (
        (ids is None or row.run_id in ids or row.session_id in ids) and (run_ids is None or row.run_id in run_ids)
    )
