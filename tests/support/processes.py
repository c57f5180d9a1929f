"""Programs that the tests start: stopped by pid with their children, also when pytest gets SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

import psutil
import pytest

_running: dict[int, psutil.Process] = {}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def program(
    arguments: Sequence[str | Path],
    *,
    ready: Callable[[], bool],
    within: float = 60.0,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends. `ready` is polled; its output is shown when it fails to come up."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [str(a) for a in arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=None if env is None else dict(env),
        )
        _running[process.pid] = psutil.Process(process.pid)
        try:
            _await_ready(process, ready, within, log)
            yield process
        finally:
            stop(_running.pop(process.pid))
            process.wait()


def _await_ready(
    process: subprocess.Popen[bytes], ready: Callable[[], bool], within: float, log: IO[bytes]
) -> None:
    deadline = time.monotonic() + within
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            state = (
                f"ended with {process.returncode}"
                if process.poll() is not None
                else f"not ready in {within} s"
            )
            log.seek(0)
            output = log.read().decode(errors="replace")[-4000:]
            pytest.fail(f"{process.args!r}: {state}\n{output}", pytrace=False)
        time.sleep(0.05)


def accepts_connections(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def stop(process: psutil.Process, patience: float = 10.0) -> None:
    """End a process and everything that it started, politely first."""
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for send in (psutil.Process.terminate, psutil.Process.kill):
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                send(member)
        _, family = psutil.wait_procs(family, timeout=patience)


def stop_all_on_sigterm() -> None:
    """`timeout pytest` and CI end a run with SIGTERM; Python's default would leave the servers behind."""

    owner = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a forked child inherits the handler, not the servers
            os._exit(128 + number)
        for process in list(_running.values()):
            stop(process, patience=3.0)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)
