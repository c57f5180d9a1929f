"""Real ipykernels, driven as a front end drives them: queued cells, interrupts, widget messages, input."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from tests.support import outputs, require
from tests.support.processes import Program, accepts_connections, cache, isolated_environment, program

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient

T = TypeVar("T")
Start = contextlib.AbstractContextManager[tuple[Program, "BlockingKernelClient"]]
ROOT = Path(__file__).parents[2]
NUDGE_SECONDS = 3.0


@dataclass
class Comm:
    """A widget model as the front end knows it."""

    comm_id: str
    target: str
    state: dict[str, Any]
    messages: list[dict[str, Any]] = field(default_factory=list)
    closed: bool = False


@dataclass(frozen=True)
class Error:
    name: str
    value: str
    traceback: str


@dataclass(frozen=True)
class Execution:
    """A cell that was sent; it may still be queued or running."""

    id: str
    code: str
    started: float


class Result:
    """What a finished cell left. Outputs are folded when read: a late display update shows."""

    def __init__(self, kernel: Kernel, execution: Execution, reply: dict[str, Any]) -> None:
        self._kernel = kernel
        self._id = execution.id
        self.status: str = reply["status"]
        self.ok = self.status == "ok"
        self.duration = time.monotonic() - execution.started
        self.error = None
        if self.status == "error":
            self.error = Error(reply["ename"], reply["evalue"], "\n".join(reply["traceback"]))

    @property
    def outputs(self) -> list[dict[str, Any]]:
        return outputs.fold(self._kernel.iopub, self._id)

    def _stream(self, *names: str) -> str:
        return "".join(o["text"] for o in self.outputs if o.get("name") in names)

    @property
    def stdout(self) -> str:
        return self._stream("stdout")

    @property
    def stderr(self) -> str:
        return self._stream("stderr")

    @property
    def text(self) -> str:
        """What a person reads: standard output and the text form of every display, in order."""
        pieces = [o.get("text") or o.get("data", {}).get("text/plain", "") for o in self.outputs]
        return "".join(pieces)

    def __repr__(self) -> str:
        return f"<Result {self.status} {self.error or self.text!r}>"


class Kernel:
    """One kernel process and the client of it. Not for use from two threads."""

    def __init__(self, start: Callable[[], Start], cwd: Path) -> None:
        self.cwd = cwd
        self.iopub: list[dict[str, Any]] = []
        self.comms: dict[str, Comm] = {}
        self._start = start
        self._running = contextlib.ExitStack()
        self._replies: dict[str, dict[str, Any]] = {}
        self._idle: set[str] = set()
        self._inputs: list[dict[str, Any]] = []
        self._subshell: str | None = None
        self.restart()

    def restart(self) -> None:
        """Start the process, after ending the one that runs. What was received before is forgotten."""
        self._running.close()
        self.iopub.clear()
        self.comms.clear()
        self._replies.clear()
        self._inputs.clear()
        self._subshell = None
        self._process, self._client = self._running.enter_context(self._start())
        reply = self.wait_for(self._answers, timeout=60, what="the kernel to answer")
        self.version = tuple(int(part) for part in reply["implementation_version"].split(".")[:2])
        self.subshells = "kernel subshells" in reply.get("supported_features", [])

    def _answers(self) -> dict[str, Any] | None:
        """Ask until a reply and a status come back: what is published before we are subscribed is lost."""
        self._client.kernel_info()
        self._receive(0.5)
        return next((reply for asked, reply in self._replies.items() if asked in self._idle), None)

    def close(self) -> None:
        self._running.close()

    def run(self, code: str, timeout: float = 60.0) -> Result:
        return self.wait(self.submit(code), timeout)

    def submit(self, code: str) -> Execution:
        """Send a cell; the kernel runs it after those before it."""
        started = time.monotonic()
        return Execution(self._client.execute(code, allow_stdin=True), code, started)

    def wait(self, execution: Execution, timeout: float = 60.0) -> Result:
        def finished() -> dict[str, Any] | None:
            reply = self._replies.get(execution.id)
            return reply if reply and (execution.id in self._idle or reply["status"] == "aborted") else None

        return Result(self, execution, self.wait_for(finished, timeout, f"the end of:\n{execution.code}"))

    def wait_for(self, condition: Callable[[], T | None], timeout: float = 30.0, what: str = "") -> T:
        """Receive messages until the condition gives something true, and return that."""
        now = time.monotonic()
        deadline, nudge = now + timeout, now + NUDGE_SECONDS
        while not (value := condition()):
            assert not self._process.ended, f"the kernel died:\n{self._process.output()}"
            if now > deadline:
                recent = "\n".join(f"{m['msg_type']}: {str(m['content'])[:300]}" for m in self.iopub[-12:])
                pytest.fail(f"waited {timeout} s for {what or 'a condition'}; last messages:\n{recent}")
            if now > nudge:
                self._nudge()
                nudge = now + NUDGE_SECONDS
            self._receive(0.1)
            now = time.monotonic()
        return value

    def _nudge(self) -> None:
        """Ask something over another connection: ipykernel 7.3 can overlook a request while it sends a reply.

        The request then lies there until something comes from elsewhere
        (https://github.com/ipython/ipykernel/issues/1554).
        """
        shell = self._client.connect_shell()
        self._running.callback(shell.close, linger=0)
        self._client.session.send(shell, self._client.session.msg("kernel_info_request", {}))

    def wait_output(self, execution: Execution, text: str, timeout: float = 30.0) -> None:
        """Wait until a running cell shows this text, in any output."""
        self.wait_for(lambda: text in str(outputs.fold(self.iopub, execution.id)), timeout, f"{text!r} as output")

    def interrupt(self) -> None:
        """Do what a front end's interrupt button does: SIGINT to the kernel's process group."""
        os.killpg(self._process.pid, signal.SIGINT)

    def answer_input(self, text: str, timeout: float = 30.0) -> str:
        """Answer the next `input()` and return its prompt."""
        self.wait_for(lambda: self._inputs, timeout, "a request for input")
        request = self._inputs.pop(0)
        self._client.input(text)
        prompt: str = request["prompt"]
        return prompt

    def comm_msg(self, comm_id: str, content: dict[str, Any], *, subshell: bool = False) -> None:
        """Send a widget's custom message, on a subshell as JupyterLab does or on the main shell."""
        self._send(comm_id, {"method": "custom", "content": content}, subshell)

    def comm_update(self, comm_id: str, state: dict[str, Any], *, subshell: bool = False) -> None:
        """Change traits of a widget from the front end."""
        self._send(comm_id, {"method": "update", "state": state, "buffer_paths": []}, subshell)

    def comm_click(self, comm_id: str, *, subshell: bool = False) -> None:
        """Click an `ipywidgets.Button`."""
        self.comm_msg(comm_id, {"event": "click"}, subshell=subshell)

    def _send(self, comm_id: str, data: dict[str, Any], subshell: bool) -> None:
        message = self._client.session.msg("comm_msg", {"comm_id": comm_id, "data": data})
        if subshell:
            message["header"]["subshell_id"] = self._subshell_id()
        self._client.shell_channel.send(message)

    def _subshell_id(self) -> str:
        if self._subshell is None:
            assert self.subshells, f"ipykernel {self.version} has no subshells"
            request = self._client.session.msg("create_subshell_request", {})
            self._client.control_channel.send(request)
            reply = self.wait_for(lambda: self._replies.get(request["header"]["msg_id"]), what="a subshell")
            self._subshell = str(reply["subshell_id"])
        return self._subshell

    def _receive(self, timeout: float) -> None:
        """Take in all messages that there are, or the first ones to come within `timeout` seconds."""
        import zmq

        receive: dict[Any, Callable[[dict[str, Any]], None]] = {
            self._client.iopub_channel: self._published,
            self._client.shell_channel: self._replied,
            self._client.control_channel: self._replied,
            self._client.stdin_channel: lambda message: self._inputs.append(message["content"]),
        }
        poller = zmq.Poller()
        for channel in receive:
            poller.register(channel.socket, zmq.POLLIN)
        if poller.poll(int(timeout * 1000)):
            for channel, take in receive.items():
                while channel.msg_ready():
                    take(channel.get_msg(timeout=0))

    def _replied(self, message: dict[str, Any]) -> None:
        self._replies[message["parent_header"]["msg_id"]] = message["content"]

    def _published(self, message: dict[str, Any]) -> None:
        self.iopub.append(message)
        kind, content = message["msg_type"], message["content"]
        if kind == "status" and content["execution_state"] == "idle":
            self._idle.add(message["parent_header"].get("msg_id", ""))
        elif kind == "comm_open":
            state = dict(content["data"].get("state", {}))
            self.comms[content["comm_id"]] = Comm(content["comm_id"], content["target_name"], state)
        elif comm := self.comms.get(content.get("comm_id", "")):
            if kind == "comm_close":
                comm.closed = True
            elif content["data"].get("method") == "update":
                comm.state.update(content["data"]["state"])
            elif content["data"].get("method") == "custom":
                comm.messages.append(content["data"]["content"])


@contextlib.contextmanager
def _process_and_client(
    python: str | Path, cwd: Path, environment: dict[str, str]
) -> Iterator[tuple[Program, BlockingKernelClient]]:
    from jupyter_client.blocking.client import BlockingKernelClient
    from jupyter_client.connect import write_connection_file

    connection, ports = write_connection_file(str(Path(environment["HOME"]) / "kernel.json"))
    listening = [int(str(port)) for name, port in ports.items() if name.endswith("_port")]
    arguments = [python, "-m", "ipykernel_launcher", "-f", connection]
    # A socket that connects before the kernel listens tries again at some later time, each at its own.
    ready = lambda: all(accepts_connections(port) for port in listening)  # noqa: E731
    with program(arguments, ready=ready, cwd=cwd, env=environment) as process:
        client = BlockingKernelClient(connection_file=connection)
        client.load_connection_file()
        client.start_channels()
        try:
            yield process, client
        finally:
            client.stop_channels()
            client.context.destroy(linger=0)


@contextlib.contextmanager
def start_kernel(python: str | Path = sys.executable, cwd: Path | None = None) -> Iterator[Kernel]:
    """Run an ipykernel of the given interpreter in a fresh home, and end it by its pid."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**isolated_environment(Path(home)), "JPY_PARENT_PID": str(os.getpid())}
        work = cwd or Path(home) / "work"
        work.mkdir(exist_ok=True)
        kernel = Kernel(lambda: _process_and_client(python, work, environment), work)
        try:
            yield kernel
        finally:
            kernel.close()


def _environment_with(ipykernel: str) -> Path:
    """Return the interpreter of a venv with that ipykernel and this checkout, kept between runs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [f"ipykernel=={ipykernel}", "hatchling", "editables", *project["dependencies"]]
    key = hashlib.sha256(repr([sys.version, needed]).encode()).hexdigest()[:12]
    venv = cache() / f"ipykernel-{ipykernel}-{key}"
    python = venv / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if not (venv / "complete").exists():
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        done = subprocess.run([*pip, *needed], capture_output=True, text=True)
        require(done.returncode == 0, f"an environment with ipykernel {ipykernel}: {done.stderr[-1000:]}")
        (venv / "complete").touch()
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "-e", str(ROOT)], check=True)
    return python


@pytest.fixture(scope="session")
def kernel_python(request: pytest.FixtureRequest) -> str | Path:
    return sys.executable if request.param == "this" else _environment_with(request.param)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    with start_kernel(cwd=tmp_path) as kernel:
        yield kernel


OLDER = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first one makes its environment
IPYKERNELS = ["this", *(pytest.param(version, marks=OLDER) for version in ("7.3.0", "6.31.0"))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "each_kernel" in metafunc.fixturenames:
        metafunc.parametrize("kernel_python", IPYKERNELS, indirect=True, scope="session")


@pytest.fixture
def each_kernel(kernel_python: str | Path, tmp_path: Path) -> Iterator[Kernel]:
    with start_kernel(kernel_python, tmp_path) as kernel:
        yield kernel
