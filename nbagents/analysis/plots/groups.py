"""Runs and requests in groups, few enough to be drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from nbagents.analysis.facts import RunFacts
from nbagents.analysis.plots.words import short
from nbagents.analysis.usage import UsageGroup, usage_groups

MAX_GROUPS = 30


def drawn_groups(
    runs: Iterable[RunFacts], by: Sequence[str] | str, size: Callable[[UsageGroup], float], most: int = MAX_GROUPS
) -> list[tuple[str, UsageGroup]]:
    """Return the groups with their labels, in the order in which they first occur.

    Where there are more than `most`, the largest by `size` come first and all others are one group at the end.
    """
    groups = usage_groups(runs, by)
    if len(groups) <= most:
        return [(group_label(group), group) for group in groups]
    largest = sorted(groups, key=size, reverse=True)
    kept, others = largest[: most - 1], largest[most - 1 :]
    rest = UsageGroup(
        (),
        [run for group in others for run in group.runs],
        [request for group in others for request in group.requests],
    )
    return [*((group_label(group), group) for group in kept), (f"{len(others):,} others", rest)]


def group_label(group: UsageGroup) -> str:
    """The values by which the runs were grouped; "all" if by none."""
    if not group.key:
        return "all"
    return short(" · ".join(str(part) for part in group.key if part) or "unknown")
