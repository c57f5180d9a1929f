"""Calls that wait for a person."""

import json
from dataclasses import replace

import pytest

from nbagents import Agent, AgentSession, ScriptedChatClient, run_log, tool, tool_call


@pytest.fixture
def removed():
    return []


@pytest.fixture
def agent(removed):
    @tool(approval="always")
    def remove(path: str) -> str:
        """Remove a file."""
        removed.append(path)
        return f"removed {path}"

    @tool
    def look() -> str:
        """Look."""
        return "all fine"

    script = [["Sure. ", tool_call("look"), tool_call("remove", path="a"), tool_call("remove", path="b")]] + [
        "Done."
    ] * 5
    return Agent(ScriptedChatClient(script), tools=[remove, look])


async def test_a_run_that_needs_a_person_ends_with_the_requests_and_runs_the_rest(ask, agent, removed):
    session = agent.create_session()
    response = await ask(agent, "clean up", session=session)
    assert response.stop_reason == "approval_required"
    assert [(r.call.name, r.call.arguments) for r in response.approvals] == [
        ("remove", {"path": "a"}),
        ("remove", {"path": "b"}),
    ]
    assert removed == []
    assert [m.results[0].result for m in response.messages if m.results] == ["all fine"]
    assert await agent.thread(session).get_messages() == []
    assert len(run_log().get(response.run_id).named("approval.requested")) == 2


async def test_the_answers_run_what_was_approved_and_tell_of_what_was_denied(ask, agent, removed):
    """The answer comes after the session was stored and read again."""
    session = agent.create_session()
    first, second = (await ask(agent, "clean up", session=session)).approvals
    session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    response = await ask(agent, [first.approve(), second.deny("b is needed")], session=session)
    assert (response.text, response.stop_reason, removed) == ("Done.", "completed", ["a"])
    stored = await agent.thread(session).get_messages()
    assert_balanced_by_id(stored)
    results = {r.id: r.result for m in stored for r in m.results}
    assert results[first.id] == "removed a"
    assert results[second.id] == "Not run: the user denied this call: b is needed"


async def test_answers_that_are_missing_keep_the_run_waiting(ask, agent, removed):
    session = agent.create_session()
    first, second = (await ask(agent, "clean up", session=session)).approvals
    response = await ask(agent, second.approve(), session=session)
    assert (response.stop_reason, removed) == ("approval_required", ["b"])
    assert [r.id for r in response.approvals] == [first.id]
    response = await ask(agent, first.approve(), session=session)
    assert (response.text, removed) == ("Done.", ["b", "a"])


async def test_going_on_without_an_answer_refuses_the_calls(ask, agent, removed):
    session = agent.create_session()
    await ask(agent, "clean up", session=session)
    response = await ask(agent, "never mind", session=session)
    assert (response.text, removed) == ("Done.", [])
    sent = agent.client.requests[-1].messages
    assert sent[-1].text == "never mind"
    assert sum("nobody approved" in r.result for m in sent for r in m.results) == 2


@pytest.mark.parametrize("forgery", ["changed", "made up"])
async def test_forged_answers_run_nothing(ask, agent, removed, forgery):
    session = agent.create_session()
    first, second = (await ask(agent, "clean up", session=session)).approvals
    if forgery == "changed":
        forged = replace(first.approve(), call=replace(first.call, arguments={"path": "/"}))
    else:
        forged = replace(first.approve(), id="call_0")
    response = await ask(agent, [forged], session=session)
    assert (response.stop_reason, removed) == ("approval_required", [])
    assert {r.id for r in response.approvals} == {first.id, second.id} - {forged.id} | {first.id}


async def test_an_answer_that_is_played_again_runs_nothing(ask, agent, removed):
    session = agent.create_session()
    first, second = (await ask(agent, "clean up", session=session)).approvals
    answers = [first.approve(), second.approve()]
    await ask(agent, answers, session=session)
    response = await ask(agent, answers, session=session)
    assert removed == ["a", "b"]
    assert "ignored" in response.warnings[0]


async def test_a_function_decides_for_each_call(ask, removed):
    @tool(approval=lambda arguments: arguments["path"].startswith("/"))
    def remove(path: str) -> str:
        """Remove."""
        removed.append(path)
        return "ok"

    client = ScriptedChatClient([[tool_call("remove", path="/etc"), tool_call("remove", path="x")], "ok"])
    response = await ask(Agent(client, tools=[remove]), "q")
    assert ([r.call.arguments["path"] for r in response.approvals], removed) == (["/etc"], ["x"])


def assert_balanced_by_id(messages):
    calls = [call.id for m in messages for call in m.calls]
    assert sorted(calls) == sorted(r.id for m in messages for r in m.results)
    assert len(set(calls)) == len(calls)


async def test_an_approval_rule_gets_arguments_that_fit_and_where_it_fails_a_person_is_asked(ask, removed):
    @tool(approval=lambda arguments: arguments["path"].startswith(arguments["no such argument"]))
    def remove(path: str) -> str:
        """Remove."""
        removed.append(path)
        return "ok"

    client = ScriptedChatClient([[tool_call("remove"), tool_call("remove", path="x")], "ok"])
    response = await ask(Agent(client, tools=[remove]), "q")
    assert "missing argument 'path'" in response.messages[1].results[0].result
    assert ([r.call.arguments for r in response.approvals], removed) == ([{"path": "x"}], [])
    assert "KeyError" in response.warnings[0]
