"""Runs that no `await` carries: handles to them, starting them, and blocking until one ends."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Self, TypeVar, cast

from nbagents.loop.heartbeat import heartbeat
from nbagents.loop.hosts import Host, Latch, LoopError, blocking_host, loop_thread, resolve, running_loop

T = TypeVar("T")

INTERRUPT_GRACE = 3.0  # seconds that an interrupted call waits for its run's clean-up


class RunHandle(Generic[T]):
    """A run that goes on by itself. Every method may be called from any thread or widget callback.

    `await handle` works on any loop. Cancelling that, like interrupting `result()`, leaves the run going.
    """

    def __init__(
        self,
        host: Host,
        factory: Callable[[], Awaitable[T]],
        on_cancelled: Callable[[], BaseException],
        context: contextvars.Context,
    ) -> None:
        self._host = host
        self._factory = factory
        self._on_cancelled = on_cancelled
        self._context = context
        self._ended = Latch()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._task: asyncio.Task[T] | None = None
        self._stopped = False
        self._cancel_sent = False
        self._cancelled = False

    def __repr__(self) -> str:
        state = "running" if not self.done() else "stopped" if self._cancelled else "failed" if self._error else "done"
        return f"<{type(self).__name__} {state}>"

    def begin(self) -> Self:
        """Put the run on its loop; `start` has done so."""
        if not self._host.post(self._begin):
            raise LoopError("The loop thread has ended.", hint="Start runs before the interpreter shuts down.")
        return self

    def stop(self) -> None:
        """Cancel the run, once: a second call does not cut short the clean-up that the first one set off."""
        self._stopped = True  # a run that is about to take its first step does not
        self._host.post(self._cancel)

    def done(self) -> bool:
        """Tell whether the run has ended and cleaned up."""
        return self._ended.is_set

    def cancelled(self) -> bool:
        """Tell whether the run ended by being cancelled."""
        return self._cancelled

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the run has ended, at most `timeout` seconds (None: for ever); tell whether it has."""
        return self.done() or interruptibly(partial(self._host.wait, self._ended, timeout))

    def result(self, timeout: float | None = None) -> T:
        """Wait like `wait`, then return what the run returned or raise what it raised.

        Raises TimeoutError if the run goes on longer, and LoopError on the loop thread.
        """
        error = self.exception(timeout)
        if error is None:
            return cast(T, self._result)
        try:
            raise error
        finally:
            del error  # it holds this frame

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait like `result`, then return what that would raise, or None."""
        if not self.wait(timeout):
            raise TimeoutError(f"The run goes on after {timeout} s; stop() ends it.")
        return self._error

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(handle)` on the run's loop, in the caller's context, once the run has ended."""
        context = contextvars.copy_context()
        self._ended.add_callback(lambda: self._host.post(callback, self, context=context))

    def __await__(self) -> Generator[Any, None, T]:
        return self._arrive().__await__()

    async def _arrive(self) -> T:
        if not self.done():
            loop = asyncio.get_running_loop()
            waiter = loop.create_future()

            def wake() -> None:
                with suppress(RuntimeError):  # the waiter went away and its loop is closed
                    loop.call_soon_threadsafe(resolve, waiter)

            self._ended.add_callback(wake)
            try:
                with heartbeat():
                    await waiter
            finally:
                self._ended.discard_callback(wake)
        return self.result()

    # What follows runs on the host's loop only, one call at a time: that is all the locking there is.

    def _begin(self) -> None:
        if self._cancel_sent:
            return
        self._host.running.add(self)
        self._task = self._host.loop.create_task(self._work(), context=self._context)
        self._task.add_done_callback(self._settle)

    async def _work(self) -> T:
        if self._stopped:
            raise asyncio.CancelledError
        return await self._factory()

    def _cancel(self) -> None:
        if self._cancel_sent or self.done():
            return
        self._cancel_sent = True
        if self._task is None:
            self._settle_cancelled()
        else:
            self._task.cancel()

    def _settle(self, task: asyncio.Task[T]) -> None:
        self._host.running.discard(self)
        if task.cancelled():
            self._settle_cancelled()
            return
        self._error = task.exception()
        if self._error is None:
            self._result = task.result()
        self._ended.set()

    def _settle_cancelled(self) -> None:
        self._cancelled = True
        self._error = self._on_cancelled()
        self._ended.set()


def start(
    factory: Callable[[], Awaitable[T]], *, on_cancelled: Callable[[], BaseException] = CancelledError
) -> RunHandle[T]:
    """Begin `factory()` on the loop thread, in a copy of the caller's context, and return its handle at once.

    Args:
        factory: called on the loop thread; what it returns is awaited there.
        on_cancelled: makes the error that `result()` raises after `stop()`.
    """
    return RunHandle(loop_thread(), factory, on_cancelled, contextvars.copy_context()).begin()


def run_sync(
    factory: Callable[[], Awaitable[T]],
    *,
    grace: float = INTERRUPT_GRACE,
    on_cancelled: Callable[[], BaseException] = CancelledError,
) -> T:
    """Run `factory()` in a copy of the caller's context and return its result, also where a loop is running.

    An interrupt cancels it, waits at most `grace` seconds for its clean-up and raises KeyboardInterrupt.
    Raises LoopError on the loop thread.
    """
    host = blocking_host()
    handle = RunHandle(host, factory, on_cancelled, contextvars.copy_context())
    try:
        if interruptibly(partial(_is_interrupted, handle, grace)):
            raise KeyboardInterrupt("the run was interrupted and cancelled")  # anew: its traceback ends here
        return handle.result()
    finally:
        host.release()


def _is_interrupted(handle: RunHandle[Any], grace: float) -> bool:
    """Wait for a run from its beginning to its end; tell whether an interrupt cut it short."""
    try:
        handle.begin().wait()
    except KeyboardInterrupt:
        handle.stop()
        handle.wait(grace)
        return True
    return False


def interruptibly(call: Callable[[], T]) -> T:
    """Return `call()`, which blocks, and let SIGINT raise in it also where it blocks a running loop.

    The handlers of `asyncio.run` and of a kernel's awaited cell only leave a note for that loop, which cannot read it
    before the call returns. No context manager: an interrupt in its `__enter__` would not undo it.
    """
    handler = None
    if threading.current_thread() is threading.main_thread() and running_loop() is not None:
        handler = signal.getsignal(signal.SIGINT)
    if not callable(handler) or handler is signal.default_int_handler:
        return call()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return call()
    finally:
        signal.signal(signal.SIGINT, handler)
