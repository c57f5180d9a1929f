"""The loop thread, blocking calls, run handles, sync streams, the heartbeat, and what they leave behind: nothing."""

from __future__ import annotations

import asyncio
import contextvars
import dis
import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import types
import weakref
from collections.abc import AsyncIterator, Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any, Self

import pytest
import uvloop

from nbagents import loop
from nbagents.loop import LoopError, RunHandle, heartbeat, run_sync, start, stream_sync

variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)


async def answer() -> str:
    await asyncio.sleep(0)
    return "ok"


async def count(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


class Probe:
    """A run that waits until it is cancelled and tells what happens to it."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.cleaned = threading.Event()

    async def wait(self) -> str:
        try:
            self.began.set()
            await asyncio.sleep(60)
            return "never"
        finally:
            await asyncio.sleep(0)
            self.cleaned.set()

    async def items(self) -> AsyncIterator[int]:
        try:
            yield 1
            self.began.set()
            await asyncio.sleep(60)
            yield 2
        finally:
            await asyncio.sleep(0)
            self.cleaned.set()


def main_thread_blocks() -> bool:
    """Tell whether the main thread waits inside the package."""
    frame: types.FrameType | None = sys._current_frames()[threading.main_thread().ident or 0]
    return frame is not None and "nbagents" in frame.f_code.co_filename and frame.f_code.co_name == "wait"


def interrupt_when(event: threading.Event, press: Callable[[], None] | None = None) -> threading.Thread:
    """Press Ctrl-C once `event` is set and the main thread waits."""

    def watch() -> None:
        event.wait(30)
        while not main_thread_blocks():
            time.sleep(0.001)
        (press or (lambda: os.kill(os.getpid(), signal.SIGINT)))()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def run_script(code: str, *flags: str, timeout: float = 60) -> str:
    """Run `code` in a fresh interpreter that may write nothing to stderr; return its stdout."""
    command = [sys.executable, "-X", "dev", *(flags or ("-W", "error")), "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


# --- run_sync -----------------------------------------------------------------------------------------------


async def test_run_sync_works_inside_a_running_loop_and_leaves_it_untouched() -> None:
    """C01"""
    outer = asyncio.get_running_loop()
    before = (type(outer), asyncio.run, asyncio.Task, type(outer).run_until_complete, type(outer)._run_once)
    variable.set(7)

    async def read() -> tuple[str, int]:
        return await answer(), variable.get()

    assert [run_sync(read) for _ in range(3)] == [("ok", 7)] * 3
    after = (type(outer), asyncio.run, asyncio.Task, type(outer).run_until_complete, type(outer)._run_once)
    assert before == after
    assert not hasattr(asyncio, "_nest_patched")
    assert await answer() == "ok"


def test_run_sync_imports_no_nest_asyncio() -> None:
    """C01"""
    assert "[]" in run_script(
        """
        import asyncio, sys
        from nbagents.loop import run_sync, stream_sync
        async def answer(): return "ok"
        async def items(): yield 1
        async def main(): return run_sync(answer), list(stream_sync(items))
        assert asyncio.run(main()) == ("ok", [1])
        print([name for name in sys.modules if "nest_asyncio" in name])
        """
    )


def test_a_run_cannot_change_the_callers_context() -> None:
    async def change() -> None:
        variable.set(99)

    run_sync(change)
    assert variable.get() == 0


def test_run_sync_works_under_uvloop() -> None:
    """C01"""

    async def main() -> str:
        return run_sync(answer) + await start(answer)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == "okok"


def test_scripts_asyncio_run_and_threads_share_one_loop_in_any_order() -> None:
    """C02: what is pooled on the loop stays usable, since every blocking call meets the same loop."""
    loops: list[object] = []

    async def note() -> str:
        loops.append(asyncio.get_running_loop())
        return await answer()

    async def mixed() -> list[str]:
        return [run_sync(note), await start(note), await asyncio.to_thread(run_sync, note)]

    with ThreadPoolExecutor(1) as pool:
        steps: list[Callable[[], object]] = [
            lambda: run_sync(note),
            lambda: asyncio.run(mixed()),
            lambda: pool.submit(run_sync, note).result(),
            lambda: start(note).result(),
            lambda: asyncio.run(note()),
        ]
        order = random.Random(2)
        for _ in range(10):
            order.shuffle(steps)
            for step in steps:
                assert step() in ("ok", ["ok"] * 3)
    assert loops.count(loop.loop_thread().loop) == 60
    assert len(loops) == 70


@pytest.mark.parametrize(
    "error", [ValueError("x"), SystemExit(3), KeyboardInterrupt("from the run"), StopAsyncIteration()]
)
def test_what_a_run_raises_reaches_the_caller_and_the_loop_goes_on(error: BaseException) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(type(error)) as caught:
        run_sync(fail)
    assert caught.value is error
    assert run_sync(answer) == "ok"


def test_an_error_of_the_factory_itself_reaches_the_caller() -> None:
    def no_coroutine() -> AsyncIterator[int]:
        raise LookupError("no such agent")

    with pytest.raises(LookupError, match="no such agent"):
        run_sync(no_coroutine)  # type: ignore[arg-type]
    with pytest.raises(LookupError, match="no such agent"):
        next(stream_sync(no_coroutine))  # type: ignore[arg-type]


def test_a_cancellation_from_inside_is_the_callers_own_error() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(CancelledError):
        run_sync(cancelled)
    with pytest.raises(LookupError):
        run_sync(cancelled, on_cancelled=LookupError)


def test_blocking_on_the_loop_thread_says_to_await() -> None:
    async def nested(call: Callable[[], object]) -> None:
        call()

    other = start(answer)
    pending = Probe()
    handle = start(pending.wait)
    for call in (
        lambda: run_sync(answer),
        lambda: next(stream_sync(lambda: count(1))),
        handle.result,
        handle.exception,
    ):
        with pytest.raises(LoopError, match="await"):
            run_sync(lambda call=call: nested(call))  # type: ignore[misc]
    assert other.result() == "ok"

    async def inside() -> tuple[str, str]:
        return other.result(), await start(answer)  # a finished handle, and awaiting, are fine there

    assert run_sync(inside) == ("ok", "ok")
    handle.stop()
    assert handle.wait(5)


# --- Interrupts ---------------------------------------------------------------------------------------------


def check_interrupted_run() -> None:
    probe = Probe()
    presser = interrupt_when(probe.began)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as caught:
        run_sync(probe.wait)
    presser.join()
    assert time.monotonic() - begun < 5
    assert probe.cleaned.is_set()
    assert caught.value.__context__ is None
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 2
    assert run_sync(answer) == "ok"


def test_an_interrupt_cancels_the_run_waits_for_its_clean_up_and_raises() -> None:
    """C10"""
    handler = signal.getsignal(signal.SIGINT)
    check_interrupted_run()
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_an_interrupt_lands_also_where_the_blocked_loop_has_taken_the_signal(
    factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """C10: `asyncio.run`, like a kernel's awaited cell, has a handler that its blocked loop cannot serve."""

    async def main() -> object:
        taken = signal.getsignal(signal.SIGINT)
        check_interrupted_run()
        check_interrupted_stream()
        return taken is signal.getsignal(signal.SIGINT) is not signal.default_int_handler

    with asyncio.Runner(loop_factory=factory) as runner:
        assert runner.run(main())


def test_a_signal_that_another_thread_receives_still_interrupts() -> None:
    """C10"""
    probe = Probe()
    presser = interrupt_when(probe.began, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        run_sync(probe.wait)
    presser.join()
    assert probe.cleaned.is_set()


def test_clean_up_that_does_not_end_holds_an_interrupt_back_for_the_grace_only() -> None:
    began, finish = threading.Event(), threading.Event()

    async def stubborn() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            while not finish.is_set():
                await asyncio.sleep(0.01)

    presser = interrupt_when(began)
    with pytest.raises(KeyboardInterrupt):
        run_sync(stubborn, grace=0.1)
    presser.join()
    finish.set()
    assert run_sync(answer) == "ok"


def check_interrupted_stream() -> None:
    probe = Probe()
    stream = stream_sync(probe.items)
    presser = interrupt_when(probe.began)
    with pytest.raises(KeyboardInterrupt):
        for _ in stream:
            pass
    presser.join()
    assert probe.cleaned.is_set()
    assert list(stream) == []


def test_an_interrupt_closes_a_stream_and_waits_for_its_clean_up() -> None:
    check_interrupted_stream()


def test_an_interrupted_wait_for_a_result_leaves_the_run_going() -> None:
    probe = Probe()
    handle = start(probe.wait)
    presser = interrupt_when(probe.began)
    with pytest.raises(KeyboardInterrupt):
        handle.result()
    presser.join()
    assert not handle.done()
    handle.stop()
    assert isinstance(handle.exception(5), CancelledError)


class Strike:
    """Raises KeyboardInterrupt at the n-th moment at which the interpreter lets a signal through: after a call, at
    the start of a function, at a loop's turn; in our code, or in what it uses of threading, futures and contextlib."""

    def __init__(self, n: int) -> None:
        self.left = n
        self._at: dict[types.FrameType, tuple[int, int]] = {}

    def __enter__(self) -> Self:
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.settrace(self._before)
        self._at.clear()

    def _call(self, frame: types.FrameType, event: str, argument: object) -> Any:
        ours = ("nbagents/loop/", "/threading.py", "/concurrent/futures/", "/contextlib.py")
        if frame.f_code.co_name == "__del__" or not any(name in frame.f_code.co_filename for name in ours):
            return None
        frame.f_trace_opcodes = True
        return self._step

    def _step(self, frame: types.FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            line, last = self._at.get(frame, (0, -1))
            self._at[frame] = (frame.f_lineno, frame.f_lasti)
            done = dis.opname[frame.f_code.co_code[last]] if last >= 0 else ""
            if line == frame.f_lineno and (done.startswith("CALL") or done in ("RESUME", "JUMP_BACKWARD")):
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt
        return self._step


@pytest.mark.parametrize("looping", [False, True])
@pytest.mark.parametrize("kind", ["run_sync", "stream_sync", "result"])
def test_an_interrupt_at_any_moment_leaves_no_lock_held_and_no_run_behind(kind: str, looping: bool) -> None:
    """C10: also between two steps of a lock, which in a `Condition` blocks the loop thread for good."""
    opened: list[int] = []
    closed: list[int] = []

    async def tick() -> int:
        opened.append(1)
        try:
            await asyncio.sleep(0.001)
            return 1
        finally:
            closed.append(1)

    async def ticks() -> AsyncIterator[int]:
        for _ in range(65):
            yield 1
        yield await tick()

    calls: dict[str, Callable[[], object]] = {
        "run_sync": lambda: run_sync(tick),
        "stream_sync": lambda: list(stream_sync(ticks)),
        "result": lambda: start(tick).result(),
    }

    def strike(n: int) -> bool:
        handler = signal.getsignal(signal.SIGINT)
        try:
            with Strike(n) as struck:
                calls[kind]()
        except KeyboardInterrupt:
            pass
        assert signal.getsignal(signal.SIGINT) is handler
        assert start(tick).wait(10), f"the loop thread is blocked by an interrupt at moment {n}"
        return struck.left <= 0

    async def looped(n: int) -> bool:
        return strike(n)

    n = 1
    while asyncio.run(looped(n)) if looping else strike(n):
        n += 1
    assert n > 15
    gc.collect()
    deadline = time.monotonic() + 10
    while loop.loop_thread().running and time.monotonic() < deadline:
        run_sync(answer)
    assert not loop.loop_thread().running
    assert len(opened) == len(closed)


# --- Handles ------------------------------------------------------------------------------------------------


def test_start_returns_at_once_with_a_handle_to_the_result() -> None:
    gate = threading.Event()

    async def gated() -> int:
        while not gate.is_set():
            await asyncio.sleep(0.005)
        return variable.get()

    token = variable.set(3)
    handle = start(gated)
    variable.reset(token)
    assert not handle.done()
    with pytest.raises(TimeoutError, match="stop"):
        handle.result(timeout=0.01)
    with pytest.raises(TimeoutError):
        handle.exception(timeout=0)
    gate.set()
    assert handle.result(timeout=5) == 3
    assert handle.done()
    assert not handle.cancelled()
    assert handle.exception() is None


def test_stop_lets_the_run_clean_up_and_results_in_the_error_of_choice() -> None:
    class Stopped(Exception):
        pass

    probe = Probe()
    handle = start(probe.wait, on_cancelled=lambda: Stopped("by you"))
    assert probe.began.wait(5)
    handle.stop()
    with pytest.raises(Stopped, match="by you"):
        handle.result(timeout=5)
    assert probe.cleaned.is_set()
    assert handle.cancelled()
    assert isinstance(handle.exception(), Stopped)


def test_a_second_stop_does_not_cut_the_clean_up_short() -> None:
    began, cleaning, finish = threading.Event(), threading.Event(), threading.Event()
    stored: list[str] = []

    async def run() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaning.set()
            while not finish.is_set():
                await asyncio.sleep(0.001)
            stored.append("the partial turn")

    handle = start(run)
    assert began.wait(5)
    handle.stop()
    assert cleaning.wait(5)
    for _ in range(3):
        handle.stop()
    run_sync(answer)  # the loop has seen them all
    finish.set()
    assert handle.wait(5)
    assert stored == ["the partial turn"]


def test_stop_before_the_run_has_begun_never_begins_it() -> None:
    release, called = threading.Event(), threading.Event()

    async def block() -> None:
        release.wait(5)  # holds the loop, so that nothing else can begin

    async def run() -> None:
        called.set()

    blocker = start(block)
    handle = start(run)
    handle.stop()
    release.set()
    assert isinstance(handle.exception(5), CancelledError)
    assert handle.cancelled()
    assert not called.is_set()
    assert blocker.wait(5)


def test_stop_after_the_end_changes_nothing() -> None:
    handle = start(answer)
    assert handle.result(5) == "ok"
    handle.stop()
    assert run_sync(answer) == "ok"
    assert handle.result() == "ok"
    assert not handle.cancelled()


def test_a_run_that_nobody_holds_runs_to_its_end() -> None:
    waiting, ended = threading.Event(), threading.Event()
    weak: list[weakref.ref[asyncio.Future[None]]] = []

    async def run() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        weak.append(weakref.ref(future))
        waiting.set()
        await future
        ended.set()

    async def resolve() -> None:
        future = weak[0]()
        assert future is not None
        future.set_result(None)

    start(run)
    assert waiting.wait(5)
    gc.collect()
    run_sync(resolve)
    assert ended.wait(5)


def test_awaiting_a_handle_works_on_any_loop_and_cancelling_that_leaves_the_run() -> None:
    probe = Probe()
    handle = start(probe.wait)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle, 0.01)

    asyncio.run(give_up())  # that loop is closed when the run ends
    assert not handle.done()

    async def stop_and_see() -> None:
        waiters = [asyncio.ensure_future(handle) for _ in range(3)]
        handle.stop()
        errors = await asyncio.gather(*waiters, return_exceptions=True)
        assert [type(error) for error in errors] == [CancelledError] * 3

    asyncio.run(stop_and_see())
    assert probe.cleaned.is_set()


async def test_a_failed_run_raises_in_its_waiter() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    handle = start(fail)
    with pytest.raises(ZeroDivisionError):
        await handle
    with pytest.raises(ZeroDivisionError):
        handle.result()


def test_done_callbacks_come_on_the_loop_thread_in_the_context_of_who_added_them() -> None:
    seen: list[tuple[object, str, int]] = []
    called = threading.Event()

    def callback(handle: RunHandle[str]) -> None:
        seen.append((handle.result(), threading.current_thread().name, variable.get()))
        called.set()

    handle = start(answer)
    token = variable.set(5)
    handle.add_done_callback(callback)
    variable.reset(token)
    assert called.wait(5)
    called.clear()
    handle.add_done_callback(callback)  # also on a run that has ended
    assert called.wait(5)
    assert seen == [("ok", "nbagents-loop", 5), ("ok", "nbagents-loop", 0)]


# --- Streams ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 5000])
def test_a_stream_gives_every_item_in_order(n: int) -> None:
    with stream_sync(lambda: count(n)) as stream:
        assert list(stream) == list(range(n))
        assert next(stream, "end") == "end"


async def test_a_stream_iterates_inside_a_running_loop_in_the_callers_context() -> None:
    variable.set(4)

    async def read() -> AsyncIterator[int]:
        yield variable.get()

    stream = stream_sync(read)
    variable.set(5)
    assert list(stream) == [4]


def test_an_item_does_not_wait_for_the_next_one() -> None:
    taken = threading.Event()

    async def source() -> AsyncIterator[int]:
        for i in range(3):
            yield i
            while not taken.is_set():
                await asyncio.sleep(0.001)
            taken.clear()

    for _ in stream_sync(source):
        taken.set()


def test_a_slow_consumer_holds_its_producer_back() -> None:
    made: list[int] = []

    async def source() -> AsyncIterator[int]:
        for i in range(1000):
            made.append(i)
            yield i

    stream = stream_sync(source)
    for taken in range(1, 301):
        next(stream)
        run_sync(answer)  # by now the loop has done all it can
        assert len(made) <= taken + 65
    assert list(stream) == list(range(300, 1000))


def test_an_error_comes_after_the_items_before_it_and_once() -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        yield 2
        raise ZeroDivisionError

    stream = stream_sync(source)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(ZeroDivisionError):
        next(stream)
    assert list(stream) == []


@pytest.mark.parametrize("waiting", [True, False])
def test_close_ends_the_source_on_its_loop(waiting: bool) -> None:
    threads: list[str] = []

    async def source() -> AsyncIterator[int]:
        try:
            for i in range(100):
                yield i
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            threads.append(threading.current_thread().name)

    stream = stream_sync(source)
    for _ in range(100 if waiting else 1):
        next(stream)
    stream.close()
    assert threads == ["nbagents-loop"]
    assert list(stream) == []
    stream.close()


def test_a_stream_that_is_broken_off_and_dropped_closes_its_source() -> None:
    probe = Probe()
    for _ in stream_sync(probe.items):
        break
    assert probe.cleaned.wait(5)


def test_a_stream_that_is_held_closes_its_source_when_the_last_loop_over_it_is_left() -> None:
    probe = Probe()
    stream = stream_sync(probe.items)
    outer = iter(stream)
    next(outer)
    iter(stream)  # a second reader comes and goes
    assert not probe.cleaned.is_set()
    del outer
    assert probe.cleaned.wait(5)
    stream.wait()
    assert list(stream) == []


def test_a_stream_never_iterated_opens_nothing() -> None:
    opened = threading.Event()

    async def source() -> AsyncIterator[int]:
        opened.set()
        yield 1

    stream = stream_sync(source)
    stream.close()
    assert list(stream) == []
    run_sync(answer)
    assert not opened.is_set()


def test_another_thread_closes_a_stream_that_is_being_waited_for() -> None:
    probe = Probe()
    stream = stream_sync(probe.items)
    with ThreadPoolExecutor(1) as pool:
        items = pool.submit(list, stream)
        assert probe.began.wait(5)
        stream.close()
        assert items.result(5) == [1]
    assert probe.cleaned.is_set()


def test_a_source_that_swallows_its_cancellation_is_closed_at_its_next_item() -> None:
    began, cleaned = threading.Event(), threading.Event()

    async def source() -> AsyncIterator[int]:
        try:
            while True:
                began.set()
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    yield 1
        finally:
            cleaned.set()

    stream = stream_sync(source)
    with ThreadPoolExecutor(1) as pool:
        items = pool.submit(list, stream)
        assert began.wait(5)
        stream.close()
        assert cleaned.is_set()
        assert items.result(5) == []


# --- Many at once -------------------------------------------------------------------------------------------


def test_many_threads_at_once_get_each_their_own(no_leaks: None) -> None:
    """Random calls from many threads: every result is the right one and every run that began has cleaned up."""
    lock = threading.Lock()
    opened = closed = 0

    async def work(i: int) -> int:
        nonlocal opened, closed
        with lock:
            opened += 1
        try:
            for _ in range(i % 4):
                await asyncio.sleep(0)
            if i % 5 == 4:
                await asyncio.sleep(0.001)
            if i % 7 == 6:
                raise LookupError(i)
            return i
        finally:
            with lock:
                closed += 1

    async def items(n: int) -> AsyncIterator[int]:
        nonlocal opened, closed
        with lock:
            opened += 1
        try:
            for i in range(n):
                if i % 50 == 49:
                    await asyncio.sleep(0)
                yield i
        finally:
            with lock:
                closed += 1

    def outcome(call: Callable[[], int]) -> object:
        try:
            return call()
        except LookupError as error:
            return error.args
        except CancelledError:
            return "stopped"

    def user(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(60):
            i = rng.randrange(1000)
            expected: object = (i,) if i % 7 == 6 else i
            kind = rng.randrange(5)
            if kind == 0:
                assert outcome(lambda i=i: run_sync(lambda: work(i))) == expected
            elif kind == 1:
                n = rng.randrange(300)
                assert list(stream_sync(lambda n=n: items(n))) == list(range(n))
            elif kind == 2:
                with stream_sync(lambda: items(300)) as stream:
                    taken = rng.randrange(1, 300)
                    assert [next(stream) for _ in range(taken)] == list(range(taken))
            elif kind == 3:
                handle = start(lambda i=i: work(i))
                for _ in range(rng.randrange(3)):
                    handle.stop()
                assert outcome(handle.result) in (expected, "stopped")
                assert handle.cancelled() == (outcome(handle.result) == "stopped")
            else:
                handles = [start(lambda i=i: work(i)) for _ in range(3)]

                async def gather(handles: list[RunHandle[int]] = handles) -> list[object]:
                    return await asyncio.gather(*handles, return_exceptions=True)

                got = asyncio.run(gather())
                assert [e.args if isinstance(e, LookupError) else e for e in got] == [expected] * 3

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(user, seed) for seed in range(8)]:
            done.result(60)
    assert opened == closed > 0
    assert not loop.loop_thread().running


# --- The heartbeat ------------------------------------------------------------------------------------------


class CountingLoop(asyncio.SelectorEventLoop):
    wakes = 0

    def _run_once(self) -> None:
        self.wakes += 1
        super()._run_once()  # type: ignore[misc]


@pytest.fixture
def in_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for an initialised ipykernel; the real one is in tests/kernel."""
    kernelbase = types.ModuleType("ipykernel.kernelbase")
    kernelbase.Kernel = types.SimpleNamespace(initialized=lambda: True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ipykernel.kernelbase", kernelbase)


def wakes_during_a_wait() -> int:
    async def main(running: CountingLoop) -> int:
        with heartbeat():
            before = running.wakes
            await asyncio.sleep(0.55)
            return running.wakes - before

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        running = runner.get_loop()
        assert isinstance(running, CountingLoop)
        return runner.run(main(running))


def test_a_kernels_loop_is_woken_while_a_run_is_awaited(in_a_kernel: None) -> None:
    """C10"""
    assert wakes_during_a_wait() > 3


def test_outside_a_kernel_no_loop_is_woken() -> None:
    assert wakes_during_a_wait() <= 2


async def test_one_heartbeat_serves_a_loop_until_its_last_holder_lets_go(in_a_kernel: None) -> None:
    running = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    real = running.call_later

    def noted(*arguments: Any, **options: Any) -> asyncio.TimerHandle:
        timers.append(real(*arguments, **options))
        return timers[-1]

    running.call_later = noted  # type: ignore[method-assign]
    held = [heartbeat() for _ in range(3)]
    for each in held:
        each.acquire()
    assert len(set(held)) == 1
    assert len(timers) == 1

    async def release_elsewhere() -> None:
        held[1].release()

    await asyncio.create_task(release_elsewhere())
    held[0].release()
    assert not timers[0].cancelled()
    held[2].release()
    assert timers[0].cancelled()
    with heartbeat():
        assert len(timers) == 2
    assert timers[1].cancelled()


def test_a_closed_loop_and_its_heartbeat_are_forgotten(in_a_kernel: None) -> None:
    async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
        with heartbeat():
            await answer()
        return weakref.ref(asyncio.get_running_loop())

    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            reference = runner.run(main())
        del runner
        gc.collect()
        assert reference() is None


def test_waits_that_were_given_up_leave_nothing_with_the_run() -> None:
    probe = Probe()
    handle = start(probe.wait)

    async def poll() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle, 0.001)

    def referrers() -> int:
        gc.collect()
        return len(gc.get_referents(*gc.get_referents(handle._ended)))

    handle.wait(0.001)
    before = referrers()
    for _ in range(20):
        handle.wait(0.001)
        asyncio.run(poll())
    assert referrers() == before
    handle.stop()
    assert handle.wait(5)


def test_other_threads_loops_get_no_heartbeat(in_a_kernel: None) -> None:
    async def held() -> bool:
        return heartbeat() is heartbeat()

    assert run_sync(held)


# --- What is left behind ------------------------------------------------------------------------------------


def test_an_exiting_interpreter_stops_everything_and_says_nothing() -> None:
    """C05"""
    begun = time.monotonic()
    out = run_script(
        """
        import asyncio, gc, sys, threading
        from nbagents.loop import loop_thread, run_sync, start, stream_sync
        sys.unraisablehook = lambda problem: print("unraisable", problem)
        async def answer(): return "ok"
        async def fail(): raise ValueError
        async def forever(name):
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(0)
                print("cleaned", name)
        async def stubborn():
            while True:
                try:
                    await asyncio.sleep(100)
                except asyncio.CancelledError:
                    pass
        async def items():
            try:
                while True:
                    yield 1
            finally:
                print("closed")
        async def background():
            asyncio.get_running_loop().held = asyncio.create_task(forever("task"))
            asyncio.get_running_loop().failed = asyncio.create_task(fail())
        async def pooled():                       # how a client is kept for a loop: closed by the loop's shutdown
            try:
                yield "client"
            finally:
                print("pool closed")
        async def broken():
            try:
                yield "client"
            finally:
                raise OSError
        async def hold():
            asyncio.get_running_loop().pools = pools = pooled(), broken()
            for pool in pools:
                await anext(pool)
        for _ in range(30):
            asyncio.run(answer())
            run_sync(answer)
            start(fail)
        gc.collect()
        run_sync(hold)
        run_sync(background)
        started = start(lambda: forever("run"))
        start(stubborn)
        stream = stream_sync(items)
        next(stream)
        print("end")
        """
    )
    lines = out.splitlines()
    assert lines[0] == "end"
    assert sorted(lines[1:]) == ["cleaned run", "cleaned task", "closed", "pool closed"]
    assert time.monotonic() - begun < 30


def test_exit_does_not_wait_for_a_loop_that_code_blocks() -> None:
    begun = time.monotonic()
    run_script(
        """
        import threading, time
        from nbagents.loop import start
        began = threading.Event()
        async def block():
            began.set()
            time.sleep(60)
        start(block)
        began.wait()
        """,
        "-W",
        "default",
    )
    assert time.monotonic() - begun < 30


def test_no_run_starts_while_the_interpreter_shuts_down() -> None:
    out = run_script(
        """
        import atexit
        @atexit.register
        def late():
            try:
                run_sync(answer)
            except LoopError as error:
                print(error)
        from nbagents.loop import LoopError, run_sync
        async def answer(): return "ok"
        run_sync(answer)
        """
    )
    assert "shutting down" in out


def test_a_forked_child_has_a_loop_of_its_own_and_the_parents_goes_on() -> None:
    out = run_script(
        """
        import asyncio, gc, os, sys
        from nbagents.loop import LoopError, run_sync, start, stream_sync
        async def answer(): return "ok"
        async def wait(): await asyncio.sleep(100)
        async def items(): yield 1
        handle = start(wait)
        run_sync(answer)
        pid = os.fork()
        if pid == 0:
            try:
                handle.result(5)
            except LoopError as error:
                assert "fork" in str(error), error
            del handle
            assert run_sync(answer) == "ok" and list(stream_sync(items)) == [1]
            gc.collect()
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert run_sync(answer) == "ok" and not handle.done()
        handle.stop()
        assert handle.wait(5)
        print("both")
        """,
        "-W",
        "error::ResourceWarning",
    )
    assert out == "both\n"


def test_a_fork_while_another_thread_starts_the_loop_leaves_the_child_able_to() -> None:
    out = run_script(
        """
        import os, signal, threading
        from nbagents.loop import LoopThread, loop_thread, run_sync
        async def answer(): return "ok"
        entered, go, real = threading.Event(), threading.Event(), LoopThread.start
        def slow(self):
            entered.set()
            go.wait()
            real(self)
        LoopThread.start = slow
        starter = threading.Thread(target=loop_thread)
        starter.start()
        entered.wait()
        pid = os.fork()
        if pid == 0:
            LoopThread.start = real
            signal.alarm(20)
            os._exit(7 if run_sync(answer) == "ok" else 1)
        go.set()
        starter.join()
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), run_sync(answer))
        """,
        "-W",
        "error::ResourceWarning",
    )
    assert out == "7 ok\n"


# --- nest_asyncio applied by the user -----------------------------------------------------------------------


@pytest.mark.parametrize("applied", ["before", "after"])
def test_runs_are_cancelled_and_go_on_where_nest_asyncio_is_applied(applied: str) -> None:
    """C07"""
    out = run_script(
        """
        import asyncio, sys, threading, time
        import nest_asyncio
        from nbagents.loop import run_sync, start, stream_sync
        async def answer(): return "ok"
        async def items(): yield 1
        if sys.argv[-1] == "after":
            assert run_sync(answer) == "ok"
        nest_asyncio.apply()
        flag, began = threading.Event(), threading.Event()
        async def tool():
            try:
                began.set()
                await asyncio.sleep(30)
            finally:
                flag.set()
        handle = start(tool)
        assert began.wait(5)
        time.sleep(0.2)
        handle.stop()
        assert flag.wait(1)
        async def cell():
            waiter = asyncio.ensure_future(asyncio.wait_for(start(answer), 5))
            asyncio.get_event_loop().run_until_complete(answer())
            return run_sync(answer), await waiter, list(stream_sync(items))
        assert asyncio.run(cell()) == ("ok", "ok", [1])
        assert run_sync(answer) == "ok"
        asyncio.get_event_loop().close()           # nest_asyncio's own asyncio.run leaves it open
        print("done")
        """.replace("sys.argv[-1]", repr(applied)),
        "-W",
        "error::ResourceWarning",
    )
    assert out == "done\n"


# --- Same-thread mode ---------------------------------------------------------------------------------------

SAME_THREAD = """
import asyncio, contextvars, logging, os, signal, sys, threading, time
from nbagents.loop import LoopError, mode, run_sync, set_mode, start, stream_sync
logging.getLogger("asyncio").setLevel("ERROR")    # asyncio's debug mode reports slow steps as warnings
set_mode("same-thread")
variable = contextvars.ContextVar("variable", default=0)
async def where():
    await asyncio.sleep(0)
    return threading.current_thread() is threading.main_thread(), asyncio.get_running_loop(), variable.get()
