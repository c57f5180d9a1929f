"""Calls that wait for a person."""

import asyncio
import json
from dataclasses import replace

import pytest

from nbagents import Agent, AgentSession, Message, ScriptedChatClient, run_log, tool, tool_call
from nbagents.core.errors import ConfigurationError, SessionError


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


@pytest.mark.parametrize(
    "passed",
    [lambda asked: asked[0], lambda asked: asked, lambda asked: ["and?", *asked], lambda asked: Message("user", asked)],
)
async def test_a_request_in_the_place_of_its_answer_is_an_error_at_the_call_and_the_calls_go_on_waiting(
    ask, agent, removed, passed
):
    session = agent.create_session()
    asked = (await ask(agent, "clean up", session=session)).approvals
    for stream in (False, True):
        with pytest.raises(ConfigurationError, match=r"request\.approve\(\) or request\.deny\(reason\)"):
            agent.run(passed(asked), stream=stream, session=session)
    assert len(agent.client.requests) == 1
    await ask(agent, [one.approve() for one in asked], session=session)
    assert removed == ["a", "b"]


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


async def test_a_denial_counts_more_than_an_approval_of_the_same_call(ask, agent, removed):
    session = agent.create_session()
    first, second = (await ask(agent, "clean up", session=session)).approvals
    await ask(agent, [first.deny(), first.approve(), second.approve(), second.deny()], session=session)
    assert removed == []


async def test_answers_and_a_text_together_run_what_was_approved_and_the_text_comes_after_it(ask, agent, removed):
    session = agent.create_session()
    first, second = (await ask(agent, "clean up", session=session)).approvals
    response = await ask(agent, [first.approve(), second.deny(), Message("user", "hurry")], session=session)
    assert (response.text, removed) == ("Done.", ["a"])
    stored = await agent.thread(session).get_messages()
    assert [m.text for m in stored if m.role == "user"] == ["clean up", "hurry"]
    assert stored.index(next(m for m in stored if m.text == "hurry")) == 5
    assert_balanced_by_id(stored)


@pytest.mark.parametrize("change", ["removed", "changed", "replaced"])
async def test_a_tool_that_has_changed_meanwhile_answers_the_call_all_the_same(ask, agent, removed, change):
    """An approved call is checked against the tool that there is when it runs."""
    session = agent.create_session()
    answers = [request.approve() for request in (await ask(agent, "clean up", session=session)).approvals]

    @tool(name="remove")
    def with_other_arguments(folder: str) -> str:
        """Remove a folder."""
        removed.append(folder)

    tools = {"removed": [], "changed": [with_other_arguments], "replaced": [tool(name="remove")(removed.remove)]}[
        change
    ]
    later = Agent(agent.client, tools=tools)
    response = await ask(later, answers, session=AgentSession.from_dict(session.to_dict()))
    assert (response.text, removed) == ("Done.", [])
    errors = [result.error for m in response.messages for result in m.results]
    assert all(errors)
    assert_balanced_by_id(await later.thread(response.session).get_messages())


async def test_answers_of_another_agent_run_nothing_and_the_calls_go_on_waiting(ask, agent, removed):
    """Two agents may share a session, and have different tools of one name."""
    session = agent.create_session()
    answers = [request.approve() for request in (await ask(agent, "clean up", session=session)).approvals]
    erase = tool(name="remove")(lambda path: removed.append(f"other {path}"))
    other = Agent(ScriptedChatClient(["Never.", "Hello."]), name="other", tools=[erase])
    with pytest.raises(SessionError, match="those of the agent 'agent'"):
        await ask(other, answers, session=session)
    assert (await ask(agent, answers, session=session)).text == "Done."
    assert removed == ["a", "b"]


async def test_another_agent_that_goes_on_with_the_session_refuses_the_calls(ask, agent, removed):
    session = agent.create_session()
    answers = [request.approve() for request in (await ask(agent, "clean up", session=session)).approvals]
    other = Agent(ScriptedChatClient(["Hello."]), name="other")
    assert (await ask(other, "hello", session=session)).text == "Hello."
    sent = other.client.requests[0].messages
    assert sum("nobody approved" in r.result for m in sent for r in m.results) == 2
    assert_balanced_by_id(sent)
    response = await ask(agent, [*answers, "and?"], session=session)
    assert (response.text, removed) == ("Done.", [])
    assert "ignored" in response.warnings[0]


async def test_a_run_that_is_cancelled_while_approved_calls_run_leaves_a_session_that_can_be_used(ask):
    began = asyncio.Event()

    @tool(approval="always")
    async def slow(path: str) -> str:
        """Wait."""
        began.set()
        await asyncio.Event().wait()

    agent = Agent(ScriptedChatClient([[tool_call("slow", path="a")], "ok"]), tools=[slow])
    session = agent.create_session()
    (request,) = (await ask(agent, "q", session=session)).approvals
    task = asyncio.create_task(ask(agent, request.approve(), session=session))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await ask(agent, [request.approve(), "go on"], session=session)).text == "ok"
    sent = agent.client.requests[-1].messages
    assert [m.role for m in sent] == ["user", "assistant", "tool", "user"]
    assert sent[2].results[0].interrupted


async def test_what_a_person_denies_is_told_in_the_stream():
    guarded = tool(name="remove", approval="always")(lambda path: path)
    agent = Agent(ScriptedChatClient([[tool_call("remove", path="a")], "ok"]), tools=[guarded])
    session = agent.create_session()
    (request,) = (await agent.run("q", session=session)).approvals
    events = [event async for event in agent.run(request.deny("no"), stream=True, session=session).events()]
    (failed,) = [event for event in events if event.name == "tool.failed"]
    assert (failed.payload["status"], failed.update.contents[0].error) == (
        "denied",
        "Not run: the user denied this call: no",
    )
