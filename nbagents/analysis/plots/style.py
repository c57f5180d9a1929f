"""What all plots share: colours, axes, lanes, legends, units, and words where nothing is drawn.

Text, lines and backgrounds follow the current matplotlib style; the colours below stand out on light and dark ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from nbagents.analysis.plots.words import literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito (2008): told apart by all common kinds of colour vision. Of their eight colours these are the ones with
# a contrast of at least 3 (WCAG 2, graphical objects) on white, on black and on dark grey.
BLUE = "#0072b2"
VERMILLION = "#d55e00"
GREEN = "#009e73"
PURPLE = "#cc79a7"
GREY = "#808080"

HATCHED: dict[str, Any] = {"hatch": "////", "edgecolor": "white", "linewidth": 0}
DOTTED: dict[str, Any] = {"hatch": "....", "edgecolor": "white", "linewidth": 0}
PLAIN: dict[str, Any] = {"edgecolor": "none"}

MAX_LABELLED_LANES = 40
WIDTH_INCHES = 8.0
LANE_INCHES = 0.28
UNLABELLED_INCHES = 4.5
LEAST_POINTS = 5.0
ROW_POINTS = 14.0

TIME_UNITS = (
    (86_400.0, "days", 172_800.0),
    (3_600.0, "hours", 7_200.0),
    (60.0, "minutes", 120.0),
    (1.0, "seconds", 0.2),
    (1e-3, "milliseconds", 0.0),
)
"""Seconds in each, its name, and the seconds from which on it is used."""


def new_axes(lanes: float | None = None) -> Axes:
    """Return the axes of a new figure, as high as this number of lanes needs."""
    import matplotlib.pyplot as plt

    height = UNLABELLED_INCHES
    if lanes is not None and lanes <= MAX_LABELLED_LANES:
        height = 1.3 + LANE_INCHES * max(lanes, 2)
    _, ax = plt.subplots(figsize=(WIDTH_INCHES, height), layout="constrained")
    return ax


def name_lanes(ax: Axes, labels: Sequence[str], *, many: str, indented: bool = False) -> bool:
    """Name the lanes, the first one on top, and tell whether there was room; if not, they are numbered.

    Args:
        ax: the axes.
        labels: one for each lane.
        many: what the lanes are, in the plural: said where they are numbered.
        indented: whether the labels begin at the left, so that their indentation shows.
    """
    from matplotlib import rcParams
    from matplotlib.ticker import MaxNLocator

    ax.set_ylim(max(len(labels), 1) - 0.4, -0.6)
    size = min(_points(rcParams["ytick.labelsize"]), 0.95 * _axes_points(ax) / max(len(labels), 1))
    if len(labels) <= MAX_LABELLED_LANES and size >= LEAST_POINTS:
        words, properties = literal(labels)
        ax.set_yticks(range(len(labels)), words, fontsize=size, **properties)
        ax.tick_params(axis="y", length=0)
        _narrow(ax, size)
        if indented:
            _align_left(ax)
        return True
    numbers = [1, *(int(tick) for tick in MaxNLocator(6).tick_values(1, len(labels)) if 1 < tick <= len(labels))]
    ax.set_yticks([number - 1 for number in numbers], [f"{number:,}" for number in numbers])
    ax.set_ylabel(f"{len(labels):,} {many}, the first on top")
    return False


def rows_below(ax: Axes, lanes: int, rows: int) -> list[float]:
    """Make room for `lanes`, and below them for `rows` of marks, as high whatever the lanes; return the rows' y."""
    height = ROW_POINTS * lanes / max(_axes_points(ax) - ROW_POINTS * rows, ROW_POINTS)
    bottom = lanes - 0.4
    ax.set_ylim(bottom + height * rows, -0.6)
    return [bottom + height * (row + 0.5) for row in range(rows)]


def scale_time(longest: float) -> tuple[float, str]:
    """Return the seconds in the unit that suits times up to `longest` seconds, and its name.

    Example:
        >>> scale_time(0.002), scale_time(400)
        ((0.001, 'milliseconds'), (60.0, 'minutes'))
    """
    return next((seconds, name) for seconds, name, least in TIME_UNITS if longest >= least)


def duration_words(seconds: float) -> str:
    """Return a duration to read.

    Example:
        >>> duration_words(0.0123), duration_words(1.234), duration_words(300)
        ('12 ms', '1.2 s', '5.0 min')
    """
    if seconds < 0.9995:
        return f"{seconds * 1_000:.2g} ms" if seconds < 0.0995 else f"{seconds * 1_000:.0f} ms"
    scale, unit = (1, "s") if seconds < 100 else (60, "min") if seconds < 6_000 else (3_600, "h")
    return f"{seconds / scale:.1f} {unit}" if seconds < 9.95 * scale else f"{seconds / scale:,.0f} {unit}"


