"""`OpenAIResponsesClient` in runs: what each request brings, how a conversation goes on, and what is told of it."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from nbagents import (
    UNSET,
    Agent,
    AgentSession,
    ChatRequest,
    Message,
    OpenAIChatClient,
    OpenAIResponsesClient,
    RecordedChatClient,
    RunBudget,
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
from nbagents.core.errors import BadRequestError, ConfigurationError, NBAgentsError
from tests.clients.asking import KEY, Mode, ask, both_modes, fails
from tests.support import responses_events as wire
from tests.support.chunks import error_body
from tests.support.raw_server import RawServer
from tests.support.responses_events import called, response, said, thought

SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "owls"}}


class Service:
    """A server with the Responses API that remembers and judges; each `say` is one reply."""

    def __init__(self, server: RawServer) -> None:
        self.server = server
        self.service = wire.Service()

    def say(self, *items: wire.Item | str, **more: Any) -> Service:
        made = [said(item) if isinstance(item, str) else item for item in items]
        self.server.reply_with(self.service.answer(*made, **more))
        return self

    def client(self, **settings: Any) -> OpenAIResponsesClient:
        return OpenAIResponsesClient("test-model", **{"base_url": self.server.base_url, "max_retries": 0, **settings})

    def agent(self, *tools: Any, client: Any = None, **settings: Any) -> Agent:
        return Agent(self.client(**(client or {})), tools=list(tools), **settings)

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self.server.requests

    def brought(self, number: int = -1) -> list[tuple[str, Any]]:
        """Kind and content of what a request brought."""
        items = self.requests[number]["input"]
        return [(i.get("role") or i["type"], i.get("content", i.get("output", i.get("name")))) for i in items]


@pytest.fixture
def service(raw_server: RawServer) -> Service:
    return Service(raw_server)


@tool
def add(a: int, b: int = 10) -> int:
    """Add two numbers."""
    return a + b


# --- a rolling id


@both_modes
async def test_a_turn_brings_only_what_is_new_and_a_follow_up_only_the_results(service: Service, mode: Mode) -> None:
    service.say(said("Let me see."), called("c1", "add", {"a": 2, "b": 3})).say("It is 5.").say("You are welcome.")
    agent = service.agent(add, instructions="Be brief.")
    session = agent.create_session()
    first = await ask(agent, "Add 2 and 3.", mode, session)
    second = await ask(agent, "Thanks", mode, session)
    assert (first.text, second.text) == ("Let me see.\nIt is 5.", "You are welcome.")
    assert [service.brought(number) for number in range(3)] == [
        [("user", "Add 2 and 3.")],
        [("function_call_output", "5")],
        [("user", "Thanks")],
    ]
    assert [sent.get("previous_response_id") for sent in service.requests] == [None, "resp_1", "resp_2"]
    assert [sent["instructions"] for sent in service.requests] == ["Be brief."] * 3
    assert not any("store" in sent or "include" in sent for sent in service.requests)
    assert (first.conversation_id, second.conversation_id, session.service_session_id) == ("resp_2", "resp_3", "resp_3")


@both_modes
async def test_a_run_that_stops_at_its_limit_answers_its_calls(service: Service, mode: Mode) -> None:
    """C67"""
    calls = [called("c1", "add", {"a": 1}), called("c2", "add", {"a": 2}, id="fc_2")]
    service.say(*calls).say("That is all I can do.").say("Still here.")
    agent = service.agent(add)
    session = agent.create_session()
    stopped = await ask(agent, "Add", mode, session, budget=RunBudget(max_steps=1))
    assert stopped.stop_reason == "max_steps"
    assert (await ask(agent, "And now?", mode, session)).text == "Still here."
    assert [kind for kind, _ in service.brought(1)] == ["function_call_output"] * 2
    assert "tools" not in service.requests[1]
    assert service.brought(2) == [("user", "And now?")]


@both_modes
@pytest.mark.parametrize("stores", [True, False])
async def test_a_run_that_is_cancelled_in_a_tool_leaves_a_session_that_can_be_used(
    service: Service, mode: Mode, stores: bool
) -> None:
    """C53: the service refuses a call without its result."""
    begun = asyncio.Event()

    @tool
    async def slow() -> str:
        """Take long."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    service.say(said("Wait."), called("c1", "add", {"a": 1}), called("c2", "slow", {}, id="fc_2")).say("Still here.")
    agent = service.agent(add, slow, client={"stores_by_default": stores})
    session = agent.create_session()
    run = asyncio.ensure_future(ask(agent, "Go", mode, session))
    await begun.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert (await ask(agent, "And now?", mode, session)).text == "Still here."
    results = [content for kind, content in service.brought() if kind == "function_call_output"]
    assert (len(results), "Interrupted" in results[1]) == (2, True)


