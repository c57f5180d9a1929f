"""Who follows a run: every event when it happens, and the context in which its requests and calls go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from nbagents import Agent, ScriptedChatClient, run_log, tool, tool_call
from nbagents.core.events import RunEvent
from nbagents.core.runlog import RunRecord

work: ContextVar[str | None] = ContextVar("work", default=None)


class Follower:
    """Notes what it sees, and lets everybody know in which work they are."""

    def __init__(self) -> None:
        self.events: list[RunEvent] = []

    def saw(self, event: RunEvent) -> None:
        self.events.append(event)

    def enter(self, work_id: str) -> Callable[[], object]:
        token = work.set(work_id)
        return lambda: work.reset(token)


@pytest.fixture
def follower() -> Iterator[Follower]:
    follower = Follower()

    def watch(record: RunRecord) -> None:
        record.observer = follower

    run_log().watchers.append(watch)
    yield follower
    run_log().watchers.remove(watch)


class Noting(ScriptedChatClient):
    """Notes the work in which it is asked."""

    works: tuple[str | None, ...] = ()

    async def generate(self, request: Any) -> Any:
        self.works += (work.get(),)
        async for update in super().generate(request):
            self.works += (work.get(),)
            yield update


@tool
def current(pause: bool) -> str:
    """Tell the work in which this is called; in a thread, as it is no coroutine."""
    return str(work.get())


async def test_who_follows_a_run_sees_each_event_that_is_kept(follower: Follower) -> None:
    response = await Agent(ScriptedChatClient([[tool_call("current", pause=False)], "done"]), tools=[current]).run("Go")
    record = run_log().get(str(response.run_id))
    assert record is not None
    assert follower.events == record.events


async def test_calls_of_a_reply_are_each_in_their_own_work(follower: Follower) -> None:
    calls = [tool_call("current", pause=False), tool_call("current", pause=True)]
    response = await Agent(ScriptedChatClient([calls, "done"]), tools=[current]).run("Go")
    results = [result for message in response.messages for result in message.results]
    assert [result.result for result in results] == [result.id for result in results]
    assert work.get() is None


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_in_its_work_and_the_consumer_is_not(follower: Follower, stream: bool) -> None:
    client = Noting(["One two three"])
    consumed = []
    if stream:
        async for _ in Agent(client).run("Count", stream=True):
            consumed.append(work.get())
    else:
        await Agent(client).run("Count")
    (asked,) = (event.payload["request_id"] for event in follower.events if event.name == "llm.requested")
    assert set(client.works) == {asked}
    assert set(consumed) <= {None}
    assert work.get() is None


async def test_a_run_inside_a_tool_says_for_which_call_it_began() -> None:
    inner = Agent(ScriptedChatClient(["In.", "In."]), name="inner", description="Is inside.")
    calls = [tool_call("inner", messages="a"), tool_call("inner", messages="b")]
    response = await Agent(ScriptedChatClient([calls, "Out."]), name="outer", tools=[inner]).run("Go")
    begins = [record.events[0].payload for record in run_log().runs()]
    assert "parent_call_id" not in begins[0]
    made = {call.id: call.arguments for message in response.messages for call in message.calls}
    assert {facts["parent_call_id"]: {"messages": facts["input"][0].text} for facts in begins[1:]} == made
