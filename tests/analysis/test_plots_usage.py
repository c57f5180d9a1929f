"""The bars of the tokens: their lengths, what is said behind them, and that unknown is never 0."""

from __future__ import annotations

import pytest

from nbagents.analysis import plot_usage, usage_df
from tests.analysis.drawn import DrawnRun
from tests.analysis.runs import agent, reported, run_that_fails

pytestmark = [pytest.mark.usefixtures("drawing"), pytest.mark.filterwarnings("ignore:The price of the model")]


def bars(ax):
    return {drawn.get_label(): [round(float(bar.get_width()), 6) for bar in drawn] for drawn in ax.containers}


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


def test_the_bars_are_as_long_as_the_table_says() -> None:
    for i in range(20):
        DrawnRun(f"agent-{i % 3}", run_id=f"run-{i}").request(1, tokens=(100 * i, 10 * i, 7 * i)).end()
    drawn, table = bars(plot_usage(by="agent")), usage_df(by="agent")
    assert drawn["input, cached"] == table.cached_input_tokens.tolist()
    assert drawn["input"] == (table.input_tokens - table.cached_input_tokens).tolist()
    assert drawn["output"] == table.output_tokens.tolist()


async def test_usage_that_is_not_complete_says_so() -> None:
    await agent("Hi.", name="one").run("Hi")
    await run_that_fails()
    words = [text.get_text() for text in plot_usage(by="agent").texts]
    assert words[-1] == "not reported"
    assert not words[0].endswith("+")
    ax = plot_usage(by=[])
    assert lanes(ax) == ["all"]
    assert ax.texts[0].get_text().endswith("+")


def test_the_largest_of_many_groups_are_drawn_and_the_others_summed() -> None:
    for i in range(100):
        DrawnRun(run_id=f"run-{i}").request(1, tokens=(i, 0, 0)).end()
    ax = plot_usage(by="run_id")
    assert lanes(ax) == [*(f"run-{i}" for i in range(99, 70, -1)), "71 others"]
    assert sum(bars(ax)["input"]) == sum(range(100))
