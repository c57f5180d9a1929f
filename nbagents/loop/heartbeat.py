"""The heartbeat of a kernel's loop while a run is awaited on it."""

from __future__ import annotations

import asyncio
import sys
import threading

HEARTBEAT = 0.1  # seconds


class Heartbeat:
    """Wakes its loop ten times a second while anybody holds it. For that loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self._loop = loop
        self._holders = 0
        self._timer: asyncio.TimerHandle | None = None

    def acquire(self) -> None:
        """Hold it; each `acquire` needs its `release`, which may come from another task."""
        if self._loop is None:
            return
        self._holders += 1
        if self._holders == 1:
            _beating[self._loop] = self
            self._beat(self._loop)

    def release(self) -> None:
        """Let go; with its last holder it stops at once."""
        if self._loop is None:
            return
        self._holders -= 1
        if self._holders == 0 and self._timer is not None:
            self._timer.cancel()
            del _beating[self._loop]

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(HEARTBEAT, self._beat, loop)


_beating: dict[asyncio.AbstractEventLoop, Heartbeat] = {}
_none_needed = Heartbeat(None)


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
    loop = asyncio.get_running_loop()
    return _beating.get(loop) or Heartbeat(loop)
