"""Where messages are stored: what holds for every storage."""

import asyncio
import contextlib
import gc
import threading
from collections import Counter

import pytest

from nbagents import Agent, AgentSession, HistoryProvider, Message, ScriptedChatClient, tool, tool_call
from nbagents.core.content import FunctionCall, FunctionResult, ReasoningContent, RefusalContent, TextContent
from nbagents.core.errors import SessionError, ThreadDeletedError
from tests.core.histories import Storage, append, start_program
from tests.core.test_loop import assert_balanced

KINDS = ["memory", "file", "sqlite", "postgres"]


@pytest.fixture(params=KINDS)
async def storage(request, tmp_path):
    """Each kind of storage, empty."""
    if request.param == "postgres":
        place = request.getfixturevalue("postgres_url")
    else:
        place = {"memory": "memory", "file": f"{tmp_path}/sessions", "sqlite": f"sqlite:///{tmp_path}/chat.db"}[
            request.param
        ]
    async with contextlib.aclosing(Storage(place)) as opened:
        yield opened


lasting = pytest.mark.parametrize("storage", ["file", "sqlite", "postgres"], indirect=True)
"""Storages that other processes can use."""


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def shown(messages):
    """The messages without what differs from run to run."""
    return [
        (m.role, m.text, m.author_name, [(c.name, c.arguments) for c in m.calls], [r.result for r in m.results])
        for m in messages
    ]


TRANSCRIPT = [
    ("user", "1 + 2?", None, [], []),
    ("assistant", "Let me see. ", "agent", [("add", {"a": 1, "b": 2})], []),
    ("tool", "", "add", [], ["3"]),
    ("assistant", "It is 3.", "agent", [], []),
    ("user", "Sure?", None, [], []),
    ("assistant", "Yes.", "agent", [], []),
]


async def test_a_conversation_goes_on_with_another_object(storage, ask):
    client = ScriptedChatClient([["Let me see. ", tool_call("add", a=1, b=2)], "It is 3.", "Yes."])
    for question in ("1 + 2?", "Sure?"):
        await ask(Agent(client, tools=[add], history=storage.open()), question, session=storage.session())
    assert shown(client.requests[-1].messages) == TRANSCRIPT[:-1]
    stored = await storage.stored()
    assert shown(stored) == TRANSCRIPT
    assert all(m.run_id and m.created_at for m in stored)


async def test_messages_come_back_as_they_were(storage):
    """C47: also half of a surrogate pair, which no file and no database takes."""
    odd = "żółw 鳥🐙 a\ud83d \0 \u2028 \r\n\"quoted' \\ end"
    call = FunctionCall("c1", "f", {"text": odd, "n": 1.5, "none": None}, "call_1")
    messages = [
        Message("user", odd, author_name="Ada", created_at=1.25, extra={"later": [1]}),
        Message("assistant", [ReasoningContent("hm"), TextContent(odd), call], message_id="m1", interrupted=True),
        Message("tool", [FunctionResult("c1", "f", odd, "call_1", error="no", interrupted=True)]),
        Message("assistant", [RefusalContent("No."), FunctionCall("c2", "f", "{broken", "call_2", invalid=True)]),
    ]
    thread = Agent(ScriptedChatClient([]), history=storage.open()).thread(storage.session())
    await thread.on_new_message(*messages[:1])
    await thread.on_new_message(*messages[1:])
    assert await thread.get_messages() == messages
    assert await storage.stored() == messages


async def test_a_broken_character_reaches_the_next_turn(storage, ask):
    """C47"""
    client = ScriptedChatClient([["a\ud83d"], "ok"])
    for _ in range(2):
        await ask(Agent(client, history=storage.open()), "q", session=storage.session())
    assert [m.text for m in client.requests[-1].messages] == ["q", "a\ud83d", "q"]


async def test_nothing_is_stored_before_the_first_message(storage):
    assert await storage.stored() == []
    await storage.open().save_messages(storage.session(), [])
    assert await storage.stored() == []


@lasting
async def test_what_was_read_before_is_not_parsed_again_and_never_out_of_date(storage, monkeypatch):
    history, session = storage.open(), storage.session()
    await append(storage.place, "trip", "w0", 3)
    first = await history.get_messages(session)
    await append(storage.place, "trip", "w1", 1)
    second = await history.get_messages(session)
    assert [m.text for m in second[6:]] == ["w1 asks 0", "w1 answers 0"]
    assert all(left is right for left, right in zip(first, second, strict=False))
    first.clear()
    monkeypatch.setattr("nbagents.core.stored.MAX_REMEMBERED", 1)
    assert await history.get_messages(session) == second == await storage.stored()
    await storage.open().delete_messages(session)
    assert await history.get_messages(session) == []


