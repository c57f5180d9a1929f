"""Conversations that the model's service stores: what requests bring, and what is left when a run ends early."""

import asyncio
import json
import warnings

import pytest

from nbagents import (
    Agent,
    AgentSession,
    ChatContext,
    ChatResponse,
    ContextProvider,
    FileHistoryProvider,
    HistoryCopy,
    HistoryProvider,
    InMemoryHistoryProvider,
    Message,
    RecordedChatClient,
    RunBudget,
    ScriptedChatClient,
    events_df,
    run_log,
    tool,
    tool_call,
)
from nbagents.core.errors import ConfigurationError, NBAgentsError, ServerError, SessionError, ThreadDeletedError
from nbagents.core.threads import LocalThread, ServiceThread
from tests.core.services import StoringClient

KINDS = [("rolling", True), ("rolling", False), ("fixed", True), ("fixed", False)]


@pytest.fixture(params=KINDS, ids=[f"{ids}-{'early' if early else 'late'}" for ids, early in KINDS])
def storing(request):
    """Makes a client whose service stores, with each kind of id."""
    ids, early = request.param
    return lambda replies, **settings: StoringClient(replies, ids=ids, early=early, **settings)


@tool
def add(a: int, b: int) -> int:
    return a + b


class Unread(HistoryProvider):
    """A local history that must not be touched."""

    async def get_messages(self, session):
        raise AssertionError("read")

    async def save_messages(self, session, messages):
        raise AssertionError("written")


def roundtrip(session):
    return AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))


async def test_requests_bring_what_is_new_and_nothing_is_stored_here(ask, storing):
    client = storing([[tool_call("add", a=1, b=2)], "It is 3.", "Yes."])
    agent = Agent(client, "Be brief.", tools=[add], history=Unread())
    session = agent.create_session()
    response = await ask(agent, "1 + 2?", session=session)
    assert response.conversation_id == session.service_session_id
    session = roundtrip(session)
    await ask(agent, "Sure?", session=session)
    assert [client.sent(i) for i in range(3)] == [
        [("system", "Be brief."), ("user", "1 + 2?")],
        [("system", "Be brief."), ("tool", "3")],
        [("system", "Be brief."), ("user", "Sure?")],
    ]
    known = [request.conversation_id for request in client.requests]
    assert known[0] is None
    assert known[1] in client.conversations
    stored = client.conversations[session.service_session_id]
    assert [m.role for m in stored] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert session.state == {}


async def test_both_modes_leave_the_same_conversation(storing):
    left = []
    for stream in (False, True):
        client = storing([[tool_call("add", a=1, b=2)], "It is 3.", "Yes."])
        agent = Agent(client, tools=[add])
        session = agent.create_session()
        for text in ("1 + 2?", "Sure?"):
            response = agent.run(text, session=session, stream=stream)
            await (response.get_final_response() if stream else response)
        messages = client.conversations[session.service_session_id]
        left.append([(m.role, m.text, [r.result for r in m.results]) for m in messages])
    assert left[0] == left[1]


DECISIONS = [
    # stores_by_default, session at the service, option, the service stores
    (False, False, None, False),
    (True, False, None, True),
    (False, True, None, True),
    (True, True, None, True),
    (False, False, True, True),
    (True, False, True, True),
    (True, False, False, False),
    (True, True, False, False),
    (False, True, False, False),
]


@pytest.mark.parametrize(("by_default", "begun", "store", "at_service"), DECISIONS)
async def test_where_messages_live_is_decided_once(ask, by_default, begun, store, at_service):
    client = StoringClient(["ok"], by_default=by_default)
    client.conversations["conv_0"] = [Message("user", "earlier"), Message("assistant", "yes")]
    agent = Agent(client, options=None if store is None else {"store": store})
    session = agent.get_session("conv_0") if begun else agent.create_session()
    assert isinstance(agent.thread(session), ServiceThread if at_service else LocalThread)
    await ask(agent, "q", session=session)
    assert client.requests[0].conversation_id == ("conv_0" if begun and at_service else None)
    assert ("messages" in session.state) is not at_service
    assert session.service_session_id == ("conv_1" if at_service else "conv_0" if begun else None)


