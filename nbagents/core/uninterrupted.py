"""Work that has to be finished although its task is cancelled: a half-stored turn would be lost."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Finish `work` although the current task is cancelled meanwhile; the cancellation follows.

    That holds at the end of `asyncio.run` too, which cancels every task that it knows of: it waits for the current one.
    """
    task = asyncio.get_running_loop().create_task(work)
    asyncio._unregister_task(task)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
