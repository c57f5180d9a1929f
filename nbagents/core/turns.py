"""Runs on one session take turns, across tasks, threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Hashable
from contextvars import ContextVar
from itertools import count

from nbagents.core.errors import ReentrantRunError

Turn = tuple[Hashable, int]
"""A key and the number of the turn that is held there."""

held_turns: ContextVar[frozenset[Turn]] = ContextVar("held_turns", default=frozenset())
"""The turns that the current code is part of, as `current_turn` gave them; set for the tools that a run calls."""

_lock = threading.Lock()
_numbers = count()
_turns: dict[Hashable, int] = {}
"""A key is there while somebody holds the turn, with the turn's number."""
_waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
"""Those who wait for a turn that is held, each on a future of its own loop."""
_wanted: dict[Turn, list[Hashable]] = {}
"""The keys that tools of a turn's run wait for."""


async def take_turn(key: Hashable) -> None:
    """Wait until no other run holds `key`, then hold it.

    Raises:
        ReentrantRunError: the caller is part of the run that holds it, or of one that this waits for: it would wait
            for itself.
    """
    with _lock:
        if key not in _turns:
            _turns[key], _waiting[key] = next(_numbers), deque()
            return
        own = held_turns.get()
        _check_for_circle(key, own)
        future = asyncio.get_running_loop().create_future()
        _waiting[key].append(future)
        for turn in own:
            _wanted.setdefault(turn, []).append(key)
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
    finally:
        with _lock:
            for turn in own:
                _wanted[turn].remove(key)
                if not _wanted[turn]:
                    del _wanted[turn]


def take_free_turn(key: Hashable) -> bool:
    """Hold `key` if nobody does, without waiting; tell whether that is so."""
    with _lock:
        if key in _turns:
            return False
        _turns[key], _waiting[key] = next(_numbers), deque()
        return True


def _check_for_circle(key: Hashable, own: frozenset[Turn]) -> None:
    """Follow who waits for whom: from the run that holds `key` to those that its tools wait for, and so on."""
    held, seen = [key], set()
    while held:
        turn = current_turn(held.pop())
        if turn in own:
            where = "the session" if turn[0] == key else "a session whose run waits for the one"
            raise ReentrantRunError(
                f"A tool started a run on {where} that it is itself running in.",
                hint="Give that run a session of its own.",
            )
        if turn not in seen:
            seen.add(turn)
            held += _wanted.get(turn, ())


def current_turn(key: Hashable) -> Turn:
    """Return what tells the turn that is held at `key` from all others; what outlives its run is no part of it."""
    return key, _turns.get(key, -1)


def end_turn(key: Hashable) -> None:
    """Let the next one in."""
    with _lock:
        queue = _waiting[key]
        _turns[key] = next(_numbers)
        while queue:
            future = queue.popleft()
            try:
                future.get_loop().call_soon_threadsafe(_wake, future)
            except RuntimeError:
                continue  # its loop is closed, nobody waits there any more
            return
        del _turns[key], _waiting[key]


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