async def test_the_option_of_a_run_decides_over_the_agents(ask):
    client = StoringClient(["a", "b", "c"])
    agent = Agent(client, options={"store": False})
    session = agent.create_session()
    await ask(agent, "1", session=session)
    await ask(agent, "2", session=session)
    assert client.sent() == [("user", "1"), ("assistant", "a"), ("user", "2")]
    await ask(agent, "3", session=session, options={"store": True})
    assert client.sent() == [("user", "3")]
    assert len(session.state["messages"]) == 4


async def test_store_is_no_memory_where_the_service_cannot_go_on_with_it(ask):
    """Chat Completions takes `store`, and yet no later request can refer to it."""
    client = ScriptedChatClient(["a", "b"])
    agent = Agent(client, options={"store": True})
    session = agent.create_session()
    for text in ("1", "2"):
        await ask(agent, text, session=session)
    assert [m.text for m in client.requests[-1].messages] == ["1", "a", "2"]
    assert client.requests[-1].options == {"store": True}


def test_a_session_at_a_service_needs_a_client_that_can_go_on_there():
    agent = Agent(ScriptedChatClient(["ok", "ok"]))
    session = agent.get_session("conv_0", session_id="trip")
    with pytest.raises(ConfigurationError, match=r"'trip' goes on with 'conv_0'.*ScriptedChatClient cannot.*store"):
        agent.run("q", session=session)
    with pytest.raises(ConfigurationError, match="ScriptedChatClient"):
        agent.thread(session)
    assert agent.run_sync("q", session=session, options={"store": False}).text == "ok"
    assert agent.client.requests[0].conversation_id is None


async def test_an_id_in_the_replies_of_a_local_conversation_stays_out_of_the_session(ask):
    class Chatty(ScriptedChatClient):
        async def generate(self, request):
            async for update in super().generate(request):
                update.conversation_id = "conv_1"
                yield update

    agent = Agent(Chatty(["a", "b"]))
    session = agent.create_session()
    for _ in range(2):
        response = await ask(agent, "q", session=session)
    assert session.service_session_id is None
    assert response.conversation_id == "conv_1"
    assert len(session.state["messages"]) == 4


async def test_a_cancelled_run_keeps_the_id_of_the_reply_that_had_begun():
    client = StoringClient(["one two three four", "ok"])
    agent = Agent(client)
    session = agent.create_session()
    async with agent.run("q", session=session, stream=True) as stream:
        async for update in stream:
            assert update.text == "one "
            assert session.service_session_id == "conv_1"
            break
    assert session.service_session_id == "conv_1"
    await agent.run("go on", session=session)
    assert client.requests[-1].conversation_id == "conv_1"
    assert client.sent() == [("user", "go on")]


async def test_a_run_that_fails_before_any_output_leaves_the_session_as_it_was(ask, storing):
    client = storing([ServerError("down"), "ok"])
    agent = Agent(client)
    session = agent.create_session()
    with pytest.raises(ServerError):
        await ask(agent, "q", session=session)
    assert (session.service_session_id, session.state) == (None, {})
    await ask(agent, "again", session=session)
    assert client.sent() == [("user", "again")]


