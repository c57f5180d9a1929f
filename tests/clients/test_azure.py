"""Azure OpenAI: its addresses, its versions, and keys that are tokens."""

from __future__ import annotations

import asyncio
import pickle
import threading
from typing import Any

import pytest

from nbagents import Agent, OpenAIChatClient
from nbagents.core.errors import AuthenticationError, ConfigurationError
from tests.clients.asking import KEY, Mode, ask, both_modes, fails
from tests.support.raw_server import RawServer

VERSION = "2024-10-21"
TOKENS = ["token-one-1234-Yq", "token-two-5678-Yq"]


def root_of(server: RawServer) -> str:
    return f"http://127.0.0.1:{server.port}"


def numbered_tokens() -> Any:
    """A sync provider: a new token each time, and the name of the thread that asked."""
    threads: list[str] = []

    def provider() -> str:
        threads.append(threading.current_thread().name)
        return TOKENS[(len(threads) - 1) % 2]

    provider.threads = threads  # type: ignore[attr-defined]
    return provider


def env_token() -> str:
    return TOKENS[0]


@both_modes
@pytest.mark.parametrize("kind", ["sync", "async", "sync that gives an awaitable"])
async def test_a_token_is_asked_for_before_each_request(raw_server: RawServer, mode: Mode, kind: str) -> None:
    raw_server.reply_text("Hello")
    given = numbered_tokens()

    async def awaited() -> str:
        return str(given())

    provider = {"sync": given, "async": awaited}.get(kind, lambda: awaited())
    client = OpenAIChatClient(
        "my-gpt", azure_endpoint=root_of(raw_server), api_version=VERSION, azure_ad_token_provider=provider
    )
    for _ in range(2):
        assert (await ask(Agent(client), "Hi", mode)).text == "Hello"
    assert [sent["authorization"] for sent in raw_server.headers] == [f"Bearer {token}" for token in TOKENS]
    assert not any("api-key" in sent for sent in raw_server.headers)
    assert raw_server.paths == [f"/openai/deployments/my-gpt/chat/completions?api-version={VERSION}"] * 2


async def test_a_sync_provider_does_not_hold_up_the_loop(raw_server: RawServer) -> None:
    raw_server.reply_text("Hello")
    asked, answered = threading.Event(), threading.Event()

    def slow() -> str:
        asked.set()
        assert answered.wait(20)
        return TOKENS[0]

    client = OpenAIChatClient(
        "m", azure_endpoint=root_of(raw_server), api_version=VERSION, azure_ad_token_provider=slow
    )
    run = asyncio.ensure_future(ask(Agent(client), "Hi", "plain"))
    while not asked.is_set():
        await asyncio.sleep(0.001)  # this loop is free while the provider waits
    answered.set()
    assert (await run).text == "Hello"


@pytest.mark.parametrize("given", [None, "", 5])
async def test_a_provider_without_a_token_says_so(raw_server: RawServer, given: Any) -> None:
    client = OpenAIChatClient(
        "m", azure_endpoint=root_of(raw_server), api_version=VERSION, azure_ad_token_provider=lambda: given
    )
    error = await fails(Agent(client), "Hi", "streamed")
    assert isinstance(error, ConfigurationError)
    assert "azure_ad_token_provider" in error.message
    assert raw_server.requests == []


async def test_a_provider_that_fails_is_an_authentication_error(raw_server: RawServer) -> None:
    def provider() -> str:
        raise OSError("no login")

    client = OpenAIChatClient(
        "m", azure_endpoint=root_of(raw_server), api_version=VERSION, azure_ad_token_provider=provider
    )
    error = await fails(Agent(client), "Hi", "plain")
    assert isinstance(error, AuthenticationError)
    assert "no login" in error.message


@both_modes
async def test_a_token_shows_in_no_error(raw_server: RawServer, mode: Mode) -> None:
    """C108"""
    token = f"eyJ0.{KEY}.sig"
    raw_server.reply_json({"error": {"message": f"Bad token {token}"}}, 401, headers={"x-echo": token})
    client = OpenAIChatClient(
        "m", azure_endpoint=root_of(raw_server), api_version=VERSION, azure_ad_token_provider=lambda: token
    )
    error = await fails(Agent(client), "Hi", mode)
    assert token not in f"{error!r} {error} {error.headers} {error.body_text} {error.__cause__!r} {client!r}"  # type: ignore[attr-defined]


@both_modes
@pytest.mark.parametrize("version", [None, "preview"])
async def test_the_v1_address_is_asked_as_openai_is(raw_server: RawServer, mode: Mode, version: str | None) -> None:
    raw_server.reply_text("Hello")
    client = OpenAIChatClient(
        "my-gpt", azure_endpoint=f"{root_of(raw_server)}/openai/v1/", api_key=KEY, api_version=version
    )
    assert (await ask(Agent(client), "Hi", mode)).text == "Hello"
    query = f"?api-version={version}" if version else ""
    assert raw_server.paths == [f"/openai/v1/chat/completions{query}"]
    assert raw_server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert (client.provider, raw_server.requests[0]["model"]) == ("azure", "my-gpt")


async def test_the_v1_address_takes_tokens_too(raw_server: RawServer) -> None:
    raw_server.reply_text("Hello")
    client = OpenAIChatClient(
        "m", azure_endpoint=f"{root_of(raw_server)}/openai/v1", azure_ad_token_provider=numbered_tokens()
    )
    for _ in range(2):
        await ask(Agent(client), "Hi", "streamed")
    assert [sent["authorization"] for sent in raw_server.headers] == [f"Bearer {token}" for token in TOKENS]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"azure_ad_token_provider": "token"}, "azure_ad_token_provider is a function"),
    ({"azure_ad_token_provider": env_token, "api_key": KEY}, "api_key and azure_ad_token_provider"),
    ({"azure_ad_token_provider": env_token, "azure_endpoint": None}, "needs azure_endpoint"),
    ({"base_url": "http://x/v1", "api_key": KEY}, "two addresses"),
    ({"azure_endpoint": "my-resource", "api_key": KEY}, "http://"),
    ({"api_version": None, "api_key": KEY}, "api_version=.*/openai/v1"),
    ({}, "AZURE_OPENAI_API_KEY.*azure_ad_token_provider="),
]


@pytest.mark.parametrize(("wrong", "says"), WRONG)
def test_what_does_not_fit_is_named(wrong: dict[str, Any], says: str) -> None:
    settings = {"azure_endpoint": "https://x.openai.azure.com", "api_version": VERSION, **wrong}
    with pytest.raises(ConfigurationError, match=says) as raised:
        OpenAIChatClient("m", **settings)
    assert KEY not in str(raised.value)


def test_a_client_with_a_token_provider_can_be_pickled() -> None:
    client = OpenAIChatClient(
        "m", azure_endpoint="https://x.openai.azure.com", api_version=VERSION, azure_ad_token_provider=env_token
    )
    again = pickle.loads(pickle.dumps(client))
    assert (again.host, again.provider) == ("x.openai.azure.com", "azure")
