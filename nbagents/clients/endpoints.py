"""Where an OpenAI endpoint is and which key opens it: from arguments and environment to the clients of each loop."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nbagents.clients.connections import (
    LoopClients,
    Opened,
    Package,
    borrowed_clients,
    clients_of,
    factory_clients,
    host_of,
)
from nbagents.core.callables import is_async
from nbagents.core.errors import AuthenticationError, ConfigurationError
from nbagents.core.plaincalls import run_in_thread
from nbagents.core.results import error_text
from nbagents.core.secrets import register_secret, register_url_secrets

if TYPE_CHECKING:
    from openai import AsyncOpenAI

ApiKey = str | Callable[[], Awaitable[str]]
"""A key, or an async function that returns one (a token that has to be renewed)."""
TokenProvider = Callable[[], str | Awaitable[str]]
"""A function, sync or async, that returns a token of Microsoft Entra ID; it is asked before each request."""

OPENAI = Package(
    "openai",
    "AsyncOpenAI",
    "OpenAIError",
    keys=("api_key",),
    variable="OPENAI_API_KEY",
    api="an OpenAI-compatible API",
    address="usually ends in /v1",
)

_OPENAI_URL = "https://api.openai.com/v1"
_NO_KEY = "unused"  # local servers want no key, but the openai client wants one
_AZURE_V1 = "/openai/v1"
"""Where the address of a resource ends in this, its API is the one of OpenAI itself: it needs no version."""


class Secret:
    """A key that shows itself to nobody: neither in a repr nor among the variables of a traceback."""

    __slots__ = ("value",)

    def __init__(self, value: ApiKey | None) -> None:
        self.value = value
        register_secret(value if isinstance(value, str) else None)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __repr__(self) -> str:
        return "set" if self.value else "not set"


@dataclass(frozen=True, slots=True, eq=False)
class Endpoint:
    """Who sends the requests of a chat client, and to where.

    Attributes:
        clients: the one of each event loop.
        host: host and port, for texts; None where only a factory knows.
        provider: the word for the tables.
    """

    clients: LoopClients
    host: str | None
    provider: str = "openai"


def find_endpoint(
    key: Secret,
    *,
    base_url: str | None,
    client: AsyncOpenAI | Callable[[], AsyncOpenAI] | None,
    azure_endpoint: str | None,
    api_version: str | None,
    azure_ad_token_provider: TokenProvider | None = None,
) -> Endpoint:
    """Return the endpoint that the arguments of a client name; what is not given comes from the environment.

    Raises:
        ConfigurationError: there is no key, or the arguments do not fit.
    """
    if key.value is not None and not isinstance(key.value, str) and not callable(key.value):
        raise ConfigurationError("api_key is a text, or an async function that returns one.")
    if azure_ad_token_provider is not None:
        _check_token_provider(azure_ad_token_provider, key, azure_endpoint)
    if client is not None:
        if key or base_url or azure_endpoint or api_version:
            raise ConfigurationError(
                "client= already has its key and address.", hint="Pass either client=, or api_key= and base_url=."
            )
        return _of_client(client)
    if azure_endpoint is not None:
        if base_url is not None:
            raise ConfigurationError("base_url and azure_endpoint are two addresses.", hint="Pass one of them.")
        return _at_azure(key, azure_endpoint, api_version, azure_ad_token_provider)
    return _at_url(key, base_url)


def _at_url(key: Secret, base_url: str | None) -> Endpoint:
    url = checked_url("base_url", base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI_URL)
    found = key if key else Secret(os.environ.get("OPENAI_API_KEY"))
    if not found:
        if host_of(url) == host_of(_OPENAI_URL):
            raise ConfigurationError(
                "There is no API key for OpenAI.",
                hint="Set the environment variable OPENAI_API_KEY or pass api_key=. "
                "A server of your own needs none: pass base_url=.",
            )
        found = Secret(_NO_KEY)
    return Endpoint(clients_of(OPENAI, lambda: {"api_key": found.value, "base_url": url}), host_of(url))


def _at_azure(
    key: Secret, azure_endpoint: str, api_version: str | None, token_provider: TokenProvider | None
) -> Endpoint:
    url = checked_url("azure_endpoint", azure_endpoint)
    found = key if key or token_provider else Secret(os.environ.get("AZURE_OPENAI_API_KEY"))
    if not found and token_provider is None:
        raise ConfigurationError(
            "There is no API key for Azure OpenAI.",
            hint="Set the environment variable AZURE_OPENAI_API_KEY, or pass api_key= or azure_ad_token_provider=.",
        )
    token = None if token_provider is None else _fresh_token(token_provider)
    if urlsplit(url).path.rstrip("/").endswith(_AZURE_V1):
        query = {"api-version": api_version} if api_version else {}
        clients = clients_of(OPENAI, lambda: {"api_key": token or found.value, "base_url": url, "default_query": query})
        return Endpoint(clients, host_of(url), "azure")
    version = api_version or os.environ.get("OPENAI_API_VERSION")
    if not version:
        raise ConfigurationError(
            "Azure OpenAI needs an API version.",
            hint="Pass api_version=, e.g. '2024-10-21', or set the environment variable OPENAI_API_VERSION; "
            f"an azure_endpoint that ends in {_AZURE_V1} needs none.",
        )
    address = {"azure_endpoint": url, "api_version": version}
    clients = clients_of(
        OPENAI,
        lambda: {"azure_ad_token_provider": token, **address} if token else {"api_key": found.value, **address},
        kind="AsyncAzureOpenAI",
    )
    return Endpoint(clients, host_of(url), "azure")


def _check_token_provider(token_provider: Any, key: Secret, azure_endpoint: str | None) -> None:
    if not callable(token_provider):
        raise ConfigurationError(
            f"azure_ad_token_provider is a function that returns a token, not {type(token_provider).__name__}.",
            hint="azure.identity.get_bearer_token_provider(credential, scope) makes one.",
        )
    if key:
        raise ConfigurationError("Both api_key and azure_ad_token_provider are given.", hint="Pass one of them.")
    if azure_endpoint is None:
        raise ConfigurationError(
            "azure_ad_token_provider needs azure_endpoint.",
            hint="Elsewhere an async function that returns a token is passed as api_key=.",
        )


def _fresh_token(token_provider: TokenProvider) -> Callable[[], Awaitable[str]]:
    """Return an async function that asks `token_provider`: in a thread if it is sync, since it may ask a server."""
    known = ""

    async def token() -> str:
        nonlocal known
        try:
            found: Any = token_provider() if is_async(token_provider) else await run_in_thread(token_provider)
            if isawaitable(found):
                found = await found
        except Exception as error:
            raise AuthenticationError(f"azure_ad_token_provider failed: {error_text(error)}") from error
        if not isinstance(found, str) or not found:
            raise ConfigurationError(f"azure_ad_token_provider returned {type(found).__name__} instead of a token.")
        if found != known:
            register_secret(found)
            known = found
        return found

    return token


def _of_client(client: Any) -> Endpoint:
    import openai

    if isinstance(client, openai.AsyncOpenAI):
        given = Opened(OPENAI, client)
        given.register_keys()
        azure = isinstance(client, openai.AsyncAzureOpenAI)
        return Endpoint(borrowed_clients(OPENAI, client), given.host, "azure" if azure else "openai")
    if callable(client):
        return Endpoint(factory_clients(OPENAI, client), None)
    sync = isinstance(client, openai.OpenAI)
    raise ConfigurationError(
        f"client must be an AsyncOpenAI or a function that makes one, not {type(client).__name__}.",
        hint="Use openai.AsyncOpenAI: run_sync and stream_sync work with it too." if sync else None,
    )


def checked_url(name: str, url: str) -> str:
    """Return the address that the argument `name` is; its secrets are masked from now on.

    Raises:
        ConfigurationError: it is none.
    """
    register_url_secrets(str(url))
    parts = urlsplit(str(url))
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigurationError(f"{name} is an address that begins with http:// or https://, not {url!r}.")
    return str(url)
