"""Threads at OpenAI, conversations and chains of responses: by the contract, with a server that remembers."""

import asyncio
import contextlib
import pickle
from typing import ClassVar
from urllib.parse import quote

import pytest

from nbagents import (
    Agent,
    AgentSession,
    DataContent,
    InMemoryHistoryProvider,
    LocalThread,
    Message,
    OpenAIConversationThread,
    OpenAIResponsesClient,
    RecordedChatClient,
    TextContent,
    copy_thread,
    recording,
    tool,
    tool_call,
)
from nbagents.core.content import FunctionCall, FunctionResult, HostedToolCall, HostedToolResult, ReasoningContent
from nbagents.core.errors import (
    BadRequestError,
    ConfigurationError,
    InvalidReplyError,
    ModelNotFoundError,
    ServerError,
    SessionError,
)
from tests.core.conftest import ask as ask
from tests.core.thread_contract import SAID, ThreadContract, add, roundtrip, shown
from tests.support import responses_events as wire


def items_of(reply):
    """A scripted reply as the items that the server says."""
    if isinstance(reply, str) or callable(reply):
        return reply
    return [
        wire.said(piece) if isinstance(piece, str) else wire.called(f"call_{id(piece)}", piece.name, piece.arguments)
        for piece in reply
    ]


class OnServer(ThreadContract):
    settings: ClassVar = {}

    @pytest.fixture(autouse=True)
    def server(self, responses_server):
        self.server = responses_server

    def agent(self, *replies, **settings):
        self.server.replies = [items_of(reply) for reply in replies]
        client = OpenAIResponsesClient("test-model", base_url=self.server.base_url, max_retries=0, **self.settings)
        return Agent(client, **settings)

    def asked(self):
        return self.server.count()


class TestConversation(OnServer):
    kind = "an OpenAI conversation"
    settings: ClassVar = {"conversations": True}

    def kept(self, session, thread_id):
        return thread_id in self.server.conversations


class TestChain(OnServer):
    kind = "a chain of OpenAI responses"
    made_by_create = False

    def kept(self, session, thread_id):
        return bool(self.server.responses)


# --- what is particular to each


KINDS = ["conversation", "chain"]


@pytest.fixture(params=KINDS)
def conversations(request):
    return request.param == "conversation"


@pytest.fixture
def make(responses_server, conversations):
    """Makes an agent whose model gives these replies."""

    def make(*replies, client=None, **settings):
        responses_server.replies = [items_of(reply) for reply in replies]
        chosen = {"max_retries": 0, "conversations": conversations, **(client or {})}
        return Agent(OpenAIResponsesClient("test-model", base_url=responses_server.base_url, **chosen), **settings)

    return make


async def test_a_turn_brings_only_what_is_new(make, ask, responses_server, conversations):
    agent = make([tool_call("add", a=1, b=2)], "It is 3.", "Yes.", instructions="Be brief.", tools=[add])
    session = agent.create_session()
    await ask(agent, "1 + 2?", session=session)
    session = roundtrip(session)
    await ask(agent, "Sure?", session=session)
    assert [responses_server.sent(number) for number in range(3)] == [
        [("user", "1 + 2?")],
        [("function_call_output", "3")],
        [("user", "Sure?")],
    ]
    assert responses_server.count("POST", "/conversations") == (1 if conversations else 0)
    said = [*SAID, ("user", "Sure?"), ("assistant", "Yes.")]
    assert shown(await agent.thread(session).get_messages()) == said
    assert session.state == {}


def test_the_blocking_calls_go_on_with_the_session_of_a_response(make, responses_server):
    agent = make("Hello.", "Ada.", "Yes.", "Bye.")
    response = agent.run_sync("I am Ada.")
    response = agent.run_sync("Who am I?", session=response.session)
    for update in (stream := agent.stream_sync("Sure?", session=response.session)):
        assert update.agent_id == "agent"
    response = agent.start("Bye.", session=stream.get_final_response().session).result(30)
    assert response.text == "Bye."
    assert responses_server.sent() == [("user", "Bye.")]
    assert len(responses_server.stored(response.session.service_session_id)) == 8


async def test_both_ids_of_calls_come_back(make):
    agent = make([tool_call("add", a=1, b=2)], "It is 3.", tools=[add])
    session = agent.create_session()
    await agent.run("1 + 2?", session=session)
    first, second = [await agent.thread(session).get_messages() for _ in range(2)]
    assert first == second
    assert first[1].calls[0].id == first[2].results[0].id != ""
    assert all(message.message_id for message in first)


