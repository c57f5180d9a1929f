"""`Chat` without a kernel: what its comm sends, who may call it, what it leaves."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import comm
import pytest
from comm.base_comm import BaseComm

from nbagents import Agent, Chat, ScriptedChatClient, tool, tool_call
from nbagents.core.errors import ConfigurationError, RunCancelledError
from tests.core.further_service import LedgerClient


class RecordingComm(BaseComm):
    """What a front end would receive."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        self.sent: list[dict[str, Any]] = []
        self.threads: set[str] = set()
        super().__init__(*args, **keywords)

    def publish_msg(self, msg_type: str, data: Any = None, *args: Any, **keywords: Any) -> None:
        self.sent.append({"msg_type": msg_type, **(data or {})})
        self.threads.add(threading.current_thread().name)

    def patches(self) -> list[dict[str, Any]]:
        contents = [message["content"] for message in self.sent if message.get("method") == "custom"]
        return [content for content in contents if content["type"] == "patch"]


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comm, "create_comm", RecordingComm)


@tool
async def wait() -> str:
    await asyncio.sleep(20)
    return "waited"


@tool(approval="always")
def delete(path: str) -> str:
    return f"{path} is gone"


def chat_of(*replies: Any, **settings: Any) -> Chat:
    return Chat(Agent(ScriptedChatClient(list(replies), **settings), name="helper", tools=[wait, delete]))


@pytest.fixture
def chats() -> Iterator[Callable[..., Chat]]:
    made: list[Chat] = []

    def make(*replies: Any, **settings: Any) -> Chat:
        made.append(chat_of(*replies, **settings))
        return made[-1]

    yield make
    for chat in made:
        chat.close()


def click(chat: Chat, **content: Any) -> None:
    """Deliver what a view sends, as the kernel does, on this thread."""
    chat.comm.handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})


def until(condition: Callable[[], object], within: float = 5.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.005)


def test_a_click_is_answered_from_a_thread_without_a_loop(chats: Callable[..., Chat]) -> None:
    """C12."""
    chat = chats("The answer.")
    thread = threading.Thread(target=click, args=(chat,), kwargs={"type": "send", "text": "Hi"})
    thread.start()
    thread.join()
    until(lambda: "The answer." in chat.to_markdown())


async def test_a_click_is_answered_where_a_loop_runs(chats: Callable[..., Chat]) -> None:
    """C12."""
    chat = chats("The answer.")
    click(chat, type="send", text="Hi")
    while "The answer." not in chat.to_markdown():
        await asyncio.sleep(0.005)


def test_the_snapshot_is_reassigned_once_a_turn_and_equals_the_session(chats: Callable[..., Chat]) -> None:
    """C15."""
    chat = chats("First reply.", "Second reply.")
    values: list[dict[str, Any]] = []
    chat.observe(lambda change: values.append(change["new"]), "snapshot")
    chat.send("One").result(5)
    chat.send("Two").result(5)
    assert len(values) == 2
    assert values[0] is not values[1]
    for message in chat.session.state["messages"]:
        assert message.text in str(values[-1])


def test_turns_before_the_display_are_in_the_state(chats: Callable[..., Chat]) -> None:
    """C17."""
    chat = chats("First reply.", "Second reply.")
    chat.send("One").result(5)
    chat.send("Two").result(5)
    for state in (chat.get_state(), chat.bundle()[0]):
        assert all(text in str(state) for text in ("One", "First reply.", "Two", "Second reply."))


@pytest.mark.parametrize("client", [ScriptedChatClient, LedgerClient])
def test_an_earlier_session_is_shown(client: type[Any]) -> None:
    agent = Agent(client(["First reply.", "Second reply."]))
    session = agent.run_sync("One").session
    chat = Chat(agent, session)
    assert "First reply." in str(chat.snapshot)
    chat.send("Two").result(5)
    assert chat.session is session
    assert chat.to_markdown().count("reply.") == 2
    chat.close()


def test_patches_are_few_in_sequence_and_sent_by_the_loop_thread(chats: Callable[..., Chat]) -> None:
    chat = chats("word " * 400, delay=0.001)
    chat.comm.threads.clear()
    begun = time.monotonic()
    chat.send("Go").result(20)
    seconds = time.monotonic() - begun
    patches = chat.comm.patches()
    assert [patch["seq"] for patch in patches] == list(range(1, len(patches) + 1))
    assert len(patches) < 25 * seconds + 5
    assert chat.comm.threads == {"nbagents-loop"}


