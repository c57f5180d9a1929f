"""Durable runs: each step is on disk before the next one begins, and another process can go on from there."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pydantic import TypeAdapter, ValidationError

from nbagents.core import AgentSession, Message, NBAgentsError, RunBudget
from nbagents.core.content import DataContent, FunctionCall, FunctionResult
from nbagents.core.errors import ConfigurationError, StoreError
from nbagents.core.history_file import file_name_of
from nbagents.core.journal import EarlierRun, KeptReply, KeptResult, Spent, spent_by
from nbagents.core.plaincalls import run_in_thread
from nbagents.core.records import piece_from_dict, piece_to_dict
from nbagents.core.responses import ChatResponse
from nbagents.core.results import error_text
from nbagents.core.sessions import MESSAGES_KEY, REDUCTION_KEY
from nbagents.core.state import decode_state, encode_state
from nbagents.core.streams import ResponseStream
from nbagents.runtime.chunks import RunStreamChunk
from nbagents.runtime.journals import JournalFile, Written, duplicate, read
from nbagents.runtime.payloads import RunStreamChunkKind, plain_value
from nbagents.runtime.recent import RecentChunks
from nbagents.runtime.requests import RunRequest
from nbagents.runtime.results import RunResult

if TYPE_CHECKING:
    from nbagents.core.run import RunContext


class DurableRuns:
    """The runs of a folder, a file for each; several processes may share it. Files hold what was said, unmasked.

    Args:
        folder: where the files are; it is made when the first run begins.

    Raises:
        ConfigurationError: no path, or the path of something that is no folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
            raise ConfigurationError(f"durable is the path of a folder, not {folder!r:.100}.")
        self.folder = Path(folder).expanduser().resolve()
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigurationError(f"{self.folder} is no folder.", hint="Each durable run becomes a file in it.")
        self._last: WeakKeyDictionary[AgentSession, tuple[str, int]] = WeakKeyDictionary()

    def path_of(self, run_id: str) -> Path:
        """The file of a run."""
        return self.folder / f"{file_name_of(run_id)}.jsonl"

    def find(self, run_id: str) -> Written:
        """Return what is there of a run.

        Raises:
            ConfigurationError: nothing.
            StoreError: it cannot be read.
        """
        path = self.path_of(run_id)
        if not path.exists():
            raise ConfigurationError(
                f"There is no durable run {run_id!r} in {self.folder}.",
                code="unknown_run",
                hint="A run is there from its first step on, if its runtime was made with the same durable=...",
            )
        return read(path)

    def session_of(self, written: Written) -> AgentSession:
        """Return the session of a run: as it was when the run began, or when it ended."""
        head, end = written.head, written.end
        kept = head["session"] if end is None else end["session"]
        session = AgentSession(head["session"]["session_id"], service_session_id=kept["service_session_id"])
        session.state = decode_state(kept["state"])
        records = self._history(written)
        if records:
            session.state[MESSAGES_KEY] = [Message.from_dict(record) for record in records]
        last = head.get("after") if end is None else head["run_id"]
        if last is not None:
            self.note_end(session, last, len(records))
        return session

    def note_end(self, session: AgentSession, run_id: str, count: int) -> None:
        """Take note which run was the last of a session, and how many messages it has left in its state."""
        self._last[session] = run_id, count

    def history_of(self, session: AgentSession) -> dict[str, Any]:
        """What to write of the messages in a session's state: the run that they end with, or all of them."""
        messages = session.state.get(MESSAGES_KEY, ())
        run_id, count = self._last.get(session, ("", 0))
        if messages and count == len(messages):
            return {"after": run_id}
        return {"history": [message.to_dict() for message in messages]}

    def _history(self, written: Written) -> list[dict[str, Any]]:
        """The messages in the state of the session, put together from the runs before."""
        parts = [] if written.end is None else [written.end["stored"]]
        while "after" in written.head:
            written = read(self.path_of(written.head["after"]))
            if written.end is None:
                raise StoreError(f"The run {written.head['run_id']!r}, before this one in its session, has no end.")
            parts.append(written.end["stored"])
        return [*written.head["history"], *(record for part in reversed(parts) for record in part)]


