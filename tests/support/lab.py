"""A real JupyterLab in a real Chromium: one server and one browser serve all tests."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.support import require
from tests.support.processes import free_port, isolated_environment, program
from tests.support.servers import DIRECT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Locator, Page

ARTIFACTS = Path(__file__).parents[1] / ".artifacts"
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
# The pop-up about news would cover the page; windowing keeps cells outside the viewport out of the DOM.
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
}
NOTEBOOK = "[...jupyterapp.shell.widgets('main')].find(widget => widget.hasClass('jp-NotebookPanel'))"
KERNEL = f"{NOTEBOOK}.sessionContext.session.kernel"
# A cell that is run before the kernel is connected is lost in silence.
CONNECTED = f"""() => {{
    const session = window.jupyterapp && {NOTEBOOK}?.sessionContext;
    const kernel = session?.isReady && session.session?.kernel;
    return kernel && kernel.connectionStatus == 'connected' && kernel.status == 'idle';
}}"""
WATCH_FREEZES = """
    window.longTasks = [];
    new PerformanceObserver(list => list.getEntries().forEach(entry => window.longTasks.push(entry.duration)))
        .observe({type: 'longtask', buffered: true});
"""


@dataclass(frozen=True)
class Lab:
    url: str
    token: str
    root: Path

    def write_notebook(self, cells: Sequence[str], name: str | None = None) -> str:
        """Save code cells as a notebook in the server's folder and return its name."""
        name = name or f"{secrets.token_hex(4)}.ipynb"
        notebook = {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
            "cells": [
                {
                    "cell_type": "code",
                    "id": f"cell-{place}",
                    "metadata": {},
                    "execution_count": None,
                    "outputs": [],
                    "source": source,
                }
                for place, source in enumerate(cells)
            ],
        }
        (self.root / name).write_text(json.dumps(notebook))
        return name

    def ask(self, path: str, method: str = "GET") -> Any:
        """Call the server's REST interface."""
        headers = {"authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.url}/api/{path}", headers=headers, method=method)
        with DIRECT.open(request, timeout=30) as response:
            return json.loads(response.read() or b"null")

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self.ask("status"))
        return False

    def shut_kernels_down(self) -> None:
        for session in self.ask("sessions"):
            self.ask(f"sessions/{session['id']}", "DELETE")


@dataclass
class Traffic:
    """What reached the browser during `LabPage.measure`."""

    bytes_received: int = 0
    long_tasks: list[float] = field(default_factory=list)