@both_modes
async def test_a_stored_session_goes_on_elsewhere(service: Service, mode: Mode) -> None:
    service.say("Hello Ada.").say("You are Ada.")
    agent = service.agent()
    session = agent.create_session()
    await ask(agent, "I am Ada.", mode, session)
    again = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    assert (await ask(service.agent(), "Who am I?", mode, again)).text == "You are Ada."
    assert service.requests[1]["previous_response_id"] == "resp_1"


@both_modes
async def test_a_broken_stream_leaves_the_session_where_it_was(service: Service, mode: Mode) -> None:
    service.say("Hello.")
    service.server.reply(*wire.opening("resp_x"), *wire.item_events(0, said("Hel"))[:3], end="cut")
    service.say("Still here.")
    agent = service.agent()
    session = agent.create_session()
    await ask(agent, "Hi", mode, session)
    await fails(agent, "And?", "streamed", session)
    assert session.service_session_id == "resp_1"
    assert (await ask(agent, "And now?", mode, session)).text == "Still here."
    assert service.requests[2]["previous_response_id"] == "resp_1"


@both_modes
async def test_a_conversation_that_the_service_no_longer_has_is_an_error_that_says_so(
    raw_server: RawServer, mode: Mode
) -> None:
    body = {"error": {"message": "Previous response 'resp_9' not found.", "code": "previous_response_not_found"}}
    raw_server.reply_json(body, 400)
    agent = Service(raw_server).agent()
    error = await fails(agent, "Hi", mode, AgentSession(service_session_id="resp_9"))
    assert isinstance(error, BadRequestError)
    assert "no longer has the conversation" in error.message
    assert "new session" in str(error.hint)


@both_modes
async def test_a_reply_that_is_not_stored_after_all_warns(service: Service, mode: Mode) -> None:
    service.server.reply_with(
        lambda body: (wire.stream if body.get("stream") else dict)(response(said("Hi."), store=False))
    )
    agent = service.agent()
    with pytest.warns(UserWarning, match="store"):
        answer = await ask(agent, "Hi", mode, agent.create_session())
    assert answer.conversation_id is None


@both_modes
async def test_the_id_of_a_conversation_goes_out_as_one(raw_server: RawServer, mode: Mode) -> None:
    whole = response(said("Hello."), conversation={"id": "conv_1"})
    raw_server.reply_with(lambda body: wire.stream(whole) if body.get("stream") else whole)
    request = ChatRequest([Message("user", "Hi")], stream=mode == "streamed", conversation_id="conv_1")
    updates = [update async for update in Service(raw_server).client().generate(request)]
    assert updates[-1].conversation_id == "conv_1"
    assert raw_server.requests[0]["conversation"] == "conv_1"
    assert "previous_response_id" not in raw_server.requests[0]


# --- stateless


@pytest.mark.parametrize("how", ["client", "option"])
@both_modes
async def test_without_storing_each_message_is_sent_once_and_reasoning_goes_back_encrypted(
    service: Service, mode: Mode, how: str
) -> None:
    service.say(thought("Sum.", encrypted="secret-1"), said("Let me see."), called("c1", "add", {"a": 2, "b": 3}))
    service.say(thought(encrypted="secret-2", id="rs_2"), said("It is 5.")).say("Bye.")
    stateless = how == "client"
    agent = service.agent(add, client={"stores_by_default": not stateless}, instructions="Be brief.")
    session = agent.create_session()
    options = {} if stateless else {"store": False}
    for prompt in ("Add.", "Bye"):
        answer = await ask(agent, prompt, mode, session, options=options)
    assert (answer.text, answer.conversation_id, session.service_session_id) == ("Bye.", None, None)
    assert [item["type"] for item in service.requests[2]["input"]] == [
        *("message", "reasoning", "message", "function_call", "function_call_output"),
        *("reasoning", "message", "message"),
    ]
    secrets = [item["encrypted_content"] for item in service.requests[2]["input"] if item["type"] == "reasoning"]
    assert secrets == ["secret-1", "secret-2"]
    for sent in service.requests:
        assert (sent["store"], sent["include"]) == (False, ["reasoning.encrypted_content"])
        assert "previous_response_id" not in sent


