"""What holds for all plots: where they draw, what they accept, and that they can be read whatever the names are."""

from __future__ import annotations

import gc
import warnings
import weakref

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex

from nbagents import run_log, set_price
from nbagents.analysis import load_runs, plot_cost, plot_latency, plot_timeline, plot_tools, plot_usage, save_runs
from nbagents.analysis.selection import FILTERS
from nbagents.core.errors import ConfigurationError
from tests.analysis.drawn import DrawnRun, busy_runs, sub_agents

pytestmark = [pytest.mark.usefixtures("drawing"), pytest.mark.filterwarnings("ignore:The price of the model")]

PLOTS = [plot_timeline, plot_usage, plot_latency, plot_tools, plot_cost]
HOSTILE = [
    "$\\frac{a}{b}$ costs $5",
    "two\nlines\t\x1b[31m\x00",
    "x" * 500,
    "\u202eשלום עולם",
    "🤖 agent 中文",
    "a_b^c\\%#{&~",
    "\ud800",
    "",
]


@pytest.fixture(params=PLOTS, ids=lambda plot: plot.__name__)
def plot(request):
    return request.param


@pytest.fixture
def prices(monkeypatch) -> None:
    monkeypatch.setattr("nbagents.core.prices._own", {})
    set_price("model-a", input=10, output=20)


def words(ax):
    """All texts in the axes."""
    legend = ax.get_legend()
    return [*ax.texts, *ax.get_xticklabels(), *ax.get_yticklabels(), *(legend.get_texts() if legend else [])]


def test_a_plot_goes_where_it_is_asked_to(plot) -> None:
    busy_runs(3)
    figure, ax = plt.subplots()
    assert plot(ax=ax) is ax
    assert plt.get_fignums() == [figure.number]


def test_a_plot_may_stand_in_a_part_of_a_figure(plot) -> None:
    busy_runs(3)
    left, right = plt.figure(layout="constrained").subfigures(1, 2)
    ax = plot(ax=right.subplots())
    left.subplots()
    ax.get_figure().canvas.draw()
    assert ax.get_title()


def test_nothing_to_draw_is_said(plot) -> None:
    """C110: plotting an empty selection."""
    assert [text.get_text() for text in plot([]).texts] == ["no runs"]
    busy_runs(3)
    ax = plot([])
    assert [text.get_text() for text in ax.texts] == ["no runs"]
    ax.figure.canvas.draw()


@pytest.mark.parametrize("number", [0, 1, 3, 300])
def test_a_plot_has_units_a_short_title_and_no_warnings(plot, number, prices) -> None:
    busy_runs(number)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="The price of the model")
        ax = plot()
        ax.figure.canvas.draw()
    assert ax.get_xlabel()
    assert 0 < len(ax.get_title()) < 25


def test_the_number_of_artists_does_not_grow_with_the_runs(plot, prices) -> None:
    busy_runs(300)
    few = len(plot().findobj())
    busy_runs(3_000)
    assert len(plot().findobj()) <= few + 50


def test_filters_are_those_of_the_tables_and_unknown_ones_are_named(plot) -> None:
    sub_agents()
    assert all(name in plot.__doc__ for name in FILTERS)
    assert [text.get_text() for text in plot(run_id="another").texts] == ["no runs"]
    assert [text.get_text() for text in plot("session-of-top", session_id=[]).texts] == ["no runs"]
    assert "no runs" not in [text.get_text() for text in plot(session_id="session-of-sub").texts]
    with pytest.raises(ConfigurationError, match="sesion_id") as caught:
        plot(sesion_id="x")
    assert "session_id" in str(caught.value.hint)


def test_runs_of_a_file_are_drawn_as_those_of_the_log(plot, prices, tmp_path) -> None:
    busy_runs(12)
    expected = [text.get_text() for text in words(plot())]
    save_runs(tmp_path / "runs.jsonl")
    run_log().clear()
    drawn = [text.get_text() for text in words(plot(load_runs(tmp_path / "runs.jsonl")))]
    assert drawn == expected
    assert len(drawn) > 5


def test_a_wrong_filter_or_argument_draws_nothing() -> None:
    for call in (
        lambda: plot_usage(3),
        lambda: plot_timeline(3),
        lambda: plot_cost(run_id=3),
        lambda: plot_usage(by="colour"),
        lambda: plot_cost(by=["model", "model"]),
        lambda: plot_latency(of="tokens"),
        lambda: plot_latency(percentiles=[]),
        lambda: plot_latency(percentiles=(50, 101)),
        lambda: plot_tools(percentiles=range(6)),
        lambda: plot_tools(of="cost"),
    ):
        with pytest.raises(ConfigurationError):
            call()
    assert plt.get_fignums() == []