made = []
async def items():
    try:
        for i in range(3):
            assert threading.current_thread() is threading.main_thread()
            made.append(i)
            yield i
            await asyncio.sleep(0)
    finally:
        await asyncio.sleep(0)
        made.append("closed")
async def fail():
    raise ValueError("x")
def others():
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
"""


def run_same_thread(code: str) -> str:
    return run_script(SAME_THREAD + textwrap.dedent(code), "-W", "error::ResourceWarning")


def test_same_thread_mode_runs_on_the_callers_thread_and_running_loop() -> None:
    run_same_thread(
        """
        async def main():
            variable.set(7)
            here = asyncio.get_running_loop()
            assert [run_sync(where) for _ in range(3)] == [(True, here, 7)] * 3
            assert list(stream_sync(items)) == [0, 1, 2]
            for _ in stream_sync(items):
                break
            await asyncio.sleep(0.01)
            assert made == [0, 1, 2, "closed", 0, "closed"], made
            with stream_sync(items) as stream:
                next(stream)
                assert made[6:] == [0]                      # nothing ahead of its consumer
            assert made[6:] == [0, "closed"]
            try:
                run_sync(fail)
            except ValueError:
                pass
            async def nested():
                return run_sync(where)[0]
            assert run_sync(nested)
            assert await start(where) != (True, here, 7)     # what outlives the call is on the loop thread
            assert others() == []
            set_mode("thread")
            assert run_sync(where)[0] is False
            set_mode("same-thread")
        asyncio.run(main())
        asyncio.get_event_loop().close()
        """
    )


def test_same_thread_mode_without_a_running_loop_leaves_nothing_open() -> None:
    run_same_thread(
        """
        loops = set()
        for _ in range(3):
            main_thread, loop, _ = run_sync(where)
            assert main_thread and loop.is_closed()
        assert list(stream_sync(items)) == [0, 1, 2]
        for _ in stream_sync(items):
            break
        assert made == [0, 1, 2, "closed", 0, "closed"], made
        try:
            run_sync(fail)
        except ValueError:
            pass
        assert "nest_asyncio2" not in sys.modules
        """
    )


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("blocking", [True, False])
def test_an_interrupt_in_same_thread_mode_leaves_nothing_behind(inside: bool, blocking: bool) -> None:
    """C07, C10: also where it lands in a tool that computes."""
    run_same_thread(
        f"""
        inside, blocking = {inside}, {blocking}
        flags = []
        async def tool():
            timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            try:
                if blocking:
                    time.sleep(20)
                else:
                    await asyncio.gather(asyncio.sleep(20), asyncio.sleep(20))
                flags.append("never")
            finally:
                await asyncio.sleep(0)
                flags.append("cleaned")
        async def source():
            yield 1
            await tool()
        def interrupted():
            begun = time.monotonic()
            try:
                run_sync(tool)
            except KeyboardInterrupt:
                flags.append("interrupt")
            stream = stream_sync(source)
            try:
                list(stream)
            except KeyboardInterrupt:
                flags.append("interrupt")
            assert time.monotonic() - begun < 10
            assert flags == ["cleaned", "interrupt"] * 2, flags
            assert run_sync(where)[0]
        async def main():
            interrupted()
            await asyncio.sleep(0)
            assert others() == [], others()
        asyncio.run(main()) if inside else interrupted()
        if inside:
            asyncio.get_event_loop().close()
        """
    )


def test_same_thread_mode_says_what_it_cannot_do() -> None:
    run_same_thread(
        """
        import uvloop
        async def nested():
            try:
                run_sync(where)
            except LoopError as error:
                return str(error)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            assert "uvloop" in repr(type(runner.get_loop())) and "asyncio's own loop" in runner.run(nested())
        assert "await" in start(nested).result()
        try:
            set_mode("nested")
        except LoopError as error:
            assert "same-thread" in str(error) and mode() == "same-thread"
        """
    )


def test_same_thread_mode_refuses_the_old_nest_asyncio() -> None:
    run_same_thread(
        """
        import nest_asyncio
        nest_asyncio.apply()
        async def nested():
            try:
                run_sync(where)
            except LoopError as error:
                return str(error)
        assert "nest_asyncio" in asyncio.run(nested())
        asyncio.get_event_loop().close()
        """
    )
