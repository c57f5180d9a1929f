"""The clients that the contract is for, each with a way to make it say what a test wants, and what it cannot do."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import psutil
import pytest

from nbagents import (
    Agent,
    BaseChatClient,
    ChatResponse,
    LocalChatClient,
    OpenAIChatClient,
    RecordedChatClient,
    ResponseStream,
    ScriptedChatClient,
)
from nbagents.clients.local import local_extra_installed
from nbagents.clients.weights import find_weights
from nbagents.core import ChatRequest, ChatResponseUpdate
from nbagents.core.content import Content, FunctionCall, ReasoningContent, RefusalContent, TextContent
from nbagents.core.errors import ConnectionFailedError, ModelError
from nbagents.core.options import check_options
from tests.clients.asking import Mode
from tests.support import require
from tests.support.chunks import call, delta, error_body, finish, message, usage
from tests.support.raw_server import RawServer
from tests.support.servers import AIMock, LLMock

Ability = Literal[
    "words",  # says what the test wants it to
    "several calls",  # calls several tools in one reply
    "reasoning",
    "refusal",
    "finish reasons",  # names another end than `stop` and `tool_calls` where the script wants it
    "usage",  # reports tokens; else it must say that it knows nothing
    "images",  # takes an image from the user
    "request",  # shows what it was asked, as far as it got
    "status",  # fails as an HTTP server does
    "page",  # answers with a web page
    "break",  # breaks off in the middle of a text
    "slow stream",  # stops in the middle of a stream and goes on much later
    "slow reply",  # takes long for a plain reply
]
LONG = "one two three four five six seven eight nine ten"
"""What is said where somebody stops listening."""


@dataclass(frozen=True)
class Say:
    """One reply."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    reasoning: str = ""
    refusal: str = ""
    finish_reason: str | None = None
    slow: bool = False

    @property
    def ending(self) -> str:
        return self.finish_reason or ("tool_calls" if self.calls else "stop")


@dataclass(frozen=True)
class Fail:
    """One reply that is none: a status, a page, or a text that breaks off."""

    status: int | None = None
    page: str = ""
    text: str = ""


Turn = Say | Fail


class Endpoint:
    """One client under the contract.

    Attributes:
        cannot: what it is unable to do, each with the reason.
        options: what each run asks for.
        call_options: what makes it call a tool.
        modes: the order in which the modes are tried.
    """

    cannot: ClassVar[Mapping[Ability, str]] = {}
    options: ClassVar[Mapping[str, Any]] = {}
    call_options: ClassVar[Mapping[str, Any]] = {}
    modes: tuple[Mode, ...] = ("plain", "streamed")

    def __init__(self, request: pytest.FixtureRequest) -> None:
        """Start what the client needs, through the fixtures of `request`."""

    def client(self, *script: Turn, **settings: Any) -> Any:
        """Return a client that answers its requests with `script`, in order."""
        raise NotImplementedError

    def agent(self, *script: Turn, client: Mapping[str, Any] | None = None, **settings: Any) -> Agent:
        return Agent(self.client(*script, **(client or {})), name="tester", **settings)

    def can(self, ability: Ability) -> bool:
        return ability not in self.cannot

    def asked(self) -> dict[str, Any]:
        """The newest request: its messages and its options by their names."""
        raise NotImplementedError

    def replies_under_way(self) -> int:
        """How many replies the client is still listening to."""
        raise NotImplementedError

    def close(self) -> None:
        """Free what the test has used, and say what is wrong with it."""


class _OnServer(Endpoint):
    """An OpenAIChatClient on a server of its own process or of this one."""

    port: int
    model = "gpt-4o-mini"
    retry_after = 0.0

    def client(self, *script: Turn, **settings: Any) -> OpenAIChatClient:
        base_url = self._play(script)
        self.port = int(base_url.partition("127.0.0.1:")[2].partition("/")[0])
        return OpenAIChatClient(self.model, base_url=base_url, api_key="k", **{"max_retries": 0, **settings})

    def replies_under_way(self) -> int:
        """Connections that wait for a reply look like those that are kept: use a client for one reply only."""
        return _connections_to(self.port)

    def _play(self, script: tuple[Turn, ...]) -> str:
        raise NotImplementedError