async def test_the_prefix_of_a_conversation_stays_the_same_byte_for_byte(service: Service) -> None:
    """The provider's prompt cache hits only then; also after the session was stored and read again."""
    for number in range(6):
        ids = {"id": f"x{number}"}
        service.say(thought("Hm.", encrypted=f"s{number}", **ids), SEARCH, called("c", "add", {"a": number}, **ids))
        service.say(said({**wire.text_part("Done."), "annotations": [{"type": "url_citation"}]}, phase="final_answer"))
    agent = service.agent(add, client={"stores_by_default": False}, instructions="Be brief.")
    session = agent.create_session()
    for number in range(6):
        await ask(agent, f"Turn {number}", "streamed" if number % 2 else "plain", session)
        session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    sent = [json.dumps(body["input"], ensure_ascii=False)[:-1] for body in service.requests]
    assert len(sent) == 12
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(sent))
    assert len({json.dumps([body["instructions"], body["tools"]]) for body in service.requests}) == 1


async def test_a_message_is_converted_once_and_not_once_per_turn(service: Service) -> None:
    import nbagents.clients.responses_wire as responses_wire

    converted: list[Message] = []
    original = responses_wire._entries

    def counted(message: Message) -> Iterator[dict[str, Any]]:
        converted.append(message)
        return original(message)

    service.say("Hello")
    agent = service.agent(client={"stores_by_default": False})
    session = agent.create_session()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(responses_wire, "_entries", counted)
        for _ in range(20):
            await agent.run("Hi", session=session)
    assert len(service.requests[-1]["input"]) == len(converted) == 39


@both_modes
async def test_ids_that_come_again_are_told_apart(service: Service, mode: Mode) -> None:
    """C68: across turns and within one reply, where nothing is stored."""
    twice = [called("x", "add", {"a": 3}, id="f3"), called("x", "add", {"a": 4}, id="f4")]
    script = [[called("run:0", "add", {"a": 1})], ["A"], [called("run:0", "add", {"a": 2})], ["B"], twice, ["C"]]
    for items in script:
        service.say(*items)
    agent = service.agent(add, client={"stores_by_default": False})
    session = agent.create_session()
    for expected in ("A", "B", "C"):
        assert (await ask(agent, "Go", mode, session)).text == expected
    items = service.requests[-1]["input"]
    outputs = {item["call_id"]: item["output"] for item in items if item["type"] == "function_call_output"}
    assert list(outputs.values()) == ["11", "12", "13", "14"]


@both_modes
async def test_calls_without_any_id_get_one_that_is_unique_in_the_conversation(service: Service, mode: Mode) -> None:
    """C22"""
    nameless = {key: value for key, value in called("", "add", {"a": 1}).items() if key not in ("call_id", "id")}
    whole = response(nameless)
    for text in ("One", "Two"):
        service.server.reply_with(lambda body: [*wire.opening(), wire.ending(whole)] if body.get("stream") else whole)
        service.say(text)
    agent = service.agent(add, client={"stores_by_default": False})
    session = agent.create_session()
    for text in ("One", "Two"):
        assert (await ask(agent, "Go", mode, session)).text == text
    items = service.requests[-1]["input"]
    ids = [item["call_id"] for item in items if item["type"] == "function_call"]
    assert len(set(ids)) == 2
    assert [item["call_id"] for item in items if item["type"] == "function_call_output"] == ids


@both_modes
async def test_blank_text_before_a_call_is_no_answer(service: Service, mode: Mode) -> None:
    """C32"""
    service.say(said("\n\n"), called("c1", "add", {"a": 1})).say("It was eleven.")
    answer = await ask(service.agent(add), "Go", mode)
    assert (answer.messages[-1].text, len(service.requests)) == ("It was eleven.", 2)


