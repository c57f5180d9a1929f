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


def check_time_for(wait: float, deadline: float | None, cause: BaseException) -> None:
    """Tell at once, and not only when it is there, that the moment `deadline` comes before a wait is over.

    Raises:
        RunTimeoutError: so it is; `cause` is what was to be waited for.
    """
    if deadline is not None and time.monotonic() + wait >= deadline:
        raise RunTimeoutError(
            f"The model is to be asked again after {wait:.1f} s, and the duration of the run's budget ends before.",
            hint="Raise RunBudget.max_duration_ms.",
        ) from cause


def timed_out() -> RunTimeoutError:
    """The error of a run whose duration is used up."""
    return RunTimeoutError("The run took longer than its budget allows.", hint="Raise RunBudget.max_duration_ms.")
