"""Endpoints of the contract that are reached over HTTP: three servers, and the local model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import psutil
import pytest

from nbagents import LocalChatClient, OpenAIChatClient
from nbagents.clients.local import local_extra_installed
from nbagents.clients.weights import find_weights
from tests.clients.endpoints import Ability, Endpoint, Fail, Say, Turn, words_of
from tests.support import require
from tests.support.chunks import call, delta, error_body, finish, message, usage
from tests.support.raw_server import RawServer
from tests.support.servers import AIMock, LLMock


class OnServer(Endpoint):
    """An OpenAIChatClient on a server of its own process or of this one."""

    port: int
    model = "gpt-4o-mini"
    retry_after = 0.0

    def client(self, *script: Turn, **settings: Any) -> OpenAIChatClient:
        base_url = self._play(script)
        self.port = int(base_url.partition("127.0.0.1:")[2].partition("/")[0])
        return OpenAIChatClient(self.model, **self.address(base_url), **{"max_retries": 0, **settings})

    def address(self, base_url: str) -> dict[str, Any]:
        """What the client is told of a server at this address."""
        return {"base_url": base_url, "api_key": "k"}

    def replies_under_way(self) -> int:
        """Connections that wait for a reply look like those that are kept: use a client for one reply only."""
        return _connections_to(self.port)

    def _play(self, script: tuple[Turn, ...]) -> str:
        raise NotImplementedError


def _connections_to(port: int) -> int:
    connections = psutil.Process().net_connections("tcp")
    return sum(1 for c in connections if c.raddr and c.raddr.port == port and c.status == "ESTABLISHED")


class OnRawServer(OnServer):
    """The server of the tests, which plays everything: no part of the contract goes untried."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._servers: list[RawServer] = []

    def _play(self, script: tuple[Turn, ...]) -> str:
        server = RawServer()
        server.strict = True
        self._servers.append(server)
        for turn in script:
            if isinstance(turn, Say) and turn.slow:
                server.reply(delta(turn.text.split(" ")[0] + " "), end="stall")
            elif isinstance(turn, Say):
                server.reply_with(lambda body, turn=turn: _wire(turn, body))
            elif turn.status:
                server.reply_json(error_body(f"Played {turn.status}"), turn.status, headers={"retry-after": "0.01"})
            elif turn.page:
                server.reply_raw(turn.page)
            else:
                server.reply(delta(turn.text), end="cut")
        return server.base_url

    def asked(self) -> dict[str, Any]:
        return self._servers[-1].requests[-1]

    def replies_under_way(self) -> int:
        return super().replies_under_way() if self._servers[-1].requests else 0  # not before it has been asked

    def close(self) -> None:
        for server in self._servers:
            server.close()


def _wire(turn: Say, body: Mapping[str, Any]) -> Any:
    """The chunks or the body that say `turn`."""
    more = {name: text for name, text in (("reasoning", turn.reasoning), ("refusal", turn.refusal)) if text}
    calls = [(f"c{place}", name, arguments) for place, (name, arguments) in enumerate(turn.calls)]
    if not body.get("stream"):
        return message(turn.text or None, calls, finish_reason=turn.ending, **more)
    entries = [call(place, id, name, json.dumps(args)) for place, (id, name, args) in enumerate(calls)]
    fields = [delta(**{name: text}) for name, text in more.items()]
    return [
        delta("", role="assistant"),
        *fields,
        *map(delta, words_of(turn.text)),
        *entries,
        finish(turn.ending),
        usage(),
    ]


class OnAzure(OnRawServer):
    """The same at an address of Azure's, which it is asked at and nowhere else."""

    version = "2025-04-01-preview"
    path = "/openai/deployments/gpt-4o-mini/chat/completions"

    def address(self, base_url: str) -> dict[str, Any]:
        return {"azure_endpoint": base_url.removesuffix("/v1"), "api_version": self.version, "api_key": "k"}

    def close(self) -> None:
        for server in self._servers:
            assert set(server.paths) <= {f"{self.path}?api-version={self.version}"}
            assert all(sent["api-key"] == "k" and "authorization" not in sent for sent in server.headers)
        super().close()