def _connections_to(port: int) -> int:
    connections = psutil.Process().net_connections("tcp")
    return sum(1 for c in connections if c.raddr and c.raddr.port == port and c.status == "ESTABLISHED")


class OnRawServer(_OnServer):
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
        *map(delta, _words(turn.text)),
        *entries,
        finish(turn.ending),
        usage(),
    ]


def _words(text: str) -> list[str]:
    words = text.split(" ")
    return [*(f"{word} " for word in words[:-1]), *words[-1:]] if text else []


class OnLLMock(_OnServer):
    """The server that also judges the client: it must find no fault."""

    cannot: ClassVar[Mapping[Ability, str]] = {
        "reasoning": "llmock plays no reasoning",
        "refusal": "llmock plays no refusals",
        "page": "llmock answers with JSON only",
        "slow reply": "a delay of llmock goes on without its client and takes the turn of the next reply",
    }

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
            yield {"type": "stream_fault", "kind": "disconnect", "after_chunks": 2}
            yield {"type": "reply", "text": f"{turn.text} and more"}
            return
        if turn.slow:
            yield {"type": "stream_fault", "kind": "stall", "after_chunks": 3, "stall_seconds": 20}
        calls = [{"name": name, "arguments": arguments} for name, arguments in turn.calls]
        yield {"type": "reply", "text": turn.text, "tool_calls": calls, "finish_reason": turn.ending}

    def asked(self) -> dict[str, Any]:
        body: dict[str, Any] = self._server.requests()[-1]["body"]
        return body

    def close(self) -> None:
        faults = [finding for finding in self._server.verdict()["findings"] if finding["code"] != "gave_up"]
        assert faults == []  # giving up is right for a client that was told not to try again


