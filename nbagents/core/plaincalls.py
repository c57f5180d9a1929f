"""How a tool's plain function runs beside the event loop, and how generators of tools are read."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from nbagents import loop as loops

MAX_ITEMS = 10_000
"""Items that are taken of a generator which a tool returns."""


async def run_in_thread(call: Callable[[], Any]) -> Any:
    """Run `call` in a daemon thread with the caller's context variables and return what it returned.

    A thread of its own, not one of the loop's pool: neither the end of the loop nor that of the interpreter waits for
    a call that was given up.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            outcome, error = context.run(call), None
        except BaseException as raised:  # noqa: BLE001  whatever it is, the awaiting side raises it
            outcome, error = None, raised
        try:
            loop.call_soon_threadsafe(_settle, future, outcome, error)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    threading.Thread(target=work, name="nbagents-tool", daemon=True).start()
    return await future


def _settle(future: asyncio.Future[Any], outcome: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(outcome)
    elif isinstance(error, StopIteration):
        raised = RuntimeError(f"the tool raised StopIteration: {error}")  # a future takes no StopIteration
        raised.__cause__ = error
        future.set_exception(raised)
    else:
        future.set_exception(error)


def drained(items: Iterator[Any]) -> list[Any]:
    """The items of a generator, as many as anybody would read."""
    return list(islice(items, MAX_ITEMS))


async def collected(items: Any) -> list[Any]:
    """The items of an async generator, as many as anybody would read."""
    found: list[Any] = []
    iterator = aiter(items)
    try:
        async for item in iterator:
            found.append(item)
            if len(found) == MAX_ITEMS:
                break
    finally:
        if inspect.isasyncgen(iterator):
            await iterator.aclose()
    return found


def stays_here() -> bool:
    """Whether a sync tool runs where the run is: the opt-in mode for what must be on the main thread."""
    return loops.mode() == "same-thread" and threading.current_thread() is threading.main_thread()
