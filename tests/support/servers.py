"""Two OpenAI-compatible servers written by others, and a port where nothing listens."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import require
from tests.support.processes import accepts_connections, free_port, program

SERVERS = Path(__file__).parents[1] / "servers"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetch(url: str, body: Any = None, method: str | None = None) -> Any:
    """Ask a server on loopback for JSON; a body makes it a POST."""
    sent = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, sent, {"content-type": "application/json"}, method=method)
    try:
        with DIRECT.open(request, timeout=10) as response:
            return json.load(response)
    except urllib.error.HTTPError as refused:
        raise AssertionError(f"{url}: {refused.code} {refused.read().decode()}") from refused


class LLMock:
    """PyPI `llmock`: without a scenario it echoes the last user message; its verdict judges the client."""

    def __init__(self, port: int) -> None:
        self._root = f"http://127.0.0.1:{port}"
        self.base_url = f"{self._root}/v1"

    def scenario(self, behaviors: list[dict[str, Any]]) -> None:
        """Queue behaviours: reply, fail, delay, slow_first_token, stream_fault, tool_fault."""
        fetch(f"{self._root}/_llmock/scenario", {"behaviors": behaviors})

    def requests(self) -> list[dict[str, Any]]:
        requests: list[dict[str, Any]] = fetch(f"{self._root}/_llmock/requests")["requests"]
        return requests

    def verdict(self) -> dict[str, Any]:
        verdict: dict[str, Any] = fetch(f"{self._root}/_llmock/verdict")
        return verdict

    def reset(self) -> None:
        fetch(f"{self._root}/_llmock/reset", method="POST")


class AIMock:
    """npm `@copilotkit/aimock` in strict mode: what no fixture matches is an error."""

    def __init__(self, port: int) -> None:
        self._root = f"http://127.0.0.1:{port}"
        self.base_url = f"{self._root}/v1"

    def journal(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = fetch(f"{self._root}/__aimock/journal")
        return entries

    def reset(self) -> None:
        """Forget the requests and how often each fixture was used; a full reset drops the fixtures too."""
        self.play(json.loads((SERVERS / "fixtures.json").read_text())["fixtures"])

    def play(self, fixtures: list[dict[str, Any]]) -> None:
        """Forget everything, and answer from these fixtures."""
        fetch(f"{self._root}/__aimock/reset", method="POST")
        fetch(f"{self._root}/__aimock/fixtures", {"fixtures": fixtures})


def beside_python(name: str) -> Path:
    """Return the path of a script of this environment, which need not be on PATH."""
    return Path(sys.executable).with_name(name)


@pytest.fixture(scope="session")
def llmock_server() -> Iterator[LLMock]:
    script = beside_python("llmock")
    require(script.exists(), "llmock (pip install llmock)")
    port = free_port()
    with program([script, "serve", "-p", str(port)], ready=lambda: accepts_connections(port)):
        yield LLMock(port)


@pytest.fixture
def llmock(llmock_server: LLMock) -> LLMock:
    llmock_server.reset()
    return llmock_server


def _install_aimock() -> Path:
    """Install what package-lock.json names once; the result is ignored by git."""
    wanted = json.loads((SERVERS / "package.json").read_text())["dependencies"]["@copilotkit/aimock"]
    installed = SERVERS / "node_modules" / "@copilotkit" / "aimock" / "package.json"
    if not installed.exists() or json.loads(installed.read_text())["version"] != wanted:
        npm = shutil.which("npm")
        require(npm, "npm (Node.js 20 or newer)")
        done = subprocess.run([str(npm), "ci"], cwd=SERVERS, capture_output=True, text=True, timeout=150)
        require(done.returncode == 0, f"@copilotkit/aimock: npm ci failed: {done.stderr[-500:]}")
    return SERVERS / "node_modules" / ".bin" / "llmock"


@pytest.fixture(scope="session")
def aimock_server() -> Iterator[AIMock]:
    require(shutil.which("node"), "node (Node.js 20 or newer)")
    script = _install_aimock()
    port = free_port()
    arguments: list[str | Path] = [script, "-p", str(port), "-f", SERVERS / "fixtures.json", "--strict"]
    with program(arguments, ready=lambda: accepts_connections(port), env={**os.environ, "NODE_ENV": "test"}):
        yield AIMock(port)


@pytest.fixture
def aimock(aimock_server: AIMock) -> AIMock:
    aimock_server.reset()
    return aimock_server


@pytest.fixture
def unused_port() -> int:
    return free_port()
