"""At most so many at once: a limit that holds across tasks, threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


class ConcurrencyLimit:
    """At most `limit` at once, across tasks, threads and event loops; who comes first goes first.

    A copy in the same process is the same limit; one that was pickled counts anew.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = limit
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._lock = threading.RLock()  # a task that is collected lets go of its place wherever that happens

    def __deepcopy__(self, memo: dict[int, Any]) -> ConcurrencyLimit:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return ConcurrencyLimit, (self.limit,)

    async def __aenter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
        try:
            await future
        except BaseException:  # cancelled, or the loop was closed with the task in it
            with self._lock:
                left_the_queue = future in self._waiting
                if left_the_queue:
                    self._waiting.remove(future)
            if not left_the_queue:
                self._hand_over()  # the place was given to us just before the cancellation
            raise

    async def __aexit__(self, *exc_info: object) -> None:
        self._hand_over()

    def _hand_over(self) -> None:
        with self._lock:
            while self._waiting:
                future = self._waiting.popleft()
                try:
                    future.get_loop().call_soon_threadsafe(_wake, future)
                except RuntimeError:
                    continue  # its loop is closed, nobody waits there any more
                return
            self._free += 1


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@dataclass(slots=True, eq=False)
class _Place:
    limit: ConcurrencyLimit
    held: bool = True


_places: ContextVar[tuple[_Place, ...]] = ContextVar("places", default=())


@asynccontextmanager
async def place_in(limit: ConcurrencyLimit) -> AsyncIterator[None]:
    """Hold a place of `limit`. What is called from inside shares it: it would wait for its own caller for ever."""
    if any(place.limit is limit and place.held for place in _places.get()):
        yield
        return
    async with limit:
        place = _Place(limit)
        token = _places.set((*_places.get(), place))
        try:
            yield
        finally:
            place.held = False
            _places.reset(token)
