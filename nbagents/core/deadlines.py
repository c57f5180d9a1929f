"""The moment at which the duration of a run is used up, and what may wait no longer than that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import TypeVar

from nbagents.core.errors import RunTimeoutError

T = TypeVar("T")


async def in_time(deadline: float | None, work: Awaitable[T]) -> T:
    """Await `work` until the moment `deadline` (of `time.monotonic`); None: for ever.

    Raises:
        RunTimeoutError: it took longer.
    """
    if deadline is None:
        return await work
    try:
        async with asyncio.timeout(max(deadline - time.monotonic(), 0)) as limit:
            return await work
    except TimeoutError as error:
        if not limit.expired():
            raise  # of its own
        raise timed_out() from error


async def items_in_time(deadline: float, source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield from `source` until the moment `deadline`; what the consumer does between two items is not counted."""
    async with aclosing(source):
        while True:
            if time.monotonic() >= deadline:  # a source without pauses gives no limit the time to strike
                raise timed_out()
            try:
                item = await in_time(deadline, anext(source))
            except StopAsyncIteration:
                return
            yield item


async def pause(seconds: float, deadline: float | None) -> None:
    """Wait, at most until the moment `deadline`."""
    left = seconds if deadline is None else min(seconds, max(deadline - time.monotonic(), 0))
    await asyncio.sleep(left)
    if left < seconds:
        raise timed_out()


def timed_out() -> RunTimeoutError:
    """The error of a run whose duration is used up."""
    return RunTimeoutError("The run took longer than its budget allows.", hint="Raise RunBudget.max_duration_ms.")
