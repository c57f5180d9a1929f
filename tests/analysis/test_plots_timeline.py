"""The timeline: the spans of a run, of its sub-agents and of many runs, where they stand and what is said of them."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest
from matplotlib.collections import PolyCollection

from nbagents import Agent, ScriptedChatClient, run_log, tool, tool_call
from nbagents.analysis import plot_timeline
from nbagents.analysis.queries import EVERY_RUN
from tests.analysis.drawn import DrawnRun, busy_runs, sub_agents
from tests.analysis.runs import agent

pytestmark = pytest.mark.usefixtures("drawing")


def bars(ax):
    """Of each kind of bar the line, start and end."""
    found = {}
    for drawn in ax.collections:
        assert isinstance(drawn, PolyCollection)
        boxes = [path.get_extents() for path in drawn.get_paths()]
        found[drawn.get_label()] = [
            (round((box.y0 + box.y1) / 2, 6), round(box.x0, 6), round(box.x1, 6)) for box in boxes
        ]
    return found


def lanes(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def said(ax):
    return [text.get_text() for text in ax.texts]


async def test_one_run_has_a_line_for_each_request_and_call() -> None:
    response = await agent([tool_call("add", a=1, b=2), tool_call("fail", reason="x")], "3").run("1+2")
    ax = plot_timeline(response)
    assert [label.strip() for label in lanes(ax)] == ["helper", "scripted", "add", "fail", "scripted"]
    drawn = bars(ax)
    assert list(drawn) == ["run", "model", "tool", "tool, failed"]
    assert [lane for lane, _, _ in drawn["model"]] == [1, 4]
    assert said(ax)[3].endswith("· error")
    assert ax.get_xlabel() == "milliseconds"


def test_a_bar_lasts_as_long_as_its_span() -> None:
    DrawnRun(run_id="one").request(1.5).call("add", 0.5).request(2.0, error="ServerError").end("failed", "ServerError")
    ax = plot_timeline("one")
    assert bars(ax) == {
        "run, failed": [(0, 0, 4)],
        "model": [(1, 0, 1.5)],
        "model, failed": [(3, 2, 4)],
        "tool": [(2, 1.5, 2)],
    }
    assert said(ax) == ["4.0 s · error", "1.5 s", "500 ms", "2.0 s · error"]
    assert [bool(drawn.get_hatch()) for drawn in ax.collections] == [True, False, True, False]
    assert ax.get_xlabel() == "seconds"


@pytest.mark.parametrize("chosen", [(), ("top",), ("session-of-top",), (["top", "sub"],)])
def test_the_runs_of_sub_agents_stand_below_the_run_that_began_them(chosen) -> None:
    sub_agents()
    ax = plot_timeline(*chosen)
    assert lanes(ax) == [
        "boss",
        "    model-a",
        "    ask",
        "    clerk",
        "        model-b",
        "        look_up",
        "        model-b",
        "    model-a",
    ]
    assert bars(ax)["run"] == [(0, 0, 4), (3, 1, 3)]


async def test_a_run_that_a_tool_began_stands_below_the_call() -> None:
    inner = agent("Four.", name="inner")

    @tool
    async def ask(question: str) -> str:
        """Ask."""
        return (await inner.run(question)).text

    outer = Agent(ScriptedChatClient([tool_call("ask", question="2+2"), "4"]), name="outer", tools=[ask])
    ax = plot_timeline(await outer.run("2+2"))
    assert lanes(ax) == ["outer", "    scripted", "    ask", "    inner", "        scripted", "    scripted"]


def test_the_runs_of_sub_agents_come_from_the_store_that_is_given() -> None:
    sub_agents()
    records = run_log().runs()
    run_log().clear()
    DrawnRun("of the log", run_id="log").request(1).end()

    class Source:
        def records(self, query=EVERY_RUN):
            return iter([record for record in records if query.matches(record)])

    assert "of the log" not in lanes(plot_timeline(Source()))
    assert lanes(plot_timeline(Source(), agent="boss"))[3] == "    clerk"


def test_a_note_that_comes_later_makes_no_run_longer() -> None:
    run = DrawnRun(run_id="a").request(1)
    run.wait(3_600).note("It hangs.")
    assert bars(plot_timeline("a")) == {"run": [(0, 0, 1)], "model": [(1, 0, 1)]}


def test_a_sub_agent_that_is_chosen_alone_stands_alone() -> None:
    sub_agents()
    assert [label.strip() for label in lanes(plot_timeline("sub"))] == ["clerk", "model-b", "look_up", "model-b"]


def test_a_run_that_stands_below_itself_is_drawn_once() -> None:
    """A foreign file can say so."""
    DrawnRun("one", run_id="a", parent="b").request(1).end()
    DrawnRun("two", run_id="b", parent="a").request(1).end()
    DrawnRun("own", run_id="c", parent="c").request(1).end()
    assert lanes(plot_timeline()) == ["one", "    two", "own"]
    assert [label.strip() for label in lanes(plot_timeline("a"))] == ["one", "model-a", "two", "model-a"]


def test_sub_agents_of_sub_agents_may_be_many() -> None:
    for i in range(1_500):
        DrawnRun(f"agent-{i}", at=i, run_id=f"run-{i}", parent=f"run-{i - 1}").request(1).end()
    ax = plot_timeline()
    assert ax.get_ylabel() == "3,000 steps, the first on top"
    assert len(bars(ax)["run"]) == 1_500


def test_several_runs_have_a_line_each_with_all_their_parts() -> None:
    DrawnRun("one", run_id="a").request(1).call("add", 1).end()
    DrawnRun("two", at=60, run_id="b").request(120).end("max_steps")
    DrawnRun("three", at=90, run_id="c").request(30)
    ax = plot_timeline()
    assert lanes(ax) == ["one", "two", "three"]
    assert bars(ax)["model"] == [(0, 0, round(1 / 60, 6)), (1, 1, 3), (2, 1.5, 2)]
    assert said(ax) == ["2.0 s", "2.0 min · limit", "30 s · going on"]
    assert ax.get_xlabel() == "minutes since 2026-01-01 00:00:00 UTC"


def test_many_runs_share_lines_as_many_as_went_on_at_once() -> None:
    busy_runs(300)
    ax = plot_timeline()
    assert ax.get_ylabel() == "runs at once"
    drawn = bars(ax)
    assert len(drawn["run"]) == 300
    assert sum(map(len, drawn.values())) == 300 * 4
    by_lane = {}
    for lane, start, end in sorted(drawn["run"], key=lambda bar: bar[1]):
        assert start >= by_lane.get(lane, 0) - 1e-6
        by_lane[lane] = end
    moments = sorted([(start, 1) for _, start, _ in drawn["run"]] + [(end, -1) for _, _, end in drawn["run"]])
    going = [sum(change for _, change in moments[: i + 1]) for i in range(len(moments))]
    assert set(by_lane) == set(range(max(going)))


def test_what_failed_or_goes_on_among_many_runs_is_marked_below() -> None:
    busy_runs(300)
    ax = plot_timeline()
    assert lanes(ax)[-2:] == ["failed or stopped", "going on"]
    failed, going = ax.lines
    assert len(failed.get_xdata()) == 30
    assert len(going.get_xdata()) == 6
    lowest = max(lane for lane, _, _ in bars(ax)["run"])
    assert lowest + 0.4 < failed.get_ydata()[0] < going.get_ydata()[0] < ax.get_ylim()[0]


def test_a_run_of_many_steps_marks_what_failed_where_there_is_no_room_for_words() -> None:
    run = DrawnRun(run_id="long")
    for i in range(100):
        run.request(1).call("add", 1, status="ok" if i else "timeout")
    run.end()
    ax = plot_timeline("long")
    assert ax.get_ylabel() == "201 steps, the first on top"
    assert lanes(ax)[0] == "1"
    assert said(ax) == []
    (failed,) = ax.lines
    assert (failed.get_label(), list(failed.get_ydata())) == ("failed or stopped", [2])


def test_a_small_axes_gets_no_words_that_do_not_fit() -> None:
    busy_runs(30)
    _, ax = plt.subplots(figsize=(2, 1))
    plot_timeline(ax=ax)
    assert said(ax) == []
    assert ax.get_ylabel() == "30 runs, the first on top"


def test_a_clock_that_was_set_back_makes_no_negative_time() -> None:
    DrawnRun(run_id="a").request(1).wait(-10).call("add", 2).end()
    ax = plot_timeline("a")
    assert bars(ax) == {"run": [(0, 9, 9)], "tool": [(1, 0, 2)], "model": [(2, 9, 10)]}
    assert said(ax) == ["clock was set back", "2.0 s", "1.0 s"]


def test_a_run_that_took_no_time_is_drawn() -> None:
    DrawnRun(run_id="a").end()
    ax = plot_timeline("a")
    ax.figure.canvas.draw()
    assert bars(ax) == {"run": [(0, 0, 0)]}
    assert ax.get_xlim()[1] > 0


def test_an_unfinished_run_ends_with_its_last_event() -> None:
    DrawnRun(run_id="a").request(1).wait(1).call("add", None)
    ax = plot_timeline("a")
    assert bars(ax) == {"run": [(0, 0, 2)], "model": [(1, 0, 1)], "tool": [(2, 2, 2)]}
    assert said(ax) == ["2.0 s · going on", "1.0 s", "0 ms · going on"]


def test_many_bars_are_a_picture_in_vector_files(tmp_path) -> None:
    busy_runs(1_500)
    plot_timeline().figure.savefig(tmp_path / "many.svg")
    assert (tmp_path / "many.svg").read_text().count("<path") < 500
