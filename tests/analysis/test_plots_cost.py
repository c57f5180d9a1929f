"""The lines of the cost: each step is a request, and what is unknown is said, not drawn as 0."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.dates import num2date

from nbagents import set_price
from nbagents.analysis import plot_cost, usage_df
from tests.analysis.drawn import DrawnRun

pytestmark = [pytest.mark.usefixtures("drawing"), pytest.mark.filterwarnings("ignore:The price of the model")]


@pytest.fixture(autouse=True)
def prices(monkeypatch) -> None:
    monkeypatch.setattr("nbagents.core.prices._own", {})
    set_price("model-a", input=10_000, output=0)
    set_price("model-b", input=100, output=0)


def lines(ax):
    return {line.get_label(): line for line in ax.lines}


def test_the_cost_grows_by_a_step_for_each_request() -> None:
    DrawnRun(run_id="a").request(1, tokens=(100, 0, 1)).request(2, tokens=(50, 0, 1)).end()
    DrawnRun(run_id="b", at=4, model="model-b").request(6, tokens=(100, 0, 1)).end()
    ax = plot_cost()
    one, two = ax.lines
    assert list(one.get_ydata()) == pytest.approx([0, 1, 1.5, 1.5])
    assert list(two.get_ydata()) == pytest.approx([0, 0.01, 0.01])
    assert one.get_drawstyle() == "steps-post"
    begin = num2date(one.get_xdata(orig=False)[0])
    assert str(begin) == "2026-01-01 00:00:00+00:00"
    seconds = [round((num2date(x) - begin).total_seconds(), 3) for x in one.get_xdata(orig=False)]
    assert seconds == [0, 1, 3, 10]
    assert list(lines(ax)) == ["model-a: $1.50", "model-b: $0.0100"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time (UTC)", "US dollars")
    assert {line.get_linestyle() for line in ax.lines} == {"-", "--"}


def test_the_ends_of_the_lines_are_the_sums_of_the_table() -> None:
    for i in range(40):
        DrawnRun(f"agent-{i % 3}", at=i, run_id=f"run-{i}").request(1, tokens=(i, 0, 1)).end()
    ends = [line.get_ydata()[-1] for line in plot_cost(by="agent").lines]
    assert ends == pytest.approx(usage_df(by="agent").cost_usd.tolist())
    assert plot_cost(by=[]).lines[0].get_ydata()[-1] == pytest.approx(sum(ends))


def test_unknown_cost_is_said_and_not_drawn() -> None:
    DrawnRun(run_id="a").request(1).request(1, tokens=None).end()
    DrawnRun(run_id="b", model="unpriced").request(1).request(1).end()
    ax = plot_cost()
    assert list(lines(ax)) == ["model-a: $1.00+ (1 of 2 unknown)", "unpriced: unknown (2 of 2)"]
    known, unknown = ax.lines
    assert list(known.get_ydata()) == pytest.approx([0, 1, 1])
    assert len(unknown.get_xdata()) == 0


@pytest.mark.parametrize("model", ["unpriced", "model-a"])
def test_runs_of_which_no_cost_is_known_say_so(model) -> None:
    DrawnRun(run_id="a", model=model).request(1, tokens=None).end()
    ax = plot_cost()
    assert [text.get_text() for text in ax.texts] == ["no known cost"]
    assert len(ax.lines) == 0


def test_the_most_expensive_of_many_groups_are_drawn_and_the_others_summed() -> None:
    for i in range(50):
        DrawnRun(run_id=f"run-{i}", at=i).request(1, tokens=(i, 0, 1)).end()
    ax = plot_cost(by="run_id")
    names = [line.get_label().split(":")[0] for line in ax.lines]
    assert names == [*(f"run-{i}" for i in range(49, 42, -1)), "43 others"]
    assert sum(line.get_ydata()[-1] for line in ax.lines) == pytest.approx(sum(range(50)) * 0.01)
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == 8


def test_a_clock_that_was_set_back_does_not_turn_the_line_back() -> None:
    DrawnRun(run_id="a").request(1).wait(-100).request(1).end()
    (line,) = plot_cost().lines
    assert np.all(np.diff(line.get_xdata(orig=False)) >= 0)
    assert np.all(np.diff(line.get_ydata()) >= 0)