@pytest.mark.parametrize("how", ["cancelled", "max_steps", "tool_calls", "failed", "duration"])
async def test_results_that_could_not_be_sent_any_more_go_first_in_the_next_run(storing, how):
    """A service refuses what follows a call without its result."""
    began = asyncio.Event()

    @tool
    async def slow() -> str:
        began.set()
        if how in ("cancelled", "duration"):
            await asyncio.sleep(30)
        return "done"

    calls = [tool_call("slow"), tool_call("add", a=1, b=2)]
    second = {"failed": [ServerError("down")], "max_steps": [[tool_call("slow"), tool_call("slow")]]}.get(how, [])
    client = storing([calls, *second, "ok", "ok"])
    agent = Agent(client, tools=[slow, add])
    session = agent.create_session()
    limits = {"max_steps": {"max_steps": 1}, "tool_calls": {"max_tool_calls": 1}, "duration": {"max_duration_ms": 300}}
    budget = RunBudget(**limits[how]) if how in limits else None
    task = asyncio.ensure_future(agent.run("q", session=session, budget=budget))
    if how == "cancelled":
        await began.wait()
        task.cancel()
    try:
        await task
    except (NBAgentsError, asyncio.CancelledError):
        assert how != "max_steps"
    session = roundtrip(session)
    response = await agent.run("go on", session=session)
    assert [role for role, _ in client.sent()] == ["tool", "tool", "user"]
    assert response.text == "ok"
    assert session.state == {}
    await agent.run("and on", session=session)
    assert client.sent() == [("user", "and on")]


async def test_results_wait_through_runs_that_fail_too(ask):
    client = StoringClient([[tool_call("add", a=1, b=2)], ServerError("down"), ServerError("down"), "ok"])
    agent = Agent(client, tools=[add])
    session = agent.create_session()
    for _ in range(2):
        with pytest.raises(ServerError):
            await ask(agent, "q", session=session)
    await ask(agent, "go on", session=session)
    assert client.sent() == [("tool", "3"), ("user", "go on")]


async def test_results_that_the_service_has_taken_are_not_sent_again_though_the_reply_was_left():
    client = StoringClient([[tool_call("add", a=1, b=2)], "It is 3.", "ok"])
    agent = Agent(client, tools=[add])
    session = agent.create_session()
    async with agent.run("q", session=session, stream=True) as stream:
        async for update in stream:
            if update.text:
                break
    assert (session.service_session_id, session.state) == ("conv_2", {})
    await agent.run("go on", session=session)
    assert client.sent() == [("user", "go on")]


async def test_a_request_that_is_tried_again_is_the_same(ask):
    client = StoringClient([[tool_call("add", a=1, b=2)], ServerError("down"), "ok"])
    client.max_retries = 1
    await ask(Agent(client, tools=[add]), "q")
    assert client.sent(1) == client.sent(2) == [("tool", "3")]
    assert client.requests[1].conversation_id == client.requests[2].conversation_id == "conv_1"


async def test_a_broken_reply_that_is_asked_for_again_leaves_no_trace_of_itself_in_the_session():
    """C92: else the next run would go on from a reply that the service never finished."""
    client = StoringClient(["one", ["Hel", ServerError("down")], ServerError("down"), "two"])
    client.max_retries, client.retry_streams = 1, True
    agent = Agent(client)
    session = agent.create_session()
    await agent.run("q", session=session)
    with pytest.raises(ServerError):
        await agent.run("and?", session=session, stream=True).get_final_response()
    assert session.service_session_id == "conv_1"
    await agent.run("and?", session=session)
    assert [request.conversation_id for request in client.requests] == [None, "conv_1", "conv_1", "conv_1"]


async def test_approvals_go_on_at_the_service_also_in_another_program(ask, storing):
    @tool(approval="always")
    def remove(path: str) -> str:
        return f"{path} is gone"

    client = storing([[tool_call("remove", path="x"), tool_call("add", a=1, b=2)], "Done.", "ok"])
    agent = Agent(client, tools=[remove, add])
    session = agent.create_session()
    response = await ask(agent, "q", session=session)
    assert list(session.state) == ["nbagents.pending"]
    session = roundtrip(session)
    await ask(agent, [request.approve() for request in response.approvals], session=session)
    assert client.sent() == [("tool", "3"), ("tool", "x is gone")]
    await ask(agent, "go on", session=session)
    assert client.sent() == [("user", "go on")]
    assert session.state == {}


async def test_going_on_without_an_answer_refuses_the_calls_at_the_service_too(ask, storing):
    @tool(approval="always")
    def remove(path: str) -> str:
        raise AssertionError

    client = storing([[tool_call("remove", path="x")], "ok"])
    agent = Agent(client, tools=[remove])
    session = agent.create_session()
    await ask(agent, "q", session=session)
    await ask(agent, "go on", session=session)
    assert [role for role, _ in client.sent()] == ["tool", "user"]
    assert "nobody approved" in client.sent()[0][1]


