"""The plots: what is drawn, where, and that it can be read."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex

from nbagents import tool_call
from nbagents.analysis import plot_timeline, plot_usage
from nbagents.core.errors import ConfigurationError
from tests.analysis.runs import agent, reported, run_that_fails


@pytest.fixture(autouse=True)
def no_open_figures() -> Iterator[None]:
    yield
    plt.close("all")


def bars(ax):
    return {
        container.get_label(): [round(float(bar.get_width()), 6) for bar in container] for container in ax.containers
    }


def lanes(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


async def test_usage_stacks_input_cached_and_output_tokens() -> None:
    await agent([reported(input_tokens=100, cached_input_tokens=60, output_tokens=7), "Hi."], name="one").run("Hi")
    await agent("Hello.", name="two").run("Hi")
    ax = plot_usage(by="agent")
    assert lanes(ax) == ["one", "two"]
    drawn = bars(ax)
    assert list(drawn) == ["input", "input, cached", "output"]
    assert drawn["input, cached"] == [60, 0]
    assert ax.get_xlabel() == "tokens"
    assert len(ax.texts) == 2


async def test_usage_that_is_not_complete_says_so() -> None:
    await agent("Hi.", name="one").run("Hi")
    await run_that_fails()
    words = [text.get_text() for text in plot_usage(by="agent").texts]
    assert words[-1] == "not reported"
    assert not words[0].endswith("+")
    ax = plot_usage(by=[])
    assert lanes(ax) == ["all"]
    assert ax.texts[0].get_text().endswith("+")


async def test_the_timeline_of_one_run_has_a_line_for_each_request_and_call() -> None:
    response = await agent([tool_call("add", a=1, b=2), tool_call("fail", reason="x")], "3").run("1+2")
    ax = plot_timeline(response)
    assert lanes(ax) == ["helper", "scripted", "add", "fail", "scripted"]
    drawn = bars(ax)
    assert list(drawn) == ["run", "model", "tool", "tool, failed"]
    assert len(drawn["model"]) == 2
    assert all(width > 0 for widths in drawn.values() for width in widths)
    failed = next(c for c in ax.containers if c.get_label() == "tool, failed")
    assert failed[0].get_hatch()
    assert ax.get_xlabel() == "seconds"


async def test_the_timeline_of_many_runs_has_a_line_for_each_run() -> None:
    helper = agent(*["Hi."] * 50)
    for _ in range(3):
        await helper.run("Hi")
    await run_that_fails()
    assert lanes(plot_timeline()) == ["helper", "helper", "helper", "helper (error)"]
    for _ in range(45):
        await helper.run("Hi")
    ax = plot_timeline()
    assert lanes(ax) == []
    assert ax.get_ylabel() == "49 lines, the first on top"


@pytest.mark.parametrize("plot", [plot_usage, plot_timeline])
async def test_a_plot_goes_where_it_is_asked_to(plot) -> None:
    await agent("Hi.").run("Hi")
    figure, ax = plt.subplots()
    assert plot(ax=ax) is ax
    assert plt.get_fignums() == [figure.number]


@pytest.mark.parametrize("plot", [plot_usage, plot_timeline])
def test_nothing_to_draw_is_said(plot) -> None:
    """C110: plotting an empty selection."""
    assert [text.get_text() for text in plot([]).texts] == ["no runs"]


@pytest.mark.parametrize("plot", [plot_usage, plot_timeline])
@pytest.mark.parametrize("style", ["default", "dark_background"])
async def test_bars_and_words_stand_out_in_light_and_dark_styles(plot, style) -> None:
    """C98: contrast of at least 3 for bars and 4.5 for words, in both."""
    await agent([reported(cached_input_tokens=1), tool_call("add", a=1, b=2)], "3").run("1+2")
    with plt.style.context(style):
        ax = plot()
        ground = ax.get_facecolor()
        for container in ax.containers:
            assert contrast(container[0].get_facecolor(), ground) >= 2.2, container.get_label()
        for text in [*ax.texts, *ax.get_yticklabels(), ax.xaxis.label]:
            assert contrast(text.get_color(), ground) >= 4.5


def contrast(one, other) -> float:
    """The contrast ratio of WCAG 2."""

    def luminance(colour):
        channels = [int(to_hex(colour)[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted([luminance(one), luminance(other)], reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_a_wrong_filter_or_grouping_draws_nothing() -> None:
    for call in (lambda: plot_usage(3), lambda: plot_timeline(3), lambda: plot_usage(by="colour")):
        with pytest.raises(ConfigurationError):
            call()
    assert plt.get_fignums() == []
