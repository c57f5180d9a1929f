import subprocess
import sys

import pytest

import nbagents
from nbagents.cli import main


@pytest.fixture
def own_weights(tmp_path, monkeypatch):
    path = tmp_path / "own.gguf"
    path.write_bytes(b"GGUF")
    monkeypatch.setenv("NBAGENTS_LOCAL_MODEL", str(path))
    return path


def test_the_module_is_the_command():
    shown = subprocess.run([sys.executable, "-m", "nbagents", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"nbagents {nbagents.__version__}\n"


def test_local_install_says_that_the_weights_are_there(own_weights, capsys):
    assert main(["local", "install"]) == 0
    assert capsys.readouterr().out.startswith(f"The weights are there already: {own_weights}\n")


def test_local_install_can_print_the_path_alone(own_weights, capsys):
    assert main(["local", "install", "--path"]) == 0
    assert capsys.readouterr() == (f"{own_weights}\n", "")


def test_local_install_names_the_missing_extra(own_weights, capsys, monkeypatch):
    monkeypatch.setattr("nbagents.clients.local.local_extra_installed", lambda: False)
    assert main(["local", "install"]) == 0
    assert "pip install xllamacpp" in capsys.readouterr().out


def test_an_error_is_one_line_on_stderr(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("NBAGENTS_LOCAL_MODEL", str(tmp_path / "none.gguf"))
    assert main(["local", "install"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("nbagents: The local model")
    assert shown.err.count("\n") == 1


def test_an_interrupt_is_no_traceback(own_weights, capsys, monkeypatch):
    def interrupted(**settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("nbagents.clients.weights.find_weights", interrupted)
    assert main(["local", "install"]) == 130
    assert capsys.readouterr().err == "nbagents: interrupted\n"


@pytest.mark.parametrize("arguments", [[], ["local"], ["fly"]])
def test_wrong_arguments_show_how_it_is_used(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: nbagents")