ODD_IDS = ["..", "../trip", "/etc/passwd", "a/b", "a\\b", "CON", "con", "con.txt", "nul", "Trip", "TRIP", "trip", "a b"]
ODD_IDS += [
    "x" * 300,
    "x" * 301,
    "鳥" * 300,
    "é",
    "e\u0301",
    "a\0b",
    "a\\u0000b",
    "\ud83d",
    "%2e",
    ".",
    "~",
    "-rf",
    "a\n",
]


async def test_sessions_with_odd_ids_are_kept_apart(storage):
    history = storage.open()
    for session_id in ODD_IDS:
        await history.save_messages(storage.session(session_id), [Message("user", f"I am {session_id}")])
    for session_id in ODD_IDS:
        assert [m.text for m in await storage.stored(session_id)] == [f"I am {session_id}"]


async def test_runs_on_one_session_take_turns_across_objects(storage, ask):
    """C72: the lock belongs to the stored session."""
    replies = [lambda r: [tool_call("add", a=1, b=1)] if r.messages[-1].role == "user" else "done"] * 12
    client = ScriptedChatClient(replies)
    agents = [Agent(client, tools=[add], history=storage.open()) for _ in range(4)]
    await asyncio.gather(*[ask(agent, "q", session=storage.session()) for agent in agents])
    stored = await storage.stored()
    assert [m.role for m in stored] == ["user", "assistant", "tool", "assistant"] * 4
    assert max(len(request.messages) for request in client.requests) == 4 * 4 - 1  # the last one saw the others


async def test_a_deleted_session_is_forgotten(storage):
    agent = Agent(ScriptedChatClient(["secret", "new", "kept"]), history=storage.open())
    session = storage.session()
    await agent.run("q", session=session)
    await agent.run("q", session=storage.session("other"))
    thread = agent.thread(session)
    await thread.delete()
    await thread.delete()
    for again in (session, AgentSession.from_dict(session.to_dict())):
        with pytest.raises(ThreadDeletedError):
            await agent.run("q", session=again)
    assert await storage.stored() == []
    assert len(await storage.stored("other")) == 2
    begun = AgentSession("trip")
    assert (await agent.run("q", session=begun)).text == "kept"
    assert len(await agent.thread(begun).get_messages()) == 2


async def test_what_a_run_stores_while_its_session_is_deleted_is_forgotten_too(storage):
    agents = []

    @tool
    async def forget() -> str:
        await agents[0].thread(session).delete()
        return "gone"

    session = storage.session()
    agents.append(Agent(ScriptedChatClient(["a", [tool_call("forget")]]), tools=[forget], history=storage.open()))
    await agents[0].run("q", session=session)
    with pytest.raises(ThreadDeletedError):
        await agents[0].run("q", session=session)
    assert await storage.stored() == []


async def test_messages_that_are_on_their_way_when_the_session_is_deleted_are_forgotten(storage, monkeypatch):
    history, session = storage.open(), storage.session()
    saving, deleted = asyncio.Event(), asyncio.Event()
    save = history.save_messages

    async def save_late(session, messages):
        saving.set()
        await deleted.wait()
        await save(session, messages)

    monkeypatch.setattr(history, "save_messages", save_late)
    agent = Agent(ScriptedChatClient(["answer"]), history=history)
    task = asyncio.create_task(agent.run("q", session=session))
    await saving.wait()
    await agent.thread(session).delete()
    deleted.set()
    with pytest.raises(ThreadDeletedError):
        await task
    assert await storage.stored() == []


async def test_a_storage_that_cannot_delete_says_so():
    class Kept(HistoryProvider):
        async def get_messages(self, session):
            return []

        async def save_messages(self, session, messages):
            pass

    thread = Agent(ScriptedChatClient([]), history=Kept()).thread(AgentSession("trip"))
    with pytest.warns(UserWarning, match="Kept cannot delete.*'trip'"):
        await thread.delete()
    with pytest.raises(ThreadDeletedError):
        await thread.get_messages()


async def test_a_turn_that_is_cancelled_is_stored_balanced(storage):
    began = asyncio.Event()

    @tool
    async def slow() -> None:
        began.set()
        await asyncio.sleep(30)

    client = ScriptedChatClient([["Sure. ", tool_call("slow")], "ok"])
    task = asyncio.create_task(Agent(client, tools=[slow], history=storage.open()).run("q", session=storage.session()))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await Agent(client, history=storage.open()).run("go on", session=storage.session())
    assert_balanced(client.requests[-1].messages)
    assert [m.role for m in await storage.stored()] == ["user", "assistant", "tool", "user", "assistant"]