async def test_long_conversations_come_in_pages(make, responses_server):
    agent = make(lambda body: f"said {len(responses_server.asked)}")
    session = agent.create_session()
    for number in range(5):
        await agent.run(f"q{number}", session=session)
    before = len(responses_server.asked)
    whole = shown(await agent.thread(session).get_messages())
    assert len(responses_server.asked) - before <= 3  # the service lists everything at once
    assert [text for role, text in whole if role == "user"] == [f"q{number}" for number in range(5)]
    responses_server.page = 3
    before = len(responses_server.asked)
    assert shown(await agent.thread(session).get_messages()) == whole
    assert len(responses_server.asked) - before >= 4
    responses_server.lists_all = False  # a response's list of what it was asked is that of its own request
    assert shown(await agent.thread(session).get_messages()) == whole


async def test_approvals_go_on_in_another_program(make, ask, responses_server):
    @tool(approval="always")
    def remove(path: str) -> str:
        return f"{path} is gone"

    agent = make([tool_call("remove", path="x"), tool_call("add", a=1, b=2)], "Done.", "ok", tools=[remove, add])
    session = agent.create_session()
    response = await ask(agent, "q", session=session)
    session = roundtrip(session)
    response = await ask(agent, [request.approve() for request in response.approvals], session=session)
    assert response.text == "Done."
    assert responses_server.sent() == [("function_call_output", "3"), ("function_call_output", "x is gone")]
    await ask(agent, "go on", session=roundtrip(session))
    assert responses_server.sent() == [("user", "go on")]


async def test_a_call_that_is_cancelled_is_answered_by_the_next_turn(make, responses_server):
    began = asyncio.Event()

    @tool
    async def slow() -> None:
        began.set()
        await asyncio.sleep(30)

    agent = make([tool_call("slow")], "ok", tools=[slow])
    session = agent.create_session()
    task = asyncio.ensure_future(agent.run("q", session=session))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    session = roundtrip(session)
    await agent.run("go on", session=session)
    (_, interrupted), new = responses_server.sent()
    assert "Interrupted" in interrupted
    assert new == ("user", "go on")
    assert session.state == {}


async def test_results_whose_reply_was_left_go_out_again_where_they_have_not_arrived(make, responses_server):
    agent = make([tool_call("add", a=1, b=2)], "It is 3.", "ok", tools=[add])
    session = agent.create_session()
    async with agent.run("q", session=session, stream=True) as stream:
        async for update in stream:
            if any(isinstance(content, FunctionResult) for content in update.contents):
                responses_server.stalls = True
            if update.text:
                break
    assert responses_server.hung_up.wait(30)
    responses_server.stalls = False
    session = roundtrip(session)
    await agent.run("go on", session=session)
    assert responses_server.sent()[0] == ("function_call_output", "3")
    assert responses_server.sent()[-1] == ("user", "go on")
    assert session.state == {}


async def test_a_reply_that_was_left_is_kept_where_it_can_be_sent_again(make, responses_server, conversations):
    """C75: a conversation has nothing of the turn then; after a response, all of it goes with the next request."""
    agent = make("one two three", "ok")
    session = agent.create_session()
    responses_server.stalls = True
    async with agent.run("q", session=session, stream=True) as stream:
        async for update in stream:
            if update.text:
                break
    assert responses_server.hung_up.wait(30)
    responses_server.stalls = False
    session = roundtrip(session)
    kept = [] if conversations else [("user", "q"), ("assistant", "one ")]
    assert shown(await agent.thread(session).get_messages()) == kept
    responses_server.replies = ["ok"]
    await agent.run("go on", session=session)
    assert responses_server.sent() == [*kept, ("user", "go on")]
    assert shown(await agent.thread(session).get_messages()) == [*kept, ("user", "go on"), ("assistant", "ok")]


async def test_a_turn_that_fails_before_any_output_leaves_what_waits_as_it_was(make, responses_server):
    agent = make("ok")
    session = agent.create_session()
    await agent.thread(session).on_new_message(Message("user", "I am Ada."), Message("assistant", "Hello."))
    before = session.to_dict()
    responses_server.faults = {"POST /responses": [500]}
    with pytest.raises(ServerError):
        await agent.run("q", session=session)
    assert session.to_dict() == before
    await agent.run("r", session=session)
    said = [("user", "I am Ada."), ("assistant", "Hello."), ("user", "r"), ("assistant", "ok")]
    assert shown(await agent.thread(session).get_messages()) == said


