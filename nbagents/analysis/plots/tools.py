"""How often tools were called, how often they failed and how long they took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal, Unpack

from nbagents.analysis.conversations import settled_calls
from nbagents.analysis.facts import CallFacts
from nbagents.analysis.plots import style
from nbagents.analysis.plots.groups import MAX_GROUPS
from nbagents.analysis.plots.percentiles import PERCENTILES, Series, checked_percentiles, draw_percentiles
from nbagents.analysis.plots.runs import one_of
from nbagents.analysis.plots.words import short
from nbagents.analysis.progress import progress
from nbagents.analysis.selection import Filters, Selection, whole_sessions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FAILED = frozenset({"error", "invalid", "timeout"})
STOPPED = frozenset({"denied", "cancelled", "limit"})


def plot_tools(
    selection: Selection = None,
    /,
    *,
    of: Literal["calls", "duration"] = "calls",
    percentiles: Sequence[float] | float = PERCENTILES,
    ax: Axes | None = None,
    **filters: Unpack[Filters],
) -> Axes:
    """Draw for each tool how many of its calls ended how, or how long they took.

    Args:
        selection: which runs, as for `runs_df`: a response, a session, ids, a store, ...; None is all, `[]` none.
        of: "calls" for their numbers: ok, failed (error, invalid arguments, timeout), stopped (denied, cancelled, over
            a limit) and open (running, waiting or never run); "duration" for percentiles of the time of those that
            ran to their end, well or not.
        percentiles: one to five numbers from 0 to 100; interpolated linearly, as numpy and pandas do.
        ax: where to draw; a new figure by default.
        filters: those of `runs_df`: run_id, session_id, agent, model, status, tag, since, until.

    Returns:
        The axes; calls or time on x, one tool for each line on y, in the order in which they were first called. Of
        more than 30, those called most are drawn and the others pooled.

    Raises:
        ConfigurationError: a filter that there is not, or a wrong value of one or of another argument.

    Example:
        >>> plot_tools([]).get_xlabel()
        'calls'
    """
    wanted = checked_percentiles(percentiles)
    one_of("of", of, ("calls", "duration"))
    runs, chosen = whole_sessions(selection, filters)
    read = progress(runs, "Reading")
    first = list(islice(read, 1))
    calls = settled_calls(chain(first, read))
    tools = _by_tool(call for call in calls if chosen is None or call.run_id in chosen)
    ax = ax or style.new_axes(len(tools))
    style.name_lanes(ax, [label for label, _ in tools], many="tools")
    if of == "calls":
        _draw_calls(ax, [calls for _, calls in tools])
    else:
        seconds = [[call.told("duration_s") for call in calls if _ran(call)] for _, calls in tools]
        draw_percentiles(ax, [Series("duration", style.BLUE, "solid", seconds)], wanted, "never ran to its end")
    style.dress(ax, "Tool calls" if of == "calls" else "Duration of tool calls")
    if not tools:
        style.say(ax, "no tool calls" if first else "no runs")
    return ax


def _by_tool(calls: Iterable[CallFacts]) -> list[tuple[str, list[CallFacts]]]:
    tools: dict[str, list[CallFacts]] = {}
    for call in calls:
        tools.setdefault(call.call.name, []).append(call)
    if len(tools) <= MAX_GROUPS:
        return [(short(tool), calls) for tool, calls in tools.items()]
    most = sorted(tools.items(), key=lambda item: len(item[1]), reverse=True)
    kept, others = most[: MAX_GROUPS - 1], most[MAX_GROUPS - 1 :]
    pooled = [call for _, calls in others for call in calls]
    return [*((short(tool), calls) for tool, calls in kept), (f"{len(others):,} others", pooled)]


def _draw_calls(ax: Axes, tools: Sequence[Sequence[CallFacts]]) -> None:
    from matplotlib import rcParams
    from matplotlib.ticker import MaxNLocator

    left = [0] * len(tools)
    outlined = {"facecolor": "none", "edgecolor": rcParams["text.color"], "linewidth": 0.8}
    for label, look in (
        ("ok", {"color": style.BLUE, **style.PLAIN}),
        ("failed", {"color": style.VERMILLION, **style.HATCHED}),
        ("stopped", {"color": style.GREY, **style.DOTTED}),
        ("open", outlined),
    ):
        counts = [sum(_ending(call) == label for call in calls) for calls in tools]
        if any(counts):
            ax.barh(range(len(tools)), counts, left=left, height=0.62, label=label, **look)
        left = [start + count for start, count in zip(left, counts, strict=True)]
    style.annotate_end(ax, [(end, lane, _words(tools[lane])) for lane, end in enumerate(left)])
    ax.set_xlim(0, 1.02 * max(left, default=0) or 1)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("calls")


def _ending(call: CallFacts) -> str:
    if call.status is None:
        return "open"
    return "failed" if call.status in FAILED else "stopped" if call.status in STOPPED else "ok"


def _ran(call: CallFacts) -> bool:
    return call.started_at is not None and call.told("duration_s") is not None and _ending(call) != "stopped"


def _words(calls: Sequence[CallFacts]) -> str:
    """How many calls, how many failed, and the median of the durations."""
    import numpy as np

    failed = sum(_ending(call) == "failed" for call in calls)
    seconds = [call.told("duration_s") for call in calls if _ran(call)]
    words = [f"{len(calls):,}"]
    if failed:
        words.append(f"{failed:,} failed")
    if seconds:
        words.append(f"p50 {style.duration_words(float(np.median(seconds)))}")
    return " · ".join(words)
