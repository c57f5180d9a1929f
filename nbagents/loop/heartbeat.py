"""The heartbeat of a kernel's loop while a run is awaited on it."""

from __future__ import annotations

import asyncio
import sys
import threading
from weakref import WeakKeyDictionary

INTERVAL = 0.1  # seconds


class Heartbeat:
    """Wakes a loop ten times a second while anybody holds it. For the thread of that loop only."""

    def __init__(self, *, beats: bool = True) -> None:
        self._beats = beats
        self._holders = 0
        self._timer: asyncio.TimerHandle | None = None

    def acquire(self) -> None:
        """Hold it, on its loop; each `acquire` needs its `release`, which may come from another task."""
        if not self._beats:
            return
        self._holders += 1
        if self._holders == 1:
            self._beat(asyncio.get_running_loop())

    def release(self) -> None:
        """Let go; with its last holder it stops at once."""
        if not self._beats:
            return
        self._holders -= 1
        if self._holders == 0 and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(INTERVAL, self._beat, loop)


_of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, Heartbeat] = WeakKeyDictionary()
_none_needed = Heartbeat(beats=False)


def heartbeat() -> Heartbeat:
    """Return the running loop's heartbeat, to hold while a run is awaited; outside a kernel it does nothing.

    A kernel's interrupt cancels the awaiting cell but does not wake the sleeping loop (ipykernel 6 and 7), so that
    without a heartbeat it lands only when something else does.
    """
    kernelbase = sys.modules.get("ipykernel.kernelbase")
    if kernelbase is None or not kernelbase.Kernel.initialized():
        return _none_needed
    if threading.current_thread() is not threading.main_thread():  # signals land on the main thread
        return _none_needed
    return _of_loop.setdefault(asyncio.get_running_loop(), Heartbeat())
