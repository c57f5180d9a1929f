"""What a tool knows of its run, and how a round of calls goes: forced choices, failures, cards, the step limit."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Annotated

import pytest

from nbagents import Agent, RunBudget, ScriptedChatClient, ToolContext, run_log, tool, tool_call
from nbagents.core.errors import ConfigurationError


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def results(response):
    return [result.result for message in response.messages for result in message.results]


def choices(client):
    return [request.options.get("tool_choice") for request in client.requests]


def told(context: ToolContext, word: str) -> str:
    context.emit_delta(f"{word}…")
    context.emit_artifact("map", {"word": word}, kind="json")
    context.session.state["word"] = word
    return f"{word} {context.run_id == context.run.run_id} {context.arguments['who']}"


def first(context: ToolContext, word: str) -> str:
    """Tell."""
    return told(context, word)


async def optional(word: str, about: ToolContext | None = None) -> str:
    """Tell."""
    assert about is not None
    await asyncio.sleep(0)
    return told(about, word)


def only_by_place(context: Annotated[ToolContext, "not for the model"], /, word: str) -> str:
    """Tell."""
    return told(context, word)


def by_name(word: str, *, context: ToolContext) -> str:
    """Tell."""
    return told(context, word)


class Teller:
    def method(self, word: str, context: ToolContext) -> str:
        """Tell."""
        return told(context, word)

    async def __call__(self, context: ToolContext, word: str) -> str:
        """Tell."""
        return told(context, word)


TELLERS = [first, optional, only_by_place, by_name, Teller().method, Teller(), functools.partial(by_name)]


@pytest.mark.parametrize("teller", TELLERS, ids=lambda one: getattr(one, "__name__", type(one).__name__))
async def test_a_tool_of_any_kind_gets_its_run_and_can_tell_of_itself(ask, teller):
    one = tool(name="tell")(teller)
    assert list(one.definition.parameters["properties"]) == ["word"]
    client = ScriptedChatClient([[tool_call("tell", word="hi")], "ok"])
    agent = Agent(client, tools=[one], arguments={"who": "Ada"})
    session = agent.create_session()
    response = await ask(agent, "q", session=session)
    assert results(response) == ["hi True Ada"]
    assert session.state["word"] == "hi"
    record = run_log().get(response.run_id)
    (call,) = record.named("tool.called")
    (artifact,) = record.named("artifact.emitted")
    facts = {"tool_id": "tell", "call_id": call.payload["call_id"], "id": call.payload["id"], "step": 1}
    assert artifact.payload == {**facts, "name": "map", "kind": "json", "payload": {"word": "hi"}}


async def test_the_model_cannot_fill_in_what_the_run_injects(ask):
    client = ScriptedChatClient([[tool_call("by_name", word="hi", context={"run": "mine"})], "ok"])
    response = await ask(Agent(client, tools=[by_name]), "q")
    assert results(response)[0].endswith("unknown argument 'context' (known: word).")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "add"}}])
async def test_a_forced_call_is_forced_once_in_each_turn(ask, choice):
    client = ScriptedChatClient([[tool_call("add", a=1, b=2)], "3", [tool_call("add", a=2, b=2)], "4"])
    agent = Agent(client, tools=[add], options={"tool_choice": choice})
    session = agent.create_session()
    await ask(agent, "1+2", session=session)
    await ask(agent, "2+2", session=session)
    assert choices(client) == [choice, None, choice, None]


@pytest.mark.parametrize("choice", ["auto", "none"])
async def test_a_choice_that_forces_nothing_stays(ask, choice):
    client = ScriptedChatClient([[tool_call("add", a=1, b=2)], "3"])
    await ask(Agent(client, tools=[add]), "1+2", options={"tool_choice": choice})
    assert choices(client) == [choice, choice]


async def test_after_an_approval_the_turn_goes_on_and_is_not_forced_again(ask):
    asked = tool(approval="always")(add)
    client = ScriptedChatClient([[tool_call("add", a=1, b=2)], "3"])
    agent = Agent(client, tools=[asked], options={"tool_choice": "required"})
    session = agent.create_session()
    first_run = await ask(agent, "1+2", session=session)
    second_run = await ask(agent, [one.approve() for one in first_run.approvals], session=session)
    assert (second_run.text, choices(client)) == ("3", ["required", None])


async def test_a_choice_of_a_tool_that_there_is_not_is_an_error_before_the_request(ask):
    client = ScriptedChatClient(["never"])
    choice = {"type": "function", "function": {"name": "ad"}}
    with pytest.raises(ConfigurationError, match=r"tool_choice names 'ad', .*There are: add\."):
        await ask(Agent(client, tools=[add]), "q", options={"tool_choice": choice})
    assert client.requests == []


async def test_the_closing_call_offers_and_forces_nothing_and_what_it_asks_for_is_not_run(ask):
    """C67"""
    ran = []

    @tool
    def count() -> int:
        """Count."""
        ran.append(True)
        return len(ran)

    client = ScriptedChatClient([[tool_call("count")]] * 3)
    agent = Agent(client, tools=[count], options={"tool_choice": "required"}, budget=RunBudget(max_steps=2))
    response = await ask(agent, "q")
    assert [len(request.tools) for request in client.requests] == [1, 1, 0]
    assert choices(client) == ["required", None, None]
    assert (response.stop_reason, len(ran)) == ("max_steps", 1)
    assert len(results(response)) == 3


async def test_one_failing_call_leaves_the_others_and_the_order_as_they_are(ask):
    """C50, C70"""
    gone = threading.Event()

    @tool
    async def slow() -> str:
        """Wait."""
        await asyncio.to_thread(gone.wait, 5)
        return "slow"

    @tool
    def fails(kind: str) -> None:
        """Fail."""
        gone.set()
        raise {
            "mute": ValueError(),
            "cancel": asyncio.CancelledError(),
            "stop": StopIteration("s"),
            "long": ValueError("x" * 100_000),
            "group": ExceptionGroup("g", [KeyError("k"), ValueError()]),
        }[kind]

    calls = [
        tool_call("slow"),
        *(tool_call("fails", kind=kind) for kind in ("mute", "cancel", "stop", "group", "long")),
    ]
    response = await ask(Agent(ScriptedChatClient([calls, "ok"]), tools=[slow, fails]), "q")
    *short, long = results(response)
    assert short == [
        "slow",
        "The tool 'fails' failed: ValueError",
        "The tool 'fails' was cancelled by itself.",
        "The tool 'fails' failed: RuntimeError: the tool raised StopIteration: s",
        "The tool 'fails' failed: ExceptionGroup: KeyError: 'k'; ValueError",
    ]
    assert len(long) < 21_000
    assert "characters left out" in long
    failed = run_log().get(response.run_id).named("tool.failed")
    assert ["in fails" in event.payload["traceback"] for event in failed] == [True] * 5
    assert response.text == "ok"


async def test_an_endless_async_generator_is_read_as_far_as_anybody_would(ask):
    closed = []

    @tool
    async def numbers():
        """Count."""
        number = 0
        try:
            while True:
                yield number
                number += 1
        finally:
            closed.append(number)

    response = await ask(Agent(ScriptedChatClient([[tool_call("numbers")], "ok"]), tools=[numbers]), "q")
    assert results(response)[0].startswith("[0, 1, 2, ")
    assert closed == [9_999]
