"""The demo: a copy of the quickstart notebook, opened in JupyterLab or run to its end without a browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nbagents.clients.local import local_extra_installed
from nbagents.clients.weights import find_weights, install_weights
from nbagents.core.errors import ConfigurationError, NBAgentsError
from nbagents.render.maths import to_html
from nbagents.render.sanitize import sanitize

DEMO_FOLDER = "nbagents-demo"
QUICKSTART = "quickstart.ipynb"
SHOWN_CELLS = {"local-model": "The model on this machine:", "usage": "Usage:"}
"""The tags of cells whose output a headless run prints, and what it says before it."""
CELL_SECONDS = 600

_FORMULA = re.compile(r'<span class="nbagents-math [^"]*">\\(?P<opening>[(\[])(?P<latex>.*?)\\[)\]]</span>', re.DOTALL)
"""A formula in the lasting form of a reply, which a notebook page with MathJax would typeset."""

Say = Callable[[str], None]


def run_demo(*, browser: bool = True, force: bool = False, say: Say) -> int:
    """Put the quickstart into `./nbagents-demo/` and open it in JupyterLab, or without a browser run it there.

    Args:
        browser: open it; else run it, with a line for each cell.
        force: overwrite a copy that somebody has edited.
        say: prints a line.

    Returns:
        An exit status.

    Raises:
        ConfigurationError: the extra `lab` is missing.
        NBAgentsError: a cell failed, naming it.
    """
    needed = ["jupyterlab"] if browser else ["nbclient", "nbconvert", "nbformat", "ipykernel"]
    if missing := [name for name in needed if find_spec(name) is None]:
        raise ConfigurationError(
            f"The demo needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed.",
            hint='Run: pip install -e ".[lab]" in the folder of nbagents, or pip install ' + " ".join(missing) + ".",
        )
    notebook = copy_quickstart(Path(DEMO_FOLDER).resolve(), force=force, say=say)
    prepare_local_model(say)
    if browser:
        return open_lab(notebook)
    run_headless(notebook, say)
    return 0


def find_quickstart() -> Path:
    """Return the quickstart that belongs to this package: the checkout's where there is one, else the packed one."""
    package = Path(__file__).parents[1]
    is_checkout = (package.parent / "pyproject.toml").is_file()
    path = (package.parent if is_checkout else package) / "notebooks" / QUICKSTART
    if path.is_file():
        return path
    raise ConfigurationError(f"{QUICKSTART} is missing from this installation.", hint="Install nbagents again.")


def copy_quickstart(folder: Path, *, force: bool = False, say: Say) -> Path:
    """Return the notebook to use in `folder`: a fresh copy, or the one that is there if nobody has edited its cells.

    An edited one is left alone and the copy gets the next free name; `force` overwrites it.
    """
    original = find_quickstart()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / QUICKSTART
    number = 1
    while target.exists() and not force:
        if _sources(target) == _sources(original):
            say(f"Using {target}.")
            return target
        say(f"{target} has been edited and stays as it is (--force overwrites it).")
        number += 1
        target = folder / f"{Path(QUICKSTART).stem}-{number}.ipynb"
    shutil.copyfile(original, target)
    say(f"Copied the quickstart to {target}.")
    return target


def prepare_local_model(say: Say) -> None:
    """Fetch the weights of the local model on first use; where that cannot be, say so and go on without it."""
    if not local_extra_installed():
        say("Without a local model: it needs llama.cpp (pip install xllamacpp).")
        return
    try:
        if find_weights() is None:
            say("Fetching the weights of the local model, once.")
            install_weights()
    except NBAgentsError as error:
        say(f"Without a local model: {error}")


def lab_command(notebook: Path) -> list[str]:
    """Return the command that opens `notebook` in the JupyterLab of this environment."""
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [sys.executable, "-m", "jupyterlab", notebook.name, *as_root]


def open_lab(notebook: Path) -> int:
    """Open `notebook` in JupyterLab, with its folder as the root, and return Lab's exit status when it ends."""
    command = lab_command(notebook)
    environment = {"JUPYTER_PREFER_ENV_PATH": "1", **os.environ}
    if os.name == "posix":
        sys.stdout.flush()
        os.chdir(notebook.parent)
        os.execve(command[0], command, environment)  # signals reach Lab itself
    return subprocess.run(command, cwd=notebook.parent, env=environment, check=False).returncode


def run_headless(notebook: Path, say: Say) -> Path:
    """Run `notebook` from top to bottom, save it with its outputs, and return the HTML that is written beside it.

    Prints a line for each cell, the answer of the local model and the usage table.

    Raises:
        NBAgentsError: a cell failed or took too long, naming it.
    """
    import nbformat

    document = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    try:
        _execute(document, notebook, say)
    finally:
        nbformat.write(document, notebook)  # type: ignore[no-untyped-call]
    page = notebook.with_suffix(".html")
    page.write_text(_html(document), encoding="utf-8")
    for tag, heading in SHOWN_CELLS.items():
        for cell in document.cells:
            if tag in cell.metadata.get("tags", ()):
                say(f"\n{heading}\n{_printed(cell)}")
    say(f"\nWrote {notebook} and {page}.")
    return page


def _execute(document: Any, notebook: Path, say: Say) -> None:
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    os.environ.setdefault("JUPYTER_PREFER_ENV_PATH", "1")  # the kernel of this environment
    client = NotebookClient(
        document,
        timeout=CELL_SECONDS,
        store_widget_state=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(notebook.parent)}},
    )
    code_cells = [(place, cell) for place, cell in enumerate(document.cells) if cell.cell_type == "code"]
    with client.setup_kernel():
        for number, (place, cell) in enumerate(code_cells, 1):
            started = time.perf_counter()
            try:
                client.execute_cell(cell, place)
            except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
                raise _cell_error(f"Cell {number} of {notebook.name}", cell, error) from error
            say(f"[{number}/{len(code_cells)}] {time.perf_counter() - started:5.1f} s  {_first_line(cell)}")


def _cell_error(which: str, cell: Any, error: Exception) -> NBAgentsError:
    reason = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", "the kernel gave no answer")
    return NBAgentsError(f"{which} failed ({_first_line(cell)}): {': '.join(reason)}", code="notebook")


def _html(document: Any) -> str:
    """The notebook as one page that loads nothing: formulas of replies are MathML, widgets have their static form."""
    from nbconvert import HTMLExporter

    no_script = "data:,"
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        mathjax_url=no_script, require_js_url=no_script, embed_images=True
    )
    body: str = exporter.from_notebook_node(document)[0]
    return _FORMULA.sub(_as_mathml, body)


def _as_mathml(formula: re.Match[str]) -> str:
    return sanitize(to_html(unescape(formula["latex"]), display=formula["opening"] == "["))


def _printed(cell: Any) -> str:
    """The outputs of `cell` as text."""
    texts = []
    for output in cell.outputs:
        if output.output_type == "stream":
            texts.append(output.text)
        else:
            texts.append(output.get("data", {}).get("text/plain", ""))
    return "\n".join(text.strip("\n") for text in texts if text)


def _first_line(cell: Any) -> str:
    lines: Sequence[str] = cell.source.strip().splitlines() or [""]
    return lines[0][:72]


def _sources(path: Path) -> list[tuple[str, str]] | None:
    """What a person may have edited; None if it is no notebook at all."""
    import nbformat

    try:
        document = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except (OSError, ValueError):
        return None
    return [(cell.cell_type, cell.source) for cell in document.cells]
