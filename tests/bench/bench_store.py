"""What a store of runs costs: `python -m tests.bench.bench_store [events]`.

A run over HTTP with the store in SQLite against one with the log in memory alone, in turns; then so many events stored
and read, and a tenth of them for comparison, each in a process of its own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROUNDS = 24
RUNS = 150
EVENTS = 1_000_000


async def over_http(port: int, url: str) -> None:
    """Print the CPU time of a run without and with the store, what is written in the background included."""
    from openai import AsyncOpenAI

    from nbagents import Agent, OpenAIChatClient, use_store

    async with AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="bench", max_retries=0) as client:
        agent = Agent(OpenAIChatClient("text-50", client=client), "You are a helpful assistant.")

        async def cpu(runs: int) -> float:
            started = time.process_time()
            for _ in range(runs):
                await agent.run("Tell me something.")
            return (time.process_time() - started) / runs * 1e6

        async def with_store() -> float:
            with use_store(url) as store:
                await agent.run("Tell me something.")
                store.flush()
                started = time.process_time()
                for _ in range(RUNS):
                    await agent.run("Tell me something.")
                store.flush()
                return (time.process_time() - started) / RUNS * 1e6

        await cpu(RUNS)
        triples = [(await cpu(RUNS), await with_store(), await cpu(RUNS)) for _ in range(ROUNDS)]
    ratios = [2 * stored / (before + after) for before, stored, after in triples]  # a drift of the machine cancels out
    low, middle, high = statistics.quantiles(ratios, n=4)
    memory, stored = (statistics.median(column) for column in list(zip(*triples, strict=True))[:2])
    print(f"run over HTTP   memory log {memory:7.0f} us   SQLite {stored:7.0f} us   ", end="")
    print(f"ratio {middle:.3f} (half of the rounds {low:.3f} to {high:.3f})   <= 1.05", flush=True)
    alone = min(stored_alone(f"{url}.{number}") for number in range(ROUNDS))
    print(f"the same runs written by themselves: {alone:.0f} us each, {1 + alone / memory:.3f}", flush=True)


def stored_alone(url: str) -> float:
    """Return the CPU microseconds that a run of the log takes to be stored, apart from what two threads cost."""
    from nbagents import run_log
    from nbagents.analysis.run_store import RunStore

    runs = run_log().runs()
    with RunStore(url) as store:
        store._new.extend(runs)
        started = time.process_time()
        store.flush()
        return (time.process_time() - started) / len(runs) * 1e6


def rows(n_events: int) -> Iterator[object]:
    """Yield records of runs with one tool call, in all about `n_events` events."""
    from nbagents import Agent, ScriptedChatClient, run_log, tool_call
    from nbagents.core.ids import new_id
    from nbagents.core.runlog import RunRecord

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    client = ScriptedChatClient([[tool_call("add", a=1, b=2)], "The sum of one and two is three. " * 5])
    Agent(client, tools=[add]).run_sync("What is the sum of one and two?")
    (model,) = run_log().runs()
    for n in range(n_events // len(model.events)):
        run_id = new_id("run")
        events = [dataclasses.replace(e, run_id=run_id, timestamp=e.timestamp + n) for e in model.events]
        yield RunRecord(run_id, events)


def stored_and_read(n_events: int, url: str) -> None:
    """Print as JSON what it takes to store and to read so many events, and the peak of memory."""
    from nbagents import events_df, requests_df, runs_df
    from nbagents.analysis.queries import RunQuery
    from nbagents.analysis.run_store import RunStore

    times = {}

    def timed(name: str, started: float) -> None:
        times[name] = time.process_time() - started

    with RunStore(url) as store:
        started, n_stored = time.process_time(), 0
        for record in rows(n_events):
            store._take(record)  # type: ignore[arg-type]
            n_stored += len(record.events)  # type: ignore[attr-defined]
        store.flush()
        timed("store", started)
        assert store.lost == 0
        started = time.process_time()
        assert sum(len(record.events) for record in store.records()) == n_stored
        timed("read all", started)
        started = time.process_time()
        frame = runs_df(store)
        timed("runs_df", started)
        started = time.process_time()
        assert len(requests_df(store)) == 2 * len(frame)
        timed("requests_df", started)
        started = time.process_time()
        assert len(events_df(store)) == n_stored
        timed("events_df", started)
        started = time.process_time()
        (found,) = store.records(RunQuery(run_ids=[frame.run_id.iloc[len(frame) // 2]]))
        timed("read one", started)
        assert found.ended
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps({"events": n_stored, "peak GB": peak, **times}))


def main() -> None:
    n_events = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if len(sys.argv) > 2:
            stored_and_read(n_events, sys.argv[2])
            return
        command = [sys.executable, Path(__file__).with_name("server.py")]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            asyncio.run(over_http(int(server.stdout.readline()), f"sqlite:///{folder}/http.db"))
        finally:
            server.communicate()
        for n in (n_events // 10, n_events):
            again = [sys.executable, "-m", "tests.bench.bench_store", str(n), f"sqlite:///{folder}/{n}.db"]
            found = json.loads(subprocess.run(again, capture_output=True, text=True, check=True).stdout)
            size = (folder / f"{n}.db").stat().st_size / 1e6
            print(
                f"{found.pop('events'):9,} events   peak {found.pop('peak GB'):.2f} GB (<= 1.5)   {size:.0f} MB   ",
                end="",
            )
            print("   ".join(f"{what} {seconds:.2f} s ({seconds / n * 1e6:.2f} us)" for what, seconds in found.items()))


if __name__ == "__main__":
    main()