async def test_what_is_stored_in_one_kind_is_no_session_of_the_other(make, conversations):
    session = AgentSession("trip")
    await make("ok").run("q", session=session)
    agent = make("ok", client={"conversations": not conversations})
    kinds = ["an OpenAI conversation", "a chain of OpenAI responses"]
    was, needed = kinds if conversations else reversed(kinds)
    with pytest.raises(ConfigurationError, match=rf"'trip' is {was} \(.*live in {needed}\..*copy_thread\("):
        agent.run("r", session=session)


async def test_one_kind_is_copied_into_the_other(make, responses_server, conversations):
    agent = make([tool_call("add", a=1, b=2)], "It is 3.", tools=[add])
    session = agent.create_session()
    await agent.run("1 + 2?", session=session)
    source = agent.thread(session)
    agent = make("Yes.", client={"conversations": not conversations}, tools=[add])
    other = agent.create_session()
    await copy_thread(source, agent.thread(other))
    other = roundtrip(other)
    await agent.run("Sure?", session=other)
    said = [*SAID, ("user", "Sure?"), ("assistant", "Yes.")]
    assert shown(await agent.thread(other).get_messages()) == said
    assert responses_server.stored(other.service_session_id)[-1] == ("assistant", "Yes.")


async def test_a_client_that_has_nothing_stored_goes_on_with_either(make, conversations):
    session = AgentSession("trip")
    await make("ok").run("q", session=session)
    agent = make("yes", client={"conversations": False, "stores_by_default": False})
    await agent.run("r", session=session)
    said = [("user", "q"), ("assistant", "ok"), ("user", "r"), ("assistant", "yes")]
    assert shown(await agent.thread(session).get_messages()) == said
    response = await agent.run("s")
    assert response.session.service_session_id is None


async def test_content_of_all_kinds_comes_back(make):
    image = DataContent("data:image/png;base64,iVBORw0KGgo=", "image/png")
    pdf = DataContent("data:application/pdf;base64,JVBERi0=", "application/pdf", "a.pdf")
    thought = ReasoningContent("hm", "rs_1", "secret")
    call = FunctionCall("c1", "draw", {}, "call_1")
    agent, session = make("ok"), AgentSession("trip")
    thread = agent.thread(session)
    await thread.on_new_message(
        Message("user", ["Look:", image, pdf]),
        Message("assistant", [thought, "I see.", call]),
        Message("tool", [FunctionResult("c1", "draw", "drawn", "call_1", items=(image,))]),
        Message("assistant", "Done."),
    )
    for _ in range(2):
        user, asked, result, done, *_ = await thread.get_messages()
        assert user.contents == (TextContent("Look:"), image, pdf)
        assert [content.type for content in asked.contents] == ["reasoning", "text", "function_call"]
        assert asked.contents[0].encrypted == "secret"
        assert (result.results[0].result, result.results[0].items) == ("drawn", (image,))
        assert done.text == "Done."
        await agent.run("q", session=session)


@pytest.mark.parametrize(
    "content",
    [
        ReasoningContent("hm"),
        HostedToolCall("web_search", "ws_1"),
        HostedToolResult("web_search", "ws_1"),
        DataContent("openai-file:file_1", "image/png"),
        FunctionResult("c1", "f", "", items=(DataContent("data:audio/wav;base64,AA==", "audio/wav"),)),
    ],
    ids=lambda content: content.type,
)
async def test_what_openai_does_not_take_from_here_is_an_error_that_names_it(make, responses_server, content):
    role = "tool" if isinstance(content, FunctionResult) else "assistant"
    source = LocalThread(AgentSession(), InMemoryHistoryProvider())
    calls = [Message("assistant", [FunctionCall("c1", "f", {})])] if role == "tool" else []
    await source.on_new_message(*calls, Message(role, [content]))
    agent = make("ok")
    with pytest.raises(SessionError, match=f"cannot store {content.type} of message"):
        await copy_thread(source, agent.thread(agent.create_session()))
    assert responses_server.count() == 0