@both_modes
async def test_a_session_that_began_with_chat_completions_goes_on(
    service: Service, raw_server: RawServer, mode: Mode
) -> None:
    raw_server.reply_calls(("c1", "add", {"a": 1})).reply_text("Eleven.")
    chat = Agent(OpenAIChatClient("test-model", base_url=raw_server.base_url), tools=[add])
    session = chat.create_session()
    await ask(chat, "Add", mode, session)
    service.say("Still here.")
    agent = service.agent(add, client={"stores_by_default": False})
    assert (await ask(agent, "And now?", mode, session)).text == "Still here."
    assert service.brought() == [
        ("user", "Add"),
        ("function_call", "add"),
        ("function_call_output", "11"),
        ("assistant", "Eleven."),
        ("user", "And now?"),
    ]


# --- what a run sends


@both_modes
async def test_options_go_out_under_the_services_names(service: Service, mode: Mode) -> None:
    service.say("Hello")
    options = {"max_tokens": 50, "temperature": 0.2, "reasoning_effort": "low", "metadata": {"a": "b"}, "store": True}
    agent = service.agent(client={"reasoning_summary": "auto"})
    await ask(agent, "Hi", mode, options={**options, "model": "other"})
    sent = service.requests[0]
    assert (sent["max_output_tokens"], sent["temperature"], sent["metadata"]) == (50, 0.2, {"a": "b"})
    assert (sent["reasoning"], sent["store"], sent["model"]) == ({"effort": "low", "summary": "auto"}, True, "other")


async def test_an_option_that_openai_does_not_have_is_an_error_before_anything_is_sent() -> None:
    agent = OpenAIResponsesClient("m", api_key="k-12345678").as_agent(options={"seed": 1})
    error = await fails(agent, "Hi", "plain")
    assert isinstance(error, ConfigurationError)
    assert "'seed'" in error.message
    assert "seed=UNSET" in str(error.hint)


async def test_unset_removes_a_default_that_responses_does_not_have(service: Service) -> None:
    service.say("Hello")
    await ask(service.agent(options={"seed": 1}), "Hi", "plain", options={"seed": UNSET})
    assert "seed" not in service.requests[0]


@both_modes
async def test_client_kwargs_reach_the_provider_and_add_to_what_is_ours(service: Service, mode: Mode) -> None:
    class Answer(BaseModel):
        number: int

    service.say('{"number":4}')
    kwargs = {
        "text": {"verbosity": "low"},
        "reasoning": {"summary": "concise"},
        "include": ["message.output_text.logprobs"],
        "truncation": "auto",
        "extra_body": {"service_tier": "flex"},
        "extra_headers": {"x-a": "1"},
    }
    given = copy.deepcopy(kwargs)
    agent = service.agent(client={"stores_by_default": False})
    options = {"response_format": Answer, "reasoning_effort": "high"}
    answer = await ask(agent, "2+2?", mode, options=options, client_kwargs=kwargs)
    sent = service.requests[0]
    assert answer.value == Answer(number=4)
    assert (sent["text"]["verbosity"], sent["text"]["format"]["name"]) == ("low", "Answer")
    assert sent["reasoning"] == {"effort": "high", "summary": "concise"}
    assert sent["include"] == ["reasoning.encrypted_content", "message.output_text.logprobs"]
    assert (sent["truncation"], sent["service_tier"]) == ("auto", "flex")
    assert service.server.headers[0]["x-a"] == "1"
    assert kwargs == given


@both_modes
async def test_structured_output_is_the_last_message(service: Service, mode: Mode) -> None:
    class Answer(BaseModel):
        number: int

    service.say(said("Let me count.", id="m1", phase="commentary"), said('{"number":4}', id="m2", phase="final_answer"))
    answer = await ask(service.agent(), "2+2?", mode, options={"response_format": Answer})
    assert answer.value == Answer(number=4)
    assert service.requests[0]["text"]["format"].keys() == {"type", "name", "schema", "strict"}


