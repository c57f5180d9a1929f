"""Plots of the run log. Text and lines follow the current matplotlib style, so they suit light and dark ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nbagents.analysis.facts import RunFacts, logged_runs, settled_calls
from nbagents.analysis.selection import Ids, Selection, select_runs
from nbagents.analysis.usage import UsageGroup, usage_columns, usage_groups

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Of the palette of Okabe and Ito (2008): told apart by all common kinds of colour vision, on white and on black.
MODEL_COLOUR = "#3d8fc9"
TOOL_COLOUR = "#e08214"
CACHED_COLOUR = "#56b4e9"
OUTPUT_COLOUR = "#d1600a"
RUN_COLOUR = "#8c8c8c"
FAILED_HATCH = "////"

MAX_LABELLED_LANES = 40
LANE_INCHES = 0.34


def plot_usage(
    selection: Selection = None,
    /,
    *,
    by: Sequence[str] | str = ("agent", "model"),
    run_id: Ids = None,
    session_id: Ids = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the tokens of each group as one stacked bar: input, cached input, output; the cost where it is known.

    Args:
        selection: a response, a session, an id of a run or session, or a list of these; None is all, `[]` none.
        by: what the bars stand for, as in `usage_df`.
        run_id: only this run, or one of these.
        session_id: only this conversation, or one of these.
        ax: where to draw; a new figure by default.

    Returns:
        The axes; tokens on x, one group for each bar on y. "+" behind a sum: some requests reported no tokens.

    Raises:
        ConfigurationError: a filter that is none, or something that usage cannot be summed by.

    Example:
        >>> plot_usage([]).get_xlabel()
        'tokens'
    """
    from matplotlib.ticker import MaxNLocator

    usage_columns(by)
    chosen = select_runs(logged_runs(), selection, run_id=run_id, session_id=session_id)
    groups = usage_groups(chosen, by)
    ax = ax or _new_axes(len(groups))
    lanes = range(len(groups))
    left = [0] * len(groups)
    for label, colour, read in (
        ("input", MODEL_COLOUR, _fresh_input),
        ("input, cached", CACHED_COLOUR, _count("cached_input_tokens")),
        ("output", OUTPUT_COLOUR, _count("output_tokens")),
    ):
        counts = [read(group) for group in groups]
        if any(counts):
            ax.barh(lanes, counts, left=left, color=colour, height=0.62, label=label, edgecolor="none")
        left = [start + count for start, count in zip(left, counts, strict=True)]
    for lane, (group, end) in enumerate(zip(groups, left, strict=True)):
        ax.annotate(
            _sum_words(group), (end, lane), xytext=(5, 0), textcoords="offset points", va="center", fontsize="small"
        )
    _label_lanes(ax, [" · ".join(str(part) for part in group.key if part is not None) or "all" for group in groups])
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("tokens")
    ax.margins(x=0.22)
    ax.set_xlim(left=0)
    _dress(ax, groups)
    return ax


