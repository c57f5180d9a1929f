"""Runs with the runs of their sub-agents, and the stretches of time that they consist of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nbagents.analysis.facts import RequestFacts, RunFacts, logged_runs
from nbagents.analysis.queries import RunQuery, RunSource
from nbagents.core.errors import ConfigurationError


def one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    """Check an argument that is one of a few words.

    Raises:
        ConfigurationError: it is not.
    """
    if value not in allowed:
        raise ConfigurationError(f"{name} is {' or '.join(map(repr, allowed))}, not {value!r}.")


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


@dataclass(frozen=True, slots=True)
class TimedRun:
    """The spans of a run, without its events, which may be large.

    Attributes:
        run_id: the run.
        parent_run_id: the run in whose tool it began.
        first: when the first of its events happened, in unix seconds.
        last: when the last of them happened.
        whole: the run.
        parts: the requests and the calls that ran in it, by their starts.
    """

    run_id: str
    parent_run_id: str | None
    first: float
    last: float
    whole: Span
    parts: list[Span]

    @property
    def start(self) -> float:
        """When it began, in unix seconds."""
        return self.whole.start


def timed_run(run: RunFacts) -> TimedRun:
    """Read the spans of `run`.

    What goes on ends with the last event. A call that waited for an approval stands in the run in which it was
    approved, where its time was spent. Notes are no part of the time: people write them later.
    """
    moments = [event.timestamp for event in run.events if event.name != "run.noted"]
    last = moments[-1]
    ending = {"ok": "", None: "going"}.get(run.status, run.status or "")
    ended_at = last if run.ended_at is None else run.ended_at
    whole = _span("run", run.facts["agent"] or "agent", run.started_at, ended_at, ending)
    parts = [*(_request_span(request, last) for request in run.requests), *_call_spans(run, last)]
    parts.sort(key=lambda span: span.start)
    return TimedRun(run.run_id, run.facts["parent_run_id"], min(moments), max(moments), whole, parts)


def runs_within(run: TimedRun, source: RunSource | None) -> Iterator[TimedRun]:
    """The runs, of the log and the store or of `source`, that began while `run` went on, as sub-agents' runs do."""
    until = None if run.whole.ending == "going" else math.nextafter(run.last, math.inf)
    return map(timed_run, logged_runs(RunQuery(since=run.first, until=until), source))


def _request_span(request: RequestFacts, last: float) -> Span:
    ending = "going" if request.answer is None else "error" if request.error_type else ""
    ended_at = last if request.ended_at is None else request.ended_at
    return _span("model", request.model or "model", request.started_at, ended_at, ending, request.answered("latency_s"))


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


class RunTree:
    """Runs, each below the one in whose tool it began."""

    def __init__(self, runs: Iterable[TimedRun]) -> None:
        self._runs = {run.run_id: run for run in runs}
        self._children: dict[str, list[TimedRun]] = {}
        self.roots: list[TimedRun] = []
        for run in self._runs.values():
            parent = run.parent_run_id
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

    def children(self, run: TimedRun) -> list[TimedRun]:
        """The runs that began in the tools of `run`, by their starts."""
        return self._children.get(run.run_id, [])

    def below(self, root: TimedRun) -> Iterator[tuple[int, TimedRun]]:
        """`root` and all runs below it, depth first, with their depths."""
        seen: set[str] = set()
        stack = [(0, root)]
        while stack:
            depth, run = stack.pop()
            if run.run_id not in seen:
                seen.add(run.run_id)
                yield depth, run
                stack.extend((depth + 1, child) for child in reversed(self.children(run)))
