"""Servers of the tests come up, are stopped by pid, and do not outlive a pytest that is told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support import processes, require
from tests.support.processes import accepts_connections, free_port, program

ROOT = Path(__file__).parents[2]
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'http.server', sys.argv[1]])"


def test_a_program_is_ready_in_its_block_and_gone_after_it_with_its_children() -> None:
    port = free_port()
    with program([sys.executable, "-c", CHILD, str(port)], ready=lambda: accepts_connections(port)) as running:
        family = [psutil.Process(running.pid), *psutil.Process(running.pid).children()]
        assert len(family) == 2
    assert not any(member.is_running() for member in family)


def test_a_program_that_ends_at_once_shows_what_it_said() -> None:
    with (
        pytest.raises(pytest.fail.Exception, match="ended:\nno such model"),
        program([sys.executable, "-c", "exit('no such model')"], ready=lambda: False),
    ):
        pass


def test_sigterm_stops_the_servers_before_pytest_dies(tmp_path: Path) -> None:
    script = tmp_path / "owner.py"
    script.write_text(
        "import sys, time\n"
        "from tests.support import processes\n"
        "processes.stop_all_on_sigterm()\n"
        "with processes.program([sys.executable, '-c', 'import time; time.sleep(600)']) as running:\n"
        "    print(running.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    owner = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert owner.stdout is not None
    server = psutil.Process(int(owner.stdout.readline()))
    owner.send_signal(signal.SIGTERM)
    owner.communicate(timeout=30)
    assert owner.returncode == -signal.SIGTERM
    psutil.wait_procs([server], timeout=10)
    assert not server.is_running()


def test_no_key_endpoint_or_proxy_reaches_a_test() -> None:
    from tests.conftest import reaches_a_provider

    assert not [name for name in os.environ if reaches_a_provider(name)]
    hidden = ["OPENAI_API_KEY", "OPENAI_BASE_URL", "MISTRAL_API_KEY", "NBAGENTS_CLIENT", "https_proxy"]
    assert all(reaches_a_provider(name) for name in hidden)
    assert not any(reaches_a_provider(name) for name in ("NBAGENTS_REQUIRE_ALL", "PATH", "no_proxy"))


def test_a_missing_part_skips_and_fails_where_everything_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    require(True, "what is there")
    monkeypatch.delenv("NBAGENTS_REQUIRE_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="missing: a browser"):
        require(None, "a browser")
    monkeypatch.setenv("NBAGENTS_REQUIRE_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="missing: a browser"):
        require(None, "a browser")


def test_the_output_of_a_running_server_goes_into_the_report_of_a_failed_test() -> None:
    with program([sys.executable, "-uc", "print('ready'); import time; time.sleep(600)"], ready=said_ready):
        assert [text for _, text in processes.recent_output() if text == "ready\n"]


def said_ready() -> bool:
    return any(text == "ready\n" for _, text in processes.recent_output())
