"""How long models and runs took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Unpack

from nbagents.analysis.plots import style
from nbagents.analysis.plots.groups import drawn_groups
from nbagents.analysis.plots.percentiles import PERCENTILES, Series, checked_percentiles, draw_percentiles
from nbagents.analysis.plots.runs import one_of
from nbagents.analysis.progress import progress
from nbagents.analysis.selection import Filters, Selection, chosen_runs
from nbagents.analysis.usage import UsageGroup, usage_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_latency(
    selection: Selection = None,
    /,
    *,
    of: Literal["requests", "runs"] = "requests",
    by: Sequence[str] | str = "model",
    percentiles: Sequence[float] | float = PERCENTILES,
    ax: Axes | None = None,
    **filters: Unpack[Filters],
) -> Axes:
    """Draw percentiles of the time to the first token and of the total time, for each group.

    Requests and runs that failed, were stopped, go on or saw the clock set back have no time to compare: they are left
    out, and the labels say how many they are. High percentiles of few measurements are rough: p99 of ten is nearly the
    largest of them.

    Args:
        selection: which runs, as for `runs_df`: a response, a session, ids, a store, ...; None is all, `[]` none.
        of: "requests" for single requests to a model, "runs" for whole runs, tools included.
        by: what the lines stand for, as in `usage_df`. Of more than 30, the largest are drawn and the others pooled.
        percentiles: one to five numbers from 0 to 100; interpolated linearly, as numpy and pandas do.
        ax: where to draw; a new figure by default.
        filters: those of `runs_df`: run_id, session_id, agent, model, status, tag, since, until.

    Returns:
        The axes; time on x, one group for each line on y. The first token was only measured where replies were
        streamed.

    Raises:
        ConfigurationError: a filter that there is not, or a wrong value of one or of another argument.

    Example:
        >>> plot_latency([], by="agent", of="runs").get_xlabel()
        'seconds'
    """
    usage_columns(by)
    wanted = checked_percentiles(percentiles)
    one_of("of", of, ("requests", "runs"))
    chosen = progress(chosen_runs(selection, filters), "Reading")
    groups = drawn_groups(chosen, by, lambda group: len(group.requests))
    ax = ax or style.new_axes(1.6 * len(groups))
    style.name_lanes(ax, [f"{label} ({_numbers(group, of)})" for label, group in groups], many="groups")
    times = [_times(group, of) for _, group in groups]
    first = [[first for first, _ in rows if first is not None] for rows in times]
    total = [[total for _, total in rows] for rows in times]
    series = [Series("first token", style.VERMILLION, "dotted", first), Series("total", style.BLUE, "solid", total)]
    draw_percentiles(ax, series, wanted, "not measured")
    style.dress(ax, f"Latency of {of}")
    if not groups:
        style.say(ax, "no runs")
    return ax


def _times(group: UsageGroup, of: str) -> list[tuple[float | None, float]]:
    """Seconds to the first token and to the end, of what ended well; not of runs in which the clock was set back."""
    if of == "runs":
        ended = [run for run in group.runs if run.status == "ok" and (run.ended_at or 0) >= run.started_at]
        measured = [(run.ttft_s, run.duration_s) for run in ended]
    else:
        answered = [request for request in group.requests if request.error_type is None]
        measured = [(request.answered("ttft_s"), request.answered("latency_s")) for request in answered]
    return [(first, total) for first, total in measured if total is not None]


def _numbers(group: UsageGroup, of: str) -> str:
    measured, number = len(_times(group, of)), len(group.requests if of == "requests" else group.runs)
    left_out = number - measured
    return f"n={measured:,}" + (f", {left_out:,} left out" if left_out else "")
