"""Where an OpenAI endpoint is and which key opens it: from arguments and environment to the clients of each loop."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nbagents.clients.connections import LoopClients, borrowed_clients, clients_of, factory_clients, host_of
from nbagents.core.errors import ConfigurationError
from nbagents.core.secrets import register_header_secrets, register_secret, register_url_secrets

if TYPE_CHECKING:
    from openai import AsyncOpenAI

ApiKey = str | Callable[[], Awaitable[str]]
"""A key, or an async function that returns one (a token that has to be renewed)."""

_OPENAI_URL = "https://api.openai.com/v1"
_NO_KEY = "unused"  # local servers want no key, but the openai client wants one


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
        clients: the AsyncOpenAI of each event loop.
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
) -> Endpoint:
    """Return the endpoint that the arguments of a chat client name; what is not given comes from the environment.

    Raises:
        ConfigurationError: there is no key, or the arguments do not fit.
    """
    if key.value is not None and not isinstance(key.value, str) and not callable(key.value):
        raise ConfigurationError("api_key is a text, or an async function that returns one.")
    if client is not None:
        if key or base_url or azure_endpoint or api_version:
            raise ConfigurationError(
                "client= already has its key and address.", hint="Pass either client=, or api_key= and base_url=."
            )
        return _of_client(client)
    if azure_endpoint is not None:
        return _at_azure(key, azure_endpoint, api_version)
    return _at_url(key, base_url)


def _at_url(key: Secret, base_url: str | None) -> Endpoint:
    url = _checked_url("base_url", base_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI_URL)
    found = key if key else Secret(os.environ.get("OPENAI_API_KEY"))
    if not found:
        if host_of(url) == host_of(_OPENAI_URL):
            raise ConfigurationError(
                "There is no API key for OpenAI.",
                hint="Set the environment variable OPENAI_API_KEY or pass api_key=. "
                "A server of your own needs none: pass base_url=.",
            )
        found = Secret(_NO_KEY)
    return Endpoint(clients_of(lambda: {"api_key": found.value, "base_url": url}), host_of(url))


def _at_azure(key: Secret, azure_endpoint: str, api_version: str | None) -> Endpoint:
    url = _checked_url("azure_endpoint", azure_endpoint)
    found = key if key else Secret(os.environ.get("AZURE_OPENAI_API_KEY"))
    if not found:
        raise ConfigurationError(
            "There is no API key for Azure OpenAI.",
            hint="Set the environment variable AZURE_OPENAI_API_KEY or pass api_key=.",
        )
    version = api_version or os.environ.get("OPENAI_API_VERSION")
    if not version:
        raise ConfigurationError(
            "Azure OpenAI needs an API version.",
            hint="Pass api_version=, e.g. '2024-10-21', or set the environment variable OPENAI_API_VERSION.",
        )
    clients = clients_of(lambda: {"api_key": found.value, "azure_endpoint": url, "api_version": version})
    return Endpoint(clients, host_of(url), "azure")


def _of_client(client: Any) -> Endpoint:
    import openai

    if isinstance(client, openai.AsyncOpenAI):
        register_secret(client.api_key)
        register_header_secrets(client.default_headers)
        register_url_secrets(str(client.base_url))
        azure = isinstance(client, openai.AsyncAzureOpenAI)
        return Endpoint(borrowed_clients(client), host_of(str(client.base_url)), "azure" if azure else "openai")
    if callable(client):
        return Endpoint(factory_clients(client), None)
    sync = isinstance(client, openai.OpenAI)
    raise ConfigurationError(
        f"client must be an AsyncOpenAI or a function that makes one, not {type(client).__name__}.",
        hint="Use openai.AsyncOpenAI: run_sync and stream_sync work with it too." if sync else None,
    )


def _checked_url(name: str, url: str) -> str:
    register_url_secrets(str(url))
    parts = urlsplit(str(url))
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigurationError(f"{name} is an address that begins with http:// or https://, not {url!r}.")
    return str(url)