class OnLLMock(OnServer):
    """The server that also judges the client: it must find no fault."""

    cannot: ClassVar[Mapping[Ability, str]] = {
        "reasoning": "llmock plays no reasoning",
        "refusal": "llmock plays no refusals",
        "page": "llmock answers with JSON only",
        "slow reply": "a delay of llmock goes on without its client and takes the turn of the next reply",
    }
    opening_chunks = 1
    """How many come before the first one with text."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._server: LLMock = request.getfixturevalue("llmock")

    def _play(self, script: tuple[Turn, ...]) -> str:
        self._server.reset()
        self._server.scenario([behavior for turn in script for behavior in self._behaviors(turn)])
        return self._server.base_url

    def _behaviors(self, turn: Turn) -> Iterator[dict[str, Any]]:
        if isinstance(turn, Fail) and turn.status:
            yield {"type": "fail", "status": turn.status, "message": f"Played {turn.status}", "retry_after": 0}
            return
        if isinstance(turn, Fail):
            yield {"type": "stream_fault", "kind": "disconnect", "after_chunks": self.opening_chunks + 1}
            yield {"type": "reply", "text": f"{turn.text} and more"}
            return
        if turn.slow:
            yield {
                "type": "stream_fault",
                "kind": "stall",
                "after_chunks": self.opening_chunks + 2,
                "stall_seconds": 20,
            }
        calls = [{"name": name, "arguments": arguments} for name, arguments in turn.calls]
        yield {"type": "reply", "text": turn.text, "tool_calls": calls, "finish_reason": turn.ending}

    def asked(self) -> dict[str, Any]:
        body: dict[str, Any] = self._server.requests()[-1]["body"]
        return body

    def close(self) -> None:
        faults = [finding for finding in self._server.verdict()["findings"] if finding["code"] != "gave_up"]
        assert faults == []  # giving up is right for a client that was told not to try again


class OnAIMock(OnServer):
    """The server whose fixtures are chosen by how far the conversation has come."""

    cannot: ClassVar[Mapping[Ability, str]] = {
        "long talk": "a fixture of aimock is chosen by how many replies a request brings",
        "refusal": "aimock plays no refusals",
        "page": "aimock answers with JSON only",
        "break": "aimock breaks off before the first text only",
        "slow reply": "aimock's latency is for streams",
    }
    model = "o4-mini"  # others do not reason there

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._server: AIMock = request.getfixturevalue("aimock")

    def _play(self, script: tuple[Turn, ...]) -> str:
        fixtures: list[dict[str, Any]] = []
        said = failed = 0
        for turn in script:
            if isinstance(turn, Fail):
                error = {"message": f"Played {turn.status}", "type": "server_error"}
                response = {"error": error, "status": turn.status, "retryAfter": 1}
                fixtures.append({"match": self._match(len(fixtures), said, failed), "response": response})
                failed += 1
                continue
            slow = {"latency": 500} if turn.slow else {}
            fixtures.append({"match": self._match(len(fixtures), said), "response": self._response(turn), **slow})
            said, failed = said + 1, 0
        self._server.play(fixtures)
        return self._server.base_url

    def _match(self, place: int, said: int, failed: int | None = None) -> dict[str, Any]:
        """What the request has that gets the reply at this place of the script, after so many said and failed ones."""
        return {"turnIndex": said, **({} if failed is None else {"sequenceIndex": failed})}

    def _response(self, turn: Say) -> dict[str, Any]:
        calls = [
            {"id": f"c{place}", "name": name, "arguments": arguments}
            for place, (name, arguments) in enumerate(turn.calls)
        ]
        fields = {"content": turn.text, "toolCalls": calls, "reasoning": turn.reasoning}
        return {"finishReason": turn.ending, **{name: value for name, value in fields.items() if value}}

    def asked(self) -> dict[str, Any]:
        body: dict[str, Any] = self._server.journal()[-1]["body"]
        return body


class Local(Endpoint):
    """The real model. It says what it likes, so only the shape of what it says is compared."""

    cannot: ClassVar[Mapping[Ability, str]] = {
        "long talk": "in good time it answers short ones only, as in test_local",
        "words": "a model of 135M parameters says what it likes",
        "several calls": "its grammar has one call in a reply",
        "reasoning": "the model does not reason",
        "refusal": "the model has no field for a refusal",
        "images": "the model reads text only",
        "request": "llama.cpp tells nobody what it was asked",
        "status": "it does not fail when asked to",
        "page": "it does not fail when asked to",
        "break": "it does not fail when asked to",
    }
    options: ClassVar[Mapping[str, Any]] = {"max_tokens": 8}
    call_options: ClassVar[Mapping[str, Any]] = {"tool_choice": "required", "max_tokens": 40}

    def __init__(self, request: pytest.FixtureRequest) -> None:
        require(local_extra_installed(), "xllamacpp (pip install xllamacpp)")
        require(find_weights(), "the weights (nbagents local install)")
        self._keeper: LocalChatClient = request.getfixturevalue("local_model")

    def client(self, *script: Turn, **settings: Any) -> LocalChatClient:
        return LocalChatClient()

    def replies_under_way(self) -> int:
        assert self._keeper._server is not None
        return _connections_to(int(self._keeper._server.address.rpartition(":")[2]))
