"""`Runtime`: agents by id, the sessions they share, and the stream of each run."""

from __future__ import annotations

import asyncio
import difflib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from nbagents import loop as loops
from nbagents.core import Agent, NBAgentsError, ResponseStream
from nbagents.core.arguments import exact_arguments
from nbagents.core.baseagent import blocking
from nbagents.core.errors import ConfigurationError, RunCancelledError
from nbagents.core.plaincalls import run_in_thread
from nbagents.core.sync_streams import SyncResponseStream
from nbagents.runtime.chunks import RunStreamChunk
from nbagents.runtime.durable import DurableRun, DurableRuns, ended_stream, request_of
from nbagents.runtime.events import EventBus, Handler, RuntimeEvent
from nbagents.runtime.journals import JournalFile, still_going
from nbagents.runtime.live import LiveRun
from nbagents.runtime.recent import KEPT_RUNS, RecentChunks
from nbagents.runtime.requests import RunRequest
from nbagents.runtime.results import RunResult
from nbagents.runtime.sessions import MAX_SESSIONS, Sessions
from nbagents.spec import LoadedAgents, load_agents
from nbagents.spec.agents import SpecSettings

CLOSE_GRACE = 3.0
"""Seconds that `close` waits for the end of a run on another loop."""

RunStream = ResponseStream[RunStreamChunk, RunResult]