async def test_what_providers_add_goes_out_once(ask, storing):
    class Library(ContextProvider):
        async def before_run(self, context):
            self.add(context, messages="About owls", instructions="Cite.")

    client = storing([[tool_call("add", a=1, b=2)], "ok", "ok"])
    agent = Agent(client, tools=[add], context_providers=[Library()])
    session = agent.create_session()
    await ask(agent, "q", session=session)
    await ask(agent, "r", session=session)
    assert [[text for _, text in client.sent(i)] for i in range(3)] == [
        ["Cite.", "About owls", "q"],
        ["Cite.", "3"],
        ["Cite.", "About owls", "r"],
    ]


async def test_a_run_without_input_goes_on_at_the_service(ask):
    client = StoringClient(["a", "b"])
    agent = Agent(client)
    session = agent.create_session()
    assert (await ask(agent, session=session)).text == ""
    await ask(agent, "q", session=session)
    assert (await ask(agent, session=session)).text == "b"
    assert client.requests[-1].conversation_id == "conv_1"


async def test_a_reply_without_an_id_is_a_warning_each_time_and_an_event(ask):
    client = StoringClient([[tool_call("add", a=1, b=2)], "It is 3.", "ok"], ids="none")
    agent = Agent(client, tools=[add])
    session = AgentSession("trip")
    for text, replies in (("q", 2), ("r", 1)):
        with pytest.warns(UserWarning, match=r"'trip'.*no conversation id.*store"):
            response = await ask(agent, text, session=session)
        assert len([text for text in response.warnings if "no conversation id" in text]) == replies
        events = events_df(run_id=response.run_id)
        missing = events[events["kind"] == "session.unconfirmed"]
        assert len(missing) == replies
        assert json.loads(missing["data"].iloc[0]) == {"session_id": "trip", "service_session_id": None}
    assert client.sent(1) == [("user", "q"), ("assistant", ""), ("tool", "3")]  # nothing says that it has these


async def test_results_of_calls_that_the_service_may_not_have_are_not_kept_for_it(ask):
    client = StoringClient([[tool_call("add", a=1, b=2)], ServerError("down")], ids="none")
    client.conversations["conv_0"] = [Message("user", "earlier"), Message("assistant", "yes")]
    agent = Agent(client, tools=[add])
    session = agent.get_session("conv_0")
    with pytest.warns(UserWarning, match="no conversation id"), pytest.raises(ServerError):
        await ask(agent, "q", session=session)
    assert (session.service_session_id, session.state) == ("conv_0", {})


async def test_an_id_that_comes_is_no_warning(ask, storing):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        response = await ask(Agent(storing([[tool_call("add", a=1, b=2)], "ok"]), tools=[add]), "q")
    assert response.warnings == []
    assert "session.unconfirmed" not in [event.name for event in run_log().get(response.run_id).events]


async def test_runs_on_one_session_take_turns_at_the_service_too(ask, storing):
    """C72"""
    client = storing([lambda r: [tool_call("add", a=1, b=1)] if r.messages[-1].role == "user" else "done"] * 8)
    agent = Agent(client, tools=[add])
    session = agent.create_session()
    await asyncio.gather(*[ask(agent, "q", session=session) for _ in range(4)])
    stored = client.conversations[session.service_session_id]
    assert [m.role for m in stored] == ["user", "assistant", "tool", "assistant"] * 4


async def test_the_thread_of_a_service_says_what_it_cannot_do():
    agent = Agent(StoringClient(["ok"]))
    session = agent.create_session("trip")
    thread = agent.thread(session)
    await thread.create()
    assert (thread.id, thread.stores_locally, thread.can_delete) == (None, False, False)
    await agent.run("q", session=session)
    assert thread.id == "conv_1"
    for use in (thread.get_messages(), thread.on_new_message(Message("user", "x"))):
        with pytest.raises(SessionError, match=r"'trip' are stored by the service"):
            await use
    with pytest.warns(UserWarning, match=r"still stores the messages of 'conv_1'"):
        await thread.delete()
    await thread.delete()
    for again in (session, roundtrip(session)):
        with pytest.raises(ThreadDeletedError):
            await agent.run("q", session=again)


