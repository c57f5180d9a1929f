"""What runs cost, as it grew."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Unpack

from nbagents.analysis.facts import RequestFacts
from nbagents.analysis.plots import style
from nbagents.analysis.plots.groups import drawn_groups
from nbagents.analysis.progress import progress
from nbagents.analysis.selection import Filters, Selection, chosen_runs
from nbagents.analysis.usage import UsageGroup, usage_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_LINES = 8
COLOURS = (style.BLUE, style.VERMILLION, style.GREEN, style.PURPLE, style.GREY)
LINES = ("solid", "dashed", "dotted", "dashdot")


def plot_cost(
    selection: Selection = None,
    /,
    *,
    by: Sequence[str] | str = "model",
    ax: Axes | None = None,
    **filters: Unpack[Filters],
) -> Axes:
    """Draw how the cost grew: a line for each group, a step for each request.

    Only known costs are drawn. What is unknown, for want of a price or of reported tokens, is said and never drawn
    as 0: "+" behind a sum, the number of such requests, and the names of the groups of which nothing is known.

    Args:
        selection: which runs, as for `runs_df`: a response, a session, ids, a store, ...; None is all, `[]` none.
        by: what the lines stand for, as in `usage_df`; an empty list draws one line for everything. Of more than 8,
            the most expensive are drawn and the others summed.
        ax: where to draw; a new figure by default.
        filters: those of `runs_df`: run_id, session_id, agent, model, status, tag, since, until.

    Returns:
        The axes; the time in UTC on x, US dollars since the first request on y.

    Raises:
        ConfigurationError: a filter that there is not, a wrong value of one, or something that usage cannot be summed
            by.

    Example:
        >>> plot_cost([]).get_ylabel()
        'US dollars'
    """
    usage_columns(by)
    chosen = progress(chosen_runs(selection, filters), "Reading")
    groups = drawn_groups(chosen, by, lambda group: group.cost or 0, MAX_LINES)
    ax = ax or style.new_axes()
    known = [(label, group) for label, group in groups if group.cost is not None]
    if known:
        _draw_lines(ax, groups)
    ax.set_xlabel("time (UTC)")
    ax.set_ylabel("US dollars")
    style.dress(ax, "Cost", numbers="y")
    if not known:
        style.say(ax, "no known cost" if groups else "no runs")
    return ax


def _draw_lines(ax: Axes, groups: Sequence[tuple[str, UsageGroup]]) -> None:
    import numpy as np
    from matplotlib import dates

    requests = [request for _, group in groups for request in group.requests]
    begin, end = min(request.started_at for request in requests), max(map(_paid_at, requests))
    for place, (label, group) in enumerate(groups):
        paid = sorted((_paid_at(request), request.cost) for request in group.requests if request.cost is not None)
        moments = [begin, *(moment for moment, _ in paid), end] if paid else []
        sums = np.cumsum([0.0, *(cost for _, cost in paid), 0.0] if paid else [])
        ax.plot(
            (np.array(moments) * 1_000_000).astype("datetime64[us]"),
            sums,
            drawstyle="steps-post",
            color=COLOURS[place % len(COLOURS)],
            linestyle=LINES[place % len(LINES)] if paid else "none",
            label=f"{label}: {_sum_words(group)}",
        )
    ax.xaxis.set_major_locator(dates.AutoDateLocator(tz=UTC))  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(ax.xaxis.get_major_locator(), tz=UTC))  # type: ignore[no-untyped-call]
    ax.set_ylim(bottom=0)


def _paid_at(request: RequestFacts) -> float:
    """When the cost was known: at the end. A clock that was set back makes no negative time."""
    return max(request.started_at, request.ended_at or request.started_at)


def _sum_words(group: UsageGroup) -> str:
    unknown = sum(request.cost is None for request in group.requests)
    if group.cost is None:
        return f"unknown ({unknown:,} of {unknown:,})"
    words = style.dollars(group.cost, group.cost_complete)
    return f"{words} ({unknown:,} of {len(group.requests):,} unknown)" if unknown else words