async def test_what_the_thread_asks_for_is_asked_again_after_a_failure(make, responses_server, conversations):
    agent = make("ok", client={"max_retries": 2})
    session = agent.create_session()
    await agent.run("q", session=session)
    lists = "GET /conversations/*/items" if conversations else "GET /responses/*/input_items"
    last = "DELETE /conversations/*" if conversations else "DELETE /responses/*"
    responses_server.faults = {lists: [503], last: [503]}
    assert len(await agent.thread(session).get_messages()) == 2
    await agent.thread(session).delete()
    assert (responses_server.conversations if conversations else responses_server.responses) == {}


async def test_what_is_gone_at_the_service_can_be_deleted(make, responses_server):
    agent = make("ok")
    session = agent.create_session()
    await agent.run("q", session=session)
    responses_server.reset()
    with pytest.raises(ModelNotFoundError):
        await agent.thread(session).get_messages()
    await agent.thread(session).delete()
    assert session.service_session_id is None


@pytest.mark.parametrize("id", ["x/../../models", "x?limit=1#", "x%2Fy"])
async def test_an_id_is_no_way_to_another_address(make, responses_server, conversations, id):
    id = f"conv_{id}" if conversations else id
    agent = make("ok")
    for use in (agent.thread(agent.get_session(id)).get_messages, agent.thread(agent.get_session(id)).delete):
        with contextlib.suppress(ModelNotFoundError):
            await use()
    paths = {path.split("/", 2)[2].removesuffix("/items") for _, path, _ in responses_server.asked}
    assert paths == {quote(id, safe="")}


async def test_an_id_of_dots_is_none(responses_server):
    agent = Agent(OpenAIResponsesClient("test-model", base_url=responses_server.base_url))
    with pytest.raises(ConfigurationError, match=r"'\.\.' is no id"):
        await agent.thread(agent.get_session("..")).get_messages()
    assert responses_server.count() == 0


async def test_a_conversation_that_is_gone_is_an_error_that_says_so(make, ask, responses_server):
    agent = make("ok")
    session = agent.create_session()
    await agent.run("q", session=session)
    responses_server.conversations.clear(), responses_server.responses.clear()
    with pytest.raises(BadRequestError, match=r"no longer has the conversation .*create_session"):
        await ask(agent, "r", session=session)


@pytest.mark.filterwarnings("ignore:The history failed")  # it was deleted: that is what the warning says
async def test_nothing_waits_in_a_session_that_is_deleted(make, responses_server):
    agent = make("one two three")
    session = agent.create_session()
    responses_server.stalls = True
    async with agent.run("q", session=session, stream=True) as stream:
        async for update in stream:
            if update.text:
                await agent.thread(session).delete()
                break
    assert session.state == {"nbagents.deleted": True}


# --- a chain of responses


@pytest.fixture
def chain(responses_server):
    responses_server.replies = ["ok"]
    return Agent(OpenAIResponsesClient("test-model", base_url=responses_server.base_url, max_retries=0))


async def test_all_responses_of_a_chain_are_deleted(chain, responses_server):
    session = chain.create_session()
    for _ in range(3):
        await chain.run("q", session=session)
    assert len(responses_server.responses) == 3
    del responses_server.responses[min(responses_server.responses)]
    await chain.thread(session).delete()
    assert responses_server.responses == {}


async def test_a_chain_of_which_a_part_could_not_be_deleted_is_deleted_by_another_try(chain, responses_server):
    session = chain.create_session()
    for _ in range(3):
        await chain.run("q", session=session)
    newest = max(responses_server.responses, key=lambda id: int(id.partition("_")[2]))
    responses_server.faults = {f"DELETE /responses/{newest}": [500]}
    with pytest.raises(ServerError):
        await chain.thread(session).delete()
    assert list(responses_server.responses) == [newest]
    await chain.thread(roundtrip(session)).delete()
    assert responses_server.responses == {}


async def test_what_waits_is_kept_through_a_turn_that_fails(chain, responses_server):
    session = chain.create_session()
    responses_server.replies, responses_server.stalls = ["one two"], True
    async with chain.run("q", session=session, stream=True) as stream:
        async for update in stream:
            if update.text:
                break
    responses_server.stalls, responses_server.replies = False, ["ok"]
    before = session.to_dict()
    responses_server.faults = {"POST /responses": [500]}
    with pytest.raises(ServerError):
        await chain.run("r", session=session)
    assert session.to_dict() == before
    assert shown(await chain.thread(session).get_messages()) == [("user", "q"), ("assistant", "one ")]


