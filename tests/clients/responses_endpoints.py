"""Endpoints of the contract with OpenAI's Responses API: rolling and stateless, on the same three servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from nbagents import Agent, AgentSession, HistoryCopy, HistoryProvider, Message, OpenAIResponsesClient
from tests.clients.endpoints import Ability, Say, Turn
from tests.clients.served_endpoints import OnAIMock, OnAzure, OnLLMock, OnRawServer, OnServer
from tests.support import responses_events as wire
from tests.support.chunks import error_body
from tests.support.raw_server import RawServer


class _OnServer(OnServer):
    """An OpenAIResponsesClient on such a server; the service keeps nothing."""

    stores: ClassVar[bool] = False

    def client(self, *script: Turn, **settings: Any) -> Any:
        base_url = self._play(script)
        self.port = int(base_url.partition("127.0.0.1:")[2].partition("/")[0])
        chosen = {"max_retries": 0, "stores_by_default": self.stores, **settings}
        return OpenAIResponsesClient(self.model, **self.address(base_url), **chosen)


class _Copies(HistoryProvider):
    """What became part of each conversation, kept outside its session."""

    def __init__(self) -> None:
        self._messages: dict[str, list[Message]] = {}

    async def get_messages(self, session: AgentSession) -> list[Message]:
        return list(self._messages.get(session.session_id, ()))

    async def save_messages(self, session: AgentSession, messages: Sequence[Message]) -> None:
        self._messages.setdefault(session.session_id, []).extend(messages)


class _Rolling(_OnServer):
    """The service keeps the conversation; a copy here shows what has become part of it."""

    stores = True

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self._copies = _Copies()

    def agent(self, *script: Turn, client: Mapping[str, Any] | None = None, **settings: Any) -> Agent:
        copies = [HistoryCopy(self._copies)]
        return super().agent(*script, client=client, context_providers=copies, **settings)

    async def stored(self, agent: Agent, session: AgentSession) -> list[Message]:
        return await self._copies.get_messages(session)


class StatelessOnRawServer(_OnServer, OnRawServer):
    """The server of the tests, which plays everything."""

    server_kind: ClassVar[type[RawServer]] = RawServer
    service_kind: ClassVar[type[wire.Service]] = wire.Service

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self._services: list[wire.Service] = []

    def _play(self, script: tuple[Turn, ...]) -> str:
        server, service = self.server_kind(), self.service_kind()
        self._servers.append(server)
        self._services.append(service)
        for number, turn in enumerate(script):
            if isinstance(turn, Say) and turn.slow:
                begun = wire.item_events(0, wire.said(turn.text.split(" ")[0] + " "))
                server.reply(*wire.opening(), *begun[:3], end="stall")
            elif isinstance(turn, Say):
                server.reply_with(service.answer(*_items(turn, number), **_ending(turn)))
            elif turn.status:
                body = error_body(f"Played {turn.status}")
                server.reply_json(body, turn.status, headers={"retry-after": "0.01"})
            elif turn.page:
                server.reply_raw(turn.page)
            else:
                server.reply(*wire.opening(), *wire.item_events(0, wire.said(turn.text))[:3], end="cut")
        return server.base_url

    def asked(self) -> dict[str, Any]:
        return self._services[-1].as_chat(super().asked())


def _items(turn: Say, number: int) -> Iterator[wire.Item]:
    if turn.reasoning:
        yield wire.thought(turn.reasoning, id=f"rs_{number}", encrypted=f"secret-{number}")
    if turn.refusal:
        yield wire.refused(turn.refusal, id=f"msg_{number}")
    if turn.text:
        yield wire.said(turn.text, id=f"msg_{number}")
    for place, (name, arguments) in enumerate(turn.calls):
        yield wire.called(f"call_{number}_{place}", name, arguments, id=f"fc_{number}_{place}")


def _ending(turn: Say) -> dict[str, Any]:
    if turn.ending != "length":
        return {}
    return {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}


class RollingOnRawServer(_Rolling, StatelessOnRawServer):
    """The same, and the service keeps the conversation."""


class ResponsesOnAzure(RollingOnRawServer, OnAzure):
    """The same at an address of Azure's."""

    path = "/openai/responses"


class _OnLLMock(OnLLMock):
    opening_chunks = 4


class StatelessOnLLMock(_OnServer, _OnLLMock):
    """The server that also judges the client."""

    def asked(self) -> dict[str, Any]:
        return wire.Service().as_chat(super().asked())


class RollingOnLLMock(_Rolling, _OnLLMock):
    """The same; llmock forgets what it has said, and answers by its script."""

    cannot: ClassVar[Mapping[Ability, str]] = {**OnLLMock.cannot, "request": "llmock keeps no conversation"}


class _OnAIMock(OnAIMock):
    """It counts a reply's text and each of its calls as a turn, so the number of the request decides."""

    cannot: ClassVar[Mapping[Ability, str]] = {
        **OnAIMock.cannot,
        "request": "aimock writes down what it makes of a request, without most of its options",
    }

    def _match(self, place: int, said: int, failed: int | None = None) -> dict[str, Any]:
        return {"sequenceIndex": place}

    def _response(self, turn: Say) -> dict[str, Any]:
        return {**super()._response(turn), "usage": {"input_tokens": 12, "output_tokens": 4}}


class StatelessOnAIMock(_OnServer, _OnAIMock):
    """A third server, written by others."""

    cannot: ClassVar[Mapping[Ability, str]] = {
        **_OnAIMock.cannot,
        "reasoning": "a model that reasons there adds an encrypted thought to every reply",
    }
    model = "gpt-4o-mini"


class RollingOnAIMock(_Rolling, _OnAIMock):
    """The same, and it keeps the conversation, as far as the client knows."""
