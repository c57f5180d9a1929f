"""The endpoint of the contract whose service keeps conversations of OpenAI's Conversations API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from tests.clients.endpoints import Turn
from tests.clients.responses_endpoints import RollingOnRawServer
from tests.support import responses_events as wire
from tests.support.raw_server import RawServer, _Exchange
from tests.support.responses_events import Item


class _Server(RawServer):
    """It makes a conversation whenever it is asked to; that is no request of the script."""

    service: _Service

    def __init__(self) -> None:
        self._conversations = count(1)
        super().__init__()

    async def _answer(
        self,
        path: str,
        headers: dict[str, str],
        body: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        exchange = _Exchange({}, 0, reader, writer)
        if path.endswith("/conversations"):
            await exchange.json({"id": f"conv_{next(self._conversations)}", "object": "conversation"})
        elif "/items?" in path:
            items = [{"id": f"item_{n}", **item} for n, item in enumerate(self.service.items(path.split("/")[3]))]
            await exchange.json({"object": "list", "data": items, "has_more": False})
        else:
            await super()._answer(path, headers, body, reader, writer)


class _Service(wire.Service):
    """It remembers the items of each conversation, and with which ones a request was answered."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: dict[int, list[Item]] = {}

    def items(self, conversation: str) -> list[Item]:
        return self._stored.get(conversation, [])

    def answer(self, *items: Item, status: str = "completed", **more: Any) -> Callable[[dict[str, Any]], Any]:
        answer = super().answer(*items, status=status, **more)

        def decide(body: dict[str, Any]) -> Any:
            self._stored.setdefault(body["conversation"], [])
            self._asked[id(body)] = self.conversation(body)
            reply = answer(body)
            self._stored[body["conversation"]] = [*self._asked[id(body)], *items]
            return reply

        return decide

    def conversation(self, body: Mapping[str, Any]) -> list[Item]:
        known = self._asked.get(id(body))
        return known or super().conversation({**body, "previous_response_id": body["conversation"]})

    def refusal(self, body: dict[str, Any]) -> str | None:
        return super().refusal({**body, "previous_response_id": body["conversation"]})


class ConversationsOnRawServer(RollingOnRawServer):
    """The server of the tests, and the service keeps conversations."""

    server_kind = _Server
    service_kind = _Service

    def _play(self, script: tuple[Turn, ...]) -> str:
        address = super()._play(script)
        self._servers[-1].service = self._services[-1]  # type: ignore[attr-defined]
        return address

    def client(self, *script: Turn, **settings: Any) -> Any:
        return super().client(*script, **{"conversations": True, **settings})
