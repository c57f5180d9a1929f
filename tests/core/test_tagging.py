"""Tags go to every run that is asked for inside their block, wherever that run goes on."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

import nbagents
from nbagents import Agent, ScriptedChatClient, run_log, tool, tool_call
from nbagents.core.errors import ConfigurationError


def agent(*replies: object, **settings: object) -> Agent:
    return Agent(ScriptedChatClient(replies or ["Hello."]), **settings)


def tags_of(response: nbagents.AgentResponse) -> dict[str, object]:
    return run_log().get(response.run_id).events[0].payload["tags"]


async def test_tags_nest_and_end_with_their_block() -> None:
    helper = agent("a", "b", "c", "d")
    with nbagents.tags(experiment="a", fold=1):
        outer = await helper.run("1")
        with nbagents.tags(fold=2, good=True):
            inner = await helper.run("2")
        again = await helper.run("3")
    after = await helper.run("4")
    assert tags_of(outer) == tags_of(again) == {"experiment": "a", "fold": 1}
    assert tags_of(inner) == {"experiment": "a", "fold": 2, "good": True}
    assert tags_of(after) == {}


async def test_a_block_that_fails_leaves_no_tags_behind() -> None:
    with pytest.raises(ZeroDivisionError), nbagents.tags(experiment="a"):
        raise ZeroDivisionError
    assert tags_of(await agent().run("1")) == {}


async def test_the_place_where_the_run_was_asked_for_counts() -> None:
    with nbagents.tags(at="call"):
        reply, stream = agent().run("1"), agent().run("2", stream=True)
    with nbagents.tags(at="await"):
        assert tags_of(await reply) == {"at": "call"}
        assert tags_of(await stream.get_final_response()) == {"at": "call"}


async def test_concurrent_tasks_keep_theirs() -> None:
    async def tagged(name: str) -> dict[str, object]:
        with nbagents.tags(name=name):
            await asyncio.sleep(0)
            return tags_of(await agent().run("1"))

    assert await asyncio.gather(*map(tagged, "abc")) == [{"name": name} for name in "abc"]


def test_blocking_calls_and_handles_carry_them_to_the_loop_thread() -> None:
    with nbagents.tags(experiment="a"):
        blocking = agent().run_sync("1")
        handle = agent().start("2")
        streamed = agent().stream_sync("3")
    assert tags_of(blocking) == tags_of(handle.result(30)) == {"experiment": "a"}
    assert tags_of(streamed.get_final_response()) == {"experiment": "a"}


def test_a_thread_begins_without_tags_unless_it_takes_the_context() -> None:
    with nbagents.tags(experiment="a"), ThreadPoolExecutor(1) as pool:
        bare = pool.submit(agent().run_sync, "1").result(30)
        carried = pool.submit(copy_context().run, agent().run_sync, "1").result(30)
    assert tags_of(bare) == {}
    assert tags_of(carried) == {"experiment": "a"}


async def test_a_run_inside_a_tool_has_the_tags_of_its_parent_and_its_own() -> None:
    inner: list[nbagents.AgentResponse] = []

    @tool
    async def ask() -> str:
        """Ask."""
        with nbagents.tags(depth=1):
            inner.append(await agent("42").run("deep?"))
        return inner[0].text

    with nbagents.tags(experiment="a", depth=0):
        reply = agent([tool_call("ask")], "42.", tools=[ask]).run("Go")
    await reply
    assert tags_of(inner[0]) == {"experiment": "a", "depth": 1}


@pytest.mark.parametrize("wrong", [None, ["a"], {"a": 1}, float("nan"), object(), b"a"])
def test_a_value_that_is_no_tag_is_named(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="The tag 'experiment' is a text"), nbagents.tags(experiment=wrong):
        pass


def test_tags_without_a_block_say_that_nothing_has_them() -> None:
    with pytest.warns(UserWarning, match=r"<tags \{'fold': 1\}: .*with tags.*were given to no run"):
        nbagents.tags(fold=1)


def test_tags_that_were_used_and_wrong_ones_say_nothing(recwarn: pytest.WarningsRecorder) -> None:
    with nbagents.tags(fold=1):
        pass
    with pytest.raises(ConfigurationError):
        nbagents.tags(fold=None)
    assert not recwarn.list


def test_a_decorated_function_has_its_tags_in_each_of_its_calls() -> None:
    @nbagents.tags(fold=1)
    def ask(depth: int) -> list[dict[str, object]]:
        return [*(ask(depth - 1) if depth else []), tags_of(agent().run_sync("Hi"))]

    assert ask(1) == [{"fold": 1}, {"fold": 1}]
    assert tags_of(agent().run_sync("Hi")) == {}