@both_modes
async def test_a_refusal_is_asked_only_once(service: Service, mode: Mode) -> None:
    """C42"""
    service.say(wire.refused("I cannot help"))
    answer = await ask(service.agent(), "Harm", mode, options={"response_format": {"type": "object"}})
    assert (answer.stop_reason, len(service.requests)) == ("refused", 1)
    assert answer.usage is not None


@both_modes
async def test_a_null_that_a_strict_schema_asks_for_is_the_default(service: Service, mode: Mode) -> None:
    """C58"""
    service.say(called("c1", "add", {"a": 1, "b": None})).say("Eleven.")
    answer = await ask(service.agent(add), "Add", mode)
    assert answer.messages[1].results[0].result == "11"
    (function,) = service.requests[0]["tools"]
    assert (function["strict"], function["parameters"]["required"]) == (True, ["a", "b"])


@both_modes
async def test_broken_arguments_are_answered_and_go_back_as_an_empty_object(service: Service, mode: Mode) -> None:
    """C37, C48"""
    for text in ("query = x", "[1,2]", "null", '{"a": "unfinished'):
        service.say(called("c1", "add", text))
    service.say("Sorry.")
    agent = service.agent(add, client={"stores_by_default": False})
    answer = await ask(agent, "Go", mode)
    results = [result for message in answer.messages for result in message.results]
    assert (answer.text, len(results), all(result.error for result in results)) == ("Sorry.", 4, True)
    sent = [item["arguments"] for item in service.requests[-1]["input"] if item["type"] == "function_call"]
    assert sent == ["{}"] * 4


@both_modes
async def test_half_a_surrogate_pair_does_not_block_the_session(service: Service, mode: Mode) -> None:
    """C47"""

    @tool
    def cut() -> str:
        """Cut."""
        return "a\ud83d"

    service.say(called("c1", "cut", "{}")).say("Done.").say("Still here.")
    agent = service.agent(cut, client={"stores_by_default": False})
    session = agent.create_session()
    await ask(agent, "Go \ud83d", mode, session)
    assert (await ask(agent, "And now?", mode, session)).text == "Still here."
    json.dumps(session.to_dict()).encode()


@both_modes
async def test_instructions_alone_are_the_input(service: Service, mode: Mode) -> None:
    service.say("Once upon a time.")
    agent = service.agent(instructions="Tell a story.")
    assert (await ask(agent, None, mode)).text == "Once upon a time."
    assert "instructions" not in service.requests[0]
    assert service.brought() == [("system", "Tell a story.")]


@both_modes
async def test_an_approved_call_is_followed_by_its_result_only(service: Service, mode: Mode) -> None:
    @tool(approval="always")
    def remove(path: str) -> str:
        """Remove."""
        return f"removed {path}"

    service.say(called("c1", "remove", {"path": "x"})).say("Gone.")
    agent = service.agent(remove)
    session = agent.create_session()
    asked = await ask(agent, "Remove x", mode, session)
    assert asked.stop_reason == "approval_required"
    done = await ask(agent, [request.approve() for request in asked.approvals], mode, session)
    assert done.text == "Gone."
    assert service.brought() == [("function_call_output", "removed x")]
    assert service.requests[1]["previous_response_id"] == "resp_1"


@pytest.mark.parametrize("stores", [True, False])
async def test_a_stream_that_is_left_keeps_the_partial_text_and_the_session_goes_on(
    service: Service, stores: bool
) -> None:
    """C75, C93: the service, which has not stored the broken turn, gets it with the next one."""
    begun = wire.item_events(0, said("one two"))[:3]
    service.server.reply(*wire.opening(), *begun, end="stall")
    service.say("Still here.")
    agent = service.agent(client={"stores_by_default": stores})
    session = agent.create_session()
    async with agent.run("Count", stream=True, session=session) as stream:
        async for update in stream:
            if update.text:
                break
    service.server.wait_until(lambda: service.server.hang_ups == 1)
    assert (await ask(agent, "And now?", "streamed", session)).text == "Still here."
    assert service.brought() == [("user", "Count"), ("assistant", "one "), ("user", "And now?")]


