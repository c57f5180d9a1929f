"""A store of runs and the programs that write to it: killed, several at once, forked, and at their end."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from nbagents import events_df, run_log, runs_df, use_store
from nbagents.analysis.run_store import RunStore


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else f"sqlite:///{tmp_path}/runs.db"


def python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "error::ResourceWarning", "-c", script, *arguments]


KILLED = """
import asyncio, sys, threading
from nbagents import Agent, ScriptedChatClient, tool_call, use_store

store = use_store(sys.argv[1])
helper = Agent(ScriptedChatClient(["Hello."] * 50 + [[tool_call("wait")]]))

async def main():
    for _ in range(50):
        await helper.run("Hi")
    async def wait():
        store.flush()
        print("flushed", flush=True)
        await asyncio.sleep(600)
    await helper.run("Wait", tools=[wait])

asyncio.run(main())
"""


def test_after_a_kill_everything_that_was_flushed_is_there_and_the_unfinished_run_has_no_end(url):
    with subprocess.Popen(python(KILLED, url), stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "flushed\n"
        program.send_signal(signal.SIGKILL)
    with use_store(url):
        runs = runs_df()
        assert runs.status[:50].tolist() == ["ok"] * 50
        assert runs.output_text[:50].tolist() == ["Hello."] * 50
        assert len(runs) == 51
        assert runs.loc[50, ["status", "stop_reason", "ended_at", "duration_s"]].isna().all()
        assert events_df(runs.run_id[50]).kind.tolist()[-1] == "tool.called"


KILLED_WHILE_WRITING = """
import asyncio, sys
from nbagents import Agent, ScriptedChatClient, use_store

store = use_store(sys.argv[1])

async def main():
    helper = Agent(ScriptedChatClient(["Hello."] * 10**6))
    for n in range(10**6):
        await helper.run("Hi")
        if n == 2_000:
            store.flush()
            print("going", flush=True)

asyncio.run(main())
"""


def test_a_kill_while_it_writes_leaves_whole_batches(tmp_path):
    url = f"sqlite:///{tmp_path}/runs.db"
    with subprocess.Popen(python(KILLED_WHILE_WRITING, url), stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "going\n"
        program.kill()
    with use_store(url) as store:
        records = list(store.records())
        assert len(records) > 100
        assert all(record.ended for record in records[:-1])
        for record in records:
            assert [event.sequence for event in record.events] == list(range(1, len(record.events) + 1))


MANY = """
import asyncio, sys
from nbagents import Agent, ScriptedChatClient, use_store

use_store(sys.argv[1])
name = sys.argv[2]

async def main():
    helper = Agent(ScriptedChatClient(["Hello."] * 200), name=name)
    for _ in range(20):
        await asyncio.gather(*[helper.run("Hi") for _ in range(10)])

asyncio.run(main())
"""


def test_several_programs_write_at_once_and_what_waits_at_their_end_is_written(url):
    programs = [subprocess.Popen(python(MANY, url, f"agent {i}"), stderr=subprocess.PIPE, text=True) for i in range(3)]
    said = [program.communicate(timeout=120)[1] for program in programs]
    assert said == ["", "", ""]
    with use_store(url):
        runs = runs_df()
        assert runs.agent.value_counts().to_dict() == {"agent 0": 200, "agent 1": 200, "agent 2": 200}
        assert runs.status.eq("ok").all()
        assert runs.started_at.is_monotonic_increasing
        assert len(runs_df(agent="agent 1")) == 200


FORKED = """
import os, sys
from nbagents import Agent, ScriptedChatClient, use_store

store = use_store(sys.argv[1])

def write(name, times):
    for _ in range(times):
        Agent(ScriptedChatClient(["Hello."]), name=name).run_sync("Hi")

write("before", 30)
if (child := os.fork()) == 0:
    write("child", 30)
    store.close()
    os._exit(0)
write("parent", 30)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_program_goes_on_with_a_writer_of_its_own(url):
    done = subprocess.run(python(FORKED, url), capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("", "")
    with use_store(url):
        assert runs_df().agent.value_counts().to_dict() == {"before": 30, "child": 30, "parent": 30}


LIGHT = """
import sys
import nbagents
from nbagents import use_store, load_runs
assert not {"sqlalchemy", "pandas", "tqdm", "sqlite3"} & set(sys.modules), sorted(sys.modules)
"""


def test_nothing_of_a_database_is_imported_before_there_is_one():
    subprocess.run(python(LIGHT), check=True, timeout=60)


WITHOUT_SQLALCHEMY = """
import sys
sys.modules["sqlalchemy"] = None
from nbagents import use_store
use_store("sqlite:///runs.db")
"""


def test_a_missing_package_names_what_to_install(tmp_path):
    done = subprocess.run(python(WITHOUT_SQLALCHEMY), capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert 'pip install "sqlalchemy>=2"' in done.stderr


def test_runs_of_all_threads_are_kept_and_no_thread_is_left(tmp_path, no_leaks):
    from concurrent.futures import ThreadPoolExecutor

    from tests.analysis.runs import agent

    with RunStore(f"sqlite:///{tmp_path}/runs.db") as store, ThreadPoolExecutor(4) as pool:
        store.start()
        list(pool.map(lambda _: agent("Hi.").run_sync("Hi"), range(40)))
        assert {record.run_id for record in store.records()} == {record.run_id for record in run_log().runs()}
