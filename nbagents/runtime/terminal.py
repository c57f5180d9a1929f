"""Runs in a terminal: a stream of chunks as plain text, live or from a file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO

from pydantic import ValidationError

from nbagents.core.errors import ConfigurationError, StoreError
from nbagents.core.run import STATUS_OF_STOP_REASON
from nbagents.render.text import visible
from nbagents.runtime.chunks import RunStreamChunk
from nbagents.runtime.payloads import RunStreamChunkKind
from nbagents.runtime.requests import RunRequest
from nbagents.runtime.results import RunResult
from nbagents.runtime.runtime import Runtime
from nbagents.runtime.transports import to_jsonl
from nbagents.spec import read_settings

EXIT_STATUS = {"ok": 0, "error": 1, "approval": 3, "limit": 4, "cancelled": 130}
"""What a command says of how its run ended; 2 is for wrong arguments."""
SHOWN = 200
"""Characters of arguments and results of tools that are shown."""


def run_in_terminal(
    path: str,
    prompt: str,
    *,
    agent_id: str | None = None,
    settings: str | None = None,
    allowed_modules: Collection[str] = (),
    stream: Literal["text", "jsonl"] = "text",
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int:
    """Run an agent of a file and show what it does, as it does it; return the exit status.

    Args:
        path: the file of agents, YAML or JSON.
        prompt: what it is asked; `-` reads it from stdin.
        agent_id: which of the agents; needed where there are several.
        settings: a file with values of `${Section:Key}`.
        allowed_modules: modules whose functions the file may name as tools.
        stream: `text`: replies to `out`, the rest to `err`; `jsonl`: a chunk in each line of `out`.
        out: where to, stdout by default.
        err: stderr by default.

    Raises:
        ConfigurationError: the file cannot be read, or has no such agent.
        SpecError: all that is wrong with the file.
    """
    out, err = out or sys.stdout, err or sys.stderr
    values = read_settings(settings) if settings is not None else None
    runtime = Runtime.from_config(path, settings=values, allowed_modules=allowed_modules)
    text = sys.stdin.read() if prompt == "-" else prompt
    request = RunRequest(agent_id=_chosen(runtime, agent_id), input_text=text)
    chunks = runtime.stream_sync(request=request)
    if stream == "jsonl":
        for line in to_jsonl(chunks):
            out.write(line)
            out.flush()
        return exit_status(chunks.get_final_response())
    view = TerminalView(out, err)
    for chunk in chunks:
        view.show(chunk)
    return exit_status(chunks.get_final_response())


def replay_in_terminal(path: str, *, out: TextIO | None = None, err: TextIO | None = None) -> int:
    """Show a stream that was written by `to_jsonl`, or by `nbagents run --stream jsonl`; return the exit status.

    Args:
        path: the file; `-` is stdin.
        out: where to, stdout by default.
        err: stderr by default.

    Raises:
        StoreError: it cannot be read, or a line is no chunk.
    """
    view = TerminalView(out or sys.stdout, err or sys.stderr, shows_input=True)
    with _lines(path) as lines:
        for chunk in _chunks(path, lines):
            view.show(chunk)
    view.close()
    return 0


def exit_status(result: RunResult) -> int:
    """Return what the command says of how the run ended."""
    return EXIT_STATUS[STATUS_OF_STOP_REASON[result.stop_reason]]


class TerminalView:
    """Writes chunks as text. Models and tools move no cursor and set no colour: what would hide or reorder is shown.

    Args:
        out: gets the replies.
        err: gets what tools do, and how the run ends.
        shows_input: what the run was asked is shown too.
    """

    def __init__(self, out: TextIO, err: TextIO, *, shows_input: bool = False) -> None:
        self._out = out
        self._err = err
        self._shows_input = shows_input
        self._in_line = False
        self._ended = True

    def show(self, chunk: RunStreamChunk) -> None:
        """Write one chunk."""
        kind, payload = chunk.kind, chunk.payload
        if kind is RunStreamChunkKind.LLM_DELTA:
            self._write(payload["text"])
        elif kind is RunStreamChunkKind.LLM_FINISHED:
            self._end_line()
        elif kind is RunStreamChunkKind.RUN_STARTED:
            self._ended = False
            if self._shows_input:
                self._tell(f"> {' '.join(_texts(payload['input']))}")
        elif chunk.result is not None:
            self._ended = True
            self._tell(_ending(chunk.result))
        elif (told := _TOLD.get(kind)) is not None:
            self._tell(told(payload))

    def close(self) -> None:
        """Say so where a stream has stopped before its end."""
        self._end_line()
        if not self._ended:
            self._tell("[the recording stops before the run has ended]")

    def _write(self, text: str) -> None:
        self._out.write(visible(text))
        self._out.flush()
        self._in_line = not text.endswith("\n") if text else self._in_line

    def _end_line(self) -> None:
        if self._in_line:
            self._write("\n")

    def _tell(self, text: str) -> None:
        self._end_line()
        self._err.write(f"{visible(text)}\n")
        self._err.flush()


def _called(payload: dict[str, Any]) -> str:
    params = payload["params"]
    return f"[{payload['tool_id']} {_short(params if isinstance(params, str) else json.dumps(params))}]"


def _answered(payload: dict[str, Any]) -> str:
    said = payload["result"] if "result" in payload else f"failed: {payload['error']}"
    return f"[{payload['tool_id']}: {_short(said)}]"


_TOLD: dict[RunStreamChunkKind, Callable[[dict[str, Any]], str]] = {
    RunStreamChunkKind.TOOL_STARTED: _called,
    RunStreamChunkKind.TOOL_DELTA: lambda payload: f"[{payload['tool_id']}: {_short(payload['text'])}]",
    RunStreamChunkKind.TOOL_FINISHED: _answered,
    RunStreamChunkKind.APPROVAL_REQUESTED: lambda payload: (
        f"[{payload['tool_id']} {_short(json.dumps(payload['arguments']))} waits for approval]"
    ),
    RunStreamChunkKind.ARTIFACT: lambda payload: f"[artifact {payload['name']}, {payload['kind']}]",
    RunStreamChunkKind.VALIDATION_RETRY: lambda payload: f"[the reply does not fit: {_short(payload['error'])}]",
    RunStreamChunkKind.RETRY: lambda payload: f"[asked again: {_short(payload['error']['message'])}]",
}
"""What is said of chunks that are no reply."""


def _ending(result: RunResult) -> str:
    facts = [result.stop_reason]
    if result.usage is not None and result.usage.total_tokens is not None:
        facts.append(f"{result.usage.total_tokens} tokens")
    if result.usage is not None and result.usage.cost_usd is not None:
        facts.append(f"${result.usage.cost_usd:.4f}")
    if result.error is None:
        return f"[{', '.join(facts)}]"
    hint = f" {result.error.hint}" if result.error.hint else ""
    return f"[{', '.join(facts)}] {result.error.message}{hint}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}…"


def _texts(messages: Iterable[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        for content in message["contents"]:
            yield content["text"] if content["type"] == "text" else f"[{content['type']}]"


def _chosen(runtime: Runtime, agent_id: str | None) -> str:
    if agent_id is not None:
        return agent_id
    ids = [agent.id for agent in runtime.list_agents()]
    if len(ids) != 1:
        raise ConfigurationError(f"The file has {len(ids)} agents: {', '.join(ids)}.", hint="Say which: --agent ID.")
    return ids[0]


@contextmanager
def _lines(path: str) -> Iterator[Iterable[str]]:
    if path == "-":
        yield sys.stdin
        return
    try:
        with Path(path).expanduser().open(encoding="utf-8") as file:
            yield file
    except (OSError, UnicodeDecodeError) as error:
        said = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise StoreError(f"{path} cannot be read: {said}.") from error


def _chunks(path: str, lines: Iterable[str]) -> Iterator[RunStreamChunk]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield RunStreamChunk.model_validate_json(line)
        except ValidationError as error:
            if not line.endswith("\n"):
                return  # the last line of a process that was killed
            fault = error.errors(include_url=False, include_input=False)[0]
            raise StoreError(
                f"{path}, line {number} is no chunk of a stream: {fault['msg']}.",
                hint="replay shows what `nbagents run --stream jsonl` has written.",
            ) from None