class OnAIMock(_OnServer):
    """The server whose fixtures are chosen by how far the conversation has come."""

    cannot: ClassVar[Mapping[Ability, str]] = {
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
            match: dict[str, Any] = {"turnIndex": said}
            if isinstance(turn, Fail):
                error = {"message": f"Played {turn.status}", "type": "server_error"}
                response = {"error": error, "status": turn.status, "retryAfter": 1}
                fixtures.append({"match": {**match, "sequenceIndex": failed}, "response": response})
                failed += 1
                continue
            said, failed = said + 1, 0
            slow = {"latency": 500} if turn.slow else {}
            fixtures.append({"match": match, "response": self._response(turn), **slow})
        self._server.play(fixtures)
        return self._server.base_url

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


class Scripted(Endpoint):
    """The client whose replies are written beforehand."""

    cannot: ClassVar[Mapping[Ability, str]] = {
        "finish reasons": "a scripted reply ends with stop or tool_calls",
        "status": "nothing goes over HTTP",
        "page": "nothing goes over HTTP",
    }

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._listened = 0

    def client(self, *script: Turn, **settings: Any) -> ScriptedChatClient:
        endpoint = self

        class Watched(ScriptedChatClient):
            async def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
                endpoint._listened += 1
                try:
                    async with aclosing(super().generate(request)) as updates:
                        async for update in updates:
                            yield update
                finally:
                    endpoint._listened -= 1

        slow = any(isinstance(turn, Say) and turn.slow for turn in script)
        self._client = Watched([_scripted(turn) for turn in script], delay=0.05 if slow else 0.0)
        return self._client

    def asked(self) -> dict[str, Any]:
        return _as_asked(self._client.requests[-1])

    def replies_under_way(self) -> int:
        return self._listened


def _scripted(turn: Turn) -> list[Any]:
    if isinstance(turn, Fail):
        return [turn.text, ConnectionFailedError("The connection broke.")]
    return _contents(turn)


def _contents(turn: Say) -> list[Any]:
    """What `turn` says, in the pieces in which it is streamed."""
    contents: list[Content] = [ReasoningContent(turn.reasoning)] if turn.reasoning else []
    contents += [RefusalContent(turn.refusal)] if turn.refusal else []
    contents += [TextContent(word) for word in _words(turn.text)]
    contents += [FunctionCall(f"c{place}", name, args) for place, (name, args) in enumerate(turn.calls)]
    return contents


def _as_asked(request: ChatRequest) -> dict[str, Any]:
    messages = [{"role": message.role, "content": message.text} for message in request.messages]
    return {**request.options, "messages": messages}


@dataclass
class Reciter:
    """What clients of a few lines share: the script, and who still listens."""

    script: tuple[Turn, ...]
    requests: list[ChatRequest] = field(default_factory=list)
    listened: int = 0
    numbers: Iterator[int] = field(default_factory=itertools.count)

    async def updates(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        self.requests.append(request)
        turn = self.script[next(self.numbers)]
        self.listened += 1
        try:
            if isinstance(turn, Fail):
                yield ChatResponseUpdate([TextContent(turn.text)])
                raise ModelError("The model broke off.")
            if turn.slow and not request.stream:
                await asyncio.sleep(60)
            contents = _contents(turn)
            for piece in [[content] for content in contents] if request.stream else [contents]:
                yield ChatResponseUpdate(piece)
                if turn.slow:
                    await asyncio.sleep(60)
            yield ChatResponseUpdate(finish_reason=turn.ending)
        finally:
            self.listened -= 1


class OwnClient(BaseChatClient):
    """A client as a user writes it: one async generator."""

    def __init__(self, reciter: Reciter) -> None:
        self._reciter = reciter

    async def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        async with aclosing(self._reciter.updates(request)) as updates:
            async for update in updates:
                yield update


class OtherClient:
    """No client of ours: it only has `get_response`, with tools among the options."""

    def __init__(self, reciter: Reciter) -> None:
        self._reciter = reciter

    def get_response(self, messages: Any, *, stream: bool = False, options: Mapping[str, Any] | None = None) -> Any:
        chosen = {name: value for name, value in (options or {}).items() if name != "tools"}
        request = ChatRequest(list(messages), check_options(chosen), stream=stream)
        if not stream:
            return ChatResponse.from_update_generator(self._reciter.updates(request))
        folded: list[ChatResponseUpdate] = []

        async def updates() -> AsyncGenerator[ChatResponseUpdate, None]:
            async with aclosing(self._reciter.updates(request)) as source:
                async for update in source:
                    folded.append(update)
                    yield update

        return ResponseStream(updates, lambda: ChatResponse.from_updates(folded))


class Own(Endpoint):
    """A client of a few lines."""

    cannot: ClassVar[Mapping[Ability, str]] = {
        "usage": "it counts nothing",
        "status": "nothing goes over HTTP",
        "page": "nothing goes over HTTP",
    }
    kind: Callable[[Reciter], Any] = OwnClient

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._reciter = Reciter(())

    def client(self, *script: Turn, **settings: Any) -> Any:
        self._reciter = Reciter(script)
        return type(self).kind(self._reciter)

    def asked(self) -> dict[str, Any]:
        return _as_asked(self._reciter.requests[-1])

    def replies_under_way(self) -> int:
        return self._reciter.listened


class Other(Own):
    """What only satisfies `SupportsChatGetResponse`."""

    kind = OtherClient


class Recorded(Own):
    """A recording of a client: made in one mode, replayed in the other."""

    cannot: ClassVar[Mapping[Ability, str]] = {
        **Own.cannot,
        "request": "a replay asks nobody",
        "break": "only whole replies are recorded",
        "slow stream": "a replay does not wait",
        "slow reply": "a replay does not wait",
    }

    def __init__(self, request: pytest.FixtureRequest) -> None:
        super().__init__(request)
        self._path: Path = request.getfixturevalue("tmp_path") / "talk.jsonl"
        self._is_made = False

    def client(self, *script: Turn, **settings: Any) -> RecordedChatClient:
        if self._is_made:
            return RecordedChatClient(self._path, mode="replay")
        self._is_made = True
        return RecordedChatClient(self._path, super().client(*script), mode="record")


class RecordedStream(Recorded):
    """The same, recorded from a stream."""

    modes = ("streamed", "plain")


ENDPOINTS: dict[str, type[Endpoint]] = {
    "raw": OnRawServer,
    "llmock": OnLLMock,
    "aimock": OnAIMock,
    "local": Local,
    "scripted": Scripted,
    "recorded": Recorded,
    "recorded stream": RecordedStream,
    "own": Own,
    "other": Other,
}
