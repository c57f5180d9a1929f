"""`agent.run(...)` without `await`: what it says, and that asyncio takes it for the coroutine that it is."""

import asyncio
import copy
import gc
import re
import warnings

import pytest

from nbagents import Agent, AgentResponse, ScriptedChatClient, run_log
from nbagents.core.errors import RunError

ADVICE = re.escape("use `await agent.run(...)` or `agent.run_sync(...)`")


def agent(*replies):
    return Agent(ScriptedChatClient(list(replies) or ["Hello!"]))


def test_a_run_that_was_not_awaited_says_so_when_it_is_shown_or_asked_for_its_text():
    pending = agent().run("Hi")
    assert re.search(f"not awaited yet: {ADVICE}", repr(pending))
    for name in ("text", "messages", "usage", "anything"):
        with pytest.raises(AttributeError, match=f"{name}.*not awaited yet: {ADVICE}"):
            getattr(pending, name)
    assert not hasattr(pending, "_repr_html_")
    pending.close()


def test_a_run_that_is_dropped_without_being_awaited_warns_once_and_at_that_line():
    with pytest.warns(RuntimeWarning, match=rf"agent\.run.*never awaited.*{ADVICE}") as caught:
        agent().run("Hi")
    assert [warning.filename for warning in caught] == [__file__]
    assert run_log().runs() == []


async def test_a_run_that_was_awaited_or_closed_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pending = agent().run("Hi")
        assert (await pending).text == "Hello!"
        assert "not awaited" not in repr(pending)
        with pytest.raises(AttributeError, match="what `await` gave"):
            pending.text  # noqa: B018
        with pytest.raises(RuntimeError, match="already awaited"):
            await pending
        del pending
        agent().run("Hi").close()
        gc.collect()


@pytest.mark.parametrize(
    "awaited",
    [
        asyncio.create_task,
        asyncio.ensure_future,
        asyncio.shield,
        lambda pending: asyncio.wait_for(pending, 5),
        lambda pending: next(asyncio.as_completed([pending])),
    ],
)
async def test_asyncio_takes_it_where_it_takes_a_coroutine(awaited):
    pending = agent().run("Hi")
    assert asyncio.iscoroutine(pending)
    response = await awaited(pending)
    assert isinstance(response, AgentResponse)
    assert response.text == "Hello!"


async def test_runs_in_gather_and_in_task_groups_answer_and_fail_as_they_do_by_themselves():
    helper = agent("a", "b", "c", LookupError("no"))
    responses = await asyncio.gather(helper.run("1"), helper.run("2"))
    assert {response.text for response in responses} == {"a", "b"}
    async with asyncio.TaskGroup() as group:
        task = group.create_task(helper.run("3"))
    assert task.result().text == "c"
    with pytest.raises(RunError, match="no"):
        await asyncio.create_task(helper.run("4"))


async def test_a_cancelled_task_of_a_run_ends_it_and_shows_where_it_waits():
    helper = Agent(ScriptedChatClient([["a", "b"]], delay=30))
    task = asyncio.create_task(helper.run("Hi"))
    while not run_log().runs():
        await asyncio.sleep(0)
    assert "get_final_response" in repr(task)
    assert task.get_stack()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run_log().runs()[-1].events[-1].payload["stop_reason"] == "cancelled"


def test_asyncio_run_and_a_loop_of_ones_own_take_it():
    assert asyncio.run(agent().run("Hi")).text == "Hello!"
    with asyncio.Runner() as runner:
        assert runner.run(agent().run("Hi")).text == "Hello!"


def test_it_cannot_be_copied_by_accident():
    pending = agent().run("Hi")
    with pytest.raises(TypeError):
        copy.copy(pending)
    pending.close()
