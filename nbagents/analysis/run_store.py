"""A store of runs in a database: it takes the records of runs as they begin and writes what is new, off their path."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING

from nbagents.analysis.queries import EVERY_RUN, RunQuery, in_order, wanted
from nbagents.analysis.stored_events import CAPTURES, Capture, stored_part
from nbagents.core.errors import ConfigurationError, StoreError
from nbagents.core.events import RunEvent
from nbagents.core.history_sql import missing_package
from nbagents.core.runlog import RunRecord, run_log

if TYPE_CHECKING:
    from nbagents.analysis.run_tables import RunDatabase, RunPart

PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds in which new events are gathered to be written together; longer after each attempt that failed."""
EVENTS_AT_ONCE = 5_000
MAX_WAITING_RUNS = 10_000
MAX_WAITING_CHARACTERS = 256_000_000
CLOSE_SECONDS = 10.0
"""So long `close` waits for a database that does not answer."""
_log = logging.getLogger(__name__)


class RunStore:
    """Keeps runs in a database; made and put to use by `use_store`. Any thread may use it.

    Args:
        url: the database, as in `use_store`.
        capture: `full` or `metadata`, as in `use_store`.

    Attributes:
        capture: what is kept of a run.
        lost: runs that could not be written, and of which the store has nothing or only the beginning.
        closed: nothing more is written.

    Raises:
        ConfigurationError: an address that does not fit, or a package that is missing.
        StoreError: the database cannot be used.
    """

    def __init__(self, url: str, *, capture: Capture = "full") -> None:
        if not isinstance(url, str):
            raise ConfigurationError(f"url must be the address of a database, not {type(url).__name__}.")
        if capture not in CAPTURES:
            raise ConfigurationError(f"capture is 'full' or 'metadata', not {capture!r:.100}.")
        self.capture: Capture = capture
        self.lost = 0
        self.closed = False
        self._database = _database(url)
        try:
            self._database.prepare()
        except BaseException:
            self._database.dispose()
            raise
        self._begin()
        _stores.add(self)

    def _begin(self) -> None:
        """Begin with nothing to write; in a fork, what waits is for the parent to write."""
        self._new: deque[RunRecord] = deque()
        self._tails: list[_Tail] = []
        self._work_waits = threading.Event()
        self._hurry = threading.Event()
        self._writing = threading.RLock()
        self._thread: threading.Thread | None = None
        self._failures = 0

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.waiting} runs waiting"
        return f"RunStore({self._database.name!r}, {state}, {self.lost} lost)"

    def __enter__(self) -> RunStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def waiting(self) -> int:
        """Runs that are still going or not all written."""
        return len(self._new) + len(self._tails)

    def start(self) -> None:
        """Take up all runs that begin from now on, and those that are still going."""
        log = run_log()
        log.watchers.append(self._take)
        log.keepers.append(self._note)
        for record in log.runs():
            if not record.ended:
                self._take(record)

    def flush(self) -> None:
        """Write what waits.

        Raises:
            StoreError: the database cannot be written; it is tried again later.
        """
        with self._writing:
            self._drain()

    def close(self) -> None:
        """Write what waits and use the database no more; idempotent. What cannot be written by then is lost."""
        log = run_log()
        if self._take in log.watchers:
            log.watchers.remove(self._take)
            log.keepers.remove(self._note)
        if self.closed:
            return
        self.closed = True
        self._hurry.set()
        self._work_waits.set()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)
        self._write_the_rest()
        self._database.dispose()

    def records(
        self, query: RunQuery = EVERY_RUN, *, apart_from: AbstractSet[str] = frozenset()
    ) -> Iterator[RunRecord]:
        """Yield the runs that `query` wants, oldest first, each once; also those that are not written yet.

        Args:
            query: which runs.
            apart_from: ids of runs that are not wanted.

        Raises:
            StoreError: the database cannot be read.
        """
        if self.closed:
            raise StoreError(f"{self!r} is closed.", hint="Open it again with use_store().")
        with self._writing:
            try:
                self._drain()
            except StoreError as error:
                _log.info("Read without what waits to be written: %s", error)
            waiting = [tail.record for tail in self._tails if tail.record.events]
        own = [record for record in waiting if record.run_id not in apart_from]
        kept = self._database.records(query, {*apart_from, *(record.run_id for record in own)})
        yield from in_order(wanted(own, query), kept)

    def with_notes(self, records: Sequence[RunRecord]) -> list[RunRecord]:
        """Return `records` with the notes that others have written to them: another program, or one before this.

        Raises:
            StoreError: the database cannot be read.
        """
        notes = self._database.notes([record.run_id for record in records if record.ended])
        return [_noted(record, notes[record.run_id]) if record.run_id in notes else record for record in records]

    def _take(self, record: RunRecord) -> None:
        """Take up a run that begins: on the hot path."""
        self._new.append(record)
        if not self._work_waits.is_set():
            if self._thread is None:
                self._start_thread()
            self._work_waits.set()
        if self.waiting > MAX_WAITING_RUNS:
            self._relieve()

    def _note(self, event: RunEvent) -> bool:
        """Keep a note to a run; False if the run is not here."""
        self.flush()

        def event_at(sequence: int) -> str:
            return stored_part([replace(event, sequence=sequence)], self.capture)[0]

        return self._database.note(event.run_id, event_at)

    def _start_thread(self) -> None:
        with self._writing:
            if self._thread is None and not self.closed:
                self._thread = threading.Thread(target=self._work, name="nbagents-run-store", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        """Write, twice a second, as long as there are runs."""
        while True:
            self._work_waits.wait()
            self._hurry.wait(PAUSES[min(self._failures, len(PAUSES) - 1)])
            if self.closed:
                return
            self._work_waits.clear()
            try:
                self.flush()
                self._failures = 0
            except Exception as error:  # noqa: BLE001  whatever it is, later runs are to be written
                self._failed(error)
            if self._tails or self._new:
                self._work_waits.set()

    def _drain(self) -> None:
        """Write what the runs have by now."""
        self._take_new()
        try:
            for batch in self._batches():
                self._write(batch)
        finally:
            self._tails = [tail for tail in self._tails if not tail.is_done]

    def _take_new(self) -> None:
        while self._new:
            self._tails.append(_Tail(self._new.popleft()))

    def _batches(self) -> Iterator[list[_Piece]]:
        batch: list[_Piece] = []
        n_events = 0
        for tail in self._tails:
            begin, end = tail.written, len(tail.record.events)
            while begin < end:
                try:
                    piece = self._piece(tail, begin, min(end, begin + EVENTS_AT_ONCE))
                except Exception as error:  # noqa: BLE001  values of anybody's classes: the other runs go on
                    self._lose([tail], f"{type(error).__name__} where it was to be made JSON.")
                    break
                begin = piece.end
                batch.append(piece)
                n_events += piece.n_events
                if n_events >= EVENTS_AT_ONCE:
                    yield batch
                    batch, n_events = [], 0
        if batch:
            yield batch

    def _piece(self, tail: _Tail, begin: int, end: int) -> _Piece:
        record = tail.record
        events, last = record.events[begin:end], record.end()
        tail.ended = last is not None
        stored, beginning = stored_part(events, self.capture)
        row = None
        if begin == 0 or last is not None:
            if begin > 0:
                _, beginning = stored_part(record.events[:1], self.capture)
            row = self._database.row_of(record.events[0], beginning, last)
        part = self._database.part_of(record.run_id, row, (events[0].sequence, events[-1].sequence, stored))
        return _Piece(tail, part, end, len(events))

    def _write(self, batch: list[_Piece]) -> None:
        try:
            self._database.write([piece.part for piece in batch])
        except StoreError as error:
            if error.retryable:
                raise
            if len(batch) == 1:  # the database works, and does not want this
                self._lose([batch[0].tail], error)
                return
            for piece in batch:
                self._write([piece])
            return
        for piece in batch:
            piece.tail.written = piece.end
            if piece.tail.is_done:
                self._database.forget(piece.part.run_id)

    def _relieve(self) -> None:
        """Do what is left when runs begin faster than they are written: write them here, or lose the oldest."""
        if not self._failures:
            try:
                self.flush()
            except StoreError as error:
                self._failed(error)
        else:
            self._drop_surplus()

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            _log.warning("Runs wait in memory until they can be written. %s", error)
        self._drop_surplus()

    def _drop_surplus(self) -> None:
        """Keep memory bounded while the database cannot be written: lose the oldest runs that have ended."""
        with self._writing:
            self._take_new()
            characters = sum(tail.record.size for tail in self._tails)
            surplus: list[_Tail] = []
            for tail in self._tails:
                if len(self._tails) - len(surplus) <= MAX_WAITING_RUNS and characters <= MAX_WAITING_CHARACTERS:
                    break
                if tail.record.ended:
                    surplus.append(tail)
                    characters -= tail.record.size
            if surplus:
                self._lose(surplus, "Too many wait.")
                self._tails = [tail for tail in self._tails if not tail.is_done]

    def _write_the_rest(self) -> None:
        if not self._writing.acquire(timeout=CLOSE_SECONDS):
            self.lost += self.waiting
            _log.warning("%r does not answer; runs that it does not have are lost.", self)
            return
        try:
            self._drain()
        except StoreError as error:
            self._lose([tail for tail in self._tails if tail.written < len(tail.record.events)], error)
        finally:
            self._writing.release()

    def _lose(self, tails: list[_Tail], why: object) -> None:
        for tail in tails:
            tail.lost = True
        self.lost += len(tails)
        _log.warning("%d runs could not be written to %s and are lost. %s", len(tails), self._database.name, why)

    def _after_fork(self) -> None:
        self._database.after_fork()
        self._begin()


@dataclass(slots=True, eq=False)
class _Tail:
    """A run that is not all written yet: of its events the first `written` are."""

    record: RunRecord
    written: int = 0
    ended: bool = False
    lost: bool = False

    @property
    def is_done(self) -> bool:
        """Whether nothing more is to be written."""
        return self.lost or (self.ended and self.written == len(self.record.events))


@dataclass(slots=True, eq=False)
class _Piece:
    """What is written of a run together: `n_events` events up to `end`."""

    tail: _Tail
    part: RunPart
    end: int
    n_events: int


def _noted(record: RunRecord, notes: Sequence[RunEvent]) -> RunRecord:
    """Return a record with the `notes` that the store has, in its order; a note is the same if its time is."""
    own = {event.timestamp: event for event in record.events if event.name == "run.noted"}
    if all(note.timestamp in own for note in notes):
        return record
    events = [event for event in record.events if event.name != "run.noted"]
    known = [own.pop(note.timestamp, note) for note in notes]
    noted = enumerate([*known, *own.values()], events[-1].sequence + 1)
    return RunRecord(record.run_id, [*events, *(replace(note, sequence=sequence) for sequence, note in noted)])


_stores: weakref.WeakSet[RunStore] = weakref.WeakSet()


def _renew_after_fork() -> None:
    for store in list(_stores):
        store._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)


def _database(url: str) -> RunDatabase:
    try:
        from nbagents.analysis.run_tables import RunDatabase
        from nbagents.core.databases import parsed_url

        return RunDatabase(parsed_url(url, "use_store"))
    except ModuleNotFoundError as error:
        raise missing_package("use_store", error.name or str(error)) from error
