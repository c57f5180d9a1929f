"""Runs that are cancelled between any two of their updates, over each API: nothing is left, and the session goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nbagents import (
    Agent,
    AgentSession,
    AnthropicChatClient,
    Message,
    NBAgentsError,
    OpenAIChatClient,
    OpenAIResponsesClient,
)
from tests.support import anthropic_events, responses_events
from tests.support.chunks import call, delta, finish
from tests.support.raw_server import RawServer, Refuse

NEXT = "And now?"
Say = Callable[[str], list[Any]]


async def add(a: int) -> int:
    """Add ten."""
    await asyncio.sleep(0)
    return a + 10


def play_chat(server: RawServer, turns: int) -> Agent:
    def decide(body: dict[str, Any]) -> list[Any]:
        last = body["messages"][-1]
        if last["role"] == "user" and last["content"] != NEXT:
            calls = [call(0, "c1", "add", '{"a"'), call(0, args=": 1}")]
            return [delta("Let "), delta("me see."), *calls, finish("tool_calls")]
        return [delta("It "), delta("is so."), finish("stop")]

    server.strict = True
    for _ in range(turns):
        server.reply_with(decide)
    return Agent(OpenAIChatClient("m", base_url=server.base_url, max_retries=0), tools=[add])


def play_responses(server: RawServer, turns: int, **settings: Any) -> Agent:
    service = responses_events.Service()
    numbers = iter(range(1_000))

    def decide(body: dict[str, Any]) -> Any:
        last, number = body["input"][-1], next(numbers)
        text = responses_events.said("Let me see.", id=f"m{number}")
        if last.get("role") == "user" and last["content"] != NEXT:
            return service.answer(text, responses_events.called(f"c{number}", "add", {"a": 1}, id=f"fc{number}"))(body)
        return service.answer(text)(body)

    for _ in range(turns):
        server.reply_with(decide)
    return Agent(OpenAIResponsesClient("m", base_url=server.base_url, max_retries=0, **settings), tools=[add])


def play_anthropic(server: RawServer, turns: int) -> Agent:
    def decide(body: dict[str, Any]) -> list[Any]:
        if why := anthropic_events.refusal(body):
            raise Refuse(why)
        last = body["messages"][-1]["content"][-1]
        blocks = [anthropic_events.text(0, "Let ", "me see.")]
        if last["type"] == "text" and last["text"] != NEXT:
            blocks.append(anthropic_events.call(1, "t1", "add", '{"a"', ": 1}"))
            return anthropic_events.stream(*blocks, reason="tool_use")
        return anthropic_events.stream(*blocks)

    for _ in range(turns):
        server.reply_with(decide)
    return Agent(AnthropicChatClient("m", base_url=server.base_url, max_retries=0), tools=[add])


APIS: dict[str, Callable[[RawServer, int], Agent]] = {
    "chat": play_chat,
    "rolling": play_responses,
    "stateless": lambda server, turns: play_responses(server, turns, stores_by_default=False),
    "anthropic": play_anthropic,
}


async def consume(agent: Agent, session: AgentSession, after: int) -> int:
    """Consume a run, and be cancelled while it goes on after so many updates; return how many there were."""
    seen = 0
    me = asyncio.current_task()
    assert me is not None
    stream = agent.run("Add ten to one", stream=True, session=session)
    if after == 0:
        me.cancel()
    async for _ in stream:
        seen += 1
        if seen == after:
            me.cancel()
    return seen


@pytest.mark.parametrize("name", APIS)
async def test_a_run_cancelled_after_any_update_leaves_nothing_and_the_session_goes_on(
    raw_server: RawServer, name: str
) -> None:
    """C53, C75, C93"""
    agent = APIS[name](raw_server, 200)
    total = await consume(agent, agent.create_session(), -1)
    assert total > 5
    for after in range(total):
        session = agent.create_session()
        before = asyncio.all_tasks()
        run = asyncio.ensure_future(consume(agent, session, after))
        with pytest.raises(asyncio.CancelledError):
            await run
        assert asyncio.all_tasks() == before, after
        response = await agent.run(NEXT, stream=True, session=session).get_final_response()
        assert response.text, after
        stored = await _stored(agent, session)
        assert [role for role, _ in stored][-2:] == ["user", "assistant"]
        assert len(list(_open_calls(stored))) == 0, after
    # Only the connection of the last run, which ended, is kept.
    await asyncio.to_thread(raw_server.wait_until, lambda: raw_server.open_connections <= 1)


async def _stored(agent: Agent, session: AgentSession) -> list[tuple[str, Any]]:
    thread = agent.thread(session)
    messages = await thread.get_messages() if thread.stores_locally else []
    return [(message.role, message) for message in messages] or [("user", None), ("assistant", None)]


def _open_calls(stored: list[tuple[str, Any]]) -> Iterator[str]:
    """The calls without a result."""
    messages = [message for _, message in stored if message is not None]
    answered = {result.id for message in messages for result in message.results}
    return (made.id for message in messages for made in message.calls if made.id not in answered)


@pytest.mark.parametrize("way", ["cancelled", "fails"])
@pytest.mark.parametrize("name", APIS)
async def test_a_run_that_ends_while_its_calls_are_told_leaves_a_session_that_goes_on(
    raw_server: RawServer, name: str, way: str
) -> None:
    """C53"""

    async def listen(message: Message) -> None:
        if message.calls:
            if way == "fails":
                raise OSError("The pipe is broken")
            me = asyncio.current_task()
            assert me is not None
            me.cancel()
            await asyncio.sleep(0)

    agent = APIS[name](raw_server, 4)
    session = agent.create_session()
    with pytest.raises((asyncio.CancelledError, NBAgentsError)):
        await asyncio.ensure_future(
            agent.run("Add ten to one", session=session, stream=True, on_message=listen).get_final_response()
        )
    response = await agent.run(NEXT, stream=True, session=session).get_final_response()
    assert response.text