async def test_a_broken_turn_is_repaired_in_the_request_and_left_as_it_is_stored(storage, ask):
    """Calls without a result and results without a call, as another program may leave them."""
    broken = [
        Message("tool", [FunctionResult("c0", "add", "7", "call_0")]),
        Message("user", "q"),
        Message("assistant", [FunctionCall("c1", "add", {}, "call_1"), FunctionCall("c2", "add", {}, "call_2")]),
        Message("tool", [FunctionResult("c2", "add", "3", "call_2")]),
    ]
    await storage.open().save_messages(storage.session(), broken)
    client = ScriptedChatClient(["ok", "ok"])
    for _ in range(2):
        await ask(Agent(client, history=storage.open()), "go on", session=storage.session())
    sent = client.requests[-1].messages
    assert_balanced(sent)
    assert [m.role for m in sent] == ["user", "assistant", "tool", "tool", "user", "assistant", "user"]
    assert [(r.call_id, r.interrupted) for m in sent for r in m.results] == [("c1", True), ("c2", False)]
    stored = await storage.stored()
    assert stored[:4] == broken
    assert [m.role for m in stored[4:]] == ["user", "assistant"] * 2


@lasting
async def test_a_group_is_stored_whole_or_not_at_all(storage):
    history, session = storage.open(), storage.session()
    bad = Message("assistant", [FunctionCall("c", "f", {"x": object()})])  # type: ignore[dict-item]
    with pytest.raises(SessionError, match="object"):
        await history.save_messages(session, [Message("user", "q"), bad])
    assert await storage.stored() == []


@lasting
async def test_a_killed_program_leaves_a_session_that_the_next_one_can_use(storage, ask):
    program = start_program("hang", storage.place)
    try:
        assert program.stdout.readline() == "waiting\n"
    finally:
        program.kill()
        program.communicate()
    stored = await storage.stored()
    assert [m.role for m in stored] == ["user", "assistant", "tool"]
    assert_balanced(stored)
    client = ScriptedChatClient(["ok"])
    await ask(Agent(client, history=storage.open()), "go on", session=storage.session())
    assert shown(client.requests[0].messages) == [*shown(stored), ("user", "go on", None, [], [])]


def assert_all_there(messages, writers, number):
    """No message is lost or doubled, each writer's are in its order, and groups are not torn apart."""
    texts = [message.text for message in messages]
    assert Counter(text.split()[0] for text in texts) == dict.fromkeys(writers, 2 * number)
    for writer in writers:
        own = [text for text in texts if text.startswith(f"{writer} ")]
        assert own == [f"{writer} {does} {i}" for i in range(number) for does in ("asks", "answers")]
    assert all(
        question.replace("asks", "answers") == answer for question, answer in zip(texts[::2], texts[1::2], strict=True)
    )


WRITERS = [f"w{i}" for i in range(8)]


@lasting
@pytest.mark.parametrize("one_session", [True, False])
async def test_eight_threads_on_a_new_storage_lose_nothing(storage, one_session):
    """C73: 160 messages, whether they are one session's or those of eight."""
    failed = []
    gate = threading.Barrier(len(WRITERS))

    def write(writer):
        gate.wait()
        try:
            asyncio.run(append(storage.place, "all" if one_session else writer, writer, 10))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in WRITERS]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert failed == []
    if one_session:
        assert_all_there(await storage.stored("all"), WRITERS, 10)
    else:
        for writer in WRITERS:
            assert_all_there(await storage.stored(writer), [writer], 10)


@lasting
async def test_eight_processes_on_a_new_storage_lose_nothing(storage):
    """C73"""
    programs = [start_program("append", storage.place, "all", writer, 10) for writer in WRITERS]
    try:
        for program in programs:
            assert program.stdout.readline() == "ready\n"
        for program in programs:
            program.stdin.write("go\n")
            program.stdin.flush()
    finally:
        codes = [program.wait(60) for program in programs]
        for program in programs:
            program.communicate()
    assert codes == [0] * 8
    assert_all_there(await storage.stored("all"), WRITERS, 10)


@lasting
async def test_a_program_killed_while_it_stores_leaves_whole_groups(storage):
    program = start_program("append", storage.place, "all", "w0", 100_000)
    try:
        assert program.stdout.readline() == "ready\n"
        program.stdin.write("go\n")
        program.stdin.flush()
        while len(await storage.stored("all")) < 20:
            assert program.poll() is None
    finally:
        program.kill()
        program.communicate()
    stored = await storage.stored("all")
    assert_all_there(stored, ["w0"], len(stored) // 2)
    await append(storage.place, "all", "w1", 1)
    assert len(await storage.stored("all")) == len(stored) + 2


@lasting
async def test_the_blocking_calls_work_in_threads_and_on_the_loop_thread(storage):
    """C02: a provider belongs to no event loop."""
    agent = Agent(ScriptedChatClient(["ok"] * 20), history=storage.open())
    agent.run_sync("1", session=storage.session())
    await agent.run("2", session=storage.session())
    threads = [
        threading.Thread(target=lambda: asyncio.run(agent.run("3", session=storage.session()))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    agent.start("4", session=storage.session()).result(30)
    assert len(await storage.stored()) == 12


async def test_nothing_stays_open_when_a_provider_is_dropped(storage, no_leaks):
    await Agent(ScriptedChatClient(["ok"]), history=storage.open()).run("q", session=storage.session())
    storage._opened.clear()
    gc.collect()
