"""Endpoints of the contract that say what is written for them, in this process: no server, no model."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from nbagents import BaseChatClient, ChatResponse, RecordedChatClient, ResponseStream, ScriptedChatClient
from nbagents.core import ChatRequest, ChatResponseUpdate
from nbagents.core.content import Content, FunctionCall, ReasoningContent, RefusalContent, TextContent
from nbagents.core.errors import ConnectionFailedError, ModelError
from nbagents.core.options import check_options
from tests.clients.endpoints import Ability, Endpoint, Fail, Say, Turn, words_of


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
    contents += [TextContent(word) for word in words_of(turn.text)]
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
                raise ModelError("The model broke off.", retryable=True)
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
