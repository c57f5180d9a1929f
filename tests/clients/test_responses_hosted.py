"""Tools that run at OpenAI: beside functions, as content, and with a person who allows them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nbagents import (
    Agent,
    AgentSession,
    OpenAIResponsesClient,
    ScriptedChatClient,
    SupportsCodeInterpreterTool,
    SupportsFileSearchTool,
    SupportsImageGenerationTool,
    SupportsMCPTool,
    SupportsShellTool,
    SupportsWebSearchTool,
    run_log,
    tool,
    tool_call,
)
from nbagents.core import HostedToolCall, HostedToolResult
from tests.clients.asking import KEY, Mode, ask, both_modes, fails
from tests.clients.responding import SEARCH, Service, add
from tests.support.chunks import error_body
from tests.support.raw_server import RawServer
from tests.support.responses_events import called, said


@both_modes
async def test_hosted_tools_go_beside_functions_and_their_calls_are_content(service: Service, mode: Mode) -> None:
    service.say(SEARCH, called("c1", "add", {"a": 1})).say("Eleven owls.").say("Bye.")
    agent = service.agent(add, client={"stores_by_default": False})
    search = agent.client.get_web_search_tool(search_context_size="low")
    session = agent.create_session()
    answer = await ask(agent, "How many owls?", mode, session, tools=[search])
    await ask(agent, "Bye", mode, session, tools=[search])
    assert [one["type"] for one in service.requests[0]["tools"]] == ["function", "web_search"]
    assert service.requests[0]["include"] == ["web_search_call.action.sources", "reasoning.encrypted_content"]
    kinds = [type(content) for content in answer.messages[0].contents]
    assert kinds[:2] == [HostedToolCall, HostedToolResult]
    assert service.requests[1]["input"][1] == service.requests[2]["input"][1] == SEARCH
    called_tools = [event.payload["tool_id"] for event in run_log().get(answer.run_id).named("tool.called")]
    assert called_tools == ["add"]


ASKED = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "name": "remove",
    "server_label": "files",
    "arguments": '{"path": "x"}',
}
REMOVED = {
    "type": "mcp_call",
    "id": "mcp_1",
    "status": "completed",
    "name": "remove",
    "server_label": "files",
    "arguments": '{"path": "x"}',
    "output": "removed",
    "approval_request_id": "mcpr_1",
}


@both_modes
@pytest.mark.parametrize("stores", [True, False])
@pytest.mark.parametrize("allowed", [True, False])
async def test_what_the_service_asks_a_person_is_asked_and_answered_as_our_own(
    service: Service, mode: Mode, stores: bool, allowed: bool
) -> None:
    service.say(said("I have to ask."), ASKED).say(*([REMOVED] if allowed else []), said("Done.", id="m2")).say("Bye.")
    agent = service.agent(client={"stores_by_default": stores})
    session = agent.create_session()
    asked = await ask(agent, "Remove x", mode, session)
    assert (asked.stop_reason, asked.text) == ("approval_required", "I have to ask.")
    (request,) = asked.approvals
    assert (request.call.name, request.call.arguments, request.service) == ("files.remove", {"path": "x"}, "files")
    (event,) = run_log().get(asked.run_id).named("approval.requested")
    assert event.payload == {
        "tool_id": "files.remove",
        "call_id": "mcpr_1",
        "id": "mcpr_1",
        "arguments": {"path": "x"},
    }
    session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    answer = request.approve() if allowed else request.deny("keep it")
    done = await ask(agent, [answer], mode, session)
    assert (done.text, done.stop_reason, done.warnings) == ("Done.", "completed", [])
    sent = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": allowed}
    assert service.requests[1]["input"][-1] == {**sent, **({} if allowed else {"reason": "keep it"})}
    assert (ASKED in service.requests[1]["input"]) is not stores
    assert len(service.requests[1]["input"]) == (1 if stores else 4)
    assert (await ask(agent, "Bye", mode, session)).text == "Bye."


def stored_again(session: AgentSession) -> AgentSession:
    """The session as another program reads it."""
    return AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))


def answers_sent(service: Service, number: int = -1) -> list[tuple[str, Any]]:
    """Kind and what is said of each result and answer in a request."""
    items = service.requests[number]["input"]
    return [
        (item["type"], item["output"] if "output" in item else (item["approval_request_id"], item["approve"]))
        for item in items
        if item["type"] in ("function_call_output", "mcp_approval_response")
    ]


@both_modes
@pytest.mark.parametrize("stores", [True, False])
async def test_calls_beside_a_question_are_run_and_the_person_is_asked(
    service: Service, mode: Mode, stores: bool
) -> None:
    other = {**ASKED, "id": "mcpr_2"}
    service.say("Hm.", ASKED, called("c1", "add", {"a": 1}), other).say(REMOVED, said("Done.", id="m2")).say("Bye.")
    agent = service.agent(add, client={"stores_by_default": stores})
    session = agent.create_session()
    asked = await ask(agent, "Add, and remove x", mode, session)
    assert (asked.stop_reason, len(service.requests)) == ("approval_required", 1)
    assert [result.result for message in asked.messages for result in message.results] == ["11"]
    assert [e.payload["id"] for e in run_log().get(asked.run_id).named("approval.requested")] == ["mcpr_1", "mcpr_2"]
    session = stored_again(session)
    first, second = asked.approvals
    done = await ask(agent, [first.approve(), second.deny()], mode, session)
    assert (done.text, done.stop_reason, done.warnings) == ("Done.", "completed", [])
    assert answers_sent(service) == [
        ("function_call_output", "11"),
        ("mcp_approval_response", ("mcpr_1", True)),
        ("mcp_approval_response", ("mcpr_2", False)),
    ]
    assert (await ask(agent, "Bye", mode, stored_again(session))).text == "Bye."


@both_modes
@pytest.mark.parametrize("stores", [True, False])
@pytest.mark.parametrize("together", [True, False])
async def test_a_question_of_the_service_beside_one_of_ours_is_answered_too(
    service: Service, mode: Mode, stores: bool, together: bool
) -> None:
    service.say(ASKED, called("c1", "drop", {"x": 1})).say(REMOVED, said("Done.", id="m2"))

    @tool(approval="always")
    def drop(x: int) -> str:
        """Drop something."""
        return f"dropped {x}"

    agent = service.agent(drop, client={"stores_by_default": stores})
    session = agent.create_session()
    asked = await ask(agent, "Drop 1, and remove x", mode, session)
    assert [request.service for request in asked.approvals] == ["files", None]
    assert len(run_log().get(asked.run_id).named("approval.requested")) == 2
    session = stored_again(session)
    answers = [request.approve() for request in asked.approvals]
    if not together:
        waits = await ask(agent, answers[:1], mode, session)
        assert (waits.stop_reason, len(service.requests)) == ("approval_required", 1)
        session = stored_again(session)
    done = await ask(agent, answers if together else answers[1:], mode, session)
    assert (done.text, done.stop_reason, done.warnings) == ("Done.", "completed", [])
    assert answers_sent(service) == [
        ("function_call_output", "dropped 1"),
        ("mcp_approval_response", ("mcpr_1", True)),
    ]


@both_modes
@pytest.mark.parametrize("stores", [True, False])
async def test_a_denial_counts_more_than_an_approval_for_the_service_too(
    service: Service, mode: Mode, stores: bool
) -> None:
    service.say(ASKED).say("Not then.").say("Bye.")
    agent = service.agent(client={"stores_by_default": stores})
    session = agent.create_session()
    (request,) = (await ask(agent, "Remove x", mode, session)).approvals
    await ask(agent, [request.approve(), request.deny(), request.approve()], mode, session)
    assert answers_sent(service) == [("mcp_approval_response", ("mcpr_1", False))]


@both_modes
async def test_an_answer_that_is_played_again_does_not_go_out_again(service: Service, mode: Mode) -> None:
    service.say(ASKED).say("Not then.").say("As I said.")
    agent = service.agent(client={"stores_by_default": False})
    session = agent.create_session()
    (request,) = (await ask(agent, "Remove x", mode, session)).approvals
    await ask(agent, request.deny(), mode, session)
    assert (await ask(agent, [request.approve(), "Do it"], mode, session)).text == "As I said."
    assert answers_sent(service) == [("mcp_approval_response", ("mcpr_1", False))]


@both_modes
async def test_an_answer_whose_question_is_out_of_sight_does_not_go_out(service: Service, mode: Mode) -> None:
    """A reducer may have left out the question."""
    service.say(ASKED).say(REMOVED, said("Done.", id="m2")).say("Bye.")
    agent = service.agent(client={"stores_by_default": False})
    session = agent.create_session()
    (request,) = (await ask(agent, "Remove x", mode, session)).approvals
    await ask(agent, request.approve(), mode, session)
    (stored,) = [place for place, m in enumerate(await agent.thread(session).get_messages()) if ASKED["id"] in repr(m)][
        1:
    ]
    history = (await agent.thread(session).get_messages())[stored:]
    assert (await ask(agent, [*history, "Bye"], mode)).text == "Bye."
    assert answers_sent(service) == []


@both_modes
@pytest.mark.parametrize("stores", [True, False])
@pytest.mark.parametrize("kind", ["fresh", "shared"])
async def test_what_the_service_of_a_sub_agent_asks_is_answered_to_that_service(
    service: Service, mode: Mode, stores: bool, kind: Any
) -> None:
    service.say(ASKED).say(REMOVED, said("Removed."))
    child = service.agent(client={"stores_by_default": stores}, name="files", description="Works on files.")
    script = [[tool_call("files", messages="Remove x")], "All done."]
    parent = Agent(ScriptedChatClient(script), tools=[child.as_tool(session=kind)])
    session = parent.create_session()
    asked = await ask(parent, "Remove x", mode, session)
    (request,) = asked.approvals
    assert (asked.stop_reason, request.service) == ("approval_required", "files")
    done = await ask(parent, [request.approve()], mode, session)
    assert (done.text, done.messages[0].results[0].result) == ("All done.", "Removed.")
    assert service.requests[1]["input"][-1]["type"] == "mcp_approval_response"


@both_modes
async def test_a_conversation_that_goes_on_without_an_answer_forgets_the_question(service: Service, mode: Mode) -> None:
    service.say(said("I have to ask."), ASKED).say("Then not.")
    agent = service.agent(client={"stores_by_default": False})
    session = agent.create_session()
    await ask(agent, "Remove x", mode, session)
    assert (await ask(agent, "Leave it", mode, session)).text == "Then not."
    assert service.brought() == [("user", "Remove x"), ("assistant", "I have to ask."), ("user", "Leave it")]


def test_the_client_says_which_tools_its_service_has() -> None:
    client = OpenAIResponsesClient("m", api_key="k")
    kinds = [SupportsCodeInterpreterTool, SupportsFileSearchTool, SupportsImageGenerationTool, SupportsMCPTool]
    assert all(isinstance(client, kind) for kind in [*kinds, SupportsShellTool, SupportsWebSearchTool])


async def test_the_key_of_an_mcp_server_shows_in_no_error(raw_server: RawServer) -> None:
    """C108"""
    raw_server.reply_json(error_body(f"Bad header {KEY}"), 400)
    agent = Service(raw_server).agent()
    given = agent.client.get_mcp_tool(
        server_label="x", server_url="https://x.test", headers={"Authorization": f"Bearer {KEY}"}
    )
    error = await fails(agent, "Hi", "plain", tools=[given])
    assert KEY not in f"{error} {error!r} {given!r} {agent!r}"
    assert raw_server.requests[0]["tools"][0]["headers"] == {"Authorization": f"Bearer {KEY}"}
