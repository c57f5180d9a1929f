"""Which runs are wanted, and what can give them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Protocol, runtime_checkable

from nbagents.core.run import STATUS_OF_STOP_REASON
from nbagents.core.runlog import RunRecord


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs are wanted: those that fit in every respect. None is all, an empty collection none.

    Attributes:
        ids: ids of runs or of sessions.
        run_ids: ids of runs.
        session_ids: ids of conversations.
        agents: names of agents.
        statuses: `ok`, `error`, `cancelled`, `limit`, `approval`; None among them is a run that has no end.
        since: runs that started at this time or later, in unix seconds.
        until: runs that started before it.
    """

    ids: Collection[str] | None = None
    run_ids: Collection[str] | None = None
    session_ids: Collection[str] | None = None
    agents: Collection[str | None] | None = None
    statuses: Collection[str | None] | None = None
    since: float | None = None
    until: float | None = None

    def matches(self, record: RunRecord) -> bool:
        """Whether `record` is wanted."""
        begin = record.events[0]
        session, agent = begin.payload["session_id"], begin.payload["agent"]
        return (
            (self.ids is None or record.run_id in self.ids or session in self.ids)
            and (self.run_ids is None or record.run_id in self.run_ids)
            and (self.session_ids is None or session in self.session_ids)
            and (self.agents is None or agent in self.agents)
            and (self.statuses is None or status_of(record) in self.statuses)
            and (self.since is None or begin.timestamp >= self.since)
            and (self.until is None or begin.timestamp < self.until)
        )


EVERY_RUN = RunQuery()


@runtime_checkable
class RunSource(Protocol):
    """Something that runs can be read from."""

    def records(self, query: RunQuery = EVERY_RUN) -> Iterator[RunRecord]:
        """Yield the runs that `query` wants, oldest first, each once and with at least one event."""
        ...


def status_of(record: RunRecord) -> str | None:
    """How the run ended, in one of the five words of the tables; None if it has no end."""
    end = record.end()
    return STATUS_OF_STOP_REASON[end.payload["stop_reason"]] if end is not None else None


def wanted(records: Iterable[RunRecord], query: RunQuery) -> Iterator[RunRecord]:
    """Return those of `records` that have begun and that `query` wants, oldest first."""
    begun = (record for record in records if record.events)
    return iter(sorted((record for record in begun if query.matches(record)), key=_started_at))


def in_order(*sources: Iterable[RunRecord]) -> Iterator[RunRecord]:
    """Yield the runs of all `sources`, each of which is in order, oldest first; of a run that comes twice the first."""
    seen: set[str] = set()
    for record in merge(*sources, key=_started_at):
        if record.run_id not in seen:
            seen.add(record.run_id)
            yield record


def _started_at(record: RunRecord) -> float:
    return record.events[0].timestamp
