"""Where an endpoint with Anthropic's API is and which key opens it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from nbagents.clients.connections import Opened, Package, borrowed_clients, clients_of, factory_clients, host_of
from nbagents.clients.endpoints import Endpoint, Secret, checked_url
from nbagents.core.errors import ConfigurationError

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

ANTHROPIC = Package(
    "anthropic",
    "AsyncAnthropic",
    "AnthropicError",
    keys=("api_key", "auth_token"),
    variable="ANTHROPIC_API_KEY",
    api="an API like Anthropic's",
    address="ends before /v1/messages",
    extra="anthropic",
)

_URL = "https://api.anthropic.com"
_NO_KEY = "unused"  # a server of one's own wants none, but the package does


def find_endpoint(
    key: Secret, *, base_url: str | None, client: AsyncAnthropic | Callable[[], AsyncAnthropic] | None
) -> Endpoint:
    """Return the endpoint that the arguments of a client name; what is not given comes from the environment.

    Raises:
        ConfigurationError: there is no key, the arguments do not fit, or the package is not installed.
    """
    if key.value is not None and not isinstance(key.value, str):
        raise ConfigurationError(
            "api_key is a text.", hint="For tokens that are renewed pass client=AsyncAnthropic(credentials=...)."
        )
    ANTHROPIC.require()
    if client is not None:
        if key or base_url:
            raise ConfigurationError(
                "client= already has its key and address.", hint="Pass either client=, or api_key= and base_url=."
            )
        return _of_client(client)
    url = _without_version(checked_url("base_url", base_url or os.environ.get("ANTHROPIC_BASE_URL") or _URL))
    found = key if key else Secret(os.environ.get(ANTHROPIC.variable))
    if not found:
        if host_of(url) == host_of(_URL):
            raise ConfigurationError(
                "There is no API key for Anthropic.",
                hint=f"Set the environment variable {ANTHROPIC.variable} or pass api_key=. "
                "A server of your own needs none: pass base_url=.",
            )
        found = Secret(_NO_KEY)
    # Not the package's own spans: a run has its own.
    settings = {"base_url": url, "open_telemetry": False}
    return Endpoint(clients_of(ANTHROPIC, lambda: {"api_key": found.value, **settings}), host_of(url), "anthropic")


def _of_client(client: Any) -> Endpoint:
    package = ANTHROPIC.load()
    if isinstance(client, package.AsyncAnthropic):
        given = Opened(ANTHROPIC, client)
        given.register_keys()
        return Endpoint(borrowed_clients(ANTHROPIC, client), given.host, "anthropic")
    if callable(client):
        return Endpoint(factory_clients(ANTHROPIC, client), None, "anthropic")
    raise ConfigurationError(
        f"client must be an AsyncAnthropic or a function that makes one, not {type(client).__name__}.",
        hint="Use anthropic.AsyncAnthropic: run_sync and stream_sync work with it too."
        if isinstance(client, package.Anthropic)
        else None,
    )


def _without_version(url: str) -> str:
    """Return `url` without a `/v1` at its end: the package adds it, and addresses of other services have it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").removesuffix("/v1")))
