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

import psutil
import pytest

_running: list[Program] = []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def cache() -> Path:
    """Return where what is slow to make is kept between runs: environments, matplotlib's fonts."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nbagents-tests"
    path = Path(os.environ.get("NBAGENTS_TEST_CACHE") or default)
    path.mkdir(parents=True, exist_ok=True)
    return path


def isolated_environment(home: Path) -> dict[str, str]:
    """Return an environment that sees none of the user's IPython, Jupyter and matplotlib settings."""
    own = ("XDG_", "JUPYTER", "IPYTHON", "MPL", "PYTHONSTARTUP")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {
        **kept,
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "MPLCONFIGDIR": str(cache() / "matplotlib"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


class Program:
    """A running process and what it printed."""

    def __init__(self, arguments: Sequence[str | Path], cwd: Path | None, env: Mapping[str, str] | None) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  closed in stop()
        self.name = Path(arguments[0]).name
        self._popen = subprocess.Popen(
            [str(argument) for argument in arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=None if env is None else dict(env),
            start_new_session=True,  # a Ctrl-C in the terminal is for pytest, which then stops it in order
        )
        self.pid = self._popen.pid
        self._process = psutil.Process(self.pid)

    @property
    def ended(self) -> bool:
        return self._popen.poll() is not None

    def output(self) -> str:
        """Return the end of what it printed, without moving the offset that it writes at."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), 4000, max(0, size - 4000)).decode(errors="replace")

    def stop(self, patience: float = 10.0) -> None:
        """End it and everything that it started, politely first."""
        with contextlib.suppress(psutil.NoSuchProcess):
            family = [self._process, *self._process.children(recursive=True)]
            for send in (psutil.Process.terminate, psutil.Process.kill):
                for member in family:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        send(member)
                _, family = psutil.wait_procs(family, timeout=patience)
        self._popen.wait()
        self._log.close()


@contextlib.contextmanager
def program(
    arguments: Sequence[str | Path],
    *,
    ready: Callable[[], bool] = lambda: True,
    within: float = 60.0,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Program]:
    """Run a program until the block ends; `ready` is polled before the block starts."""
    running = Program(arguments, cwd, env)
    _running.append(running)
    try:
        deadline = time.monotonic() + within
        while not ready():
            if running.ended or time.monotonic() > deadline:
                state = "ended" if running.ended else f"is not ready after {within} s"
                pytest.fail(f"{running.name} {state}:\n{running.output()}", pytrace=False)
            time.sleep(0.05)
        yield running
    finally:
        _running.remove(running)
        running.stop()


def recent_output() -> list[tuple[str, str]]:
    """Return what the running programs printed last, for the report of a failed test."""
    return [(f"{running.name} ({running.pid})", running.output()) for running in _running]


def accepts_connections(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def stop_all_on_sigterm() -> None:
    """`timeout pytest` and CI end a run with SIGTERM; Python's default would leave the servers behind."""

    owner = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a forked child inherits the handler, not the servers
            os._exit(128 + number)
        for running in list(_running):
            running.stop(patience=3.0)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)
