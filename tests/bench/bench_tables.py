"""What tables cost beside frames of columns that are there already: `python -m tests.bench.bench_tables [million]`.

`first` has never read the log before; `again` finds the events written as JSON. The floor makes the same frames with
pandas from lists of their values; the second floor has objects for JSON columns and writes them with `json.dumps`.
With `million`, a million events come one run at a time, as from a store, and the memory of the process is what counts.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator

import pandas as pd

from nbagents import (
    Agent,
    RunBudget,
    ScriptedChatClient,
    events_df,
    messages_df,
    requests_df,
    run_log,
    runs_df,
    tool,
    tool_call,
    tool_calls_df,
    usage_df,
)
from nbagents.analysis.queries import EVERY_RUN, RunQuery
from nbagents.analysis.stored_events import read_part, stored_part
from nbagents.core.runlog import RunRecord

TABLES = (runs_df, requests_df, messages_df, tool_calls_df, events_df)
ROUNDS = 11
ID = re.compile("(_[0-9a-f]{16})[0-9a-f]{8}(?![0-9a-f])")
WORDS = "The sum of all of it is quite a lot, as one can see. "


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def one_run() -> RunRecord:
    """A run of 105 events: eleven rounds of two calls, and an answer."""
    calls = [[tool_call("add", a=i, b=1), tool_call("add", a=i, b=2)] for i in range(ROUNDS)]
    client = ScriptedChatClient([*calls, WORDS * 3])
    response = await Agent(client, name="bench", tools=[add]).run(WORDS, budget=RunBudget(max_steps=100))
    record = run_log().get(str(response.run_id))
    assert record is not None
    return record


class Copies:
    """Runs like one, each with its own ids, made when they are asked for, as a store reads them."""

    def __init__(self, model: RunRecord, runs: int) -> None:
        self.text, _ = stored_part(model.events, "full")
        self.run_id = model.run_id
        self.n_events = len(model.events)
        self.runs = runs

    def records(self, query: RunQuery = EVERY_RUN) -> Iterator[RunRecord]:
        for number in range(self.runs):
            run_id = f"{self.run_id[:-8]}{number:08x}"
            record = RunRecord(run_id, read_part(run_id, ID.sub(rf"\g<1>{number:08x}", self.text)))
            if query.matches(record):
                yield record


class Kept:
    """Records that are in memory."""

    def __init__(self, source: Copies) -> None:
        self.kept = list(source.records())

    def records(self, query: RunQuery = EVERY_RUN) -> Iterator[RunRecord]:
        return (record for record in self.kept if query.matches(record))


def cpu_of(work: Callable[[], object]) -> float:
    gc.collect()  # or else one pays for what another has left
    started = time.process_time()
    work()
    return time.process_time() - started


def ready(frame: pd.DataFrame, *, dump: bool) -> Callable[[], object]:
    """Return what makes `frame` again from lists of its values."""
    values = {name: frame[name].astype(object).where(frame[name].notna(), None).tolist() for name in frame}
    texts = [name for name in frame if dump and str(name) in ("params", "tags", "tool_calls", "arguments", "data")]
    for name in texts:
        values[name] = [None if text is None else json.loads(text) for text in values[name]]

    def build() -> pd.DataFrame:
        columns = dict(values)
        for name in texts:
            columns[name] = [None if value is None else json.dumps(value) for value in columns[name]]
        return pd.DataFrame({name: pd.array(columns[name], dtype=frame.dtypes[name]) for name in frame})

    return build


def compare(runs: int) -> None:
    model = asyncio.run(one_run())
    for table in TABLES:  # what is imported and compiled once is not what counts
        table(Kept(Copies(model, 1)))
    log = Kept(Copies(model, runs))
    print(f"{runs * len(log.kept[0].events):,} events, CPU seconds")
    print(
        f"{'':14} {'rows':>8} {'first':>8} {'again':>8} {'ready':>8} {'ready+json':>11}   again/ready  first/ready+json"
    )
    sums = [0.0] * 4
    for table in TABLES:
        first, again = cpu_of(lambda table=table: table(log)), cpu_of(lambda table=table: table(log))
        frame = table(log)
        floors = [min(cpu_of(ready(frame, dump=dump)) for _ in range(3)) for dump in (False, True)]
        figures = [first, again, *floors]
        sums = [total + figure for total, figure in zip(sums, figures, strict=True)]
        show(table.__name__, len(frame), figures)
    show("all", runs, sums)
    print("again/ready <= 1.5; the first time payloads become JSON too: no frame of them is ready without that")


def show(name: str, rows: int, figures: list[float]) -> None:
    first, again, floor, dumped = figures
    shown = f"{first:8.3f} {again:8.3f} {floor:8.3f} {dumped:11.3f}"
    print(f"{name:14} {rows:8,} {shown}   {again / floor:10.2f}x {first / dumped:16.2f}x", flush=True)


def million() -> None:
    model = asyncio.run(one_run())
    log = Copies(model, 1_000_000 // len(model.events) + 1)
    print(f"{'':14} {'rows':>9} {'seconds':>8} {'memory so far, MB':>18}")
    for table in (usage_df, *TABLES):
        started = time.perf_counter()
        rows = len(table(log))
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{table.__name__:14} {rows:9,} {time.perf_counter() - started:8.1f} {megabytes:18,.0f}", flush=True)


if __name__ == "__main__":
    million() if sys.argv[1:] == ["million"] else compare(1_000)