class Runtime:
    """Runs agents by request, each run as a stream or as one result; runs raise nothing, their result says it.

    It may be used from several threads and loops at once. `async with` closes it.

    Args:
        agents: the agents, each with an id of its own.
        max_sessions: how many sessions are remembered; the one that was not used for the longest time is forgotten.
        durable: a folder in which each run is a file, with every reply of the model and every result of a tool on disk
            before the next step begins: `resume` goes on with a run whose process has died. Not by default. The files
            hold what was said, as histories do.

    Attributes:
        events: the event bus, for those who look on.

    Raises:
        ConfigurationError: something that is no agent, or two agents of one id.

    Example:
        >>> from nbagents import Agent, ScriptedChatClient
        >>> runtime = Runtime(agents=[Agent(ScriptedChatClient(["Hello!"]), name="assistant")])
        >>> runtime.run_sync(request=RunRequest(agent_id="assistant", input_text="Hi")).final_output
        'Hello!'
    """

    @exact_arguments()
    def __init__(
        self,
        agents: Iterable[Agent],
        *,
        max_sessions: int = MAX_SESSIONS,
        durable: str | os.PathLike[str] | None = None,
    ) -> None:
        if isinstance(max_sessions, bool) or not isinstance(max_sessions, int) or max_sessions < 1:
            raise ConfigurationError(f"max_sessions is a whole number from 1, not {max_sessions!r}.")
        self._durable = DurableRuns(durable) if durable is not None else None
        self._agents = _by_id(agents)
        self._closed = False
        self.events = EventBus()
        self._sessions = Sessions(self.events, max_sessions)
        self._lock = threading.Lock()
        self._live: set[LiveRun] = set()
        self._recent: OrderedDict[str, RecentChunks] = OrderedDict()
        self._load: Callable[[], LoadedAgents] | None = None

    @classmethod
    @exact_arguments(SpecSettings)
    def from_config(
        cls,
        path: str | os.PathLike[str],
        *,
        durable: str | os.PathLike[str] | None = None,
        **settings: Unpack[SpecSettings],
    ) -> Self:
        """Return a runtime with the agents of a file, YAML or JSON; `reload()` reads it again.

        Args:
            path: the file: several `agents`, with `runtime`, `session`, `events` and `skills` for all of them, or one.
            durable: as for `Runtime`.
            settings: what the program gives beside it, `tools`, `client`, `settings` and so on, as for
                `nbagents.spec.AgentRegistry`.

        Raises:
            ConfigurationError: the file cannot be read.
            SpecError: all that is wrong with it, each with its line.
        """
        return cls._loaded(lambda: load_agents(path, **settings), durable)

    @classmethod
    @exact_arguments(SpecSettings)
    def from_dict(
        cls,
        payload: Mapping[str, Any],
        *,
        durable: str | os.PathLike[str] | None = None,
        **settings: Unpack[SpecSettings],
    ) -> Self:
        """Return a runtime with the agents of a dict; `reload()` makes them anew.

        Args:
            payload: as a file for `from_config` has it.
            durable: as for `Runtime`.
            settings: as for `from_config`.

        Raises:
            SpecError: all that is wrong with it.
        """
        return cls._loaded(lambda: load_agents(payload, **settings), durable)

    @classmethod
    def _loaded(cls, load: Callable[[], LoadedAgents], durable: str | os.PathLike[str] | None) -> Self:
        loaded = load()
        made = cls(loaded.agents, max_sessions=loaded.runtime.max_sessions or MAX_SESSIONS, durable=durable)
        made._load = load
        return made

    def __repr__(self) -> str:
        return f"Runtime(agents=[{', '.join(map(repr, self._agents))}]{', closed' if self._closed else ''})"

    @exact_arguments()
    async def run(self, *, request: RunRequest) -> RunResult:
        """Run to the end and return the result, however it ends. The endpoint is asked for plain replies.

        Raises:
            ConfigurationError: `request` is no `RunRequest`.
        """
        return await self._stream(request, plain=True).get_final_response()

    @exact_arguments()
    async def run_detailed(self, *, request: RunRequest) -> RunResult:
        """Run as `run_stream` does, with streamed replies and their times in the log, and return the result."""
        return await self._stream(request).get_final_response()

    @exact_arguments()
    def run_stream(self, *, request: RunRequest) -> RunStream:
        """Return the run as a stream of chunks; it begins with the first one that is asked for.

        `run.finished`, with the result, is the last chunk whatever happens. Leaving the stream ends the run: the log
        then says `cancelled`.

        Raises:
            ConfigurationError: `request` is no `RunRequest`.
        """
        return self._stream(request)

    @exact_arguments()
    def run_sync(self, *, request: RunRequest) -> RunResult:
        """Run and wait for the result: in a script, in a cell, inside a running loop.

        Raises:
            LoopError: called on the loop thread itself, e.g. in an async tool: use `await runtime.run()` there.
        """
        stream = self._stream(request, plain=True)
        return blocking(lambda: loops.run_sync(stream.get_final_response, on_cancelled=_stopped))

    @exact_arguments()
    def stream_sync(self, *, request: RunRequest) -> SyncResponseStream[RunStreamChunk, RunResult]:
        """Iterate the chunks without `await`, as they come."""
        stream = self._stream(request)
        return SyncResponseStream(
            stream, blocking(lambda: loops.stream_sync(lambda: aiter(stream), on_cancelled=_stopped))
        )

    @exact_arguments()
    async def resume(self, *, run_id: str, output_type: Any = None, deps: Any = None) -> RunResult:
        """Go on with a durable run whose process has died, and return the result; of one that has ended, its result.

        The model is not asked again for what it has answered, and no tool that has finished runs again; one that was
        at work runs anew. Context providers are asked anew, and a limit of time begins anew. The session comes along:
        later requests go on with it.

        Args:
            run_id: the run.
            output_type: that of its request, where it is a Python type.
            deps: that of its request.

        Raises:
            ConfigurationError: no such run is on disk (code `unknown_run`), it still goes on (`still_going`), or its
                `output_type` is missing.
            StoreError: its file cannot be read.

        Example:
            >>> import asyncio
            >>> from tempfile import mkdtemp
            >>> from nbagents import Agent, ScriptedChatClient
            >>> agent = Agent(ScriptedChatClient(["Hello!"]), name="assistant")
            >>> runtime = Runtime(agents=[agent], durable=mkdtemp())
            >>> run_id = runtime.run_sync(request=RunRequest(agent_id="assistant", input_text="Hi")).run_id
            >>> asyncio.run(runtime.resume(run_id=run_id)).final_output
            'Hello!'
        """
        return await self._resumed(run_id, output_type, deps).get_final_response()

    @exact_arguments()
    def resume_stream(self, *, run_id: str, after: int = 0, output_type: Any = None, deps: Any = None) -> RunStream:
        """Return the chunks of a run after the one with the number `after`: those that are kept, then those to come.

        Of a run that this runtime does not know and that is durable, go on as `resume` does: with `after=0`, its
        chunks come from the first on, each reply that was there as one delta.

        Each run keeps its last 1,000 chunks, and so do the last 32 runs that have ended. Who follows a run neither
        slows nor ends it.

        Args:
            run_id: the run.
            after: `sequence` of the last chunk that has arrived; 0 for none.
            output_type: as for `resume`.
            deps: as for `resume`.

        Raises:
            ConfigurationError: no such run is kept.
            NBAgentsError: the next chunk is not kept any more; code `chunks_lost`. Or, while iterating: the reader was
                slower than the run by more than what is kept.
        """
        if isinstance(after, bool) or not isinstance(after, int) or after < 0:
            raise ConfigurationError(f"after is the sequence number of a chunk, or 0, not {after!r}.")
        recent = self._recent.get(run_id)
        if recent is None:
            if self._durable is not None and after == 0:
                return self._resumed(run_id, output_type, deps)
            raise ConfigurationError(
                f"No chunks of a run {run_id!r} are kept.",
                hint=f"They are kept for runs that go on and for the last {KEPT_RUNS} that have ended. "
                "A durable run is resumed with after=0: its chunks are numbered anew.",
            )
        recent.from_sequence(after + 1)
        result: list[RunResult] = []

        async def chunks() -> AsyncGenerator[RunStreamChunk, None]:
            async for chunk in recent.follow(after):
                result.extend([chunk.result] if chunk.result is not None else [])
                yield chunk

        def finish() -> RunResult:
            if not result:
                raise NBAgentsError(f"The end of the run {run_id!r} was not read.", code="not_read")
            return result[0]

        return ResponseStream(chunks, finish)

    def list_agents(self) -> list[Agent]:
        """The agents, in the order in which they were given."""
        return list(self._agents.values())

    def subscribe(self, name: str, handler: Handler) -> Callable[[], None]:
        """Call `handler(event)` for each event of this name, `"*"` for all; see `EventBus.subscribe`.

        Example:
            >>> from nbagents import Agent, ScriptedChatClient
            >>> runtime = Runtime(agents=[Agent(ScriptedChatClient(["Hello!"]), name="assistant")])
            >>> said = []
            >>> unsubscribe = runtime.subscribe("llm.succeeded", lambda event: said.append(event.payload["text"]))
            >>> _ = runtime.run_sync(request=RunRequest(agent_id="assistant", input_text="Hi"))
            >>> said
            ['Hello!']
        """
        return self.events.subscribe(name, handler)

    async def close_session(self, session_id: str) -> bool:
        """Forget the session; tell whether there was one.

        A run that has it goes on; the next one begins a new conversation, unless the agent's history has stored it.
        """
        return self._sessions.close(session_id)

    async def reload(self, *, agents: Iterable[Agent] | None = None) -> None:
        """Go on with other agents; runs that go on keep theirs, sessions stay.

        Args:
            agents: the agents; by default those of the file or dict that the runtime was made from, read again.

        Raises:
            ConfigurationError: as for `Runtime(agents=...)` or `from_config`; then nothing has changed.
        """
        if agents is None and self._load is None:
            raise ConfigurationError(
                "This runtime was made from agents, not from a file.", hint="Pass reload(agents=[...])."
            )
        if agents is None and self._load is not None:
            loaded = await run_in_thread(self._load)
            agents = loaded.agents
            self._publish("config.reloaded", {"agents": [agent.id for agent in agents]})
        before, self._agents = self._agents, _by_id(agents or ())
        for agent_id in [*self._agents, *(one for one in before if one not in self._agents)]:
            old, new = before.get(agent_id), self._agents.get(agent_id)
            if old is not new:
                change = "added" if old is None else "removed" if new is None else "replaced"
                self._publish("agent.reloaded", {"change": change}, agent_id=agent_id)

    async def close(self) -> None:
        """End all runs as cancelled, forget all sessions and end all subscriptions; idempotent."""
        self._closed = True
        await asyncio.gather(*(_stop(live) for live in list(self._live)))
        self._sessions.clear()
        self.events.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _stream(self, request: RunRequest, *, plain: bool = False) -> RunStream:
        if not isinstance(request, RunRequest):
            hint = "Pass RunRequest(**payload)." if isinstance(request, dict) else "Pass RunRequest(agent_id=..., ...)."
            raise ConfigurationError(f"request must be a RunRequest, not {type(request).__name__}.", hint=hint)
        return self._begin(request, plain=plain, resumed=False)

    def _begin(self, request: RunRequest, *, plain: bool, resumed: bool) -> RunStream:
        durable = self._durable

        def journal(run_id: str) -> DurableRun | None:
            if durable is None:
                return None
            return DurableRun(durable, run_id, resumed=resumed, output_type=request.output_type)

        live = LiveRun(
            request,
            lambda: self._agent(request.agent_id),
            lambda: self._sessions.of(request.session_id),
            self.events,
            plain=plain,
            on_begun=self._begun,
            on_ended=self._ended,
            journal=journal,
            closed=self._closed_error,
        )
        return ResponseStream(live.chunks, live.finished, messages=live.messages)

    def _resumed(self, run_id: str, output_type: Any, deps: Any) -> RunStream:
        if self._durable is None:
            raise ConfigurationError("This runtime keeps no runs on disk.", hint="Make it with Runtime(durable=...).")
        written = self._durable.find(run_id)
        if any(live.run_id == run_id for live in list(self._live)):
            raise still_going(run_id)
        session = self._durable.session_of(written)
        if written.end is not None:
            self._sessions.put(session)
            return ended_stream(written, output_type)
        request = request_of(written, output_type, deps)
        self._agent(request.agent_id)
        JournalFile(self._durable.path_of(run_id)).check()
        if not self._sessions.put(session):
            raise ConfigurationError(
                f"The session {session.session_id!r} of the run {run_id!r} is in use here already.",
                code="session_gone_on",
                hint="Resume its run before other runs of the session begin, or in a runtime of its own.",
            )
        return self._begin(request, plain=False, resumed=True)

    def _closed_error(self) -> ConfigurationError | None:
        return (
            ConfigurationError("The runtime is closed.", code="closed", hint="Make a new Runtime.")
            if self._closed
            else None
        )

    def _agent(self, agent_id: str) -> Agent:
        if (closed := self._closed_error()) is not None:
            raise closed
        agent = self._agents.get(agent_id)
        if agent is None:
            near = difflib.get_close_matches(agent_id, self._agents, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(self._agents) or 'none'}."
            raise ConfigurationError(f"There is no agent {agent_id!r}.", code="unknown_agent", hint=hint)
        return agent

    def _begun(self, live: LiveRun) -> None:
        with self._lock:
            self._live.add(live)
            self._recent[live.run_id] = live.recent
        if live.session is not None:
            self._sessions.begin(live.session)

    def _ended(self, live: LiveRun) -> None:
        with self._lock:
            if live not in self._live:
                return  # it never began
            self._live.discard(live)
            going_on = {one.run_id for one in self._live}
            while len(self._recent) > KEPT_RUNS + len(going_on):
                oldest = next(run_id for run_id in self._recent if run_id not in going_on)
                del self._recent[oldest]
        if live.session is not None:
            self._sessions.end(live.session)

    def _publish(self, name: str, payload: dict[str, Any], **about: str) -> None:
        self.events.publish(RuntimeEvent(name, time.time(), payload, **about))


def _by_id(agents: Iterable[Agent]) -> dict[str, Agent]:
    given = list(agents) if isinstance(agents, Iterable) and not isinstance(agents, str) else [agents]
    found: dict[str, Agent] = {}
    for agent in given:
        if not isinstance(agent, Agent):
            raise ConfigurationError(
                f"agents are Agents, not {type(agent).__name__}.", hint="Pass agents=[Agent(...)]."
            )
        if agent.id in found:
            raise ConfigurationError(
                f"Two agents have the id {agent.id!r}.", hint="Give each an id of its own: Agent(..., id=...)."
            )
        found[agent.id] = agent
    return found


async def _stop(live: LiveRun) -> None:
    """End a run on its own loop."""
    loop = live.loop
    if loop is None or loop.is_closed():
        return
    if loop is asyncio.get_running_loop():
        await live.stop()
        return
    stopping = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(live.stop(), loop))
    await asyncio.wait({stopping}, timeout=CLOSE_GRACE)


def _stopped() -> RunCancelledError:
    return RunCancelledError("The run was stopped.")
