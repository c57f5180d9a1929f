"""Every chat client passes the same contract; what one cannot do stands with its reason at its endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pytest

from nbagents import LocalChatClient
from tests.clients.anthropic_endpoints import AnthropicOnAIMock, AnthropicOnLLMock, AnthropicOnRawServer
from tests.clients.contract import ChatClientContract
from tests.clients.conversations_endpoints import ConversationsOnRawServer
from tests.clients.endpoints import Ability, Endpoint
from tests.clients.responses_endpoints import (
    ResponsesOnAzure,
    RollingOnAIMock,
    RollingOnLLMock,
    RollingOnRawServer,
    StatelessOnAIMock,
    StatelessOnLLMock,
    StatelessOnRawServer,
)
from tests.clients.served_endpoints import Local, OnAIMock, OnAzure, OnLLMock, OnRawServer
from tests.clients.written_endpoints import Other, Own, Recorded, RecordedStream, Scripted

ENDPOINTS: dict[str, type[Endpoint]] = {
    "raw": OnRawServer,
    "llmock": OnLLMock,
    "aimock": OnAIMock,
    "anthropic raw": AnthropicOnRawServer,
    "anthropic llmock": AnthropicOnLLMock,
    "anthropic aimock": AnthropicOnAIMock,
    "rolling raw": RollingOnRawServer,
    "conversations raw": ConversationsOnRawServer,
    "rolling llmock": RollingOnLLMock,
    "rolling aimock": RollingOnAIMock,
    "stateless raw": StatelessOnRawServer,
    "stateless llmock": StatelessOnLLMock,
    "stateless aimock": StatelessOnAIMock,
    "azure chat": OnAzure,
    "azure responses": ResponsesOnAzure,
    "local": Local,
    "scripted": Scripted,
    "recorded": Recorded,
    "recorded stream": RecordedStream,
    "own": Own,
    "other": Other,
}
SLOW = {"local"}
TESTS = [test for name, test in vars(ChatClientContract).items() if name.startswith("test_")]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "endpoint" not in metafunc.fixturenames:
        return
    needed = getattr(metafunc.function, "needs", frozenset())
    able = [name for name, kind in ENDPOINTS.items() if needed.isdisjoint(kind.cannot)]
    marked = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in able]
    metafunc.parametrize("endpoint", marked, indirect=True, ids=able)


@pytest.fixture(scope="module")
def local_model() -> LocalChatClient:
    """A client that keeps the server of the local model running for the whole module."""
    client = LocalChatClient()
    client.as_agent().run_sync("Hi", options={"max_tokens": 1})
    return client


@pytest.fixture
def endpoint(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    made = ENDPOINTS[request.param](request)
    yield made
    made.close()


class TestContract(ChatClientContract):
    """The contract, for each client."""


def test_one_client_can_do_everything_so_no_part_of_the_contract_goes_untried() -> None:
    assert ENDPOINTS["raw"].cannot == {}


@pytest.mark.parametrize("name", ENDPOINTS)
def test_what_a_client_cannot_do_is_known_and_has_a_reason(name: str) -> None:
    cannot = ENDPOINTS[name].cannot
    used = frozenset().union(*(getattr(test, "needs", ()) for test in TESTS), {"words", "usage"})
    assert set(cannot) <= set(get_args(Ability)) == used
    assert all(cannot.values())
