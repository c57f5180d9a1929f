"""The scripted demo: any question, always the same answer, a tool card where a tool fits."""

from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from nbagents import Agent, AgentSession, tool
from nbagents.clients import DemoChatClient


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"Sunny in {city}."


@tool
def add(a: int, b: float) -> float:
    """Add two numbers."""
    return a + b


def calls(response):
    return [(call.name, call.arguments) for message in response.messages for call in message.calls]


def ask(question, **settings):
    return Agent(DemoChatClient(delay=0), **settings).run_sync(question)


@given(st.text())
def test_any_question_is_answered_the_same_way_each_time(question):
    first, second = (ask(question, tools=[add]).text for _ in range(2))
    assert first == second
    assert "scripted demo" in first


def test_the_answer_streams_and_repeats_the_question():
    updates = [update.text for update in Agent(DemoChatClient(delay=0)).stream_sync("How are\nyou?") if update.text]
    assert len(updates) > 10
    assert "> How are\n> you?" in "".join(updates)


def test_it_never_runs_out_of_replies():
    agent, session = Agent(DemoChatClient(delay=0)), AgentSession()
    assert all(f"> {n}" in agent.run_sync(str(n), session=session).text for n in range(30))


@pytest.mark.parametrize(
    ("question", "called"),
    [
        ("What is 2 plus 40.5?", [("add", {"a": 2, "b": 40.5})]),
        ("What's the weather in Paris today?", [("weather", {"city": "Paris"})]),
        ("weather for 'New York'", [("weather", {"city": "New York"})]),
        ("Use add!", [("add", {"a": 1, "b": 1.0})]),
        ("Only one number: 7", []),
        ("Hello", []),
        ("I am an addict", []),
    ],
)
def test_a_tool_that_fits_is_called_once(question, called):
    response = ask(question, tools=[weather, add])
    assert calls(response) == called
    if called:
        assert f"> {response.messages[1].results[0].result}" in response.text


def test_each_question_may_call_again_under_a_new_id():
    agent, session = Agent(DemoChatClient(delay=0), tools=[add]), AgentSession()
    ids = [agent.run_sync(q, session=session).messages[0].calls[0].call_id for q in ("1 and 2", "3 and 4")]
    assert ids == ["call_1", "call_2"]


def test_tool_choice_is_obeyed():
    def chosen(choice):
        return calls(ask("What is 1 and 2?", tools=[weather, add], options={"tool_choice": choice}))

    assert chosen("none") == []
    assert chosen("required") == [("add", {"a": 1, "b": 2.0})]
    assert chosen({"type": "function", "function": {"name": "weather"}}) == [("weather", {"city": "and"})]


def test_a_failing_tool_is_told():
    @tool
    def boom(n: int) -> int:
        """Fail."""
        raise ValueError("no")

    assert "`boom` failed" in ask("boom 1", tools=[boom]).text


class Part(BaseModel):
    name: str
    parts: list["Part"] = []


class Order(BaseModel):
    item: str
    amounts: list[int]
    size: Literal["small", "large"]
    part: Part
    note: str | None
    paid: bool
    kind: Annotated[str, Field(default="plain")]


def test_structured_output_fits_the_schema():
    order = ask("Order 'tea' large, 3 and 4", options={"response_format": Order}).value
    assert (order.item, order.amounts, order.size, order.kind) == ("tea", [3, 4], "large", "plain")
