"""`ResponseStream`: updates as they come, and the response that they make."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import AsyncGeneratorType, TracebackType
from typing import Any, Generic, Self, TypeVar

from nbagents.core.errors import ConfigurationError
from nbagents.loop import SyncStream
from nbagents.loop.hosts import running_loop

U_co = TypeVar("U_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)


class ResponseStream(Generic[U_co, R_co]):
    """Updates of a reply, pulled: the source makes the next one when it is asked for.

    Iterate it, or `await stream.get_final_response()`, or both in this order. Leaving it early (`break`, an error, the
    end of `async with`) ends the source, also where a variable still holds the stream; the response then has what there
    is.

    Args:
        source: gives the updates.
        finish: gives the response once the source has ended.
        events: the raw events behind the updates, if there are any; called instead of iterating.
    """

    def __init__(
        self,
        source: Callable[[], AsyncGenerator[U_co, None]],
        finish: Callable[[], R_co],
        *,
        events: Callable[[], AsyncGenerator[Any, None]] | None = None,
    ) -> None:
        self._source = source
        self._finish = finish
        self._events = events
        self._iterator: AsyncGenerator[Any, None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Task[None] | None = None
        self._taken: str | None = None
        self._response: R_co | None = None
        self._ended = False

    @classmethod
    def from_awaitable(
        cls, awaitable: Awaitable[R_co], unfold: Callable[[R_co], list[U_co]]
    ) -> ResponseStream[U_co, R_co]:
        """Make a stream of a whole reply: `unfold` gives its updates."""
        replies: list[R_co] = []

        async def source() -> AsyncGenerator[U_co, None]:
            replies.append(await awaitable)
            for update in unfold(replies[0]):
                yield update

        return cls(source, lambda: replies[0])

    def __aiter__(self) -> Consumer[U_co]:
        return Consumer(self, self._take("updates", self._source))

    def events(self) -> Consumer[Any]:
        """Iterate the events of the run instead of its updates, deltas included.

        Raises:
            ConfigurationError: it has none, or the updates are being iterated already.
        """
        if self._events is None:
            raise ConfigurationError("This stream has updates only, no events.")
        return Consumer(self, self._take("events", self._events))

    async def get_final_response(self) -> R_co:
        """Wait for the end and return the response; what is left of the updates is passed over."""
        if not self._ended:
            iterator = self._iterator
            if iterator is None:
                iterator = self._take("events", self._events) if self._events else self._take("updates", self._source)
            async for _ in iterator:
                pass
        elif self._closing is not None:
            await asyncio.shield(self._closing)
        return self.finished()

    def finished(self) -> R_co:
        """Return the response of a stream that has ended."""
        if self._response is None:
            self._response = self._finish()
        return self._response

    async def aclose(self) -> None:
        """End the source now; idempotent."""
        self._ended = True
        if self._closing is not None:
            await asyncio.shield(self._closing)
        elif self._iterator is not None:
            await self._iterator.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def _take(self, what: str, source: Callable[[], AsyncGenerator[Any, None]]) -> AsyncGenerator[Any, None]:
        if self._taken not in (None, what):
            raise ConfigurationError(f"This stream is already read as {self._taken}.")
        if self._iterator is None:
            self._taken = what
            self._iterator = source()
            self._loop = running_loop()
        return self._iterator

    def _leave(self) -> None:
        """The consumer is gone, on whatever thread: end the source on its loop, unless it has ended."""
        loop = self._loop
        if self._ended or loop is None or loop.is_closed() or not _is_suspended(self._iterator):
            return
        if running_loop() is loop:
            self._close_behind()
        else:
            with suppress(RuntimeError):  # the loop was closed just now, and has closed its generators
                loop.call_soon_threadsafe(self._close_behind)

    def _close_behind(self) -> None:
        if not self._ended and self._iterator is not None and _is_suspended(self._iterator):
            self._ended = True
            # The bare `aclose()`, no coroutine around it: cancelled before its first step it still ends the source.
            closing: Any = self._iterator.aclose()
            self._closing = asyncio.get_running_loop().create_task(closing)


class Consumer(Generic[U_co]):
    """The updates or events of a stream, in the hand of the one who consumes them.

    A `for` loop drops it when it is left in whatever way, and that ends the stream. The stream alone would not do: a
    variable, or the traceback of an error, may hold it on, and with it a connection and the turn on the session.
    """

    __slots__ = ("_iterator", "_stream")

    def __init__(self, stream: ResponseStream[Any, Any], iterator: AsyncGenerator[U_co, None]) -> None:
        self._stream = stream
        self._iterator = iterator

    def __aiter__(self) -> AsyncIterator[U_co]:
        return self

    def __anext__(self) -> Awaitable[U_co]:
        return self._iterator.__anext__()

    async def aclose(self) -> None:
        """End the stream now; idempotent."""
        await self._stream.aclose()

    def __del__(self) -> None:
        self._stream._leave()


def _is_suspended(iterator: AsyncGenerator[Any, None] | None) -> bool:
    """Whether `iterator` has begun, has not ended and is not being run or closed just now."""
    return isinstance(iterator, AsyncGeneratorType) and iterator.ag_frame is not None and not iterator.ag_running


class SyncResponseStream(Generic[U_co, R_co]):
    """The updates of a reply for code that does not await; each comes as soon as it is there.

    Iterate it, then ask for `get_final_response()`. Leaving it early ends the run.
    """

    def __init__(self, reply: ResponseStream[U_co, R_co], updates: SyncStream[U_co]) -> None:
        self._reply = reply
        self._updates = updates

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> U_co:
        return next(self._updates)

    def get_final_response(self) -> R_co:
        """Wait for the end and return the response; what is left of the updates is passed over."""
        for _ in self._updates:
            pass
        return self._reply.finished()

    def close(self) -> None:
        """End the run now; idempotent."""
        self._updates.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
