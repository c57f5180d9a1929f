"""What a test may not leave behind: threads, asyncio tasks, TCP connections, open files, child processes."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence

import psutil
import pytest


def _held(allow_threads: Sequence[str]) -> set[str]:
    """Name everything that this process holds now. A process-wide loop thread is allowed by its name."""
    process = psutil.Process()
    threads = {
        f"thread {thread.name} ({thread.ident})"
        for thread in threading.enumerate()
        if not thread.name.startswith(tuple(allow_threads))
    }
    tasks = {
        f"task {held.get_name()} {held.get_coro()!r}"
        for held in gc.get_objects()
        if issubclass(type(held), asyncio.Task) and not held.done() and held is not _current_task()
    }
    connections = {f"connection {c.laddr} {c.raddr} {c.status}" for c in process.net_connections("tcp")}
    files = {f"file {f.path}" for f in process.open_files()}
    children = {f"process {child.pid} {child.name()}" for child in process.children(recursive=True)}
    return threads | tasks | connections | files | children


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None  # no loop runs here


class assert_no_leaks:
    """Fail when the block leaves something that was not there before, after at most `within` seconds.

    Serves `with` and, in a coroutine, `async with`: there the loop goes on while it waits.
    """

    def __init__(self, allow_threads: Sequence[str] = ("nbagents",), within: float = 5.0) -> None:
        self._allow_threads = allow_threads
        self._within = within
        self._collecting = 0.0

    def __enter__(self) -> None:
        self._before = _held(self._allow_threads)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            deadline = time.monotonic() + self._within
            while self._leaves_something(deadline):
                time.sleep(0.05)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            deadline = time.monotonic() + self._within
            while self._leaves_something(deadline):
                await asyncio.sleep(0.05)

    def _leaves_something(self, deadline: float) -> bool:
        started = time.monotonic()
        gc.collect()
        self._collecting += time.monotonic() - started  # seconds, in a process that holds much
        left = _held(self._allow_threads) - self._before
        if left and time.monotonic() - self._collecting > deadline:
            pytest.fail("left behind:\n" + "\n".join(sorted(left)))
        return bool(left)


@pytest.fixture
async def no_leaks_in_loop() -> AsyncIterator[None]:
    async with assert_no_leaks():
        yield


@pytest.fixture
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing is left when the test returns; in an async test that is judged while its loop still runs."""
    if inspect.iscoroutinefunction(request.function):
        request.getfixturevalue("no_leaks_in_loop")
        yield
        return
    with assert_no_leaks():
        yield
