"""What the tests of clients share: agents on a server and both ways of asking them."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from nbagents import Agent, AgentResponse, AgentSession, NBAgentsError, OpenAIChatClient
from tests.support.raw_server import RawServer

Mode = Literal["streamed", "plain"]
both_modes = pytest.mark.parametrize("mode", ["streamed", "plain"])
KEY = "Zq7xMARKER-plum-41-violet-0099-Wj"
"""A key that no pattern knows: only its registration can hide it."""


def client_of(server: RawServer, **settings: Any) -> OpenAIChatClient:
    return OpenAIChatClient("test-model", **{"base_url": server.base_url, "max_retries": 0, **settings})


def agent_on(server: RawServer, tools: Any = None, *, agent: dict[str, Any] | None = None, **settings: Any) -> Agent:
    return Agent(client_of(server, **settings), tools=tools, **(agent or {}))


async def ask(agent: Agent, text: Any, mode: Mode, session: AgentSession | None = None, **more: Any) -> AgentResponse:
    """Run once, asking the server for a stream or for a plain reply."""
    if mode == "streamed":
        return await agent.run(text, stream=True, session=session, **more).get_final_response()
    return await agent.run(text, session=session, **more)


async def fails(agent: Agent, text: Any, mode: Mode, session: AgentSession | None = None, **more: Any) -> NBAgentsError:
    """Run once and return the error of our tree that it ends with."""
    with pytest.raises(NBAgentsError) as caught:
        await ask(agent, text, mode, session, **more)
    return caught.value


async def goes_on(agent: Agent, server: RawServer, mode: Mode, session: AgentSession, done: str = "Still here") -> None:
    """The next turn on the same session works; the server has been given `done` as its last reply."""
    response = await ask(agent, "And now?", mode, session)
    assert response.text == done
    assert server.requests[-1]["messages"][-1] == {"role": "user", "content": "And now?"}


def last_messages(server: RawServer) -> list[dict[str, Any]]:
    """The conversation as the last request carried it."""
    messages: list[dict[str, Any]] = server.requests[-1]["messages"]
    return messages


def called(server: RawServer) -> list[tuple[str, str, str]]:
    """Id, name and arguments of each call in the last request."""
    return [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for message in last_messages(server)
        for call in message.get("tool_calls", ())
    ]


def answered(server: RawServer) -> list[tuple[str, str]]:
    """Id and text of each tool message in the last request."""
    return [(m["tool_call_id"], m["content"]) for m in last_messages(server) if m["role"] == "tool"]
