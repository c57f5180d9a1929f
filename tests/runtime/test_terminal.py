"""`nbagents run` and `nbagents replay`: what they print, and what their exit status says."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nbagents import run_log
from nbagents.cli import main
from nbagents.runtime import RunStreamChunk, to_jsonl
from nbagents.runtime.terminal import TerminalView
from tests.runtime.runs import all_chunks, asking, checked_end, every_kind, scripted

CONFIG = {"agents": [{"id": "assistant", "name": "Assistant"}]}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes a file of agents; they have the scripted demo where they name no model."""
    monkeypatch.setenv("NBAGENTS_CLIENT", "demo")

    def write(payload: Any = CONFIG) -> str:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(payload))
        return str(path)

    return write


def test_run_prints_the_reply_and_tells_the_rest_beside_it(config: Any, capsys: Any) -> None:
    assert main(["run", config(), "Hello there"]) == 0
    shown = capsys.readouterr()
    assert "> Hello there" in shown.out
    assert "[completed" not in shown.out
    assert "[completed" in shown.err


def test_run_writes_a_line_for_each_chunk_and_replay_shows_them(config: Any, capsys: Any, tmp_path: Path) -> None:
    assert main(["run", config(), "Hello there", "--stream", "jsonl"]) == 0
    lines = capsys.readouterr().out
    chunks = [RunStreamChunk.model_validate_json(line) for line in lines.splitlines()]
    assert checked_end(chunks).stop_reason == "completed"
    (tmp_path / "run.jsonl").write_text(lines)
    assert main(["replay", str(tmp_path / "run.jsonl")]) == 0
    shown = capsys.readouterr()
    assert shown.out.strip() == chunks[-1].result.final_output.strip()  # type: ignore[union-attr]
    assert shown.err.startswith("> Hello there\n")
    assert shown.err.splitlines()[-1].startswith("[completed")


async def test_every_kind_of_chunk_is_shown() -> None:
    runtime, request = every_kind()
    out, err = io.StringIO(), io.StringIO()
    view = TerminalView(out, err, shows_input=True)
    for chunk in await all_chunks(runtime, request):
        view.show(chunk)
    view.close()
    assert out.getvalue() == "Let me see.\nIt is warm.\n"
    assert err.getvalue().splitlines()[:7] == [
        "> Weather?",
        "[asked again: Busy.]",
        '[measure {"place": "Rome"}]',
        "[fail {}]",
        "[measure: going there]",
        "[artifact photo, image]",
        "[measure: 21 degrees]",
    ]
    assert "the reply does not fit" in err.getvalue()
    assert '[publish {"text": "21"} waits for approval]' in err.getvalue()
    assert err.getvalue().splitlines()[-1].startswith("[approval_required")


async def test_a_reply_moves_no_cursor_and_sets_no_colour() -> None:
    out = io.StringIO()
    view = TerminalView(out, io.StringIO())
    for chunk in await all_chunks(scripted(["\x1b", "[31mred\x07\x1b[0m \u202egnp"]), asking()):
        view.show(chunk)
    assert "\x1b" not in out.getvalue()
    assert "\x07" not in out.getvalue()
    assert "\u202e" not in out.getvalue()


@pytest.mark.parametrize(
    ("payload", "more", "status", "said"),
    [
        (CONFIG, ["--agent", "asistant"], 1, "Did you mean 'assistant'?"),
        ({"agents": [{"id": "a", "name": "a"}, {"id": "b", "name": "b"}]}, [], 1, "Say which: --agent ID."),
        ({"agents": [{"id": "a", "nam": "x"}]}, [], 1, "nam"),
        ({"agents": [{**CONFIG["agents"][0], "budget": {"max_tokens": 0}}]}, [], 4, "[budget_exhausted"),
    ],
)
def test_the_status_says_how_it_went(
    config: Any, capsys: Any, payload: Any, more: list[str], status: int, said: str
) -> None:
    run_log().clear()
    assert main(["run", config(payload), "Hi", *more]) == status
    assert said in capsys.readouterr().err


def test_a_call_that_waits_for_a_person_is_status_3(config: Any, monkeypatch: Any, capsys: Any) -> None:
    runtime, _ = every_kind()
    monkeypatch.setattr("nbagents.runtime.terminal.Runtime.from_config", lambda path, **settings: runtime)
    assert main(["run", config(), "Weather?"]) == 0  # without `output_type` the second reply is the answer
    assert main(["run", config(), "Weather?"]) == 3
    assert "waits for approval]" in capsys.readouterr().err


def test_wrong_arguments_are_status_2(config: Any, capsys: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", config(), "Hi", "--stream", "xml"])
    assert ended.value.code == 2
    assert "Exit status" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "replay"])
def test_help_documents_the_exit_status(command: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert "Exit status: 0" in capsys.readouterr().out


def test_replay_stops_where_a_killed_process_has(capsys: Any, tmp_path: Path) -> None:
    lines = list(to_jsonl(scripted("Hello there.").stream_sync(request=asking())))
    (tmp_path / "run.jsonl").write_text("".join(lines[:2]) + lines[2][:30])
    assert main(["replay", str(tmp_path / "run.jsonl")]) == 0
    shown = capsys.readouterr()
    assert shown.out == "Hello \n"
    assert "[the recording stops before the run has ended]" in shown.err


@pytest.mark.parametrize("content", ["not JSON\n", '{"kind": "llm.delta"}\n', None])
def test_replay_names_the_file_and_line_of_what_is_no_chunk(capsys: Any, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "run.jsonl"
    if content is not None:
        path.write_text(content)
    assert main(["replay", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"nbagents: {path}{' cannot be read' if content is None else ', line 1 is no chunk'}")


def test_the_prompt_may_come_from_stdin_and_the_reader_may_leave(config: Any) -> None:
    command = [sys.executable, "-m", "nbagents", "run", config(), "-", "--stream", "jsonl"]
    piped = subprocess.run(command, input="From a pipe", capture_output=True, text=True, check=True)
    assert "From a pipe" in piped.stdout.splitlines()[0]
    left = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert left.stdin is not None
    assert left.stdout is not None
    assert left.stderr is not None
    left.stdout.close()
    _, error = left.communicate("Hi")
    assert left.returncode == 1
    assert "Traceback" not in error
