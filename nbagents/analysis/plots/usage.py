"""The tokens of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

from nbagents.analysis.plots import style
from nbagents.analysis.plots.groups import drawn_groups
from nbagents.analysis.progress import progress
from nbagents.analysis.selection import Filters, Selection, chosen_runs
from nbagents.analysis.usage import UsageGroup, usage_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_usage(
    selection: Selection = None,
    /,
    *,
    by: Sequence[str] | str = ("agent", "model"),
    ax: Axes | None = None,
    **filters: Unpack[Filters],
) -> Axes:
    """Draw the tokens of each group as one stacked bar: input, cached input, output; the cost where it is known.

    Args:
        selection: which runs, as for `runs_df`: a response, a session, ids, a store, ...; None is all, `[]` none.
        by: what the bars stand for, as in `usage_df`. Of more than 30, the largest are drawn and the others summed.
        ax: where to draw; a new figure by default.
        filters: those of `runs_df`: run_id, session_id, agent, model, status, tag, since, until.

    Returns:
        The axes; tokens on x, one group for each bar on y. "+" behind a sum: some requests reported no tokens, or
        have no known price.

    Raises:
        ConfigurationError: a filter that there is not, a wrong value of one, or something that usage cannot be summed
            by.

    Example:
        >>> plot_usage([]).get_xlabel()
        'tokens'
    """
    from matplotlib.ticker import MaxNLocator

    usage_columns(by)
    chosen = progress(chosen_runs(selection, filters), "Reading")
    groups = drawn_groups(chosen, by, lambda group: group.count("total_tokens") or 0)
    ax = ax or style.new_axes(len(groups))
    lanes = range(len(groups))
    left = [0] * len(groups)
    for label, colour, look, read in (
        ("input", style.BLUE, style.PLAIN, _fresh_input),
        ("input, cached", style.BLUE, style.DOTTED, lambda group: group.count("cached_input_tokens") or 0),
        ("output", style.VERMILLION, style.PLAIN, lambda group: group.count("output_tokens") or 0),
    ):
        counts = [read(group) for _, group in groups]
        if any(counts):
            ax.barh(lanes, counts, left=left, color=colour, height=0.62, label=label, **look)
        left = [start + count for start, count in zip(left, counts, strict=True)]
    ax.set_xlim(0, 1.02 * max(left, default=0) or 1)
    style.name_lanes(ax, [label for label, _ in groups], many="groups")
    style.annotate_end(ax, [(end, lane, _sum_words(groups[lane][1])) for lane, end in enumerate(left)])
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    ax.set_xlabel("tokens")
    style.dress(ax, "Tokens")
    if not groups:
        style.say(ax, "no runs")
    return ax


def _fresh_input(group: UsageGroup) -> int:
    return max((group.count("input_tokens") or 0) - (group.count("cached_input_tokens") or 0), 0)


def _sum_words(group: UsageGroup) -> str:
    total = group.count("total_tokens")
    if total is None:
        known = [count for name in ("input_tokens", "output_tokens") if (count := group.count(name)) is not None]
        if not known:
            return "not reported"
        total = sum(known)
    tokens = f"{total:,}" + ("" if group.usage_complete else "+")
    return tokens if group.cost is None else f"{tokens} · {style.dollars(group.cost, group.cost_complete)}"
