"""The kinds of threads of the core, each by the contract: on this side, read-only, and a further service."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagents import (
    Agent,
    AgentSession,
    FileHistoryProvider,
    InMemoryHistoryProvider,
    LocalThread,
    Message,
    ScriptedChatClient,
    copy_thread,
    tool,
    tool_call,
)
from nbagents.core.content import FunctionCall, FunctionResult, ReasoningContent
from nbagents.core.errors import ConfigurationError, ServerError, SessionError, ThreadDeletedError
from tests.core.further_service import ArchiveThread, LedgerClient, LedgerThread
from tests.core.services import StoringClient
from tests.core.thread_contract import ThreadContract, roundtrip, shown

pytestmark = pytest.mark.filterwarnings("ignore:The service still stores")


class TestInMemory(ThreadContract):
    at_service = False
    kind = "a local thread"

    def agent(self, *replies, **settings):
        return Agent(ScriptedChatClient(replies), history=InMemoryHistoryProvider(), **settings)

    def asked(self):
        return 0

    def kept(self, session, thread_id):
        return "messages" in session.state


class TestInFile(ThreadContract):
    at_service = False
    kind = "a local thread"

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path):
        self.history = FileHistoryProvider(tmp_path)

    def agent(self, *replies, **settings):
        return Agent(ScriptedChatClient(replies), history=self.history, **settings)

    def asked(self):
        return 0

    def kept(self, session, thread_id):
        return self.history.path_of(session).exists()


class TestFurtherService(ThreadContract):
    kind = "a ledger"
    threads = LedgerThread

    @pytest.fixture(autouse=True)
    def no_client_yet(self):
        self.client = None

    def agent(self, *replies, **settings):
        self.client = LedgerClient(replies, self.threads)
        return Agent(self.client, **settings)

    def asked(self):
        return len(self.client.calls) + len(self.client.requests)

    def kept(self, session, thread_id):
        return thread_id in self.client.conversations


class TestReadOnly(TestFurtherService):
    kind = "an archive"
    threads = ArchiveThread
    flags = (False, False)
    made_by_create = False


def test_nothing_but_the_one_error_tells_of_a_kind_that_takes_no_messages():
    agent = Agent(LedgerClient(["ok"], ArchiveThread))
    with pytest.raises(SessionError, match=r"\(an archive\): its service stores what was said in a run and nothing"):
        asyncio.run(agent.thread(AgentSession("trip")).on_new_message(Message("user", "x")))


# --- a session of another kind


def local_session():
    agent = Agent(ScriptedChatClient(["ok"]))
    return agent.run_sync("q", session=AgentSession("trip")).session


def file_session(tmp_path):
    agent = Agent(ScriptedChatClient(["ok"]), history=FileHistoryProvider(tmp_path))
    return agent.run_sync("q", session=AgentSession("trip")).session


def waiting_session():
    @tool(approval="always")
    def remove() -> None:
        raise AssertionError

    agent = Agent(ScriptedChatClient([[tool_call("remove")]]), tools=[remove])
    return agent.run_sync("q", session=AgentSession("trip")).session


@pytest.mark.parametrize("client", [lambda: LedgerClient(["ok"]), lambda: StoringClient(["ok"])])
@pytest.mark.parametrize("kind", ["memory", "file", "waiting"])
def test_a_session_of_this_side_is_no_session_of_a_service(tmp_path, client, kind):
    session = {"memory": local_session, "waiting": waiting_session}.get(kind, lambda: file_session(tmp_path))()
    agent = Agent(client())
    for one in (session, roundtrip(session)):
        for use in (lambda one=one: agent.run("r", session=one), lambda one=one: agent.thread(one)):
            with pytest.raises(
                ConfigurationError, match=r"'trip' is a local thread.* live in a.*copy_thread\("
            ) as caught:
                use()
            assert agent.thread(AgentSession()).kind in str(caught.value)
    with pytest.raises(ConfigurationError, match="a local thread"):
        Agent(client(), options={"store": True}).run("r", session=session)
    assert agent.client.requests == []
    if kind != "waiting":
        assert agent.run_sync("r", session=session, options={"store": False}).text == "ok"


def test_a_session_of_a_service_is_none_of_this_side():
    session = Agent(LedgerClient(["ok"])).run_sync("q", session=AgentSession("trip")).session
    agent = Agent(ScriptedChatClient(["ok"]))
    with pytest.raises(ConfigurationError, match=r"'trip' goes on with 'conv_1'.* local thread.*copy_thread\("):
        agent.run("r", session=session)
    assert agent.run_sync("r", session=session, options={"store": False}).text == "ok"


def test_a_session_of_a_service_is_none_of_another_kind_there():
    class Other(LedgerThread):
        kind = "a ledger of another bank"

        def kind_of(self, id):
            return self.kind if id.startswith("other_") else LedgerThread.kind

    session = Agent(LedgerClient(["ok"])).run_sync("q", session=AgentSession("trip")).session
    agent = Agent(LedgerClient(["ok"], Other))
    with pytest.raises(ConfigurationError, match=r"'trip' is a ledger \('conv_1'\).* live in a ledger of another bank"):
        agent.run("r", session=session)


async def test_copying_is_what_the_error_offers():
    session, agent = AgentSession("trip"), Agent(LedgerClient(["Yes."]))
    old = Agent(ScriptedChatClient(["ok"]))
    await old.run("q", session=session)
    other = agent.create_session()
    await copy_thread(old.thread(session), agent.thread(other))
    await agent.run("Sure?", session=other)
    said = [("user", "q"), ("assistant", "ok"), ("user", "Sure?"), ("assistant", "Yes.")]
    assert shown(await agent.thread(other).get_messages()) == said


# --- what copying refuses


async def test_nothing_is_lost_by_copying():
    class Plain(LedgerThread):
        def unfit(self, message):
            return [content.type for content in message.contents if isinstance(content, ReasoningContent)]

    source = LocalThread(AgentSession("trip"), InMemoryHistoryProvider())
    await source.on_new_message(
        Message("user", "q"),
        Message("assistant", [ReasoningContent("hm"), "a"]),
        Message("assistant", [ReasoningContent("?")]),
    )
    agent = Agent(LedgerClient(["ok"], Plain))
    target = agent.thread(AgentSession())
    with pytest.raises(SessionError, match=r"A ledger cannot store reasoning of message 1; .*message 2.*leave_out"):
        await copy_thread(source, target)
    with pytest.raises(SessionError, match="content of the type reasoning"):
        await target.on_new_message(*await source.get_messages())
    assert agent.client.calls == []
    with pytest.raises(ConfigurationError, match=r"\['resoning'\].*reasoning"):
        await copy_thread(source, target, leave_out="resoning")
    await copy_thread(source, target, leave_out=["reasoning"])
    assert shown(await target.get_messages()) == [("user", "q"), ("assistant", "a")]
    assert len(await source.get_messages()) == 3


async def test_a_copy_goes_into_a_thread_without_messages():
    agent = Agent(LedgerClient(["ok", "ok"]))
    sessions = [agent.create_session(), agent.create_session()]
    for session in sessions:
        await agent.run("q", session=session)
    first, second = map(agent.thread, sessions)
    with pytest.raises(SessionError, match="has messages already"):
        await copy_thread(first, second)
    with pytest.raises(SessionError, match="into itself"):
        await copy_thread(first, agent.thread(sessions[0]))
    with pytest.raises(ConfigurationError, match=r"type AgentSession.*agent\.thread"):
        await copy_thread(sessions[0], second)


@pytest.mark.parametrize("client", [ScriptedChatClient, LedgerClient])
async def test_a_turn_that_is_not_finished_is_not_copied(client):
    @tool(approval="always")
    def remove() -> str:
        return "gone"

    @tool
    async def copy() -> str:
        with pytest.raises(SessionError, match="run goes on"):
            await copy_thread(agent.thread(session), target)
        return "no"

    agent = Agent(client([[tool_call("copy")], [tool_call("remove")], "ok"]), tools=[remove, copy])
    session, target = agent.create_session(), LocalThread(AgentSession(), InMemoryHistoryProvider())
    response = await agent.run("q", session=session)
    assert response.approvals, response
    with pytest.raises(SessionError, match="wait for approval"):
        await copy_thread(agent.thread(session), target)
    await agent.run([request.approve() for request in response.approvals], session=session)
    assert len(await copy_thread(agent.thread(session), target)) == 6


@st.composite
def histories(draw):
    """Messages of every kind in any order: calls without results, results without calls, results twice."""
    numbers = st.integers(0, 3)
    made = []
    for _ in range(draw(st.integers(1, 8))):
        number = draw(numbers)
        made.append(
            draw(
                st.sampled_from(
                    [
                        Message("user", f"u{number}"),
                        Message("assistant", f"a{number}"),
                        Message("assistant", [FunctionCall(f"c{number}", "f", {}, f"call_{number}")]),
                        Message("tool", [FunctionResult(f"c{number}", "f", f"r{number}", f"call_{number}")]),
                    ]
                )
            )
        )
    return made


@given(histories())
@settings(max_examples=60, deadline=None)
def test_whatever_is_copied_is_in_order_balanced_and_goes_on(messages):
    async def copied():
        source = LocalThread(AgentSession(state={"messages": messages}), InMemoryHistoryProvider())
        agent = Agent(LedgerClient(["ok"]))  # it refuses calls that are not answered, and answers without calls
        session = agent.create_session()
        given = await copy_thread(source, agent.thread(session))
        assert (await agent.run("go on", session=session)).text == "ok"
        return given, await agent.thread(session).get_messages()

    given, there = asyncio.run(copied())
    assert shown(there) == [*shown(given), ("user", "go on"), ("assistant", "ok")]
    said = [item for item in shown(messages) if item[0] == "user" or item[1].startswith("a")]
    assert [item for item in shown(given) if item in said] == said


# --- at a service


async def test_messages_are_added_between_two_turns():
    @tool(approval="always")
    def remove() -> str:
        return "gone"

    @tool
    async def note() -> str:
        with pytest.raises(SessionError, match="while a run goes on"):
            await agent.thread(session).on_new_message(Message("user", "x"))
        return "no"

    agent = Agent(LedgerClient([[tool_call("note"), tool_call("remove")], "ok"]), tools=[note, remove])
    session = agent.create_session()
    response = await agent.run("q", session=session)
    with pytest.raises(SessionError, match="while calls wait for approval"):
        await agent.thread(session).on_new_message(Message("user", "x"))
    await agent.run([request.approve() for request in response.approvals], session=session)
    await asyncio.gather(*[agent.thread(session).on_new_message(Message("user", f"{i}")) for i in range(3)])
    assert [text for _, text in shown(await agent.thread(session).get_messages())][-3:] == ["0", "1", "2"]


async def test_results_that_wait_for_the_next_request_go_before_what_is_added():
    agent = Agent(LedgerClient([[tool_call("look")], ServerError("down"), "ok"]), tools=[look])
    session = agent.create_session()
    with pytest.raises(ServerError):
        await agent.run("q", session=session)
    thread = agent.thread(roundtrip(session))
    told = [("user", "q"), ("assistant", "look"), ("tool", "seen")]
    assert shown(await thread.get_messages()) == told
    await thread.on_new_message(Message("user", "x"))
    assert thread.session.state == {}
    assert shown(await thread.get_messages()) == [*told, ("user", "x")]
    await agent.run("go on", session=thread.session)
    assert agent.client.sent() == [("user", "go on")]


async def test_results_that_have_arrived_after_all_are_not_sent_again():
    client = LedgerClient([[tool_call("look")], ServerError("down"), "ok"])
    agent = Agent(client, tools=[look])
    session = agent.create_session()
    with pytest.raises(ServerError):
        await agent.run("q", session=session)
    (waiting,) = session.state["nbagents.unsent"]
    client.conversations[session.service_session_id] += [waiting, Message("assistant", "Seen.")]
    await agent.run("go on", session=session)
    assert client.sent() == [("user", "go on")]
    assert session.state == {}


async def test_ids_of_calls_that_repeat_are_told_apart():
    """Some servers number the calls of each reply from one."""
    call = FunctionCall("c1", "look", {}, "")
    client = LedgerClient([[call], "ok", [call], ServerError("down"), "ok"])
    agent = Agent(client, tools=[look])
    session = agent.create_session()
    await agent.run("q", session=session)
    with pytest.raises(ServerError):
        await agent.run("r", session=session)
    await agent.run("go on", session=roundtrip(session))
    assert client.sent() == [("tool", "seen"), ("user", "go on")]


@tool
def look() -> str:
    return "seen"


async def test_a_thread_that_is_deleted_while_it_is_made_leaves_nothing():
    made, may_go_on = asyncio.Event(), asyncio.Event()

    class Slow(LedgerThread):
        async def create_at_service(self):
            id = await super().create_at_service()
            made.set()
            await may_go_on.wait()
            return id

    agent = Agent(LedgerClient(["ok"], Slow))
    session = agent.create_session()
    tasks = [
        asyncio.ensure_future(agent.thread(session).create()),
        asyncio.ensure_future(agent.thread(session).on_new_message(Message("user", "x"))),
    ]
    await made.wait()
    await agent.thread(session).delete()
    may_go_on.set()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [ThreadDeletedError] * 2
    assert agent.client.conversations == {}
    assert agent.client.calls == ["create", "delete"]
    assert session.service_session_id is None


async def test_a_delete_that_fails_at_the_service_can_be_tried_again():
    agent = Agent(LedgerClient(["ok"]))
    session = agent.create_session()
    await agent.run("q", session=session)
    agent.client.failures = [ServerError("down")]
    thread = agent.thread(session)
    with pytest.raises(ServerError):
        await thread.delete()
    with pytest.raises(ThreadDeletedError):
        await thread.get_messages()
    await agent.thread(roundtrip(session)).delete()
    assert agent.client.conversations == {}


async def test_a_create_that_fails_can_be_tried_again():
    agent = Agent(LedgerClient(["ok"]))
    agent.client.failures = [ServerError("down")]
    thread = agent.thread(agent.create_session())
    with pytest.raises(ServerError):
        await thread.create()
    assert thread.id is None
    await thread.create()
    assert thread.id == "ledger_1"
