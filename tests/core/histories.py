"""Storages of sessions for the tests, and programs that use one at the same time: `python -m tests.core.histories`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import AsyncExitStack
from pathlib import Path

from nbagents import (
    Agent,
    AgentSession,
    FileHistoryProvider,
    HistoryProvider,
    InMemoryHistoryProvider,
    Message,
    ScriptedChatClient,
    SQLHistoryProvider,
    tool,
    tool_call,
)

ROOT = Path(__file__).parents[2]


class Storage:
    """One place where sessions are kept. `open` gives another object on it, as another program would make one.

    What is kept in memory is in the session, so there it is the session that comes back.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._opened: list[HistoryProvider] = []
        self._in_memory: dict[str, AgentSession] = {}

    def open(self) -> HistoryProvider:
        self._opened.append(_provider(self.place))
        return self._opened[-1]

    def session(self, session_id: str = "trip") -> AgentSession:
        if self.place == "memory":
            return self._in_memory.setdefault(session_id, AgentSession(session_id))
        return AgentSession(session_id)

    async def stored(self, session_id: str = "trip") -> list[Message]:
        return await self.open().get_messages(self.session(session_id))

    async def aclose(self) -> None:
        async with AsyncExitStack() as stack:
            for history in self._opened:
                if isinstance(history, SQLHistoryProvider):
                    stack.push_async_callback(history.close)


def start_program(*arguments: object) -> subprocess.Popen[str]:
    """Start a function of this module as a program of its own."""
    command = [sys.executable, "-m", __name__, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def append(place: str, session_id: str, writer: str, number: int) -> None:
    """Store `number` groups of two messages."""
    history, session = _provider(place), AgentSession(session_id)
    for i in range(number):
        question, answer = Message("user", f"{writer} asks {i}"), Message("assistant", f"{writer} answers {i}")
        await history.save_messages(session, [question, answer])
    if isinstance(history, SQLHistoryProvider):
        await history.close()


async def hang(place: str) -> None:
    """Finish one round of tools, and hang in the second."""

    @tool
    def add(a: int, b: int) -> int:
        return a + b

    @tool
    def wait() -> None:
        print("waiting", flush=True)
        threading.Event().wait()

    replies = [["First. ", tool_call("add", a=1, b=2)], ["Then. ", tool_call("wait"), tool_call("add", a=2, b=3)]]
    agent = Agent(ScriptedChatClient(replies), tools=[add, wait], history=_provider(place))
    await agent.run("q", session=AgentSession("trip"))


def _provider(place: str) -> HistoryProvider:
    if place == "memory":
        return InMemoryHistoryProvider()
    return SQLHistoryProvider(place) if "://" in place else FileHistoryProvider(place)


def _main(command: str, *arguments: str) -> None:
    if command == "hang":
        asyncio.run(hang(*arguments))
        return
    place, session_id, writer, number = arguments
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(append(place, session_id, writer, int(number)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
