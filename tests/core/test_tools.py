"""Functions as tools: schema, arguments, kinds of callables, time limits."""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import time
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field

import nbagents
from nbagents import Agent, ContextProvider, ScriptedChatClient, run_log, tool, tool_call
from nbagents.core.errors import ConfigurationError
from nbagents.core.tools import FunctionTool
from nbagents.core.toolset import collect_tools


def parameters(function):
    return FunctionTool(function).definition.parameters


async def result_of(one, **arguments):
    client = ScriptedChatClient([[tool_call(collect_tools([one])[0].name, **arguments)], "ok"])
    response = await Agent(client, tools=[one]).run("q")
    return response.messages[1].results[0]


def test_hints_and_defaults_become_the_schema():
    """C58"""

    def f(a: int, b: str = "x", c: int | None = None, d: dict[str, int] | None = None) -> None:
        """Do it."""

    schema = parameters(f)
    assert schema["required"] == ["a"]
    assert schema["properties"]["b"] == {"type": "string", "default": "x"}
    assert schema["properties"]["c"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert schema["additionalProperties"] is False


class Mode(Enum):
    FAST = "fast"
    SLOW = "slow"


class Item(BaseModel):
    name: str
    n: int = 1


@dataclass
class Point:
    x: int


class Named(TypedDict):
    title: str


async def test_the_function_gets_the_types_that_it_asks_for():
    """C60"""
    got = {}

    @tool
    def f(items: list[Item], mode: Mode, when: date, at: Point, of: Named, opts: dict[str, Item] | None = None) -> str:
        """Take."""
        got.update(items=items, mode=mode, when=when, at=at, of=of, opts=opts)
        return "taken"

    result = await result_of(
        f,
        items=[{"name": "a"}],
        mode="slow",
        when="2026-11-30",
        at={"x": 1},
        of={"title": "t"},
        opts={"k": {"name": "b", "n": 2}},
    )
    assert result.result == "taken"
    assert got == {
        "items": [Item(name="a")],
        "mode": Mode.SLOW,
        "when": date(2026, 11, 30),
        "at": Point(1),
        "of": {"title": "t"},
        "opts": {"k": Item(name="b", n=2)},
    }
    assert f([], Mode.FAST, date.today(), Point(1), {"title": ""}) == "taken"
    assert (
        "'items.0.n'"
        in (
            await result_of(
                f, items=[{"name": "a", "n": "?"}], mode="fast", when="2026-11-30", at={"x": 1}, of={"title": "t"}
            )
        ).result
    )


def test_a_type_defined_beside_a_function_is_found():
    class Local(BaseModel):
        n: int

    @tool
    def f(local: Local) -> int:
        """Take."""
        return local.n

    assert f.definition.parameters["$defs"]["Local"]["properties"]["n"] == {"type": "integer"}


def test_parameters_may_have_any_name():
    def f(self_: int, model_config: int, schema: Literal["a"], copy: int = 1, title: str = "t") -> None:
        """Do."""

    assert list(parameters(f)["properties"]) == ["self_", "model_config", "schema", "copy", "title"]


GOOGLE = """Do it
    Args:

        a: the first
            addend.
        b (int): the second.
        *rest: more.
        ghost: not there.
    Returns:
        nothing.
    """
NUMPY = """Do it

    Parameters
    ----------
    a : int
        the first addend.
    b : int, optional
        the second.

    Returns
    -------
    nothing
    """
SPHINX = """Do it

    :param a: the first
        addend.
    :param int b: the second.
    :returns: nothing
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_docstrings_of_every_layout_describe_the_parameters(docstring, capfd):
    """C62"""

    def f(a: int, b: int = 0, *rest: int, c: Annotated[int, "the third"] = 0, **more: int) -> None: ...

    f.__doc__ = docstring
    definition = FunctionTool(f).definition
    described = {name: p.get("description") for name, p in definition.parameters["properties"].items()}
    assert definition.description == "Do it"
    rest = "more." if docstring is GOOGLE else None
    assert described == {"a": "the first addend.", "b": "the second.", "rest": rest, "c": "the third"}
    assert capfd.readouterr().err == ""


def test_an_annotated_text_wins_over_the_docstring():
    """C62"""

    def f(
        a: Annotated[int, "from the hint"], b: Annotated[str, Field(pattern="^x", description="from the field")]
    ) -> None:
        """Do.

        Args:
            a: from the docstring.
            b: from the docstring.
        """

    properties = parameters(f)["properties"]
    assert properties["a"]["description"] == "from the hint"
    assert properties["b"] == {"description": "from the field", "pattern": "^x", "type": "string"}


class AsyncObject:
    """Say x."""

    async def __call__(self, x: int) -> int:
        return x


async def async_function(x: int, y: int = 0) -> int:
    """Say x."""
    return x


class Bound:
    async def method(self, x: int) -> int:
        """Say x."""
        return x


async def generate(x: int):
    """Say x."""
    for _ in range(2):
        yield x


CALLABLES = {
    "async object": (AsyncObject(), "AsyncObject", "5"),
    "partial of a function": (functools.partial(async_function, y=1), "async_function", "5"),
    "partial of an object": (functools.partial(AsyncObject()), "AsyncObject", "5"),
    "lambda that returns a coroutine": (lambda x: async_function(x), "lambda", "5"),
    "bound method": (Bound().method, "method", "5"),
    "async generator, collected": (generate, "generate", "[5, 5]"),
}


@pytest.mark.parametrize(("function", "name", "result"), CALLABLES.values(), ids=CALLABLES.keys())
async def test_everything_that_can_be_awaited_is_awaited(function, name, result):
    """C65"""
    one = FunctionTool(function)
    assert one.name == name
    assert (await result_of(one, x=5)).result == result


async def test_a_time_limit_ends_async_and_sync_tools_and_the_run_goes_on():
    """C52"""
    late = []

    @tool(timeout=0.1)
    async def waits() -> str:
        await asyncio.sleep(30)
        return "late"

    @tool(timeout=0.1)
    def blocks() -> str:
        time.sleep(1)
        late.append(True)
        return "late"

    started = time.monotonic()
    response = await Agent(
        ScriptedChatClient([[tool_call("waits"), tool_call("blocks")], "ok"]), tools=[waits, blocks]
    ).run()
    assert response.text == ""
    response = await Agent(
        ScriptedChatClient([[tool_call("waits"), tool_call("blocks")], "ok"]), tools=[waits, blocks]
    ).run("q")
    assert time.monotonic() - started < 1
    assert [r.result for m in response.messages for r in m.results] == [
        "The tool 'waits' did not finish within its limit of 0.1 s: TimeoutError.",
        "The tool 'blocks' did not finish within its limit of 0.1 s: TimeoutError.",
    ]
    assert {e.payload["status"] for e in run_log().get(response.run_id).named("tool.failed")} == {"timeout"}
    assert (response.text, late) == ("ok", [])


def test_an_object_gives_its_tool_methods():
    class Menu:
        def __init__(self, dish: str) -> None:
            self.dish = dish

        @tool
        def special(self) -> str:
            """The dish of the day."""
            return self.dish

    soup, pie = Menu("soup"), Menu("pie")
    assert [t.name for t in collect_tools([soup])] == ["special"]
    assert (soup.special(), pie.special()) == ("soup", "pie")
    assert soup.special.definition.parameters["properties"] == {}


def of_factory(answer):
    def lookup() -> str:
        """Look up."""
        return answer

    return lookup


class Answers:
    """Objects that are called, all of one class."""

    def __init__(self, answer):
        self.answer = answer

    def __call__(self) -> str:
        """Look up."""
        return self.answer


def agent_named(description):
    return Agent(ScriptedChatClient(["ok"]), name="one", description=description)


@pytest.mark.parametrize(
    "tools",
    [
        lambda: [of_factory(1), of_factory(2)],
        lambda: [of_factory(1), tool(of_factory(2))],
        lambda: [Answers(1), Answers(2)],
        lambda: [agent_named("a"), agent_named("b")],
        lambda: [of_factory(1), FunctionTool(lambda: 1, name="lookup")],
        lambda: [tool(approval="always")(result_of), result_of],
    ],
)
async def test_two_different_tools_of_one_name_in_one_list_are_an_error(tools):
    agent = Agent(ScriptedChatClient([]))
    for given in (lambda: Agent(ScriptedChatClient([]), tools=tools()), lambda: agent.run("q", tools=tools())):
        with pytest.raises(ConfigurationError, match=r"Two tools are called .* Rename one"):
            given()
    agent.tools += [tool(one) for one in tools() if not isinstance(one, Agent)]
    if agent.tools:
        with pytest.raises(ConfigurationError, match="Two tools are called"):
            agent.run("q")


def test_what_is_given_twice_is_there_once():
    lookup, child, answers = of_factory(1), agent_named("a"), Answers(1)
    given = [lookup, lookup, tool(lookup), child, child, answers, tool(answers)]
    assert [one.name for one in collect_tools(given)] == ["lookup", "one", "Answers"]


@pytest.mark.parametrize("by", ["run", "provider", "agent"])
async def test_the_function_of_a_rerun_cell_replaces_that_of_the_agent(ask, by):
    class Gives(ContextProvider):
        async def before_run(self, context):
            self.add(context, tools=of_factory("new"))

    client = ScriptedChatClient([[tool_call("lookup")], "ok"])
    agent = Agent(client, tools=[of_factory("old")], context_providers=[Gives()] if by == "provider" else [])
    if by == "agent":
        agent = Agent(client, tools=[of_factory("new")])
    response = await ask(agent, "q", tools=[of_factory("new")] if by == "run" else None)
    assert response.messages[1].results[0].result == "new"
    assert len(client.requests[0].tools) == 1


async def test_tools_of_two_providers_do_not_replace_each_other(ask):
    class Gives(ContextProvider):
        async def before_run(self, context):
            self.add(context, tools=of_factory("new"))

    agent = Agent(ScriptedChatClient(["ok"]), tools=[of_factory("old")], context_providers=[Gives(), Gives()])
    with pytest.raises(ConfigurationError, match="Two tools are called 'lookup'"):
        await ask(agent, "q")


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: FunctionTool(3), "a function"),
        (lambda: FunctionTool(len, name="a b"), "'a b'"),
        (lambda: FunctionTool(async_function, timeout=0), "timeout"),
        (lambda: FunctionTool(async_function, approval="sometimes"), "approval"),
        (lambda: Agent(ScriptedChatClient([]), tools=[bad_hint]), "bad_hint"),
        (lambda: collect_tools([3]), "no tool"),
    ],
)
def test_what_cannot_be_a_tool_is_one_error_where_it_is_given(make, named):
    with pytest.raises(ConfigurationError, match=named):
        make()


def bad_hint(x: NoSuchType) -> None:  # noqa: F821
    """Do."""


async def test_a_generator_is_drained_within_the_time_limit_and_holds_up_nobody():
    @tool(timeout=0.2)
    def polls():
        while True:
            time.sleep(0.05)
            yield 1

    @tool
    def counts():
        return itertools.count()

    agent = Agent(ScriptedChatClient([[tool_call("polls"), tool_call("counts")], "ok"]), tools=[polls, counts])
    handle = agent.start("q")
    assert Agent(ScriptedChatClient(["at once"])).run_sync("q").text == "at once"
    polled, counted = (m.results[0] for m in (await handle).messages if m.role == "tool")
    assert "did not finish within its limit" in polled.result
    assert counted.result.startswith("[0, 1, 2, ")


async def test_a_tool_that_cancels_its_own_task_is_answered():
    @tool
    async def odd() -> None:
        asyncio.current_task().cancel()
        await asyncio.sleep(0)

    assert "cancelled by itself" in (await result_of(odd)).result


async def test_an_error_without_words_is_answered():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    @tool
    def broken() -> None:
        raise Mute

    assert (await result_of(broken)).result == "The tool 'broken' failed: Mute"


async def test_tools_of_a_run_are_added_replaced_by_their_rerun_cell_or_refused_at_the_call(ask):
    def define(answer):
        def f() -> int:
            """One."""
            return answer

        return f

    def other() -> int:
        """Another."""
        return 3

    client = ScriptedChatClient([[tool_call("f"), tool_call("other")], "ok"])
    agent = Agent(client, tools=[define(1)])
    response = await ask(agent, "q", tools=[define(2), other])
    assert [result.result for message in response.messages for result in message.results] == ["2", "3"]
    assert [one() for one in agent.tools] == [1]
    with pytest.raises(ConfigurationError, match=r"Two tools are called 'f': .*define\.<locals>\.f and .*other"):
        agent.run("q", tools=[FunctionTool(other, name="f")])


async def test_settings_count_also_where_the_function_is_passed_to_tool(ask):
    ran = []

    def rm(path: str) -> str:
        """Remove."""
        ran.append(path)
        return "gone"

    for guarded in (tool(rm, approval="always"), tool(tool(rm), approval="always"), tool(approval="always")(rm)):
        response = await ask(Agent(ScriptedChatClient([[tool_call("rm", path="a")]]), tools=[guarded]), "q")
        assert (response.stop_reason, ran) == ("approval_required", [])
    renamed = tool(guarded, name="remove", timeout=3)
    assert (renamed.name, renamed.approval, renamed.timeout, guarded.name) == ("remove", "always", 3, "rm")
    assert tool(renamed, approval="never").approval == "never"
    assert tool(renamed) is renamed


@pytest.mark.parametrize("make", [lambda: tool(len, aproval="always"), lambda: tool(aproval="always")])
def test_a_setting_that_does_not_exist_names_the_one_that_was_meant(make):
    with pytest.raises(ConfigurationError, match=r"'aproval'. Did you mean 'approval'"):
        make()


def test_the_settings_of_tool_stand_in_its_help_and_lead_to_a_public_class():
    settings = ["name", "description", "approval", "timeout", "strict", "concurrency"]
    assert list(inspect.signature(tool).parameters) == ["function", *settings]
    assert nbagents.FunctionTool is FunctionTool
    assert "FunctionTool" in (tool.__doc__ or "")


async def test_an_agent_that_is_a_tool_takes_settings_and_stays_one(ask):
    child = Agent(ScriptedChatClient(["four"]), name="child", description="Counts.")
    guarded = tool(child.as_tool(), approval="always")
    assert guarded.agent is child
    agent = Agent(ScriptedChatClient([[tool_call("child", messages="2+2")], "4"]), tools=[guarded])
    response = await ask(agent, "q")
    response = await ask(agent, [one.approve() for one in response.approvals], session=response.session)
    assert (response.text, response.messages[0].results[0].result) == ("4", "four")
