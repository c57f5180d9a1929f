"""A further service in one file: what somebody writes to have its conversations as threads, and a read-only one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from nbagents import AgentSession, HostedThread, Message, ReadOnlyThread, Thread
from tests.core.services import StoringClient


class LedgerThread(HostedThread):
    """A conversation of a service that can do everything."""

    kind = "a ledger"
    accepts_external_messages = True
    can_delete = True
    can_read = True

    def __init__(self, session: AgentSession, client: LedgerClient) -> None:
        super().__init__(session)
        self.client = client

    async def create_at_service(self) -> str:
        return self.client.call("create")

    async def read_at_service(self, id: str) -> list[Message]:
        return self.client.call("read", id)

    async def add_at_service(self, id: str, messages: Sequence[Message]) -> None:
        self.client.call("add", id, messages)

    async def delete_at_service(self, id: str) -> None:
        self.client.call("delete", id)


class ArchiveThread(ReadOnlyThread):
    """A conversation of a service that gives out what was said, and takes no more than requests."""

    kind = "an archive"
    refusal = "its service stores what was said in a run and nothing else."

    def __init__(self, session: AgentSession, client: LedgerClient) -> None:
        super().__init__(session)
        self.client = client

    async def read_at_service(self, id: str) -> list[Message]:
        return self.client.call("read", id)


class LedgerClient(StoringClient):
    """The client of the service, and here also the service itself: it counts what it is asked.

    Args:
        replies: those of `ScriptedChatClient`.
        kind: of the threads.
    """

    def __init__(self, replies: Iterable[Any], kind: type[LedgerThread | ArchiveThread] = LedgerThread) -> None:
        super().__init__(replies, ids="fixed")
        self.kind = kind
        self.calls: list[str] = []
        self.failures: list[Exception] = []
        self._numbers = count(1)

    def service_thread(self, session: AgentSession) -> Thread:
        return self.kind(session, self)

    def call(self, what: str, id: str = "", messages: Sequence[Message] = ()) -> Any:
        self.calls.append(what)
        if self.failures:
            raise self.failures.pop(0)
        if what == "create":
            id = f"ledger_{next(self._numbers)}"
            self.conversations[id] = []
            return id
        if what == "delete":
            return self.conversations.pop(id, None)
        if what == "add":
            self.conversations[id] = [*self.conversations[id], *messages]
            return None
        stored = enumerate(self.conversations[id])
        return [replace(message, message_id=f"{id}-{place}", created_at=None) for place, message in stored]