async def test_a_response_without_output_is_listed_once(chain, responses_server):
    session = chain.create_session()
    responses_server.replies = ["a", [], "b"]
    for text in ("1", "2", "3"):
        await chain.run(text, session=session)
    said = [("user", "1"), ("assistant", "a"), ("user", "2"), ("user", "3"), ("assistant", "b")]
    for lists_all in (True, False):
        responses_server.lists_all = lists_all
        assert shown(await chain.thread(session).get_messages()) == said


async def test_messages_that_were_added_go_before_what_is_new(chain, responses_server):
    session = chain.create_session()
    await chain.run("q", session=session)
    await chain.thread(session).on_new_message(Message("user", "By the way."), Message("assistant", "Yes?"))
    await chain.thread(session).on_new_message(Message("user", "I am Ada."))
    await chain.run("r", session=roundtrip(session))
    added = [("user", "By the way."), ("assistant", "Yes?"), ("user", "I am Ada.")]
    assert responses_server.sent() == [*added, ("user", "r")]


# --- a conversation


@pytest.fixture
def agent(responses_server):
    responses_server.replies = ["ok"]
    client = OpenAIResponsesClient("test-model", base_url=responses_server.base_url, max_retries=0, conversations=True)
    return Agent(client)


def many(number):
    calls = [FunctionCall(f"c{i}", "f", {}, f"call_{i}") for i in range(4)]
    group = [
        Message("assistant", calls),
        *(Message("tool", [FunctionResult(c.call_id, "f", "r", c.id)]) for c in calls),
    ]
    return [*(Message("user", f"m{i}") for i in range(number)), *group, Message("assistant", "end")]


async def test_messages_are_added_in_batches_that_split_no_group(agent, responses_server):
    session = agent.create_session()
    await agent.thread(session).on_new_message(*many(15))
    bodies = [body["items"] for method, path, body in responses_server.asked if body and "items" in body]
    assert [len(items) for items in bodies] == [15, 9]
    assert len(await agent.thread(session).get_messages()) == 15 + 5 + 1
    assert (await agent.run("q", session=session)).text == "ok"


async def test_a_batch_that_fails_leaves_nothing_of_those_before(agent, responses_server):
    session = agent.create_session()
    await agent.run("q", session=session)
    responses_server.faults = {"POST /conversations/*/items": [0, 500]}
    stored = responses_server.stored(session.service_session_id)
    with pytest.raises(ServerError):
        await agent.thread(session).on_new_message(*many(30))
    assert responses_server.stored(session.service_session_id) == stored
    assert len(stored) == 2


async def test_a_conversation_is_recorded_and_played_again_without_a_server(agent, responses_server, tmp_path):
    async def talk(client):
        agent = Agent(client)
        session = agent.create_session()
        return [(await agent.run(text, session=session)).text for text in ("q", "r")], session.service_session_id

    client = RecordedChatClient(tmp_path / "talk.jsonl", agent.client)
    said = await talk(client)
    there = await Agent(client).thread(agent.get_session(said[1])).get_messages()
    assert shown(there) == [("user", "q"), ("assistant", "ok"), ("user", "r"), ("assistant", "ok")]
    asked = responses_server.count()
    played = RecordedChatClient(tmp_path / "talk.jsonl", agent.client, mode="replay")
    assert not Agent(played).thread(agent.get_session(said[1])).can_read
    assert await talk(RecordedChatClient(tmp_path / "talk.jsonl")) == said
    with recording(tmp_path / "talk.jsonl", "replay"):
        assert await talk(agent.client) == said
    assert responses_server.count() == asked


def test_a_conversations_client_is_pickled_as_what_it_is(agent):
    assert pickle.loads(pickle.dumps(agent.client)).conversations


async def test_a_server_without_conversations_says_so(agent, responses_server):
    responses_server.faults = {"POST /conversations": [404]}
    with pytest.raises(ModelNotFoundError, match="has nothing at this address"):
        await agent.run("q")
    with pytest.raises(InvalidReplyError, match="conv_"):
        await LocalAnswer("x").thread(AgentSession()).create()


class LocalAnswer:
    """A client whose service makes conversations of another form."""

    max_retries = 0

    def __init__(self, id):
        self.id = id

    async def ask(self, *arguments, **settings):
        return {"id": self.id}

    def thread(self, session):
        return OpenAIConversationThread(session, self)
