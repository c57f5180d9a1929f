"""The loops that runs live on and how a thread waits for them: the loop thread, or, opted in, the caller's loop.
Here is the only use of nest_asyncio2."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

WAIT_SLICE = 0.05  # seconds in which a waiting thread notices a signal that another thread received
WIND_UP_GRACE = 3.0  # seconds that a loop made for one call waits for what is left on it, twice at most
EXIT_GRACE = 1.0  # the same at the interpreter's exit

Mode = Literal["thread", "same-thread"]


class LoopError(RuntimeError):
    """A blocking call was made where it would wait for itself, or the loop it needs is gone."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}"


class Latch:
    """Set once, waited for by any number.

    It holds no lock, and so has none to leave locked: a KeyboardInterrupt can strike between any two steps of a
    main thread, and behind a `Condition` (an `Event`, a `Future`) it would block the loop thread for ever.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._callbacks: deque[Callable[[], object]] = deque()

    def set(self) -> None:
        self.is_set = True
        self._call()

    def add_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` when it is set, on whichever thread sees that first."""
        self._callbacks.append(callback)
        if self.is_set:
            self._call()

    def discard_callback(self, callback: Callable[[], object]) -> None:
        """Forget a callback whose waiter has gone away."""
        with suppress(ValueError):  # it has just been called
            self._callbacks.remove(callback)

    def _call(self) -> None:
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:  # the other thread has just taken the last one
                return
            callback()


class Host(ABC):
    """A loop that runs live on, and how a thread blocks until something there is done."""

    ahead: int
    """How many items a stream may be ahead of its consumer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.running: set[object] = set()
        """What must live until it has ended: a loop itself holds its tasks only weakly."""

    def post(self, callback: Callable[..., object], *args: object, context: contextvars.Context | None = None) -> bool:
        """Call `callback` on the loop, from any thread; False if the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(callback, *args, context=context)
        except RuntimeError:
            return False
        return True

    @abstractmethod
    def can_block_here(self) -> bool:
        """Tell whether this thread may wait for the loop."""

    @abstractmethod
    def wait(self, latch: Latch, timeout: float | None) -> bool:
        """Block until `latch` is set, at most `timeout` seconds; tell whether it is."""

    @abstractmethod
    def release(self) -> None:
        """Close what was opened for one blocking call."""


class LoopThread(Host):
    """A daemon thread that runs one asyncio loop until the interpreter exits. Get it from `loop_thread()`."""

    ahead = 64

    def __init__(self) -> None:
        super().__init__(asyncio.new_event_loop())
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="nbagents-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def can_block_here(self) -> bool:
        return threading.current_thread() is not self._thread

    def wait(self, latch: Latch, timeout: float | None) -> bool:
        if latch.is_set:
            return True
        if not self.can_block_here():
            raise LoopError(
                "A blocking call on the loop that its run needs would wait for itself for ever.",
                hint="Here, in a coroutine or callback of a run, `await` instead.",
            )
        arrived = threading.Lock()
        arrived.acquire()
        latch.add_callback(arrived.release)
        deadline = None if timeout is None else time.monotonic() + timeout
        while not latch.is_set:
            left = WAIT_SLICE if deadline is None else min(WAIT_SLICE, deadline - time.monotonic())
            if left <= 0:
                latch.discard_callback(arrived.release)
                return False
            if not arrived.acquire(timeout=left) and not self.is_alive() and not latch.is_set:
                raise LoopError(
                    "The thread that this run lived on is not there.",
                    hint="A forked process has none of its parent's runs: start them where they are used.",
                )
        return True

    def release(self) -> None:
        """The thread outlives the call."""

    def end(self) -> None:
        """Cancel what is left, close the loop and wait for the thread, within bounds."""
        self._ending = True
        if self.post(self.loop.stop):
            self._thread.join(3 * EXIT_GRACE)

    def _run(self) -> None:
        while not self._ending:
            # A run's SystemExit or KeyboardInterrupt is its outcome: its handle has it, the loop goes on.
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()
        # Whatever still fails now has nobody to tell, and an exiting interpreter's stderr is not the place.
        self.loop.set_exception_handler(lambda loop, context: None)
        _wind_up(self.loop, EXIT_GRACE)