def plot_timeline(
    selection: Selection = None,
    /,
    *,
    run_id: Ids = None,
    session_id: Ids = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw where the time went: of one run, each request and tool call on a line; of many, one line for each run.

    Args:
        selection: a response, a session, an id of a run or session, or a list of these; None is all, `[]` none.
        run_id: only this run, or one of these.
        session_id: only this conversation, or one of these.
        ax: where to draw; a new figure by default.

    Returns:
        The axes; seconds since the first start on x. Hatched: it failed or was stopped.

    Raises:
        ConfigurationError: a filter that is none.

    Example:
        >>> plot_timeline([]).get_xlabel()
        'seconds'
    """
    runs = select_runs(logged_runs(), selection, run_id=run_id, session_id=session_id)
    lanes = _lanes_of_one(runs[0]) if len(runs) == 1 else [(_run_words(run), _spans(run)) for run in runs]
    ax = ax or _new_axes(len(lanes))
    start = min((run.started_at for run in runs), default=0.0)
    for kind, colour, height in (("run", RUN_COLOUR, 0.18), ("model", MODEL_COLOUR, 0.62), ("tool", TOOL_COLOUR, 0.62)):
        for failed in (False, True):
            placed = [
                (lane, span)
                for lane, (_, spans) in enumerate(lanes)
                for span in spans
                if span.kind == kind and span.failed == failed
            ]
            if placed:
                ax.barh(
                    [lane for lane, _ in placed],
                    [span.end - span.start for _, span in placed],
                    left=[span.start - start for _, span in placed],
                    color=colour,
                    height=height,
                    label=f"{kind}, failed" if failed else kind,
                    hatch=FAILED_HATCH if failed else None,
                    edgecolor=ax.get_facecolor() if failed else "none",
                    linewidth=0,
                )
    _label_lanes(ax, [label for label, _ in lanes])
    ax.set_xlabel("seconds")
    ax.set_xlim(left=0)
    _dress(ax, lanes)
    return ax


@dataclass(frozen=True, slots=True)
class _Span:
    """A stretch of time, in unix seconds."""

    kind: str
    label: str
    start: float
    end: float
    failed: bool


def _spans(run: RunFacts) -> list[_Span]:
    """The run, its requests and the calls that it ran, by their starts. What goes on ends with the last event."""
    last = run.events[-1].timestamp
    whole = _Span("run", _run_words(run), run.started_at, run.ended_at or last, run.status in {"error", "cancelled"})
    requests = [
        _Span("model", request.model or "model", request.started_at, request.ended_at or last, bool(request.error_type))
        for request in run.requests
    ]
    calls = [
        _Span(
            "tool",
            call.call.name,
            call.started_at,
            call.outcome.timestamp if call.outcome is not None else last,
            call.status not in {None, "ok"},
        )
        for call in settled_calls([run])
        if call.started_at is not None
    ]
    return [whole, *sorted([*requests, *calls], key=lambda span: span.start)]


def _lanes_of_one(run: RunFacts) -> list[tuple[str, list[_Span]]]:
    return [(span.label, [span]) for span in _spans(run)]


def _run_words(run: RunFacts) -> str:
    agent = run.facts["agent"]
    return f"{agent} ({run.status})" if run.status not in {"ok", None} else str(agent)


def _count(name: str) -> Any:
    return lambda group: group.count(name) or 0


def _fresh_input(group: UsageGroup) -> int:
    return max((group.count("input_tokens") or 0) - (group.count("cached_input_tokens") or 0), 0)


def _sum_words(group: UsageGroup) -> str:
    total = group.count("total_tokens")
    if total is None:
        return "not reported"
    tokens = f"{total:,}" + ("" if group.usage_complete else "+")
    if group.cost is None:
        return tokens
    return f"{tokens} · ${group.cost:.4f}" + ("" if group.cost_complete else "+")


def _new_axes(lanes: int) -> Axes:
    import matplotlib.pyplot as plt

    height = 1.2 + LANE_INCHES * min(max(lanes, 1), 2 * MAX_LABELLED_LANES)
    _, ax = plt.subplots(figsize=(8, height), layout="constrained")
    return ax


def _label_lanes(ax: Axes, labels: list[str]) -> None:
    """Name the lanes, the first one on top; where there are too many, only their number is said."""
    if len(labels) <= MAX_LABELLED_LANES:
        ax.set_yticks(range(len(labels)), [_short(label) for label in labels])
    else:
        ax.set_yticks([])
        ax.set_ylabel(f"{len(labels):,} lines, the first on top")
    ax.set_ylim(max(len(labels), 1) - 0.4, -0.6)


def _short(label: str) -> str:
    return label if len(label) <= 32 else f"{label[:31]}…"


def _dress(ax: Axes, drawn: Sequence[object]) -> None:
    """Give what all plots have: no box, a light grid, thousands separators, a legend, and words where nothing is."""
    from matplotlib.ticker import FuncFormatter

    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.6g}"))
    if not drawn:
        ax.set_xticks([])
        ax.text(0.5, 0.5, "no runs", transform=ax.transAxes, ha="center", va="center", alpha=0.7)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=6, borderaxespad=0.2, fontsize="small")
