"""One request to an endpoint: how it is sent, and how the bytes of its reply become updates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from nbagents.clients.call_errors import CallFacts, invalid_reply, reported_error
from nbagents.clients.connections import Opened
from nbagents.core import ChatResponseUpdate
from nbagents.core.content import UsageContent

_DRAIN_SECONDS = 0.5
_STALE_CONNECTIONS = 20
"""How often a connection that a client of the user's has pooled for another loop may be met in one call."""
_STREAM_OPENINGS = ("data:", "event:")


class Reader(Protocol):
    """What reads one reply of a kind of endpoint, whole or in events; what it does not know it ignores.

    Attributes:
        error: the error that the server reported instead of a reply or within it.
        seen: events that belong to a reply.
        finish_reason: why the reply ended; None until the server has said so.
        ended: the event has come after which there is nothing more to read.
        core: what every reply has, for texts.
    """

    error: Any
    seen: int
    finish_reason: str | None
    ended: bool
    core: str

    def read_chunk(self, chunk: Any) -> ChatResponseUpdate | None:
        """Return the increment that an event is; None if it holds nothing."""
        ...

    def read_end(self) -> ChatResponseUpdate | None:
        """Return the next increment that a reply which ended as it should still has; None if it is cut or complete."""
        ...

    def read_reply(self, body: Any) -> ChatResponseUpdate | None:
        """Return the whole reply as one update, or the first of them, `read_end` the others; None if it is none."""
        ...


R = TypeVar("R", bound=Reader)


@dataclass(slots=True, repr=False, eq=False)
class Call(Generic[R]):
    """One request for a reply, and the reading of that reply."""

    opened: Opened
    path: str
    body: dict[str, Any]
    settings: dict[str, Any]
    facts: CallFacts
    reader: R

    def facts_now(self) -> CallFacts:
        """The facts, with whether the reply has begun."""
        return replace(self.facts, begun=self.reader.seen > 0)

    async def send(self, *, stream: bool) -> Any:
        """Return the body of a plain reply, or the open stream."""
        form: dict[str, Any] = {"cast_to": object, "options": self.settings, "body": self.body}
        if stream:
            form |= {"stream": True, "stream_cls": self.opened.package.load().AsyncStream[object]}
        return await send(self.opened, "POST", self.path, **form)

    def read(self, chunks: Iterator[Any]) -> Iterator[ChatResponseUpdate]:
        """Yield the increments that `chunks` are.

        Raises:
            ModelError: one does not belong to a reply, or the server reports an error in it.
        """
        reader = self.reader
        read = reader.read_chunk
        for chunk in chunks:
            update = read(chunk)
            if update is not None:
                yield update
            if reader.error:
                raise reported_error(reader.error, self.facts_now())
            if reader.ended:
                return

    def read_whole(self, reply: Any) -> Iterator[ChatResponseUpdate]:
        """Yield a plain reply, each of its messages as one update.

        Args:
            reply: it is text where the server does not call it JSON.

        Raises:
            ModelError: it is no reply, or the server reports an error in it.
        """
        text = reply if isinstance(reply, str) else ""
        if text.startswith(_STREAM_OPENINGS):
            error = invalid_reply("a stream", text, self.facts)
            error.hint = "Pass streaming=True to the client: this server can only stream."
            raise error
        if text or reply == "":
            try:
                reply = json.loads(text.removeprefix("\ufeff"))
            except ValueError as error:
                what = "something that is no JSON" if text else "nothing"
                raise invalid_reply(what, text, self.facts) from error
        update = self.reader.read_reply(reply)
        if self.reader.error:
            if update is not None and all(isinstance(content, UsageContent) for content in update.contents):
                yield update  # what failed has its price too
            raise reported_error(self.reader.error, self.facts)
        if update is None:
            raise invalid_reply(f"JSON without {self.reader.core}", json.dumps(reply), self.facts)
        yield update
        yield from self.read_rest()

    def read_rest(self) -> Iterator[ChatResponseUpdate]:
        """Yield what a reply that ended as it should still has."""
        while (update := self.reader.read_end()) is not None:
            yield update

    def read_stray(self, text: bytes) -> Iterator[ChatResponseUpdate]:
        """Yield the plain reply that a stream without events turns out to be.

        Raises:
            ModelError: it is none.
        """
        if not text.strip():
            raise invalid_reply("an empty stream", "", self.facts)
        yield from self.read_whole(text.decode(errors="replace"))


async def send(opened: Opened, method: str, path: str, **form: Any) -> Any:
    """Send one request through the client of the package.

    A pooled connection that the user's own calls left on another loop fails once and is then gone from the pool.
    """
    client: Any = opened.client
    verb = {"GET": client.get, "POST": client.post, "DELETE": client.delete}[method]
    for left in reversed(range(_STALE_CONNECTIONS)):
        try:
            return await verb(path, **form)
        except RuntimeError as error:
            if not (left and opened.shared and _is_of_another_loop(error)):
                raise
    raise AssertionError("unreachable")


def is_stream(body: bytes) -> bool:
    """Whether a body is a stream of events, whatever its content type says."""
    return body.startswith(tuple(opening.encode() for opening in _STREAM_OPENINGS))


def pieces_of(stream: Any) -> AsyncGenerator[bytes, None]:
    """Return the body of an open stream as the network brings it, decompressed.

    The events are read here and not by the package, which loses the one after a byte order mark and those that no
    blank line ends, and takes JSON that stands in no event for an empty stream.
    """
    pieces: AsyncGenerator[bytes, None] = stream.response.aiter_bytes()  # declared as an iterator, made as a generator
    return pieces


async def drain(pieces: AsyncGenerator[bytes, None]) -> None:
    """Read to the end of the body, so that the connection can be used again, unless the server never ends it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in pieces:
                pass


def _is_of_another_loop(error: RuntimeError) -> bool:
    """Whether a pooled connection belongs to another loop, or to one that is closed; asyncio and uvloop say only so."""
    text = str(error)
    return any(
        words in text for words in ("different event loop", "different loop", "loop is closed", "handler is closed")
    )
