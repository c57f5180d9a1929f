"""What stands on which line of a timeline."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from nbagents.analysis.plots.runs import RunTree, Span, TimedRun

MAX_RUN_LANES = 40
"""More runs share lines."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One line: its first span names it, unless several runs share it. `depth` counts the runs around it."""

    depth: int
    spans: list[Span]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lines of a timeline, the first on top.

    Attributes:
        of: what a line is: a "step" of one run, a "run", or a "track" on which runs stand one after another.
        rows: the lines.
    """

    of: Literal["step", "run", "track"]
    rows: list[Lane]

    @property
    def spans(self) -> Iterator[tuple[int, Span]]:
        """Each span with the number of its line."""
        return ((number, span) for number, lane in enumerate(self.rows) for span in lane.spans)


def lanes_of_several(tree: RunTree) -> Lanes:
    """A line for each run; if they are too many, lines that they share."""
    runs = [Lane(depth, [run.whole, *run.parts]) for root in tree.roots for depth, run in tree.below(root)]
    return Lanes("run", runs) if len(runs) <= MAX_RUN_LANES else Lanes("track", _tracks(runs))


def lanes_of_one(tree: RunTree, root: TimedRun) -> Lanes:
    """A line for each request and call of `root`, and of the runs of its sub-agents, which `tree` has."""
    return Lanes("step", list(_waterfall(tree, root)))


def _waterfall(tree: RunTree, root: TimedRun) -> Iterator[Lane]:
    shown = {run.run_id for _, run in tree.below(root)}
    stack: list[tuple[int, TimedRun | Span]] = [(0, root)]
    while stack:
        depth, item = stack.pop()
        if isinstance(item, Span):
            yield Lane(depth, [item])
        elif item.run_id in shown:
            shown.remove(item.run_id)
            yield Lane(depth, [item.whole])
            inside: list[TimedRun | Span] = [*item.parts, *tree.children(item)]
            inside.sort(key=lambda part: part.start)
            stack.extend((depth + 1, part) for part in reversed(inside))


def _tracks(runs: Sequence[Lane]) -> list[Lane]:
    """Put each run on the first line that is free: there are as many lines as runs went on at once."""
    tracks: list[Lane] = []
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    for run in sorted(runs, key=lambda lane: lane.spans[0].start):
        begin, end = run.spans[0].start, max(span.end for span in run.spans)
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            heapq.heappush(free, len(tracks))
            tracks.append(Lane(0, []))
        number = heapq.heappop(free)
        tracks[number].spans.extend(run.spans)
        heapq.heappush(busy, (end, number))
    return tracks