class DurableRun:
    """The journal of one run: see `nbagents.core.journal.RunJournal`.

    Args:
        runs: where it is.
        run_id: the run.
        resumed: it has begun before.
        output_type: what the answer must fit, as it is written down.
    """

    def __init__(self, runs: DurableRuns, run_id: str, *, resumed: bool, output_type: Any = None) -> None:
        self._runs = runs
        self._run_id = run_id
        self._resumed = resumed
        self._output_type = output_type
        self._file = JournalFile(runs.path_of(run_id))
        self._is_open = False
        self._replies: list[dict[str, Any]] = []
        self._results: dict[str, dict[str, Any]] = {}
        self._skipped = 0
        self._stored: list[Message] = []
        self._in_state = 0
        self._reduction: Any = None
        self._last: dict[str, Any] | None = None
        self._seen = 0
        self._counted: set[int] = set()
        self._artifacts: dict[str, list[dict[str, Any]]] = {}

    @property
    def is_taken(self) -> bool:
        """Whether another run has this id."""
        return not self._resumed and self._file.path.exists()

    def duplicate(self) -> NBAgentsError:
        """The error that says so."""
        return duplicate(self._run_id)

    async def begin(self, run: RunContext, before: list[Message]) -> list[Message]:
        """Write how the run begins, or read it; return the messages before it."""
        self._in_state = len(run.session.state.get(MESSAGES_KEY, ()))
        if not self._resumed:
            head = self._head(run, len(before))
            await run_in_thread(partial(self._file.create, head))
            self._is_open = True
            return before
        written: Written = await run_in_thread(self._file.open)
        self._replies, self._results = written.replies[::-1], dict(written.results)
        self._last = written.reduction
        count = written.head["before"]
        own = before[count:]
        if any(message.role == "assistant" and message.run_id != run.run_id for message in own):
            self._file.close()  # the run has not ended with that
            raise ConfigurationError(
                f"The session {run.session.session_id!r} has gone on since the run {run.run_id!r} was interrupted.",
                code="session_gone_on",
                hint="Ask again in a new run.",
            )
        self._skipped = len(own)
        self._is_open = True
        return before[:count]

    def before_reply(self, run: RunContext) -> None:
        """Put into the session what the reducer had left there when the next reply was asked for."""
        kept: dict[str, Any] = {}
        if self._replies:
            kept = self._replies[-1]
        elif self._last is not None:  # the crash came between it and its reply
            kept, self._last = self._last, None
            run.children.append(EarlierRun(kept["spent"]))
        if "reduction" in kept:
            run.session.state.update(decode_state({REDUCTION_KEY: kept["reduction"]}))

    async def keep_reduction(self, run: RunContext) -> None:
        """Keep what the reducer has left in the session, if a model has made it."""
        if spent := self._newly_spent(run):
            self._reduction = _reduction_of(run)
            await run_in_thread(partial(self._file.append, {"reduction": self._reduction, "spent": spent}))

    def next_reply(self) -> KeptReply | None:
        """Take the next reply, if the model has given it."""
        if not self._replies:
            return None
        record = self._replies.pop()
        return KeptReply(ChatResponse.from_dict(record["response"]), record["facts"], record["spent"])

    async def keep_reply(self, run: RunContext, kept: KeptReply) -> None:
        """Keep a reply; when this returns, it is on disk."""
        record: dict[str, Any] = {
            "response": kept.response.to_dict(),
            "facts": kept.facts,
            "spent": self._newly_spent(run),
        }
        reduction = _reduction_of(run)
        if reduction != self._reduction:
            self._reduction = record["reduction"] = reduction
        await run_in_thread(partial(self._file.append, record))

    def result_of(self, call: FunctionCall) -> KeptResult | None:
        """The result of a call, if there is one."""
        record = self._results.get(call.id)
        if record is None:
            return None
        return KeptResult(
            piece_from_dict(FunctionResult, record["result"], {"items": DataContent}),
            record["status"],
            record["duration_s"],
            record["error_type"],
            record["artifacts"],
            record["spent"],
        )

    async def keep_result(self, run: RunContext, call: FunctionCall, kept: KeptResult) -> None:
        """Keep a result; when this returns, it is on disk."""
        for event in run.record.events[self._seen :]:
            if event.name == "artifact.emitted":
                made = {name: event.payload[name] for name in ("name", "kind", "payload")}
                self._artifacts.setdefault(event.payload["id"], []).append(plain_value(made))
        self._seen = len(run.record.events)
        record = {
            "id": call.id,
            "result": piece_to_dict(kept.result),
            "status": kept.status,
            "duration_s": kept.duration_s,
            "error_type": kept.error_type,
            "artifacts": self._artifacts.pop(call.id, []),
            "spent": self._newly_spent(run),
        }
        await run_in_thread(partial(self._file.append, record))

    def _newly_spent(self, run: RunContext) -> list[Spent]:
        """What parts of the run that have ended had used, each once."""
        spent: list[Spent] = []
        for place, child in enumerate(run.children):
            if place not in self._counted and (isinstance(child, EarlierRun) or child.response is not None):
                self._counted.add(place)
                spent += [] if isinstance(child, EarlierRun) else spent_by(child)
        return spent

    def not_stored(self, messages: Sequence[Message]) -> list[Message]:
        """Return those of the messages to be stored that were not stored before the interruption."""
        skipped = min(self._skipped, len(messages))
        self._skipped -= skipped
        new = list(messages[skipped:])
        self._stored += new
        return new

    def end(self, session: AgentSession, result: RunResult) -> None:
        """Write the end and let others have the file; without it the run can be resumed and ends in the same way."""
        if not self._is_open:
            return
        self._is_open = False
        stored = self._stored if MESSAGES_KEY in session.state else []
        try:
            record = {
                "time": time.time(),
                "ended": result.model_dump(mode="json", exclude={"messages"}),
                "messages": [message.to_dict() for message in result.messages],
                "session": _session_record(session),
                "stored": [message.to_dict() for message in stored],
            }
            self._file.append(record, sync=False)
            self._runs.note_end(session, self._run_id, self._in_state + len(stored))
        except NBAgentsError as error:
            warnings.warn(f"The end of the run {self._run_id!r} was not written: {error_text(error)}", stacklevel=2)
        finally:
            self._file.close()

    def _head(self, run: RunContext, before: int) -> dict[str, Any]:
        asked = [*([Message("user", list(run.answers))] if run.answers else []), *run.inputs]
        session, type_ = run.session, self._output_type
        return {
            "run_id": run.run_id,
            "request": {
                "agent_id": run.agent.id,
                "session_id": session.session_id,
                "messages": [message.to_dict() for message in asked],
                "parent_run_id": run.parent_run_id,
                "metadata": run.metadata,
                "output_type": type_ if isinstance(type_, Mapping) else None,
                "budget": asdict(run.budget),
            },
            "output_name": None if type_ is None else getattr(type_, "__name__", str(type_)),
            "before": before,
            "session": _session_record(session),
            **self._runs.history_of(session),
        }