@pytest.mark.parametrize("family", ["sans-serif", "monospace", "cmr10", "No Such Font"])
def test_names_are_taken_literally_and_never_warned_of(plot, family, monkeypatch, caplog) -> None:
    """Formulas, line ends, colours of terminals, directions, letters that no font has, and 500 letters."""
    monkeypatch.setattr("nbagents.core.prices._own", {})
    for i, name in enumerate(HOSTILE):
        model = name or "m"
        set_price(model, input=1, output=1 + i)
        DrawnRun(name, at=i, run_id=f"run-{i}", model=model).request(1, ttft=0.1).call(name or "t", 1).end()
    with warnings.catch_warnings(), plt.rc_context({"font.family": family}):
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="cmr10 font")  # matplotlib, of its own tick labels
        ax = plot()
        if family != "No Such Font":
            caplog.clear()
            ax.figure.canvas.draw()
    texts = [text.get_text() for text in words(ax)]
    assert any("$\\frac{a}{b}$" in text for text in texts)
    assert any("two lines [31m" in text for text in texts)
    assert any("xxxxx…xxxxx" in text for text in texts)
    assert all("\n" not in text and "\u202e" not in text and len(text) < 80 for text in texts)
    drawn = [text for text in words(ax) if "$\\frac" in text.get_text()]
    assert not any(text.get_parse_math() or text.get_usetex() for text in drawn)
    assert caplog.records == []


@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_bars_and_words_stand_out_in_light_and_dark_styles(plot, style, prices) -> None:
    """C98: contrast of at least 3 for shapes and 4.5 for words, in both."""
    busy_runs(12)
    with plt.style.context(style):
        ax = plot()
        ground = ax.get_facecolor()
        shapes = [bar.get_facecolor() for bar in ax.patches if bar.get_facecolor()[3]]
        shapes += [colour for drawn in ax.collections for colour in drawn.get_facecolor()]
        shapes += [line.get_color() for line in ax.lines]
        assert shapes
        for colour in shapes:
            assert contrast(colour, ground) >= 3
        for text in [*words(ax), ax.title, ax.xaxis.label, ax.yaxis.label]:
            assert contrast(text.get_color(), ground) >= 4.5


def contrast(one, other) -> float:
    """The contrast ratio of WCAG 2."""

    def luminance(colour):
        channels = [int(to_hex(colour)[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted([luminance(one), luminance(other)], reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("number", [1, 5, 300])
def test_nothing_is_cut_off_and_no_words_overlap(plot, number, prices) -> None:
    busy_runs(number)
    ax = plot()
    ax.figure.canvas.draw()
    frame = ax.figure.bbox
    ticks = [
        tick.label1
        for axis, (low, high) in ((ax.xaxis, sorted(ax.get_xlim())), (ax.yaxis, sorted(ax.get_ylim())))
        for tick in axis.get_major_ticks()
        if low <= tick.get_loc() <= high
    ]
    legend = ax.get_legend()
    shown = [*ax.texts, *ticks, *(legend.get_texts() if legend else []), ax.title, ax.xaxis.label, ax.yaxis.label]
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown if text.get_text()]
    for text, box in boxes:
        assert frame.x0 <= box.x0 + 1, text
        assert box.x1 <= frame.x1 + 1, text
        assert frame.y0 <= box.y0 + 1, text
        assert box.y1 <= frame.y1 + 1, text
    for i, (one, box) in enumerate(boxes):
        for other, another in boxes[:i]:
            assert not box.shrunk(0.9, 0.7).overlaps(another.shrunk(0.9, 0.7)), (one, other)


def test_figures_are_not_shown_and_are_freed_when_closed(plot, monkeypatch) -> None:
    monkeypatch.setattr(plt, "show", lambda: pytest.fail("shown"))
    busy_runs(3)
    figure = weakref.ref(plot().figure)
    plt.close("all")
    gc.collect()
    assert figure() is None


def test_many_figures_warn_as_often_as_those_of_pyplot_do(plot) -> None:
    def warned(draw):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(25):
                draw()
        plt.close("all")
        return [warning.category for warning in caught]

    assert warned(lambda: plot([])) == warned(plt.subplots)


def test_many_plots_into_one_axes_warn_of_nothing(plot) -> None:
    busy_runs(3)
    figure, ax = plt.subplots()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(30):
            ax.clear()
            plot([], ax=ax)
    assert plt.get_fignums() == [figure.number]
