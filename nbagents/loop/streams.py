"""An async source as a plain iterator: items cross from its loop to a blocked consumer."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import aclosing
from functools import partial
from typing import Generic, Protocol, Self, TypeVar

from nbagents.loop.hosts import Host, Latch, LoopError, blocking_host
from nbagents.loop.runs import INTERRUPT_GRACE, RunHandle, interruptibly

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class AsyncSource(Protocol[T_co]):
    """An async iterable that can be closed, such as an async generator."""

    def __aiter__(self) -> AsyncIterator[T_co]: ...
    def aclose(self) -> Awaitable[object]: ...


class _Feed(Generic[T]):
    """Items on their way, at most `host.ahead` of them.

    A waiting consumer is woken for the first item and then takes all that has come: a fast source crosses threads
    in batches, a slow one without delay. Each side writes, then looks at what the other wrote, so that with one
    producer and one consumer nothing is missed, and neither takes a lock per item.
    """

    def __init__(
        self,
        host: Host,
        factory: Callable[[], AsyncSource[T]],
        on_cancelled: Callable[[], BaseException],
        context: contextvars.Context,
    ) -> None:
        self.host = host
        self.producer = RunHandle(host, self._pump, on_cancelled, context)
        self._factory = factory
        self._items: deque[T] = deque()
        self._room = asyncio.Event()
        self._full = False
        self._wanted = Latch()
        self._stopped = False

    def open(self) -> None:
        self.producer.add_done_callback(lambda _: self._wanted.set())
        self.producer.begin()

    def has_next(self) -> bool:
        """Block until there is an item (True), or the source has ended and left none (False)."""
        while not self._items:
            self._wanted = wanted = Latch()
            if self.producer.done():
                return bool(self._items)
            if not self._items:
                interruptibly(partial(self.host.wait, wanted, None))
        return True

    def take(self) -> T:
        item = self._items.popleft()
        if self._full and len(self._items) <= self.host.ahead // 2:
            self._full = False
            self.host.post(self._room.set)
        return item

    def stop(self) -> None:
        self._stopped = True
        self.producer.stop()

    async def _pump(self) -> None:
        async with aclosing(self._factory()) as source:
            async for item in source:
                if self._stopped:  # and the source swallowed its cancellation
                    return
                self._items.append(item)
                self._wanted.set()
                if len(self._items) >= self.host.ahead:
                    await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        self._room.clear()
        self._full = True
        if len(self._items) > self.host.ahead // 2:
            await self._room.wait()


class SyncStream(Generic[T]):
    """An async source as a plain iterator; iterate it on one thread, close it from any.

    The source is opened by the first `next()`. It is closed, on its own loop, when it ends, by `close()`, at the end
    of a `with` block, by an interrupt, and when a loop over it is left or the stream itself is dropped.
    """

    def __init__(
        self, factory: Callable[[], AsyncSource[T]], grace: float, on_cancelled: Callable[[], BaseException]
    ) -> None:
        self._feed: _Feed[T] | None = None
        self._over = False
        self._reading = False
        self._readers = 0
        self._factory = factory
        self._grace = grace
        self._on_cancelled = on_cancelled
        self._context = contextvars.copy_context()

    def __iter__(self) -> SyncReader[T]:
        return self.reader(self.__next__)

    def reader(self, take: Callable[[], T]) -> SyncReader[T]:
        """Return an iterator of what `take()` gives, which calls `next()` on this stream."""
        self._readers += 1
        return SyncReader(self, take)

    def __next__(self) -> T:
        if self._reading:
            raise LoopError(
                "Another thread is reading this stream.", hint="Read it on one thread, or start a run for each."
            )
        self._reading = True
        try:
            return self._next()
        finally:
            self._reading = False

    def _next(self) -> T:
        if self._over:
            raise StopIteration
        try:
            feed = self._feed or self._open()
            if feed.has_next():
                return feed.take()
        except KeyboardInterrupt:
            self.close()
            raise KeyboardInterrupt("the stream was interrupted and closed") from None
        closed_meanwhile, self._over = self._over, True
        feed.host.release()
        if closed_meanwhile:
            raise StopIteration
        feed.producer.result()
        raise StopIteration

    def close(self) -> None:
        """Close the source and wait, within the grace, until it has cleaned up."""
        self._over = True
        feed = self._feed
        if feed is None:
            return
        feed.stop()
        if feed.host.can_block_here():
            feed.producer.wait(self._grace)
            feed.host.release()

    def wait(self) -> None:
        """Wait without a limit until a source that was left or closed has cleaned up."""
        if self._feed is not None:
            self._feed.producer.wait()

    def leave(self) -> None:
        """One reader is gone, on whatever thread: after the last one close the source, without waiting."""
        self._readers -= 1
        if self._readers or self._over or self._feed is None:
            return
        self._over = True
        self._end_behind(self._feed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._feed is not None and not self._feed.producer.done():
            self._end_behind(self._feed)

    @staticmethod
    def _end_behind(feed: _Feed[T]) -> None:
        feed.stop()
        feed.host.release()

    def _open(self) -> _Feed[T]:
        self._feed = feed = _Feed(blocking_host(), self._factory, self._on_cancelled, self._context)
        feed.open()
        return feed


class SyncReader(Generic[T]):
    """A stream in the hand of one loop: `for` drops it when it is left in whatever way, and that ends the source.

    The stream alone would not do: a variable may hold it on, and with it the turn on the session.
    """

    __slots__ = ("_stream", "_take")

    def __init__(self, stream: SyncStream[T], take: Callable[[], T]) -> None:
        self._stream = stream
        self._take = take

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self._take()

    def close(self) -> None:
        """Close the source and wait, within the grace, until it has cleaned up."""
        self._stream.close()

    def __del__(self) -> None:
        self._stream.leave()


def stream_sync(
    factory: Callable[[], AsyncSource[T]],
    *,
    grace: float = INTERRUPT_GRACE,
    on_cancelled: Callable[[], BaseException] = CancelledError,
) -> SyncStream[T]:
    """Iterate the async source that `factory()` makes without awaiting, also where a loop is running.

    The source runs in a copy of the caller's context, on the loop thread at most 64 items ahead of the consumer.
    Its error is raised after the items before it. An interrupt closes it, waits at most `grace` seconds for its
    clean-up and raises KeyboardInterrupt; where a loop is running with a handler of its own for interrupts (a cell
    that also awaits), one that comes between two items is that handler's. Raises LoopError on the loop thread.
    """
    return SyncStream(factory, grace, on_cancelled)
