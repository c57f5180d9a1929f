"""The percentiles of latency are those of numpy, over what the tables say, and leave out what cannot be compared."""

from __future__ import annotations

import numpy as np
import pytest

from nbagents.analysis import plot_latency, requests_df, runs_df
from tests.analysis.drawn import DrawnRun, busy_runs

pytestmark = [pytest.mark.usefixtures("drawing"), pytest.mark.filterwarnings("ignore:The price of the model")]


def marks(ax):
    """The x of the marks, by series and percentile; those that only explain the legend have no place."""
    lines = [drawn.get_label() for drawn in ax.collections if not drawn.get_label().startswith("_")]
    series = [label for label in lines if not label.startswith("p")]
    placed = [
        drawn.get_offsets() for drawn in ax.collections if len(drawn.get_offsets()) and drawn.get_label()[0] == "_"
    ]
    per_series = len(placed) // len(series)
    return {
        label: [np.asarray(drawn)[:, 0] for drawn in placed[i * per_series : (i + 1) * per_series]]
        for i, label in enumerate(series)
    }


def lanes(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def test_the_percentiles_of_requests_are_those_of_numpy() -> None:
    chance = np.random.default_rng(1)
    for i in range(60):
        run = DrawnRun(run_id=f"run-{i}", at=i, model=f"model-{i % 2}")
        run.request(float(chance.lognormal(0, 1)) + 1, ttft=float(chance.uniform(0.1, 1))).end()
    ax = plot_latency()
    assert lanes(ax) == ["model-0 (n=30)", "model-1 (n=30)"]
    table = requests_df()
    for name, column in (("first token", "ttft_s"), ("total", "latency_s")):
        for i, percentile in enumerate((50, 90, 99)):
            expected = [
                np.percentile(table[column][table.model_returned == model].to_numpy(float), percentile)
                for model in ("model-0", "model-1")
            ]
            assert marks(ax)[name][i] == pytest.approx(expected)
    assert ax.get_xlabel() == "seconds"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["first token", "total", "p50", "p90", "p99"]


def test_runs_are_measured_from_their_start_to_their_end() -> None:
    for seconds in (120, 240, 600):
        DrawnRun("slow", run_id=f"run-{seconds}").wait(60).request(seconds - 60, ttft=30).end()
    ax = plot_latency(of="runs", by="agent", percentiles=50)
    assert lanes(ax) == ["slow (n=3)"]
    assert marks(ax)["total"][0] == pytest.approx([4])
    assert marks(ax)["first token"][0] == pytest.approx([1.5])
    assert ax.get_xlabel() == "minutes"
    assert [text.get_text() for text in ax.texts] == ["90 s", "4.0 min"]
    assert runs_df().duration_s.median() == 240


def test_what_failed_goes_on_or_saw_the_clock_set_back_is_left_out_and_counted() -> None:
    DrawnRun(run_id="good").request(1).end()
    DrawnRun(run_id="bad").request(99, error="ServerError").end("failed", "ServerError")
    DrawnRun(run_id="going").request(99)
    DrawnRun(run_id="back").request(1).wait(-50).end()
    assert lanes(plot_latency()) == ["model-a (n=3, 1 left out)"]
    ax = plot_latency(of="runs")
    assert lanes(ax) == ["model-a (n=1, 3 left out)"]
    assert {name: [float(x[0]) for x in placed] for name, placed in marks(ax).items()} == {"total": [1, 1, 1]}


def test_a_group_without_a_measurement_says_so() -> None:
    DrawnRun(run_id="good").request(1).end()
    DrawnRun(run_id="bad", model="model-b").request(1, error="ServerError").end("failed", "ServerError")
    ax = plot_latency()
    assert lanes(ax)[1] == "model-b (n=0, 1 left out)"
    assert [text.get_text() for text in ax.texts] == ["1.0 s", "not measured"]
    ax = plot_latency("bad")
    assert [text.get_text() for text in ax.texts] == ["not measured"]


def test_many_groups_are_pooled_not_averaged() -> None:
    for i in range(60):
        run = DrawnRun(run_id=f"run-{i}")
        for _ in range(3 if i < 29 else 1):
            run.request(1 + i)
        run.end()
    ax = plot_latency(by="run_id", percentiles=50)
    assert lanes(ax)[-1] == "31 others (n=31)"
    assert marks(ax)["total"][0][-1] == pytest.approx(np.median(range(30, 61)))


def test_without_streams_only_the_total_is_drawn() -> None:
    DrawnRun(run_id="a").request(0.05).end()
    ax = plot_latency()
    assert list(marks(ax)) == ["total"]
    assert ax.get_xlabel() == "milliseconds"


def test_three_hundred_runs_are_all_in_it() -> None:
    busy_runs(300)
    numbers = [label.split("n=")[1] for label in lanes(plot_latency())]
    assert numbers == ["300)", "270, 30 left out)"]