def annotate_end(ax: Axes, lines: Iterable[tuple[float, float, str]], *, room: float = 1.0) -> None:
    """Write words behind the ends of bars, as far as there is room; call it when the lanes are named.

    Args:
        ax: the axes.
        lines: of each its x, its y and the words.
        room: how much of a lane a line has.
    """
    bottom, top = ax.get_ylim()
    size = min(_points("small"), 0.95 * room * _axes_points(ax) / abs(bottom - top))
    if size < LEAST_POINTS:
        return
    placed = list(lines)
    words, properties = literal(line for _, _, line in placed)
    for (x, y, _), line in zip(placed, words, strict=True):
        ax.annotate(line, (x, y), xytext=(6, 0), textcoords="offset points", va="center", fontsize=size, **properties)


def say(ax: Axes, words: str) -> None:
    """Write `words` where nothing is drawn."""
    ax.set_xticks([])
    ax.set_yticks([])
    ax.text(0.5, 0.5, words, transform=ax.transAxes, ha="center", va="center")


def dollars(cost: float, complete: bool) -> str:
    """Return US dollars to read, with "+" behind them if they are not `complete`.

    Example:
        >>> dollars(0.00123, True), dollars(1234.5, False)
        ('$0.0012', '$1,234.50+')
    """
    import numpy as np

    small = np.format_float_positional(cost, 2, fractional=False, trim="-")
    return (f"${cost:,.2f}" if cost >= 1 else f"${cost:.4f}" if cost >= 0.01 else f"${small}") + "+" * (not complete)


def dress(ax: Axes, title: str, *, numbers: Literal["x", "y"] = "x") -> None:
    """Give what all plots have: no box, a light grid, thousands separators, a title, and a legend below.

    Args:
        ax: the axes.
        title: in a few words.
        numbers: the axis of the numbers.
    """
    from matplotlib.ticker import FuncFormatter

    for side in ("top", "right", "left") if numbers == "x" else ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.grid(axis=numbers, alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)
    axis = ax.xaxis if numbers == "x" else ax.yaxis
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))
    ax.set_title(title)
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        _legend_below(ax, handles, labels)


def _legend_below(ax: Axes, handles: list[Any], labels: list[str]) -> None:
    """Put the legend under the label of the x axis, where it hides nothing and the title has its place."""
    from matplotlib import rcParams
    from matplotlib.transforms import ScaledTranslation

    words, properties = literal(labels)
    tick, label = _points(rcParams["xtick.labelsize"]), _points(rcParams["axes.labelsize"])
    down = rcParams["xtick.major.size"] + rcParams["xtick.major.pad"] + rcParams["axes.labelpad"]
    down += 1.3 * (tick + label)
    columns = int(_axes_points(ax, "width") / (0.55 * label * (max(map(len, words)) + 5)))
    legend = ax.legend(
        handles,
        words,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=ax.transAxes + ScaledTranslation(0, -down / 72, ax.figure.dpi_scale_trans),
        ncols=min(max(columns, 1), len(words)),
        frameon=False,
        fontsize="small",
        borderpad=0,
        borderaxespad=0.3,
    )
    for text in legend.get_texts():
        text.set(**properties)


def _narrow(ax: Axes, size: float) -> None:
    """Make the letters of the lanes' names smaller where these would take more than half of the width of the axes."""
    widest = _widest_label(ax)
    if widest > _axes_points(ax, "width") / 2:
        ax.tick_params(axis="y", labelsize=max(size * _axes_points(ax, "width") / 2 / widest, LEAST_POINTS))


def _align_left(ax: Axes) -> None:
    """Begin the labels of the lanes at the same place; they are as far left as the widest needs."""
    ax.tick_params(axis="y", pad=_widest_label(ax) + 4)
    for label in ax.get_yticklabels():
        label.set_horizontalalignment("left")


def _widest_label(ax: Axes) -> float:
    return max((label.get_window_extent().width for label in ax.get_yticklabels()), default=0) * 72 / ax.figure.dpi


def _points(size: Any) -> float:
    """The points of a size of letters, which may be a word."""
    from matplotlib.font_manager import FontProperties

    return FontProperties(size=size).get_size_in_points()


def _axes_points(ax: Axes, side: Literal["height", "width"] = "height") -> float:
    size: float = getattr(ax.get_window_extent(), side)
    return size * 72 / ax.figure.dpi
