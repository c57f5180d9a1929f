"""The run log in memory: the events of the last runs, bounded in number and size."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from nbagents.core.errors import ConfigurationError
from nbagents.core.events import RunEvent
from nbagents.core.sizes import size_of_events

MAX_RUNS = 1_000
MAX_BYTES = 256_000_000
Keeper = Callable[[RunEvent], bool]
"""Adds a note to a run that it keeps, and tells whether it keeps this run; `sequence` is 0 where it has to give one."""
T = TypeVar("T")


class RunObserver(Protocol):
    """Follows a run while it happens, in its thread. Nothing that it does may raise."""

    def saw(self, event: RunEvent) -> None:
        """Take note of an event, when the record has it."""
        ...

    def enter(self, work_id: str) -> Callable[[], object]:
        """Let what begins in this context belong to a request or call that is under way; call the result to leave."""
        ...


@dataclass(slots=True)
class RunRecord:
    """The log of one run, append-only.

    Attributes:
        run_id: the run.
        events: what happened, in order.
        views: what somebody has made of the events, by its name; nothing here reads it.
        observer: who follows the run; a watcher of the log may set it when the run begins.
    """

    run_id: str
    events: list[RunEvent] = field(default_factory=list)
    views: dict[str, Any] | None = field(default=None, repr=False, compare=False)
    observer: RunObserver | None = field(default=None, repr=False, compare=False)
    _size: int = field(default=0, repr=False, compare=False)
    _sized: int = field(default=0, repr=False, compare=False)
    _counted: set[int] = field(default_factory=set, repr=False, compare=False)

    def append(self, event: RunEvent) -> None:
        """Add what happened next."""
        self.events.append(event)
        if self.observer is not None:
            self.observer.saw(event)

    def keep(self, name: str, view: Any) -> None:
        """Keep a view as long as there is this record."""
        if self.views is None:
            self.views = {}
        self.views[name] = view

    @property
    def size(self) -> int:
        """About how many bytes the events hold: texts, files, what tools returned; each once."""
        new = self.events[self._sized :]
        self._sized += len(new)
        self._size += size_of_events(new, self._counted)
        return self._size

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.end() is not None

    def end(self) -> RunEvent | None:
        """The event with which the run ended, if it has; notes may follow it."""
        for event in reversed(self.events):
            if event.name != "run.noted":
                return event if event.name == "run.ended" else None
        return None

    def first(self, name: str) -> RunEvent | None:
        """The first event of this name."""
        return next((event for event in self.events if event.name == name), None)

    def named(self, *names: str) -> list[RunEvent]:
        """The events of these names, in order."""
        return [event for event in self.events if event.name in names]


async def entered(observer: RunObserver, work_id: str, source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield what `source` gives, entered while it works and left while the consumer does."""
    async with aclosing(source) as items:
        while True:
            leave = observer.enter(work_id)
            try:
                item = await anext(items)
            except StopAsyncIteration:
                return
            finally:
                leave()
            yield item


class RunLog:
    """Runs, oldest first. The oldest ended ones leave when there are too many or they hold too much.

    Attributes:
        watchers: those who are told of each run that begins, in the thread in which it does.
        keepers: those who keep runs for longer; they are told of each note.
    """

    def __init__(self, max_runs: int = MAX_RUNS, max_bytes: int = MAX_BYTES) -> None:
        self._max_runs = max_runs
        self._max_bytes = max_bytes
        self._runs: OrderedDict[str, RunRecord] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self.watchers: list[Callable[[RunRecord], None]] = []
        self.keepers: list[Keeper] = []

    def open(self, run_id: str) -> RunRecord:
        """Begin the record of a run."""
        record = RunRecord(run_id)
        with self._lock:
            self._runs[run_id] = record
            self._trim()
        for watch in tuple(self.watchers):
            watch(record)
        return record

    def close(self, record: RunRecord) -> None:
        """Take note that `record` has its end; nobody follows it any more."""
        record.observer = None
        with self._lock:
            self._bytes += record.size
            self._trim()

    def note(self, run_id: str, payload: dict[str, Any]) -> RunEvent:
        """Add a note to a run that has ended, here and wherever it is kept.

        Raises:
            ConfigurationError: nobody keeps this run, or it is still going.
        """
        event = RunEvent(run_id, 0, "run.noted", time.time(), payload)
        with self._lock:
            record = self._runs.get(run_id)
        if record is not None and not record.ended:
            raise ConfigurationError(f"The run {run_id!r} is still going.", hint="Note it when it has ended.")
        kept = [keeper(event) for keeper in list(self.keepers)]  # first: keepers write what the record has by now
        if record is None and not any(kept):
            raise ConfigurationError(
                f"There is no run {run_id!r} in the log.",
                hint="The log has the last runs of this process; use_store() keeps them for longer.",
            )
        if record is not None:
            with self._lock:
                event.sequence = record.events[-1].sequence + 1
                before = record.size
                record.append(event)
                if run_id in self._runs:
                    self._bytes += record.size - before
        return event

    def runs(self) -> list[RunRecord]:
        """All runs that are kept, oldest first."""
        with self._lock:
            return list(self._runs.values())

    def get(self, run_id: str) -> RunRecord | None:
        """The run of this id, if it is kept."""
        return self._runs.get(run_id)

    def clear(self) -> None:
        """Forget the runs that have ended."""
        with self._lock:
            for run_id in [run_id for run_id, record in self._runs.items() if record.ended]:
                self._forget(run_id)

    def _trim(self) -> None:
        while len(self._runs) > self._max_runs or self._bytes > self._max_bytes:
            oldest = next((run_id for run_id, record in self._runs.items() if record.ended), None)
            if oldest is None:
                return  # all of them are still going
            self._forget(oldest)

    def _forget(self, run_id: str) -> None:
        self._bytes -= self._runs.pop(run_id).size


_log = RunLog()


def run_log() -> RunLog:
    """The log of this process."""
    return _log
