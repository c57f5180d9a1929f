"""Runs on one session take turns, across tasks, threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Hashable
from contextvars import ContextVar

from nbagents.core.errors import ReentrantRunError

held_turns: ContextVar[frozenset[Hashable]] = ContextVar("held_turns", default=frozenset())
"""The sessions whose runs the current code is part of; set for the tools that a run calls."""

_lock = threading.Lock()
_waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
"""A key is there while somebody holds the turn; its queue has those who wait, each on a future of its own loop."""


async def take_turn(key: Hashable) -> None:
    """Wait until no other run holds `key`, then hold it.

    Raises:
        ReentrantRunError: the caller is part of the run that holds it: it would wait for itself.
    """
    if key in held_turns.get():
        raise ReentrantRunError(
            "A tool started a run on the session that it is itself running in.",
            hint="Give that run a session of its own.",
        )
    with _lock:
        if key not in _waiting:
            _waiting[key] = deque()
            return
        future = asyncio.get_running_loop().create_future()
        _waiting[key].append(future)
    try:
        await future
    except asyncio.CancelledError:
        with _lock:
            queue = _waiting.get(key)
            if queue is not None and future in queue:
                queue.remove(future)
                raise
        end_turn(key)  # the turn was handed over just before the cancellation
        raise


def end_turn(key: Hashable) -> None:
    """Let the next one in."""
    with _lock:
        queue = _waiting[key]
        while queue:
            future = queue.popleft()
            try:
                future.get_loop().call_soon_threadsafe(_wake, future)
            except RuntimeError:
                continue  # its loop is closed, nobody waits there any more
            return
        del _waiting[key]


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
