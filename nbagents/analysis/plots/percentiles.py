"""Percentiles of durations, drawn as marks on a line for each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from nbagents.analysis.plots import style
from nbagents.core.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PERCENTILES = (50.0, 90.0, 99.0)
MARKERS = ("o", "D", "^", "s", "v")
LINE_SHARE = 0.42
"""How much of the height of a group each of two lines has."""


@dataclass(frozen=True, slots=True)
class Series:
    """One measure of all groups: its `seconds` are one list for each group, empty where nothing was measured."""

    name: str
    colour: str
    line: Literal["solid", "dotted"]
    seconds: Sequence[Sequence[float]]


def checked_percentiles(percentiles: Sequence[float] | float) -> list[float]:
    """Return the percentiles, the lowest first.

    Raises:
        ConfigurationError: they are not one to five numbers from 0 to 100.
    """
    wanted = [percentiles] if isinstance(percentiles, int | float) else list(percentiles)
    right = all(isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one <= 100 for one in wanted)
    if not right or not 1 <= len(wanted) <= len(MARKERS):
        raise ConfigurationError(
            f"percentiles are one to {len(MARKERS)} numbers from 0 to 100, not {percentiles!r}.",
            hint="For example percentiles=(50, 90, 99).",
        )
    return sorted(wanted)


def draw_percentiles(ax: Axes, series: Sequence[Series], percentiles: Sequence[float], unmeasured: str) -> None:
    """Draw a line from the lowest to the highest percentile of each group and series, with a mark for each.

    Args:
        ax: the axes; lane n is group n.
        series: what was measured; those without any measurement are left out.
        percentiles: as `checked_percentiles` returns them.
        unmeasured: the words for a group without a measurement.
    """
    import numpy as np

    shown = [one for one in series if any(one.seconds)]
    longest = max(
        (np.percentile(values, percentiles[-1]) for one in shown for values in one.seconds if values), default=0
    )
    scale, unit = style.scale_time(float(longest)) if shown else (1.0, "seconds")
    ends: list[tuple[float, float, str]] = []
    for place, one in enumerate(shown):
        offset = (place - (len(shown) - 1) / 2) * LINE_SHARE
        marks = {lane + offset: np.percentile(values, percentiles) for lane, values in enumerate(one.seconds) if values}
        _draw_series(ax, one, {y: seconds / scale for y, seconds in marks.items()})
        ends.extend((float(seconds[-1]) / scale, y, _words(seconds)) for y, seconds in marks.items())
    for lane, measured in enumerate(zip(*(one.seconds for one in series), strict=True)):
        if not any(measured):
            ends.append((0.0, lane, unmeasured))
    if shown:
        _explain_marks(ax, percentiles)
    ax.set_xlim(0, 1.04 * float(longest) / scale or 1)
    ax.set_xlabel(unit)
    style.annotate_end(ax, ends, room=1.0 if len(shown) < 2 else LINE_SHARE)


def _draw_series(ax: Axes, series: Series, marks: dict[float, Any]) -> None:
    """Draw the line and the marks of each group, by their y."""
    rows = list(zip(*marks.values(), strict=True))
    ax.hlines(
        list(marks), rows[0], rows[-1], colors=series.colour, linestyles=series.line, linewidth=2, label=series.name
    )
    for marker, x in zip(MARKERS, rows, strict=False):
        ax.scatter(x, list(marks), s=26, marker=marker, color=series.colour, zorder=3, clip_on=False)


def _explain_marks(ax: Axes, percentiles: Sequence[float]) -> None:
    """Put the marks into the legend, in the colour of the text: they mean the same in all series."""
    from matplotlib import rcParams

    for marker, percentile in zip(MARKERS, percentiles, strict=False):
        ax.scatter([], [], s=26, marker=marker, color=rcParams["text.color"], label=f"p{percentile:g}")


def _words(marks: Any) -> str:
    words = [style.duration_words(float(mark)) for mark in marks]
    return words[0] if len(set(words)) == 1 else " · ".join(words)
