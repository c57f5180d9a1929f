"""Failed assertions of the shared parts show their values too."""

import pytest

from nbagents.core import secrets
from tests.support.raw_server import RawServer

SHARED = (
    "responses_endpoints",
    "anthropic_endpoints",
    "asking",
    "contract",
    "conversations_endpoints",
    "endpoints",
    "responding",
    "served_endpoints",
    "talks",
    "written_endpoints",
)

pytest.register_assert_rewrite(*(f"tests.clients.{name}" for name in SHARED))


@pytest.fixture
def no_known_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key is masked that an earlier test has registered."""
    monkeypatch.setattr(secrets, "_known", set())
    monkeypatch.setattr(secrets, "_marks", {secrets.MASK})
    monkeypatch.setattr(secrets, "_environment", {})


@pytest.fixture
def service(raw_server: RawServer) -> object:
    """A server with the Responses API that remembers and judges."""
    from tests.clients.responding import Service

    return Service(raw_server)
