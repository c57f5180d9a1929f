"""Where the time of runs went."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Unpack

from nbagents.analysis.plots import style
from nbagents.analysis.plots.lanes import Lanes, lanes_of_one, lanes_of_several
from nbagents.analysis.plots.runs import RunTree, runs_within, timed_run
from nbagents.analysis.plots.words import short
from nbagents.analysis.progress import progress
from nbagents.analysis.queries import RunSource
from nbagents.analysis.selection import Filters, Selection, chosen_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Each kind has a height of its own too, so that colour is not the only sign.
KINDS = (("run", style.GREY, 0.14), ("model", style.BLUE, 0.66), ("tool", style.VERMILLION, 0.4))

MAX_VECTOR_BARS = 2_000
"""More are drawn as a picture in SVG and PDF too, whose size would grow with each."""

ENDINGS = {"going": "going on", "approval": "waits for approval"}
INDENT = "    "


def plot_timeline(selection: Selection = None, /, *, ax: Axes | None = None, **filters: Unpack[Filters]) -> Axes:
    """Draw where the time went: of one run, each request and tool call on a line; of several, each run on a line.

    More than 40 runs share lines: each stands on the first that is free, so there are as many lines as runs went on at
    once. The runs of sub-agents stand below the run in whose tool they began; where one run is chosen, they are drawn
    with it even if they were not chosen themselves.

    Args:
        selection: which runs, as for `runs_df`: a response, a session, ids, a store, ...; None is all, `[]` none.
        ax: where to draw; a new figure by default.
        filters: those of `runs_df`: run_id, session_id, agent, model, status, tag, since, until.

    Returns:
        The axes; the time since the first start on x, the first line on top. What failed, was stopped or goes on is
        said in words behind its bar, or marked where there is no room.

    Raises:
        ConfigurationError: a filter that there is not, or a wrong value of one.

    Example:
        >>> plot_timeline([]).get_xlabel()
        'seconds'
    """
    lanes = _lanes(selection, filters)
    clock = _clock(lanes)
    ax = ax or style.new_axes(len(lanes.rows))
    if lanes.of == "track":
        _mark_below(ax, lanes, clock)
        named = False
    else:
        labels = [INDENT * lane.depth + short(lane.spans[0].name) for lane in lanes.rows]
        named = style.name_lanes(ax, labels, many=f"{lanes.of}s", indented=True)
        (_say_endings if named else _mark_endings)(ax, lanes, clock)
    for bars in _bars(lanes, clock, apart=named):
        _draw(ax, bars, hair=lanes.of != "track" or bars.kind == "run")
    if sum(len(drawn.get_paths()) for drawn in ax.collections) > MAX_VECTOR_BARS:
        for drawn in ax.collections:
            drawn.set_rasterized(True)
    ax.set_xlim(0, 1.02 * clock.length or 1)
    ax.set_xlabel(clock.unit if lanes.of == "step" or not lanes.rows else f"{clock.unit} since {clock.begin}")
    style.dress(ax, "Timeline")
    if not lanes.rows:
        style.say(ax, "no runs")
    return ax


@dataclass(frozen=True, slots=True)
class _Clock:
    """The axis of the time: `length` in units from `start`, which is in unix seconds."""

    start: float
    length: float
    scale: float
    unit: str

    def at(self, timestamp: float) -> float:
        """The place of a moment."""
        return (timestamp - self.start) / self.scale

    @property
    def begin(self) -> str:
        """The start in words."""
        return f"{datetime.fromtimestamp(self.start, UTC):%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True)
class _Bars:
    """Bars that look the same, each by its line, start and end."""

    kind: str
    colour: str
    height: float
    failed: bool
    placed: list[tuple[int, float, float]] = field(default_factory=list)


def _lanes(selection: Selection, filters: Filters) -> Lanes:
    chosen = [timed_run(run) for run in progress(chosen_runs(selection, filters), "Reading")]
    tree = RunTree(chosen)
    if len(tree.roots) != 1:
        return lanes_of_several(tree)
    (root,) = tree.roots
    within = runs_within(root, selection if isinstance(selection, RunSource) else None)
    return lanes_of_one(RunTree([*within, *chosen]), root)


def _clock(lanes: Lanes) -> _Clock:
    if not lanes.rows:
        return _Clock(0.0, 0.0, 1.0, "seconds")
    start = min(span.start for _, span in lanes.spans)
    length = max(span.end for _, span in lanes.spans) - start
    scale, unit = style.scale_time(length)
    return _Clock(start, length / scale, scale, unit)


def _bars(lanes: Lanes, clock: _Clock, *, apart: bool) -> list[_Bars]:
    """The spans as bars, those of a kind together; failed ones `apart`."""
    bars = [_Bars(*kind, failed) for kind in KINDS for failed in (False, True)]
    by_kind = {(group.kind, group.failed): group.placed for group in bars}
    for lane, span in lanes.spans:
        by_kind[span.kind, apart and span.failed].append((lane, clock.at(span.start), clock.at(span.end)))
    return [group for group in bars if group.placed]


def _draw(ax: Axes, bars: _Bars, *, hair: bool) -> None:
    """Draw `bars` as one artist: ten thousand artists take seconds.

    With `hair` each is at least a hair wide. Without it, bars that are finer than a pixel blend by their shares.
    """
    import numpy as np
    from matplotlib.collections import PolyCollection

    lane, start, end = np.array(bars.placed).T
    top, bottom = lane - bars.height / 2, lane + bars.height / 2
    corners: Any = np.stack([start, top, end, top, end, bottom, start, bottom], axis=1).reshape(-1, 4, 2)
    drawn = PolyCollection(
        corners,
        facecolor=bars.colour,
        label=f"{bars.kind}, failed" if bars.failed else bars.kind,
        snap=None if hair else False,
        **(style.HATCHED if bars.failed else {"edgecolor": bars.colour, "linewidth": 0.5 if hair else 0}),
    )
    ax.add_collection(drawn, autolim=False)


def _say_endings(ax: Axes, lanes: Lanes, clock: _Clock) -> None:
    """Write behind the bars how long it took, and how it ended unless well."""
    style.annotate_end(ax, _endings(lanes, clock))


def _endings(lanes: Lanes, clock: _Clock) -> Iterator[tuple[float, float, str]]:
    for number, lane in enumerate(lanes.rows):
        whole = lane.spans[0]
        words = "clock was set back" if whole.seconds is None else style.duration_words(whole.seconds)
        if whole.ending:
            words += f" · {ENDINGS.get(whole.ending, whole.ending)}"
        yield clock.at(max(span.end for span in lane.spans)), number, words


def _mark_endings(ax: Axes, lanes: Lanes, clock: _Clock) -> None:
    """Mark the bars of what failed or goes on."""
    for label, marker, ends in _marks(lanes, clock):
        x, lane = zip(*ends, strict=True)
        ax.plot(x, lane, label=label, marker=marker, **_mark_style(4))


def _mark_below(ax: Axes, lanes: Lanes, clock: _Clock) -> None:
    """Number the lines by how many runs went on at once, and mark the ends of what failed or goes on below them."""
    from matplotlib.ticker import MaxNLocator

    n_tracks = len(lanes.rows)
    marks = list(_marks(lanes, clock))
    below = style.rows_below(ax, n_tracks, len(marks))
    for (_, _, ends), y in zip(marks, below, strict=True):
        ax.plot([x for x, _ in ends], [y] * len(ends), marker="|", **_mark_style(9))
    numbers = [int(tick) for tick in MaxNLocator(5, integer=True).tick_values(1, n_tracks) if 1 <= tick <= n_tracks]
    ax.set_yticks(
        [*(number - 1 for number in numbers), *below], [*map(str, numbers), *(label for label, _, _ in marks)]
    )
    ax.tick_params(axis="y", length=0)
    ax.set_ylabel("runs at once")


def _marks(lanes: Lanes, clock: _Clock) -> Iterator[tuple[str, str, list[tuple[float, int]]]]:
    """What to mark: the word for it, its mark, and the places."""
    ends = [
        (span, (clock.at(span.end), lane)) for lane, span in lanes.spans if span.kind == "run" or lanes.of == "step"
    ]
    failed = [place for span, place in ends if span.failed]
    going = [place for span, place in ends if span.ending == "going"]
    if failed:
        yield "failed or stopped", "x", failed
    if going:
        yield "going on", ">", going


def _mark_style(points: float) -> dict[str, Any]:
    from matplotlib import rcParams

    return {
        "linestyle": "none",
        "markersize": points,
        "markeredgewidth": 0.8,
        "color": rcParams["text.color"],
        "clip_on": False,
    }