async def test_a_conversation_deleted_while_a_run_goes_on_ends_it(ask):
    @tool
    async def forget() -> str:
        await agent.thread(session).delete()
        return "gone"

    agent = Agent(StoringClient([[tool_call("forget")], "ok"]), tools=[forget])
    session = agent.create_session()
    with pytest.warns(UserWarning, match="still stores"), pytest.raises(ThreadDeletedError):
        await ask(agent, "q", session=session)
    assert session.service_session_id is None


def texts(messages):
    return [(m.role, m.text or "".join(r.result for r in m.results)) for m in messages]


SAID = [("user", "q"), ("assistant", ""), ("tool", "3"), ("assistant", "It is 3.")]


@pytest.mark.parametrize("at_service", [True, False])
async def test_a_copy_has_each_message_and_is_never_read(ask, tmp_path, at_service):
    class WriteOnly(FileHistoryProvider):
        async def get_messages(self, session):
            raise AssertionError("read")

    copies = WriteOnly(tmp_path)
    client = StoringClient([[tool_call("add", a=1, b=2)], "It is 3.", "ok"], by_default=at_service)
    agent = Agent(client, tools=[add], context_providers=[HistoryCopy(copies)])
    session = agent.create_session("trip")
    await ask(agent, "q", session=session)
    await ask(agent, "r", session=session)
    copied = await FileHistoryProvider(tmp_path).get_messages(session)
    assert texts(copied) == [*SAID, ("user", "r"), ("assistant", "ok")]
    assert {m.agent_id for m in copied} == {"agent"}
    if not at_service:
        assert copied == session.state["messages"]


async def test_the_copy_is_written_with_each_step():
    """What a crash in the second tool leaves is there already."""
    seen = []
    copies = InMemoryHistoryProvider()

    @tool
    async def look() -> str:
        seen.append(texts(session.state.get("messages", [])))
        return "3"

    client = StoringClient([[tool_call("look")], [tool_call("look")], "ok"])
    agent = Agent(client, tools=[look], context_providers=[HistoryCopy(copies)])
    session = agent.create_session()
    await agent.run("q", session=session)
    assert seen == [[], SAID[:3]]


async def test_a_copy_that_cannot_be_written_loses_no_run(ask):
    class Full(HistoryProvider):
        async def get_messages(self, session):
            return []

        async def save_messages(self, session, messages):
            raise OSError("disk full at postgresql://ada:Zx8Qw3Rt5@db/x")

    agent = Agent(ScriptedChatClient(["ok", "yes"]), context_providers=[HistoryCopy(Full())])
    session = agent.create_session()
    for _ in range(2):
        with pytest.warns(UserWarning, match="HistoryCopy failed: .*disk full"):
            response = await ask(agent, "q", session=session)
        assert response.stop_reason == "completed"
        assert any("disk full" in text for text in response.warnings)
        events = events_df(run_id=response.run_id)
        (told,) = events[events["kind"] == "provider.failed"]["data"]
        assert json.loads(told)["source"] == "HistoryCopy"
        assert "Zx8Qw3Rt5" not in told + str(response.warnings)
    assert len(session.state["messages"]) == 4


def test_a_copy_into_the_conversation_itself_is_refused(tmp_path):
    history = FileHistoryProvider(tmp_path)
    for own, copies in ((history, FileHistoryProvider(tmp_path)), (None, InMemoryHistoryProvider())):
        agent = Agent(ScriptedChatClient(["ok"]), history=own, context_providers=[HistoryCopy(copies)])
        with pytest.raises(ConfigurationError, match="where the conversation itself is stored"):
            agent.run_sync("q")
        assert agent.client.requests == []
    with pytest.raises(ConfigurationError, match="HistoryProvider, not str"):
        HistoryCopy("copies/")