def test_a_page_that_loads_in_the_middle_gets_the_whole_and_then_patches(chats: Callable[..., Chat]) -> None:
    chat = chats(["Half a ", tool_call("wait")])
    handle = chat.send("Go")
    until(lambda: "wait" in str(chat.comm.patches()))
    state = chat.get_state()["snapshot"]
    assert "Half a" in str(state)
    click(chat, type="stop")
    assert isinstance(handle.exception(5), RunCancelledError)
    later = [patch["seq"] for patch in chat.comm.patches() if patch["seq"] > state["seq"]]
    assert later == list(range(state["seq"] + 1, state["seq"] + 1 + len(later)))
    assert later


def test_what_is_sent_meanwhile_waits_its_turn(chats: Callable[..., Chat]) -> None:
    chat = chats("First reply.", "Second reply.", delay=0.05)
    first, second = chat.send("One"), chat.send("Two")
    until(lambda: chat.waiting == ["Two"])
    assert (first.result(5).text, second.result(5).text) == ("First reply.", "Second reply.")
    until(lambda: (chat.state, chat.waiting) == ("idle", []))
    assert [m.text for m in chat.session.state["messages"]] == ["One", "First reply.", "Two", "Second reply."]


def test_stop_ends_what_runs_and_what_waits(chats: Callable[..., Chat]) -> None:
    chat = chats(["One moment. ", tool_call("wait")], "Fine.")
    handles = [chat.send("One"), chat.send("Two")]
    until(lambda: "wait" in str(chat.comm.patches()))
    click(chat, type="stop")
    for handle in handles:
        with pytest.raises(RunCancelledError):
            handle.result(5)
    until(lambda: (chat.state, chat.waiting) == ("idle", []))
    assert "One moment." in chat.to_markdown()
    assert "Two" not in chat.to_markdown()
    assert chat.send("Again").result(5).text == "Fine."


@pytest.mark.parametrize("approved", [True, False])
def test_a_click_answers_an_approval_once(chats: Callable[..., Chat], approved: bool) -> None:
    """C13."""
    chat = chats([tool_call("delete", path="data/x")], "So be it.")
    (request,) = chat.send("Delete it").result(5).approvals
    assert "data/x" in str(chat.snapshot)
    for _ in range(3):
        click(chat, type="answer", id=request.id, approved=approved)
    until(lambda: "So be it." in chat.to_markdown())
    assert ("data/x is gone" in chat.to_markdown()) is approved
    until(lambda: chat.state == "idle")
    assert len([m for m in chat.session.state["messages"] if m.role == "user"]) == 1


def test_a_failed_run_shows_message_and_hint_and_the_next_one_works(chats: Callable[..., Chat]) -> None:
    error = ConfigurationError("The model is gone.", hint="Wake it up.")
    chat = chats(["Half a reply. ", error], "Fine.")
    with pytest.raises(ConfigurationError):
        chat.send("Go").result(5)
    for shown in (str(chat.snapshot), chat.to_html(), chat.to_markdown()):
        assert all(text in shown for text in ("The model is gone", "Wake it up", "Half a reply."))
    assert chat.send("Again").result(5).text == "Fine."


def test_a_run_that_cannot_begin_says_why() -> None:
    @tool
    def again() -> str:
        return str(chat.send("From inside").exception(5))

    agent = Agent(ScriptedChatClient([[tool_call("again")], "Done."]), tools=[again])
    chat = Chat(agent)
    assert chat.send("Go").result(5).text == "Done."
    assert "the session that it is itself running in" in chat.to_markdown()
    chat.close()


def test_a_wrong_argument_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError, match="agent must be an Agent, not str"):
        Chat("helper")  # type: ignore[arg-type]


def test_a_closed_chat_is_freed_with_its_models_and_says_that_it_is_closed() -> None:
    from ipywidgets.widgets.widget import _instances

    before = set(_instances)
    chat = chat_of("ok", "never", delay=0.01)
    chat.send("Hi").result(5)
    going = chat.send("Hi")
    chat.close()
    chat.close()
    with pytest.raises(RunCancelledError):
        going.result(5)
    with pytest.raises(ConfigurationError, match="closed"):
        chat.send("Hi")
    assert "ok" in chat.to_markdown()
    assert set(_instances) == before
    dead = weakref.ref(chat)
    del chat, going
    until(lambda: gc.collect() is not None and dead() is None)


def test_no_key_is_in_the_state() -> None:
    """C108."""
    from nbagents import OpenAIChatClient

    key = "kJ7pQ2vX9mL4tR8wZ1"
    chat = Chat(Agent(OpenAIChatClient("m", api_key=key, base_url="http://127.0.0.1:1/v1")))
    shown = str([chat.get_state(), chat.bundle(), repr(chat), chat.comm.sent])
    assert all(key[i : i + 6] not in shown for i in range(len(key) - 5))
    chat.close()
