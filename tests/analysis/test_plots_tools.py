"""The calls of tools: how many ended how, and how long they took."""

from __future__ import annotations

import numpy as np
import pytest

from nbagents.analysis import plot_tools, tool_calls_df
from tests.analysis.drawn import DrawnRun
from tests.analysis.runs import agent

pytestmark = pytest.mark.usefixtures("drawing")


def bars(ax):
    return {drawn.get_label(): [int(bar.get_width()) for bar in drawn] for drawn in ax.containers}


def lanes(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def said(ax):
    return [text.get_text() for text in ax.texts]


def test_the_bars_count_how_the_calls_ended() -> None:
    run = DrawnRun(run_id="a").request(1)
    for status in ("ok", "ok", "error", "invalid", "timeout", "denied", "cancelled", "limit"):
        run.call("search", 1, status=status)
    run.call("read", 0.25).call("read", None)
    ax = plot_tools()
    assert lanes(ax) == ["search", "read"]
    assert bars(ax) == {"ok": [2, 1], "failed": [3, 0], "stopped": [3, 0], "open": [0, 1]}
    assert said(ax) == ["8 · 3 failed · p50 1.0 s", "2 · p50 250 ms"]
    looks = {drawn.get_label(): drawn[0].get_hatch() for drawn in ax.containers}
    assert len(set(looks.values())) == 3
    assert ax.containers[-1][0].get_facecolor()[3] == 0
    assert ax.get_xlabel() == "calls"
    table = tool_calls_df()
    assert sum(map(sum, bars(ax).values())) == len(table)


def test_durations_are_those_of_the_calls_that_ran_to_their_end() -> None:
    run = DrawnRun(run_id="a").request(1)
    seconds = [0.5, 1.0, 4.0, 9.0]
    for one in seconds:
        run.call("search", one, status="error" if one == 9 else "ok")
    run.call("search", 99, status="cancelled").call("search", None).call("slow", None).end()
    ax = plot_tools(of="duration", percentiles=(25, 90))
    marks = [drawn.get_offsets() for drawn in ax.collections if drawn.get_label()[0] == "_"]
    assert [float(mark[0][0]) for mark in marks] == pytest.approx(np.percentile(seconds, (25, 90)))
    assert said(ax) == ["875 ms · 7.5 s", "never ran to its end"]
    assert ax.get_xlabel() == "seconds"


async def test_runs_without_a_call_say_so() -> None:
    await agent("Hi.").run("Hi")
    assert said(plot_tools()) == ["no tool calls"]
    assert said(plot_tools(of="duration")) == ["no tool calls"]


def test_the_tools_called_most_are_drawn_and_the_others_pooled() -> None:
    run = DrawnRun(run_id="a").request(1)
    for i in range(50):
        for _ in range(i + 1):
            run.call(f"tool-{i}", 0.1)
    ax = plot_tools()
    assert lanes(ax) == [*(f"tool-{i}" for i in range(49, 20, -1)), "21 others"]
    assert sum(bars(ax)["ok"]) == 50 * 51 // 2
