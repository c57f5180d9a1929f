"""Runs with the runs of their sub-agents, and the stretches of time that they consist of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nbagents.analysis.facts import RunFacts, logged_runs
from nbagents.analysis.queries import RunQuery, RunSource
from nbagents.core.errors import ConfigurationError


def one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    """Check an argument that is one of a few words.

    Raises:
        ConfigurationError: it is not.
    """
    if value not in allowed:
        raise ConfigurationError(f"{name} is {' or '.join(map(repr, allowed))}, not {value!r}.")


class RunTree:
    """Runs, each below the one in whose tool it began."""

    def __init__(self, runs: Iterable[RunFacts]) -> None:
        self._runs = {run.run_id: run for run in runs}
        self._children: dict[str, list[RunFacts]] = {}
        self.roots: list[RunFacts] = []
        for run in self._runs.values():
            parent = run.facts["parent_run_id"]
            if parent in self._runs:
                self._children.setdefault(parent, []).append(run)
            else:
                self.roots.append(run)
        self._add_circles()

    def _add_circles(self) -> None:
        """Count a run as a root too if it stands, by what a file says, below itself."""
        reached = {run.run_id for root in self.roots for _, run in self.below(root)}
        for run in self._runs.values():
            if run.run_id not in reached:
                self.roots.append(run)
                reached.update(below.run_id for _, below in self.below(run))

    def children(self, run: RunFacts) -> list[RunFacts]:
        """The runs that began in the tools of `run`, by their starts."""
        return self._children.get(run.run_id, [])

    def below(self, root: RunFacts) -> Iterator[tuple[int, RunFacts]]:
        """`root` and all runs below it, depth first, with their depths."""
        seen: set[str] = set()
        stack = [(0, root)]
        while stack:
            depth, run = stack.pop()
            if run.run_id not in seen:
                seen.add(run.run_id)
                yield depth, run
                stack.extend((depth + 1, child) for child in reversed(self.children(run)))


def runs_within(run: RunFacts, source: RunSource | None) -> list[RunFacts]:
    """The runs, of the log and the store or of `source`, that began while `run` went on, as sub-agents' runs do."""
    moments = [event.timestamp for event in run.events]
    until = None if run.end is None else math.nextafter(max(moments), math.inf)
    return logged_runs(RunQuery(since=min(moments), until=until), source)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time.

    Attributes:
        kind: "run", "model" or "tool".
        name: of the agent, the model or the tool.
        start: unix seconds.
        end: unix seconds, not before `start`: a clock that was set back makes no negative time.
        ending: "" if it ended well, else how it ended: "error", "limit", ...; "going" if it has no end yet.
        seconds: its duration: as it was measured, apart from the clock, else by the clock; None if that was set back.
    """

    kind: str
    name: str
    start: float
    end: float
    ending: str
    seconds: float | None

    @property
    def failed(self) -> bool:
        """Whether it failed or was stopped."""
        return self.ending not in {"", "going", "approval"}


def run_spans(run: RunFacts) -> list[Span]:
    """Return the run, then its requests and the calls that ran in it, by their starts.

    What goes on ends with the last event. A call that waited for an approval stands in the run in which it was
    approved, where its time was spent.
    """
    last = run.events[-1].timestamp
    ending = {"ok": "", None: "going"}.get(run.status, run.status or "")
    whole = _span("run", run.facts["agent"] or "agent", run.started_at, run.ended_at or last, ending)
    requests = [
        _span(
            "model",
            request.model or "model",
            request.started_at,
            request.ended_at or last,
            "going" if request.answer is None else "error" if request.error_type else "",
            request.answered("latency_s"),
        )
        for request in run.requests
    ]
    return [whole, *sorted([*requests, *_call_spans(run, last)], key=lambda span: span.start)]


def _call_spans(run: RunFacts, last: float) -> Iterator[Span]:
    called: dict[str, Any] = {}
    for event in run.events:
        if event.name == "tool.called":
            called[event.payload["id"]] = event
        elif event.name in {"tool.succeeded", "tool.failed"} and event.payload["id"] in called:
            begun = called.pop(event.payload["id"])
            ending = "" if event.name == "tool.succeeded" else event.payload["status"]
            yield _span(
                "tool",
                event.payload["tool_id"],
                begun.timestamp,
                event.timestamp,
                ending,
                event.payload.get("duration_s"),
            )
    for begun in called.values():
        yield _span("tool", begun.payload["tool_id"], begun.timestamp, last, "going")


def _span(kind: str, name: str, start: float, end: float, ending: str, measured: float | None = None) -> Span:
    by_clock = end - start if end >= start else None
    return Span(kind, name, start, max(start, end), ending, by_clock if measured is None else measured)
