"""`@tool(concurrency=...)`: how many calls of a tool run at once, and what waiting for it costs nobody."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
import time

import pytest

from nbagents import Agent, RunBudget, ScriptedChatClient, tool, tool_call
from nbagents.core.concurrency import ConcurrencyLimit
from nbagents.core.errors import ConfigurationError, RunTimeoutError


class Counter:
    """How many are inside at once, at most."""

    def __init__(self):
        self.now = self.most = self.all = 0
        self._lock = threading.Lock()

    def __enter__(self):
        with self._lock:
            self.now += 1
            self.all += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *exc_info):
        with self._lock:
            self.now -= 1


def agent_calling(name, times, **settings):
    client = ScriptedChatClient([[tool_call(name) for _ in range(times)], "ok"])
    return Agent(client, **settings)


def results(response):
    return [result.result for message in response.messages for result in message.results]


@pytest.mark.parametrize("limit", [1, 2])
async def test_calls_of_one_reply_and_of_several_runs_share_the_limit(ask, limit):
    inside = Counter()

    @tool(concurrency=limit)
    async def work() -> str:
        with inside:
            await asyncio.sleep(0.005)
        return "done"

    answers = await asyncio.gather(*(ask(agent_calling("work", 3, tools=[work]), "q") for _ in range(3)))
    assert [results(answer) for answer in answers] == [["done"] * 3] * 3
    assert (inside.most, inside.all) == (limit, 9)


def test_the_limit_holds_across_threads_and_event_loops():
    inside = Counter()

    @tool(concurrency=2)
    def work() -> str:
        with inside:
            time.sleep(0.005)
        return "done"

    texts = []

    def one():
        texts.append(asyncio.run(agent_calling("work", 4, tools=[work]).run("q")).text)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    texts.append(agent_calling("work", 4, tools=[work]).run_sync("q").text)
    for thread in threads:
        thread.join(20)
    assert (texts, inside.most, inside.all) == (["ok"] * 5, 2, 20)


async def test_tools_without_a_limit_and_other_tools_do_not_wait():
    opened = asyncio.Event()

    @tool(concurrency=1)
    async def waits() -> str:
        await opened.wait()
        return "waited"

    @tool(concurrency=1)
    async def opens() -> str:
        opened.set()
        return "opened"

    client = ScriptedChatClient([[tool_call("waits"), tool_call("opens")], "ok"])
    assert results(await Agent(client, tools=[waits, opens]).run("q")) == ["waited", "opened"]


async def test_waiting_does_not_count_into_the_tools_timeout(ask):
    @tool(concurrency=1, timeout=0.3)
    async def work() -> str:
        await asyncio.sleep(0.12)
        return "done"

    assert results(await ask(agent_calling("work", 4, tools=[work]), "q")) == ["done"] * 4


async def test_waiting_counts_into_the_duration_of_the_run_and_the_place_is_free_afterwards(ask):
    begun, opened = asyncio.Event(), asyncio.Event()

    @tool(concurrency=1)
    async def work() -> str:
        begun.set()
        await opened.wait()
        return "done"

    holder = asyncio.ensure_future(agent_calling("work", 1, tools=[work]).run("q"))
    await begun.wait()
    with pytest.raises(RunTimeoutError):
        await ask(agent_calling("work", 2, tools=[work]), "q", budget=RunBudget(max_duration_ms=80))
    opened.set()
    assert results(await holder) == ["done"]
    assert results(await ask(agent_calling("work", 1, tools=[work]), "q")) == ["done"]


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_call_that_timed_out_or_failed_gives_its_place_back(ask, kind):
    def sync_work() -> str:
        """Work."""
        time.sleep(0.6)
        return "late"

    async def async_work() -> str:
        """Work."""
        await asyncio.sleep(30)
        return "late"

    work = tool(name="work", concurrency=1, timeout=0.05)(sync_work if kind == "sync" else async_work)
    told = results(await ask(agent_calling("work", 3, tools=[work]), "q"))
    assert told == ["The tool 'work' did not finish within its limit of 0.05 s: TimeoutError."] * 3

    @tool(concurrency=1)
    def fails() -> None:
        raise ValueError("no")

    assert (
        results(await ask(agent_calling("fails", 3, tools=[fails]), "q"))
        == ["The tool 'fails' failed: ValueError: no"] * 3
    )


async def test_a_run_that_is_cancelled_while_it_holds_or_waits_for_a_place_leaves_it_free():
    begun, never = asyncio.Event(), asyncio.Event()

    @tool(concurrency=1)
    async def work(wait: bool = False) -> str:
        begun.set()
        if wait:
            await never.wait()
        return "done"

    def calling(wait):
        return Agent(ScriptedChatClient([[tool_call("work", wait=wait)], "ok"]), tools=[work])

    holder = asyncio.ensure_future(calling(True).run("q"))
    await begun.wait()
    waiting = asyncio.ensure_future(calling(False).run("q"))
    third = asyncio.ensure_future(calling(False).run("q"))
    while len(work._limit._waiting) < 2:
        await asyncio.sleep(0)
    for run in (waiting, holder):
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
    assert results(await asyncio.wait_for(third, 5)) == ["done"]


def test_a_loop_that_ends_with_calls_in_the_queue_keeps_no_place():
    limit = ConcurrencyLimit(1)

    async def hold_and_leave():
        async with limit:
            waiting = asyncio.ensure_future(limit.__aenter__())
            await asyncio.sleep(0)
            assert not waiting.done()

    asyncio.run(hold_and_leave())

    async def free():
        async with asyncio.timeout(5), limit:
            return True

    assert asyncio.run(free())


async def test_a_sub_agent_that_calls_the_tool_that_it_runs_in_does_not_wait_for_ever(ask):
    @tool(concurrency=1)
    async def dig(depth: int) -> str:
        """Dig."""
        if depth == 0:
            return "bottom"
        client = ScriptedChatClient([[tool_call("dig", depth=depth - 1)], "up"])
        inner = await Agent(client, tools=[dig]).run("dig")
        return f"{results(inner)[0]} {depth}"

    client = ScriptedChatClient([[tool_call("dig", depth=2)], "ok"])
    assert results(await asyncio.wait_for(ask(Agent(client, tools=[dig]), "q"), 5)) == ["bottom 1 2"]


def test_the_methods_of_all_objects_of_a_class_share_the_limit_and_copies_do():
    inside = Counter()

    class Machine:
        @tool(concurrency=1)
        async def work(self) -> str:
            """Work."""
            with inside:
                await asyncio.sleep(0.005)
            return "done"

    first, second = Machine(), Machine()
    client = ScriptedChatClient([[tool_call("Machine.work"), tool_call("Machine_2.work"), tool_call("again")], "ok"])
    again = tool(name="again")(first.work)
    assert Agent(client, tools=[first, second, copy.deepcopy(again)]).run_sync("q").text == "ok"
    assert (inside.most, inside.all) == (1, 3)
    assert pickle.loads(pickle.dumps(ConcurrencyLimit(3))).limit == 3


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, "2"])
def test_a_limit_that_is_no_number_of_calls_is_an_error(concurrency):
    with pytest.raises(ConfigurationError, match="concurrency is a whole number from 1"):
        tool(concurrency=concurrency)(lambda: None)
