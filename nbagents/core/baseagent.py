"""`BaseAgent`: what an agent of whatever kind gets for writing `run`: sessions and the calls that block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar, overload

from nbagents import loop as loops
from nbagents.core.arguments import exact_arguments
from nbagents.core.errors import LoopError, NBAgentsError, RunCancelledError, forget_inner_frames
from nbagents.core.messages import AgentRunInputs
from nbagents.core.options import TypedOptions
from nbagents.core.responses import AgentResponse
from nbagents.core.sessions import AgentSession
from nbagents.core.streams import ResponseStream
from nbagents.core.sync_streams import SyncResponseStream

T = TypeVar("T")


class BaseAgent(ABC):
    """Answers messages under a name. To write one, implement `run`.

    Args:
        id: a stable id; the name by default.
        name: what it is called in messages and tables; `agent` by default.
        description: what it is for, for people and other agents.
    """

    def __init__(self, *, id: str | None = None, name: str | None = None, description: str | None = None) -> None:
        self.name = name or "agent"
        self.id = id or self.name
        self.description = description

    @abstractmethod
    def run(
        self,
        messages: AgentRunInputs = None,
        *,
        stream: bool = False,
        session: AgentSession | None = None,
        **settings: Any,
    ) -> Any:
        """Return an awaitable `AgentResponse`, or with `stream=True` a `ResponseStream`.

        A plain function: it checks its arguments at the call and does nothing else before the first await. To make a
        stream of an answer that comes at once there is `ResponseStream.from_awaitable`.
        """

    @exact_arguments()
    def create_session(self, session_id: str | None = None) -> AgentSession:
        """Return a new session; pass it to `run` to have the conversation remembered."""
        return AgentSession(session_id)

    @exact_arguments()
    def get_session(self, service_session_id: str, *, session_id: str | None = None) -> AgentSession:
        """Return a session that goes on with a conversation that a service has stored under `service_session_id`."""
        return AgentSession(session_id, service_session_id=service_session_id)

    @overload
    def run_sync(
        self, messages: AgentRunInputs = None, *, options: TypedOptions[T], **settings: Any
    ) -> AgentResponse[T]: ...
    @overload
    def run_sync(self, messages: AgentRunInputs = None, **settings: Any) -> AgentResponse[Any]: ...
    def run_sync(self, messages: AgentRunInputs = None, **settings: Any) -> AgentResponse[Any]:
        """Answer `messages` and wait for it: in a script, in a cell, inside a running loop.

        The run lives on the loop thread. An interrupt cancels it, keeps what there is in the session and raises
        KeyboardInterrupt. Arguments and errors are those of `run`.

        Raises:
            LoopError: called on the loop thread itself, e.g. in an async tool: use `await agent.run()` there.
        """
        return blocking(lambda: loops.run_sync(lambda: self.run(messages, **settings), on_cancelled=_stopped))

    def stream_sync(self, messages: AgentRunInputs = None, **settings: Any) -> SyncResponseStream[Any, Any]:
        """Answer `messages` and iterate the updates without `await`, as they come. Arguments are those of `run`."""
        reply = self.run(messages, stream=True, **settings)
        return SyncResponseStream(
            reply, blocking(lambda: loops.stream_sync(lambda: aiter(reply), on_cancelled=_stopped))
        )

    def start(self, messages: AgentRunInputs = None, **settings: Any) -> AgentRunHandle:
        """Begin to answer `messages` on the loop thread and return the handle at once. Arguments are those of `run`.

        Returns:
            A handle with `stop()`, `result(timeout=None)` and `done()` that can also be awaited; after `stop()` its
            result is a `RunCancelledError`.
        """
        reply = self.run(messages, stream=True, **settings)

        def stopped() -> RunCancelledError:
            error = _stopped()
            error.response = _what_there_is(reply)
            return error

        return AgentRunHandle(loops.loop_thread(), reply.get_final_response, stopped, copy_context()).begin()


class AgentRunHandle(loops.RunHandle[AgentResponse[Any]]):
    """A run that goes on by itself: `stop()`, `result(timeout=None)`, `done()`, `await handle`."""

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the run has ended, at most `timeout` seconds; tell whether it has."""
        return blocking(lambda: super(AgentRunHandle, self).wait(timeout))


def blocking(call: Callable[[], T]) -> T:
    """Make a blocking call into the loop room; its error becomes one of our tree."""
    try:
        return call()
    except loops.LoopError as error:
        raise LoopError(error.message, hint=error.hint) from error
    except NBAgentsError as error:
        forget_inner_frames(error)  # of two threads and their loops
        raise


def _what_there_is(reply: ResponseStream[Any, AgentResponse[Any]]) -> AgentResponse[Any] | None:
    try:
        return reply.finished()
    except NBAgentsError as error:
        return error.response


def _stopped() -> RunCancelledError:
    return RunCancelledError("The run was stopped.")