async def test_a_recorded_conversation_at_a_service_is_played_again(ask, tmp_path):
    async def talk(client):
        agent = Agent(client, tools=[add])
        session = agent.create_session()
        return [(await ask(agent, text, session=session)).text for text in ("q", "r")]

    service = StoringClient([[tool_call("add", a=1, b=2)], "It is 3.", "ok"])
    said = await talk(RecordedChatClient(tmp_path / "talk.jsonl", service))
    assert said == ["It is 3.", "ok"]
    assert await talk(RecordedChatClient(tmp_path / "talk.jsonl")) == said


async def test_approvals_of_a_sub_agent_go_on_at_its_service(ask):
    @tool(approval="always")
    def remove(path: str) -> str:
        return f"{path} is gone"

    inner = StoringClient([[tool_call("remove", path="x")], "Removed.", "Again."])
    child = Agent(inner, "Remove files.", name="child", tools=[remove])
    outer = StoringClient([[tool_call("child", messages="x")], "Done.", [tool_call("child", messages="y")], "Done."])
    parent = Agent(outer, tools=[child.as_tool(session="shared")])
    session = parent.create_session()
    response = await ask(parent, "q", session=session)
    session = roundtrip(session)
    response = await ask(parent, [request.approve() for request in response.approvals], session=session)
    assert response.text == "Done."
    assert inner.sent() == [("system", "Remove files."), ("tool", "x is gone")]
    assert outer.sent() == [("tool", "Removed.")]
    await ask(parent, "r", session=roundtrip(session))
    assert inner.sent() == [("system", "Remove files."), ("user", "y")]


async def test_a_reply_that_middleware_has_replaced_keeps_its_id(ask):
    async def swap(context: ChatContext, call_next):
        await call_next()
        context.response = ChatResponse([Message("assistant", "other")], finish_reason="stop")

    client = StoringClient(["a", "b"])
    agent = Agent(client, middleware=[swap])
    session = agent.create_session()
    for text in ("q", "r"):
        response = await ask(agent, text, session=session)
    assert (response.text, response.warnings) == ("other", [])
    assert client.sent() == [("user", "r")]


async def test_a_correction_goes_out_alone(ask):
    client = StoringClient(["no JSON", '{"a": 1}', "ok"])
    agent = Agent(client)
    session = agent.create_session()
    response = await ask(agent, "q", session=session, options={"response_format": dict})
    assert response.value == {"a": 1}
    assert [role for role, _ in client.sent()] == ["user"]
    assert "required format" in client.sent()[0][1]
    await ask(agent, "r", session=session)
    assert client.sent() == [("user", "r")]


def test_the_blocking_calls_go_on_at_the_service_too():
    client = StoringClient(["a b", "c d", "e f"])
    agent = Agent(client)
    session = agent.create_session()
    agent.run_sync("1", session=session)
    assert [update.text for update in agent.stream_sync("2", session=session) if update.text] == ["c ", "d"]
    agent.start("3", session=session).result(30)
    assert client.sent() == [("user", "3")]
    assert len(client.conversations[session.service_session_id]) == 6


async def test_a_client_of_any_kind_can_go_on_at_a_service(ask):
    """One that only has `get_response` is told the conversation as an option."""
    asked = []

    class Plain:
        supports_service_sessions = stores_by_default = True

        def get_response(self, messages, *, stream=False, options=None):
            asked.append(([m.text for m in messages], options))
            reply = ChatResponse([Message("assistant", "ok")], conversation_id="conv_7", finish_reason="stop")
            if not stream:
                return asyncio.sleep(0, reply)

            async def updates():
                for update in reply.to_updates():
                    yield update

            return updates()

    agent = Agent(Plain())
    session = agent.create_session()
    for text in ("q", "r"):
        await ask(agent, text, session=session)
    assert asked == [(["q"], {}), (["r"], {"conversation_id": "conv_7"})]
