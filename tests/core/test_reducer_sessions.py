"""Sessions that come from one reducer to another, and reducers that do what they should not."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from nbagents import (
    Agent,
    AgentSession,
    ContextProvider,
    FileHistoryProvider,
    Message,
    Reducer,
    RunBudget,
    RunContext,
    ScriptedChatClient,
    SummarizationReducer,
    TextContent,
    ToolResultReducer,
    TruncationReducer,
    tool_call,
)
from nbagents.clients.chat_wire import wire_messages
from nbagents.core.errors import RunTimeoutError
from tests.core.talking import scripted, summing, talk, texts
from tests.support import strict


def test_a_session_that_comes_to_another_reducer_is_cut_by_that_one():
    def look() -> str:
        """Look."""
        return "x" * 3_000

    client = ScriptedChatClient([step for turn in range(6) for step in ([tool_call("look")], f"Answer {turn}.")])
    shortening = Agent(client, tools=[look], reducer=ToolResultReducer(500))
    session = shortening.create_session()
    talk(shortening, session, 6)
    cutting = Agent(scripted(), reducer=TruncationReducer(1_000))
    _, (whole,) = talk(cutting, session, 1)
    assert len(whole) == 25


def test_a_smaller_limit_for_one_run_is_not_there_in_the_next():
    agent = Agent(scripted(), reducer=TruncationReducer(40))
    session = agent.create_session()
    talk(agent, session, 6)
    _, (short,) = talk(agent, session, 1, reducer=TruncationReducer(2))
    _, (usual,) = talk(agent, session, 1)
    assert (len(short), len(usual)) == (1, 15)


def test_what_another_reducer_left_out_is_summed_up_too():
    cutting = Agent(scripted(), reducer=TruncationReducer(4))
    session = cutting.create_session()
    talk(cutting, session, 6)
    writer, reducer = summing()
    summed = Agent(scripted(), reducer=reducer)
    talk(summed, session, 1)
    assert "Question 0?" in writer.requests[0].messages[-1].text
    talk(cutting, session, 4)
    _, requests = talk(summed, session, 1)
    told = "".join(request.messages[-1].text for request in writer.requests) + "".join(texts(requests[-1]))
    assert all(message.text in told for message in session.state["messages"][:-1])


def test_a_session_keeps_the_last_few_reducers_only():
    agent = Agent(scripted())
    session = agent.create_session()
    for limit in range(2, 40):
        agent.run_sync("Question?", session=session, reducer=TruncationReducer(limit))
    assert len(json.dumps(session.state["nbagents.reduction"])) < 2_000


@pytest.mark.parametrize(
    "kept",
    [
        [1],
        {},
        {"reducers": 5, "scale": "large"},
        {"reducers": {"TruncationReducer(4, keep=0.75)": [1]}, "scale": float("nan")},
        {"reducers": {"TruncationReducer(4, keep=0.75)": {"state": {"cut": "a", "mark": 3}}}, "scale": None},
    ],
)
def test_a_session_from_anywhere_is_reduced_all_the_same(kept):
    messages = [Message("user", "Question?"), Message("assistant", "Answer.", extra={"nbagents.reduction": kept})] * 4
    session = AgentSession.from_dict(AgentSession(state={"messages": messages, "nbagents.reduction": kept}).to_dict())
    _, (request,) = talk(Agent(scripted(), reducer=TruncationReducer(4)), session, 1)
    assert len(request) == 3


def test_a_reducer_that_blots_out_a_word_has_it_out_of_every_message():
    def blotted(messages):
        return [replace(message, contents=[TextContent(message.text.replace("1234", "****"))]) for message in messages]

    class Notes(ContextProvider):
        async def before_run(self, run):
            run.provided.append(Message("user", "A note."))

    agent = Agent(scripted(), reducer=blotted, context_providers=[Notes()])
    session = agent.create_session()
    for number in range(2):
        agent.run_sync(f"My number {number} is 1234.", session=session)
    assert texts(agent.client.requests[-1].messages) == [
        "My number 0 is ****.",
        "Answer 0.",
        "A note.",
        "My number 1 is ****.",
    ]
    assert "1234" in session.state["messages"][0].text


def test_what_a_provider_adds_stands_between_no_call_and_its_result():
    def look() -> str:
        """Look."""
        return "seen"

    class Notes(ContextProvider):
        async def before_run(self, run):
            run.provided.append(Message("user", "A note."))

    def copies_without_results(messages):
        return [replace(message) for message in messages if message.role != "tool"]

    client = ScriptedChatClient([[tool_call("look")], [tool_call("look")], "Done."])
    agent = Agent(client, tools=[look], reducer=copies_without_results, context_providers=[Notes()])
    agent.run_sync("Look twice.")
    for request in client.requests:
        assert strict.refusal({"messages": wire_messages(request.messages)}) is None


def test_a_reducer_that_takes_its_list_apart_changes_nothing_else():
    class Emptying(Reducer):
        async def reduce(self, messages, context):
            del messages[:]

    agent = Agent(scripted(), reducer=Emptying())
    session = agent.create_session()
    _, requests = talk(agent, session, 3)
    assert texts(requests[-1]) == ["Question 0?", "Answer 0.", "Question 1?", "Answer 1.", "Question 2?"]


def test_a_model_that_calls_tools_instead_of_summing_up_is_asked_twice_at_most():
    writer = ScriptedChatClient([[tool_call("look")]] * 40)
    agent = Agent(scripted(), reducer=SummarizationReducer(max_messages=4, client=writer))
    session = agent.create_session()
    with pytest.warns(UserWarning, match="The summary failed"):
        talk(agent, session, 3)
    assert len(writer.requests) <= 2


async def test_a_reducer_that_hangs_is_over_with_the_duration_of_the_run():
    async def hanging(messages):
        await asyncio.Event().wait()

    agent = Agent(scripted(), reducer=hanging)
    with pytest.raises(RunTimeoutError):
        await asyncio.wait_for(agent.run("Question?", budget=RunBudget(max_duration_ms=20)), 10)


def test_a_summary_is_found_again_where_middleware_has_the_last_word(tmp_path):
    async def polite(context: RunContext, call_next):
        await call_next()
        context.answer("Thank you for asking.")

    writer, reducer = summing(6)
    for number in range(12):
        agent = Agent(scripted(), history=FileHistoryProvider(tmp_path), middleware=[polite], reducer=reducer)
        agent.run_sync(f"Question {number}?", session=AgentSession("trip"))
    assert 2 <= len(writer.requests) <= 5