class LabPage:
    """A notebook open in JupyterLab. Cells are counted from 0."""

    def __init__(self, lab: Lab, page: Page) -> None:
        self.lab = lab
        self.page = page
        self.name = ""
        self.foreign_requests: list[str] = []
        self.console_errors: list[str] = []
        self._bytes_received = 0
        page.add_init_script(WATCH_FREEZES)
        page.context.on("request", lambda request: self._requested(request.url))
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.console_errors.append(str(error)))
        page.on("dialog", lambda dialog: dialog.accept())  # "leave this page?" when a notebook is not saved
        page.on("websocket", lambda socket: socket.on("framereceived", self._received))

    def _requested(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != urlsplit(self.lab.url).netloc:
            self.foreign_requests.append(url)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.console_errors.append(message.text)

    def _received(self, payload: str | bytes) -> None:
        self._bytes_received += len(payload)

    def open(self, notebook: str | Sequence[str]) -> LabPage:
        """Open a notebook of the server by its name, or one made of these cells, and wait for its kernel."""
        self.name = notebook if isinstance(notebook, str) else self.lab.write_notebook(notebook)
        self.page.goto(f"{self.lab.url}/lab/tree/{self.name}?reset&token={self.lab.token}")
        return self.wait_idle()

    def wait_idle(self, timeout: float = 60.0) -> LabPage:
        self.page.wait_for_function(CONNECTED, timeout=timeout * 1000)
        return self

    def cell(self, i: int) -> Locator:
        return self.page.locator(".jp-NotebookPanel .jp-Notebook-cell").nth(i)

    def output(self, i: int) -> Locator:
        """Return the outputs of a cell, without their prompts: one element for each output."""
        return self.cell(i).locator(".jp-OutputArea-output")

    def prompt(self, i: int) -> str:
        """Return what stands in the brackets: a number, `*` while it runs, nothing before it ran."""
        return re.sub(r"[^\d*]", "", self.cell(i).locator(".jp-InputPrompt").inner_text())

    def wait_prompt(self, i: int, timeout: float = 60.0, *, after: str = "") -> int:
        """Wait until cell `i` has run and return its number, which must differ from `after`."""
        from playwright.sync_api import expect

        done = re.compile(rf"\[(?!{re.escape(after) or 'x'}\])\d+\]")
        expect(self.cell(i).locator(".jp-InputPrompt")).to_have_text(done, timeout=timeout * 1000)
        return int(self.prompt(i))

    def run_cell(self, i: int, *, wait: bool = True, timeout: float = 60.0) -> LabPage:
        before = self.prompt(i)
        self.cell(i).locator(".jp-InputPrompt").click()
        self.page.keyboard.press("Control+Enter")
        if wait:
            self.wait_prompt(i, timeout, after=before)
        return self

    def run_all(self, *, wait: bool = True, timeout: float = 60.0) -> LabPage:
        prompts = [self.prompt(i) for i in range(self.page.locator(".jp-Notebook-cell.jp-CodeCell").count())]
        self._command("notebook:run-all-cells")
        for i, before in enumerate(prompts) if wait else ():
            self.wait_prompt(i, timeout, after=before)
        return self

    def _command(self, name: str) -> None:
        """Start a command of JupyterLab without waiting for its end."""
        self.page.evaluate(f"() => {{ jupyterapp.commands.execute({name!r}); }}")

    def interrupt(self) -> None:
        self.page.evaluate(f"() => {KERNEL}.interrupt()")

    def restart(self) -> LabPage:
        self.page.evaluate(f"() => {KERNEL}.restart()")
        return self.wait_idle()

    def shutdown_kernel(self) -> None:
        self.page.evaluate(f"() => {NOTEBOOK}.sessionContext.shutdown()")

    def save(self) -> dict[str, Any]:
        """Save as Ctrl+S does and return what is on disk then."""
        self.page.evaluate(f"() => {NOTEBOOK}.context.save()")
        notebook: dict[str, Any] = json.loads((self.lab.root / self.name).read_text())
        return notebook

    def reload(self) -> LabPage:
        self.page.reload()
        return self.wait_idle()

    def new_view(self, i: int) -> Locator:
        """Choose "Create New View for Cell Output" and return that view."""
        self.cell(i).locator(".jp-InputPrompt").click()
        self._command("notebook:create-output-view")
        view = self.page.locator(".jp-LinkedOutputView").last
        view.wait_for()
        return view

    def screenshot(self, name: str) -> Path:
        ARTIFACTS.mkdir(exist_ok=True)
        path = ARTIFACTS / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}.png"
        self.page.screenshot(path=path)
        return path

    @contextlib.contextmanager
    def measure(self) -> Iterator[Traffic]:
        """Count the bytes that the kernel sent to the page, and the tasks over 50 ms that froze it."""
        traffic = Traffic()
        self.page.evaluate("() => { window.longTasks.length = 0; }")
        before = self._bytes_received
        yield traffic
        traffic.long_tasks = self.page.evaluate("() => window.longTasks")
        traffic.bytes_received = self._bytes_received - before


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    home = tmp_path_factory.mktemp("lab")
    lab = Lab(f"http://127.0.0.1:{free_port()}", secrets.token_hex(16), home / "notebooks")
    lab.root.mkdir()
    for name, settings in SETTINGS.items():
        path = home / "settings" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings))
    arguments = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", f"--ServerApp.port={urlsplit(lab.url).port}"),
        *("--ServerApp.port_retries=0", f"--ServerApp.root_dir={lab.root}"),
        f"--IdentityProvider.token={lab.token}",
        "--LabApp.expose_app_in_browser=True",
        *(["--allow-root"] if hasattr(os, "getuid") and os.getuid() == 0 else []),
    ]
    with program(arguments, ready=lab.answers, within=90, cwd=lab.root, env=isolated_environment(home)):
        yield lab


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    require(path, "chromium (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def lab_page(request: pytest.FixtureRequest, lab: Lab, chromium: Browser) -> Iterator[LabPage]:
    failed = request.session.testsfailed
    context = chromium.new_context(viewport={"width": 1280, "height": 960})
    page = LabPage(lab, context.new_page())
    yield page
    if request.session.testsfailed > failed:
        page.screenshot(f"failed-{request.node.name}")
    context.close()
    lab.shut_kernels_down()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run browser tests last: Playwright's sync API keeps a loop running here, which async tests cannot bear."""
    items.sort(key=lambda item: "chromium" in getattr(item, "fixturenames", ()))
