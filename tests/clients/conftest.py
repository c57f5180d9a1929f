"""Failed assertions of the shared parts show their values too."""

import pytest

SHARED = (
    "responses_endpoints",
    "anthropic_endpoints",
    "asking",
    "contract",
    "conversations_endpoints",
    "endpoints",
    "served_endpoints",
    "talks",
    "written_endpoints",
)

pytest.register_assert_rewrite(*(f"tests.clients.{name}" for name in SHARED))