@both_modes
@pytest.mark.parametrize("stores", [True, False])
async def test_a_recording_replays_without_the_service(
    service: Service, mode: Mode, stores: bool, tmp_path: Path
) -> None:
    cited = wire.text_part("Let me see.", {"type": "url_citation", "url": "https://x.test"})
    service.say(thought("Hm.", encrypted="s"), said(cited, phase="commentary"), SEARCH, called("c1", "add", {"a": 2}))
    service.say("It is 12.").say(said("One.", id="m1"), said("Two.", id="m2"))
    told = []
    for inner in (service.client(stores_by_default=stores), None):
        agent = Agent(RecordedChatClient(tmp_path / "r.jsonl", inner), tools=[add])
        session = agent.create_session()
        answers = [await ask(agent, prompt, mode, session) for prompt in ("Add", "Bye")]
        contents = [content for answer in answers for message in answer.messages for content in message.contents]
        kept = [(type(one), getattr(one, "text", ""), one.extra) for one in contents]
        told.append((kept, session.service_session_id, [answer.text for answer in answers]))
    assert told[0] == told[1]
    assert len(service.requests) == 3


# --- tools of the service


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


# --- the client as an object


def test_making_a_client_imports_no_openai() -> None:
    script = (
        "import sys; from nbagents import OpenAIResponsesClient; OpenAIResponsesClient('m', api_key='k-12345678'); "
        "print([m for m in ('openai', 'pandas', 'matplotlib', 'IPython', 'ipywidgets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_pickled_client_keeps_its_settings_and_not_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    client = OpenAIResponsesClient("m", api_key=KEY, stores_by_default=False, reasoning_summary="auto", timeout=9.0)
    pickled = pickle.dumps(client)
    assert KEY not in pickled.decode("latin-1")
    monkeypatch.setenv("OPENAI_API_KEY", "another-key-1234")
    again = pickle.loads(pickled)
    assert (again.stores_by_default, again.reasoning_summary, again.timeout) == (False, "auto", 9.0)
    assert repr(again) == "OpenAIResponsesClient('m', host='api.openai.com')"


@both_modes
async def test_a_client_of_the_users_sends_and_is_not_closed(service: Service, mode: Mode) -> None:
    """C03"""
    service.say("Hello")
    async with openai.AsyncOpenAI(base_url=service.server.base_url, api_key=KEY) as own:
        agent = Agent(OpenAIResponsesClient("m", client=own))
        assert (await ask(agent, "Hi", mode)).text == "Hello"
        assert not own.is_closed()
    assert service.server.headers[0]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "wrong", [{"max_retries": -1}, {"api_key": KEY, "base_url": "x"}, {"reasoning_summary": "long"}]
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(NBAgentsError) as raised:
        OpenAIResponsesClient("m", **{"base_url": "http://x/v1", **wrong})
    assert KEY not in str(raised.value)


@both_modes
def test_the_key_shows_in_no_error(raw_server: RawServer, mode: Mode) -> None:
    """C108"""
    raw_server.reply_json({"error": {"message": f"Bad key {KEY}", "key": KEY}}, 401, headers={"x-echo": KEY})
    agent = Service(raw_server).agent(client={"api_key": KEY})
    error = asyncio.run(fails(agent, "Hi", mode))
    events = run_log().get(error.response.run_id).events  # type: ignore[union-attr]
    told = f"{error!r} {error} {error.headers} {error.body_text} {error.__cause__!r} {events!r}"  # type: ignore[attr-defined]
    assert KEY not in told


@both_modes
@pytest.mark.parametrize("version", [None, "preview"])
async def test_azure_is_asked_at_its_v1_address_with_a_token(service: Service, mode: Mode, version: str | None) -> None:
    service.say("Hello").say("Bye")
    client = OpenAIResponsesClient(
        "my-gpt",
        azure_endpoint=f"http://127.0.0.1:{service.server.port}/openai/v1/",
        api_version=version,
        azure_ad_token_provider=lambda: KEY,
    )
    agent = Agent(client)
    session = agent.create_session()
    for prompt in ("Hi", "Bye"):
        await ask(agent, prompt, mode, session)
    query = f"?api-version={version}" if version else ""
    assert service.server.paths == [f"/openai/v1/responses{query}"] * 2
    assert [sent["authorization"] for sent in service.server.headers] == [f"Bearer {KEY}"] * 2
    assert (client.provider, service.requests[1]["previous_response_id"]) == ("azure", "resp_1")