class CallerLoop(Host):
    """Same-thread mode: the thread's running loop, re-entered while the caller waits, or a loop for the call."""

    ahead = 1

    def __init__(self) -> None:
        running = running_loop()
        if running is not None:
            _make_reentrant(running)
        super().__init__(running or asyncio.new_event_loop())
        self._owned = running is None
        self._thread_id = threading.get_ident()

    def can_block_here(self) -> bool:
        return self._thread_id == threading.get_ident() and (not self._owned or running_loop() is None)

    def wait(self, latch: Latch, timeout: float | None) -> bool:
        if latch.is_set:
            return True
        waiter = self.loop.create_future()  # no task: an interrupt would leave it behind
        latch.add_callback(lambda: self.post(resolve, waiter))
        if timeout is None:
            self.loop.run_until_complete(waiter)
            return True
        timer = self.loop.call_later(timeout, resolve, waiter)
        self.loop.run_until_complete(waiter)
        timer.cancel()
        return latch.is_set

    def release(self) -> None:
        if self._owned and not self.loop.is_closed() and self.can_block_here():
            _wind_up(self.loop, WIND_UP_GRACE)


def running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _make_reentrant(loop: asyncio.AbstractEventLoop) -> None:
    import nest_asyncio2

    try:
        nest_asyncio2.apply(loop, run_close_loop=True, error_on_mispatched=True)
    except ValueError as error:
        raise LoopError(
            f"Same-thread mode cannot re-enter a loop of type {type(loop).__name__}.",
            hint="Use asyncio's own loop, or set the loop mode back to 'thread'.",
        ) from error
    except RuntimeError as error:
        raise LoopError(
            "Same-thread mode does not work after nest_asyncio.apply(): queued cells would hang.",
            hint="Restart without nest_asyncio, or set the loop mode back to 'thread'.",
        ) from error


def _wind_up(loop: asyncio.AbstractEventLoop, grace: float) -> None:
    """Cancel the tasks of a loop that stands still, let them and its generators clean up, close it."""

    async def settle() -> None:
        tasks = asyncio.all_tasks(loop) - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        await asyncio.wait({loop.create_task(loop.shutdown_asyncgens())}, timeout=grace)

    try:
        with suppress(SystemExit, KeyboardInterrupt):
            loop.run_until_complete(settle())
    finally:
        loop.close()


_mode: Mode = "thread"
_thread: LoopThread | None = None
_lock = threading.Lock()
_exiting = False
_inherited: list[LoopThread] = []


def mode() -> Mode:
    """Tell where `run_sync` and `stream_sync` run: on the loop thread, or on the thread that calls them."""
    return _mode


def set_mode(mode: Mode) -> None:
    """Choose "thread" (the default) or "same-thread", for tools that must run on the thread of the caller.

    Same-thread mode makes a running loop re-entrant at its first use there. `start` keeps to the loop thread.
    """
    global _mode
    if mode not in ("thread", "same-thread"):
        raise LoopError(f"There is no loop mode {mode!r}.", hint="Use 'thread' or 'same-thread'.")
    _mode = mode


def loop_thread() -> LoopThread:
    """Return the process's loop thread: started on first use, and again in a forked child."""
    global _thread
    with _lock:
        if _exiting:
            raise LoopError("The interpreter is shutting down.", hint="Start runs before it does.")
        if _thread is None or not _thread.is_alive():
            _thread = LoopThread()
            _thread.start()
        return _thread


def blocking_host() -> Host:
    """Return where a blocking call runs; raises LoopError on the loop thread."""
    if _thread is not None and not _thread.can_block_here():
        raise LoopError(
            "A blocking call on the loop thread would wait for itself for ever.",
            hint="In a coroutine or callback of a run, `await` the inner run instead.",
        )
    return CallerLoop() if _mode == "same-thread" else loop_thread()


def _end_at_exit() -> None:
    global _exiting
    _exiting = True
    if _thread is not None and _thread.is_alive():
        _thread.end()


def _forget_after_fork() -> None:
    """A child has its parent's loop without the thread, and may not close it: they share the selector."""
    global _thread, _lock
    _lock = threading.Lock()
    if _thread is not None:
        _inherited.append(_thread)
        _thread = None


atexit.register(_end_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
