"""Tools that travel: copies of agents, other processes."""

from __future__ import annotations

import asyncio
import copy
import functools
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from nbagents import Agent, ScriptedChatClient, tool, tool_call
from nbagents.core.errors import ToolError
from nbagents.core.toolset import collect_tools


@tool(timeout=5, concurrency=2)
def double(n: int) -> int:
    """Double it."""
    return 2 * n


class Scale:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    @tool(strict=True)
    def scale(self, n: int, plus: int = 0) -> int:
        """Scale it."""
        return self.factor * n + plus


def results(response):
    return [result.result for message in response.messages for result in message.results]


def run_with(tools):
    calls = [
        tool_call("double", n=4),
        tool_call("Scale.scale", n=4, plus=None),
        tool_call("Scale_2.scale", n=4, plus=1),
    ]
    return results(asyncio.run(Agent(ScriptedChatClient([calls, "ok"]), tools=tools).run("q")))


def test_tools_come_out_of_a_pickle_as_what_they_were():
    tools = collect_tools([double, Scale(3), Scale(5)])
    _ = [one.definition for one in tools]
    again = pickle.loads(pickle.dumps(tools))
    assert again[0] is double
    assert [(one.name, one.tool_id, one.definition) for one in again] == [
        (one.name, one.tool_id, one.definition) for one in tools
    ]
    assert run_with(again) == run_with(tools) == ["8", "12", "21"]


def test_tools_run_in_another_process():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(run_with, collect_tools([double, Scale(3), Scale(5)])).result(60) == ["8", "12", "21"]


class Doubler:
    def __call__(self, n: int) -> int:
        """Double it."""
        return 2 * n


@pytest.mark.parametrize(
    "function", [functools.partial(Doubler()), Doubler(), functools.partial(Scale.scale, Scale(2))]
)
def test_what_has_no_name_of_its_own_is_copied_and_pickled_too(function):
    for again in (copy.deepcopy(tool(function)), pickle.loads(pickle.dumps(tool(function)))):
        assert (again.name, again(4)) == (tool(function).name, 8)


def test_a_copy_of_an_agent_has_its_tools_with_objects_of_their_own():
    scale = Scale(3)
    agent = Agent(ScriptedChatClient([[tool_call("scale", n=1, plus=0)], "ok"] * 2), tools=[double, scale])
    twin = copy.deepcopy(agent)
    scale.factor = 7
    assert (twin.tools[0] is double, twin.tools[1].owner is scale) == (True, False)
    assert results(twin.run_sync("q")) == ["3"]
    assert results(agent.run_sync("q")) == ["7"]


@pytest.mark.parametrize("hint", [None, "Try another one."])
async def test_a_tool_error_is_told_in_its_own_words(ask, hint):
    @tool
    def book() -> None:
        """Book it."""
        raise ToolError("There is no room on Friday.", hint=hint)

    response = await ask(Agent(ScriptedChatClient([[tool_call("book")], "ok"]), tools=[book]), "q")
    assert results(response) == [
        "There is no room on Friday. Try another one." if hint else "There is no room on Friday."
    ]
    assert response.messages[1].results[0].error


def test_an_agent_that_is_pickled_goes_on_in_the_script_where_it_was():
    agent = Agent(ScriptedChatClient(["one", "two"]), tools=[double], options={"seed": 1})
    agent.run_sync("q")
    twin = pickle.loads(pickle.dumps(agent))
    assert (twin.run_sync("q").text, agent.run_sync("q").text) == ("two", "two")
    assert (twin.tools, twin.options) == (agent.tools, agent.options)
