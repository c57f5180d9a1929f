"""The leak check finds what a block leaves, and lets what ends in time pass."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.leaks import assert_no_leaks


@contextlib.contextmanager
def thread(name: str) -> Iterator[None]:
    release = threading.Event()
    left = threading.Thread(target=release.wait, name=name)
    left.start()
    yield
    release.set()
    left.join()


@contextlib.contextmanager
def process() -> Iterator[None]:
    left = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield
    left.communicate(b"\n")


@contextlib.contextmanager
def connection() -> Iterator[None]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        yield


@pytest.mark.parametrize(
    ("leave", "named"),
    [
        (lambda path: thread("forgotten"), "thread forgotten"),
        (lambda path: path.open("w"), "file .*left.txt"),
        (lambda path: connection(), "connection .*127.0.0.1"),
        (lambda path: process(), "process "),
    ],
)
def test_what_is_left_is_named(leave: Callable[[Path], Any], named: str, tmp_path: Path) -> None:
    with (
        contextlib.ExitStack() as later,
        pytest.raises(pytest.fail.Exception, match=named),
        assert_no_leaks(within=0.1),
    ):
        later.enter_context(leave(tmp_path / "left.txt"))


async def test_a_task_that_goes_on_is_named() -> None:
    with pytest.raises(pytest.fail.Exception, match="task forgotten"):
        async with assert_no_leaks(within=0.1):
            task = asyncio.create_task(asyncio.sleep(60), name="forgotten")
    task.cancel()


async def test_what_ends_in_time_passes(no_leaks: None) -> None:
    asyncio.get_running_loop().call_later(0.05, asyncio.create_task(asyncio.sleep(60)).cancel)


def test_the_loop_thread_of_the_package_may_stay(no_leaks: None) -> None:
    with thread("nbagents-loop"), assert_no_leaks():
        pass
    with thread("nbagents-loop"):
        pass
