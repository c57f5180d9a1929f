"""Where runs are read from and kept: the log in memory, and a store that keeps them for longer. The door to both."""

from __future__ import annotations

import atexit
import warnings
from collections.abc import Iterator
from typing import overload

from nbagents.analysis.queries import EVERY_RUN as EVERY_RUN
from nbagents.analysis.queries import RunQuery as RunQuery
from nbagents.analysis.queries import RunSource as RunSource
from nbagents.analysis.queries import in_order, wanted
from nbagents.analysis.queries import status_of as status_of
from nbagents.analysis.run_store import RunStore as RunStore
from nbagents.analysis.stored_events import Capture
from nbagents.core.arguments import exact_arguments
from nbagents.core.callables import depth_of_caller
from nbagents.core.errors import StoreError
from nbagents.core.runlog import RunRecord, run_log

_current: RunStore | None = None


@overload
def use_store(url: None, *, capture: Capture = "full") -> None: ...
@overload
def use_store(url: str, *, capture: Capture = "full") -> RunStore: ...
@exact_arguments()
def use_store(url: str | None, *, capture: Capture = "full") -> RunStore | None:
    """Keep runs in a database: all from now on, and those that are still going. Tables and plots show what is in it.

    A run only hands over its record; one thread writes, twice a second, one transaction at a time. So a program that
    is killed loses the last half second, and its unfinished runs stay without an end. Any number of
    programs may use the same database. While it cannot be written, runs go on and wait in memory, 10,000 of them and
    256 million characters; when there are more, the oldest are lost, which is said, and counted in `store.lost`.

    Args:
        url: `sqlite:///runs.db`, `postgresql+psycopg://user:password@host/name`, or None for the log in memory
            alone, which has the last 1,000 runs. The store that was used before is closed.
        capture: `full`, or `metadata`: no words of people, models or tools, only names, counts, times and usage.
            Secrets are masked in both.

    Returns:
        The store; `flush()` writes what waits, `close()` (or the end of a `with` block, or of the program) too.

    Raises:
        ConfigurationError: an address that does not fit, or a package that is missing, with what to install.
        StoreError: the database cannot be used.

    Example:
        >>> from nbagents import Agent, ScriptedChatClient, runs_df
        >>> with use_store("sqlite://") as store:
        ...     response = Agent(ScriptedChatClient(["Hello."])).run_sync("Hi")
        ...     runs_df(store).output_text.tolist()
        ['Hello.']
    """
    global _current
    store = None if url is None else RunStore(url, capture=capture)
    if store is not None:
        store.start()
        atexit.register(store.close)
    before, _current = _current, store
    if before is not None:
        atexit.unregister(before.close)
        before.close()
    return store


def current_store() -> RunStore | None:
    """The store that is in use."""
    return _current if _current is not None and not _current.closed else None


def stored_records(query: RunQuery = EVERY_RUN, source: RunSource | None = None) -> Iterator[RunRecord]:
    """Yield the runs that `query` wants, oldest first, each once.

    Args:
        query: which runs.
        source: only what is in there; by default the log in memory, and the store if there is one.
    """
    if source is not None:
        yield from source.records(query)
        return
    logged = run_log().runs()
    store = current_store()
    if store is None:
        yield from wanted(logged, query)
        return
    kept = store.records(query, apart_from={record.run_id for record in logged if record.events})
    yield from in_order(_with_notes(store, list(wanted(logged, query))), _as_far_as_possible(kept))


def _with_notes(store: RunStore, records: list[RunRecord]) -> list[RunRecord]:
    try:
        return store.with_notes(records)
    except StoreError:  # which is said where the other runs cannot be read
        return records


def _as_far_as_possible(records: Iterator[RunRecord]) -> Iterator[RunRecord]:
    """Yield `records` until they cannot be read: the runs in memory can still be shown."""
    try:
        yield from records
    except StoreError as error:
        warnings.warn(f"Only the runs in memory are shown. {error}", stacklevel=depth_of_caller())
