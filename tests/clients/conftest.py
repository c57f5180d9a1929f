"""Failed assertions of the shared parts show their values too."""

import pytest

pytest.register_assert_rewrite("tests.clients.asking", "tests.clients.contract", "tests.clients.endpoints")
