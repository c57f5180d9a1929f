"""One run of a runtime while it goes on: from the request to the last chunk, whatever ends it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any

from nbagents.core import AgentSession, Message, NBAgentsError, normalize_messages, run_log
from nbagents.core.errors import ConfigurationError, RunError
from nbagents.core.events import LIVE_EVENTS, RunEvent
from nbagents.core.failures import describe_error
from nbagents.core.ids import new_id
from nbagents.core.origins import RunOrigin, originating
from nbagents.core.results import error_text
from nbagents.core.runlog import RunRecord
from nbagents.core.streams import Consumer, ResponseStream
from nbagents.core.tagging import current_tags
from nbagents.runtime.chunks import RunStreamChunk
from nbagents.runtime.durable import DurableRun
from nbagents.runtime.events import EventBus, RuntimeEvent
from nbagents.runtime.payloads import CHUNKS, RunStreamChunkKind
from nbagents.runtime.recent import RecentChunks
from nbagents.runtime.requests import RunRequest
from nbagents.runtime.results import RunErrorRecord, RunResult, result_of

if TYPE_CHECKING:
    from nbagents.core.agent import Agent

_taken_ids: set[str] = set()
"""Ids of the runs that go on, of all runtimes: not all of them are in the run log yet."""
_taking_ids = threading.Lock()


class LiveRun:
    """One run: what it was asked, and where it is.

    Args:
        request: what is asked.
        agent: gives the agent that the request names; raises what makes that impossible.
        session: gives the session, if there is an agent.
        bus: is told of every event.
        plain: ask the endpoint for plain replies.
        on_begun: called when the first chunk is asked for.
        on_ended: called when the run has ended.
        journal: gives what keeps the run of this id on disk, if it is durable.
        closed: gives the error of a runtime that was closed before the run began.
    """

    def __init__(
        self,
        request: RunRequest,
        agent: Callable[[], Agent],
        session: Callable[[], AgentSession],
        bus: EventBus,
        *,
        plain: bool,
        on_begun: Callable[[LiveRun], None],
        on_ended: Callable[[LiveRun], None],
        journal: Callable[[str], DurableRun | None],
        closed: Callable[[], NBAgentsError | None],
    ) -> None:
        self.run_id = request.run_id or new_id("run")
        self.agent_id = request.agent_id
        self.session: AgentSession | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.result: RunResult | None = None
        self._request = request
        self._bus = bus
        self._on_begun, self._on_ended, self._closed = on_begun, on_ended, closed
        self._tags = dict(current_tags())
        self._journal = journal(self.run_id)
        self._origin = RunOrigin(
            self.run_id,
            request.parent_run_id,
            dict(request.metadata),
            request.deps,
            plain=plain,
            journal=self._journal,
        )
        self._stream: ResponseStream[Any, Any] | None = None
        self._refusal: NBAgentsError | None = None
        try:
            self._stream = self._prepare(agent(), session)
        except NBAgentsError as error:
            self._refusal = error
        except Exception as error:  # noqa: BLE001  e.g. a template that fails: the runtime raises nothing
            self._refusal = RunError(f"The run failed: {error_text(error)}")
            self._refusal.__cause__ = error
        self.session_id = self.session.session_id if self.session else request.session_id or new_id("session")
        self.recent = RecentChunks(self.run_id, self.session_id, self.agent_id)
        self._events: Consumer[RunEvent] | None = None
        self._observed = 0
        self._last: RunStreamChunk | None = None
        self._reader: asyncio.Task[Any] | None = None
        self._stopped = self._cancel_sent = False
        self._ended: asyncio.Event | None = None

    def _prepare(self, agent: Agent, session: Callable[[], AgentSession]) -> ResponseStream[Any, Any]:
        request = self._request
        options = None if request.output_type is None else {"response_format": request.output_type}
        self.session = session()
        with originating(self._origin):
            return agent.run(request.inputs, stream=True, session=self.session, budget=request.budget, options=options)

    async def chunks(self) -> AsyncGenerator[RunStreamChunk, None]:
        """Yield the chunks, `run.finished` last, unless whoever reads them leaves or is cancelled."""
        self._refusal = self._take_id() or self._refusal or self._closed()
        if self._refusal is not None or self._stream is None:
            for chunk in self._refused():
                yield chunk
            return
        self.loop = asyncio.get_running_loop()
        self._reader = asyncio.current_task()
        self._on_begun(self)
        next_chunk = self.recent.next_chunk
        error: NBAgentsError | None = None
        try:
            async with aclosing(self._stream.events()) as events:
                self._events = events
                async for event in events:
                    if event.name not in LIVE_EVENTS:
                        self._observe_log()
                    elif self._bus.wanted:
                        self._bus.publish(self._told(event))
                    made = CHUNKS.get(event.name)
                    if made is None:
                        continue
                    chunk = next_chunk(made[0], made[1](event.payload), event.timestamp)
                    self._reader = None
                    yield chunk
                    self._reader = asyncio.current_task()
                    if self._stopped:
                        break
        except NBAgentsError as raised:
            error = raised
        except asyncio.CancelledError:
            if self._is_cancelled():
                raise
        finally:
            last = self._settle(error)
        yield last

    async def messages(self) -> AsyncGenerator[Message, None]:
        """Yield the whole messages that the run adds, instead of its chunks."""
        given = 0
        async with aclosing(self.chunks()) as chunks:
            async for _ in chunks:
                run = self._origin.run
                while run is not None and given < run.settled:
                    yield run.added[given]
                    given += 1

    async def stop(self) -> None:
        """End the run as cancelled, on its loop, and wait for its clean-up; who reads it gets the last chunk."""
        self._stopped = True
        if self.result is not None:
            return
        if self._reader is None:
            if self._events is not None:
                await self._events.aclose()
            self._settle(None)
            return
        if self._ended is None:
            self._ended = asyncio.Event()
            self._cancel_sent = True
            self._reader.cancel()
        await self._ended.wait()

    def finished(self) -> RunResult:
        """Return the result of a run that has ended, or was left before it had begun."""
        if self.result is None:
            self._refusal = self._take_id() or self._refusal or self._closed()
            if self._refusal is not None or self._stream is None:
                self._refused()
            else:
                with suppress(NBAgentsError):
                    self._stream.finished()
                self._settle(None)
        assert self.result is not None
        return self.result

    def _take_id(self) -> NBAgentsError | None:
        if self._journal is not None and self._journal.is_taken:
            return self._journal.duplicate()
        with _taking_ids:
            if self.run_id not in _taken_ids and run_log().get(self.run_id) is None:
                _taken_ids.add(self.run_id)
                return None
        return ConfigurationError(
            f"There is a run {self.run_id!r} already.",
            code="duplicate_run_id",
            hint="Give each run an id of its own, or none: then one is made.",
        )

    def _return_id(self) -> None:
        with _taking_ids:
            _taken_ids.discard(self.run_id)

    def _is_cancelled(self) -> bool:
        """Whether somebody has cancelled the reading task: not `stop`, and not an error that only looks like it."""
        task = asyncio.current_task()
        if task is None:
            return True
        return task.cancelling() > (1 if self._cancel_sent else 0)

    def _observe_log(self) -> None:
        """Tell the bus what the log has by now; not all of it comes through the stream."""
        run = self._origin.run
        assert run is not None
        events = run.record.events
        while self._observed < len(events):
            self._observed += 1
            self._bus.publish(self._told(events[self._observed - 1]))

    def _told(self, event: RunEvent) -> RuntimeEvent:
        return RuntimeEvent(
            event.name, event.timestamp, dict(event.payload), self.run_id, self.session_id, self.agent_id
        )

    def _settle(self, error: NBAgentsError | None) -> RunStreamChunk:
        """Make the result and the last chunk, once, whether anybody reads it or not."""
        self._reader = None
        if self._last is None:
            run = self._origin.run
            assert run is not None
            self._observe_log()
            self._end(result_of(run, error, dict(self._request.metadata)))
            self._return_id()
        if self._cancel_sent and (task := asyncio.current_task()) is not None:
            self._cancel_sent = False
            task.uncancel()
        if self._ended is not None:
            self._ended.set()
        assert self._last is not None
        return self._last

    def _end(self, result: RunResult) -> None:
        self.result = result
        if self._journal is not None and self.session is not None:
            self._journal.end(self.session, result)
        self._last = self.recent.next_chunk(RunStreamChunkKind.RUN_FINISHED, {}, time.time(), result)
        self._on_ended(self)

    def _refused(self) -> list[RunStreamChunk]:
        """Write down a run that could not begin, unless the id is that of another one; return its chunks."""
        error = self._refusal
        assert error is not None
        chunks = []
        if error.code != "duplicate_run_id":
            self._on_begun(self)
            record = run_log().open(self.run_id)
            started = self._log(record, "run.started", self._start_facts())
            kind, payload = CHUNKS["run.started"]
            chunks.append(self.recent.next_chunk(kind, payload(started.payload), started.timestamp))
            self._log(record, "run.ended", _end_facts(error))
            run_log().close(record)
            self._return_id()
        self._end(
            RunResult(
                run_id=self.run_id,
                session_id=self.session_id,
                agent_id=self.agent_id,
                stop_reason="failed",
                error=RunErrorRecord.of(error),
                metadata=dict(self._request.metadata),
            )
        )
        assert self._last is not None
        return [*chunks, self._last]

    def _log(self, record: RunRecord, name: str, payload: dict[str, Any]) -> RunEvent:
        event = RunEvent(self.run_id, len(record.events) + 1, name, time.time(), payload)
        record.append(event)
        self._bus.publish(self._told(event))
        return event

    def _start_facts(self) -> dict[str, Any]:
        request = self._request
        return {
            "agent": self.agent_id,
            "agent_id": self.agent_id,
            "session_id": self.session_id,
            "parent_run_id": request.parent_run_id,
            "model": None,
            "provider": None,
            "params": {},
            "input": normalize_messages(request.inputs),
            "budget": request.budget.to_dict() if request.budget else {},
            "tags": self._tags,
            **({"metadata": dict(request.metadata)} if request.metadata else {}),
        }


def _end_facts(error: NBAgentsError) -> dict[str, Any]:
    return {
        "stop_reason": "failed",
        "finish_reason": None,
        "error": describe_error(error),
        "output_text": "",
        "usage": None,
        "usage_complete": True,
        "warnings": [],
    }
