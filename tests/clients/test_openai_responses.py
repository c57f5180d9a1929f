"""`OpenAIResponsesClient`: how a conversation goes on, kept by the service or not."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from nbagents import (
    Agent,
    AgentSession,
    ChatRequest,
    Message,
    OpenAIChatClient,
    RunBudget,
    tool,
)
from nbagents.core.errors import (
    BadRequestError,
)
from tests.clients.asking import Mode, ask, both_modes, fails
from tests.clients.responding import SEARCH, Service, add
from tests.support import responses_events as wire
from tests.support.raw_server import RawServer, Refuse
from tests.support.responses_events import called, response, said, thought


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
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "Previous response 'resp_9' not found.", "code": "previous_response_not_found"}}),
        (404, {"error": {"message": "Previous response with id 'resp_9' not found.", "code": None}}),
        (404, {"object": "error", "message": "Response with id 'resp_9' not found.", "code": 404}),
        (404, {"error": {"message": "Conversation with id 'resp_9' not found.", "code": None}}),
    ],
)
async def test_a_conversation_that_the_service_no_longer_has_is_an_error_that_says_so(
    raw_server: RawServer, mode: Mode, status: int, body: dict[str, Any]
) -> None:
    raw_server.reply_json(body, status)
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


@both_modes
async def test_a_model_without_encrypted_reasoning_is_asked_for_it_only_once(service: Service, mode: Mode) -> None:
    def refuse(body: dict[str, Any]) -> Any:
        raise Refuse("Encrypted content is not supported with this model.")

    service.server.reply_with(refuse)
    service.say("Hello.").say("Bye.")
    agent = service.agent(client={"stores_by_default": False})
    session = agent.create_session()
    assert [(await ask(agent, prompt, mode, session)).text for prompt in ("Hi", "Bye")] == ["Hello.", "Bye."]
    assert [sent.get("include") or [] for sent in service.requests] == [["reasoning.encrypted_content"], [], []]


@both_modes
async def test_a_secret_that_the_service_cannot_read_is_an_error(service: Service, mode: Mode) -> None:
    def refuse(body: dict[str, Any]) -> Any:
        raise Refuse("The encrypted content for item rs_1 could not be verified.")

    service.server.reply_with(refuse)
    error = await fails(service.agent(client={"stores_by_default": False}), "Hi", mode)
    assert "could not be verified" in error.message
    assert len(service.requests) == 1


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