def request_of(written: Written, output_type: Any, deps: Any) -> RunRequest:
    """Return what an interrupted run was asked.

    Raises:
        ConfigurationError: it needs its `output_type`, which no file can hold.
    """
    asked, named = written.head["request"], written.head.get("output_name")
    if output_type is None and asked["output_type"] is None and named is not None:
        raise ConfigurationError(
            f"The run {written.head['run_id']!r} was asked for the type {named!r}.",
            hint=f"Pass it: resume(run_id=..., output_type={named}).",
        )
    return RunRequest(
        **{
            **asked,
            "run_id": written.head["run_id"],
            "budget": RunBudget(**asked["budget"]),
            "output_type": asked["output_type"] if output_type is None else output_type,
            "deps": deps,
        }
    )


def ended_stream(written: Written, output_type: Any) -> ResponseStream[RunStreamChunk, RunResult]:
    """Return the last chunk of a run that has ended; its output is of the `output_type`, or else as JSON has it.

    Raises:
        ConfigurationError: the output does not fit that type.
    """
    assert written.end is not None
    at, result = written.end["time"], _result_of(written, output_type)
    chunks = RecentChunks(result.run_id, result.session_id, result.agent_id)

    async def last() -> AsyncGenerator[RunStreamChunk, None]:
        yield chunks.next_chunk(RunStreamChunkKind.RUN_FINISHED, {}, at, result)

    return ResponseStream(last, lambda: result)


def _result_of(written: Written, output_type: Any) -> RunResult:
    assert written.end is not None
    result = RunResult.model_validate({**written.end["ended"], "messages": written.end["messages"]})
    if output_type is None or isinstance(output_type, Mapping) or result.final_output is None:
        return result
    try:
        value = TypeAdapter(output_type).validate_python(result.final_output)
    except ValidationError as error:
        raise ConfigurationError(f"What the run {result.run_id!r} gave does not fit output_type: {error}") from error
    return result.model_copy(update={"final_output": value})


def _reduction_of(run: RunContext) -> Any:
    return encode_state({REDUCTION_KEY: run.session.state.get(REDUCTION_KEY)})[REDUCTION_KEY]


def _session_record(session: AgentSession) -> dict[str, Any]:
    """The session without its messages."""
    state = {key: value for key, value in session.state.items() if key != MESSAGES_KEY}
    return {
        "session_id": session.session_id,
        "service_session_id": session.service_session_id,
        "state": encode_state(state),
    }
