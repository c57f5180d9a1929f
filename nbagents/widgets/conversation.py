"""A conversation in progress: runs of one agent on one session, on the loop thread, drawn into a transcript."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, Protocol

from nbagents import loop as loops
from nbagents.core import Agent, AgentResponse, AgentRunInputs, AgentSession, run_log
from nbagents.core.content import ApprovalRequest
from nbagents.core.errors import NBAgentsError, RunCancelledError
from nbagents.core.events import RunEvent
from nbagents.core.messages import normalize_messages
from nbagents.core.streams import ResponseStream
from nbagents.render import Transcript

AgentHandle = loops.RunHandle[AgentResponse[Any]]


class Listener(Protocol):
    """What is told of a conversation, on the loop thread."""

    def conversation_changed(self) -> None:
        """Something was drawn, or a run began to wait or ended."""

    def conversation_settled(self) -> None:
        """A run is over and drawn to its end."""


class Conversation:
    """Runs of `agent` on `session`, which take turns, and the transcript that they draw.

    Every method may be called from any thread. The transcript changes on the loop thread only, under `lock`.

    Args:
        agent: whose runs.
        session: the conversation; a new one by default.
        draws_questions: whether what the person says is in the transcript; above a cell's output it stands already.

    Attributes:
        approvals: the calls that wait for a person, by their id.
        listeners: who is told.
    """

    def __init__(self, agent: Agent, session: AgentSession | None = None, *, draws_questions: bool = True) -> None:
        self.agent = agent
        self.session = session or agent.create_session()
        self.transcript = Transcript()
        self.lock = threading.RLock()
        self.approvals: dict[str, ApprovalRequest] = {}
        self.listeners: list[Listener] = []
        self._draws_questions = draws_questions
        self._handles: list[AgentHandle] = []
        self._waiting: list[list[str]] = []
        self._stopping = False

    @property
    def state(self) -> str:
        """`idle`, `running`, or `stopping` after `stop()` until the run has ended."""
        if not self._handles:
            return "idle"
        return "stopping" if self._stopping else "running"

    @property
    def waiting(self) -> list[str]:
        """What was said and waits for the run that goes on."""
        return [text for texts in self._waiting for text in texts]

    def send(self, messages: AgentRunInputs, options: Mapping[str, Any] | None = None) -> AgentHandle:
        """Begin a run, after the ones that were sent before, and return its handle at once.

        Raises:
            ConfigurationError: messages or options that do not fit.
        """
        inputs = normalize_messages(messages)
        reply = self.agent.run(inputs, stream=True, session=self.session, options=options)
        texts = [message.text for message in inputs if message.text]
        self._waiting.append(texts)
        handle = loops.start(lambda: self._run(reply, texts), on_cancelled=_stopped)
        self._handles.append(handle)
        handle.add_done_callback(lambda handle: self._ended(handle, texts))
        loops.loop_thread().post(self._tell)
        return handle

    def note(self, text: str) -> None:
        """Draw a remark that is no part of a run."""
        with self.lock:
            self.transcript.note(text)

    def stop(self) -> None:
        """End the run that is going on, and those that wait for it."""
        handles = list(self._handles)
        if handles:
            self._stopping = True
            for handle in handles:
                handle.stop()
            loops.loop_thread().post(self._tell)

    def answer(self, request_id: str, *, approved: bool, reason: str | None = None) -> AgentHandle | None:
        """Allow or deny a call that waits, once; None if none of that id does."""
        request = self.approvals.pop(request_id, None)
        if request is None:
            return None
        return self.send([request.approve() if approved else request.deny(reason)])

    def load(self, timeout: float) -> None:
        """Draw the messages that the session has already; waits at most `timeout` seconds for them."""
        handle = loops.start(self._load)
        if loops.loop_thread().can_block_here():
            handle.result(timeout)

    def end(self, timeout: float) -> None:
        """Stop what runs and wait at most `timeout` seconds until it has cleaned up."""
        handles = list(self._handles)
        self.stop()
        if loops.loop_thread().can_block_here():
            for handle in handles:
                handle.wait(timeout)

    async def _load(self) -> None:
        thread = self.agent.thread(self.session)
        messages = await thread.get_messages() if thread.can_read else []
        with self.lock:
            self.transcript = Transcript.from_messages(messages)

    async def _run(self, reply: ResponseStream[Any, AgentResponse[Any]], texts: list[str]) -> AgentResponse[Any]:
        last: RunEvent | None = None
        approvals: list[ApprovalRequest] = []
        try:
            async with aclosing(reply.events()) as events:
                async for event in events:
                    if last is None:
                        self._waiting.remove(texts)  # its turn has come
                    last = event
                    self._draw(event)
            response = reply.finished()
            approvals = response.approvals
            return response
        except NBAgentsError as error:
            if last is None:
                self.note(str(error))
            raise
        finally:
            self.approvals = {request.id: request for request in approvals}
            self._draw_rest(last)
            for listener in list(self.listeners):
                listener.conversation_settled()

    def _draw(self, event: RunEvent) -> None:
        if event.name == "message.added" and event.payload["message"].role == "user" and not self._draws_questions:
            return
        with self.lock:
            self.transcript.apply(event)
        self._tell()

    def _draw_rest(self, last: RunEvent | None) -> None:
        """Draw what is in the log only: a run that is cancelled can give its last events to nobody."""
        record = run_log().get(last.run_id) if last is not None else None
        for event in record.events[last.sequence :] if record is not None and last is not None else ():
            self._draw(event)

    def _ended(self, handle: AgentHandle, texts: list[str]) -> None:
        self._handles.remove(handle)
        if texts in self._waiting:
            self._waiting.remove(texts)
        self._stopping = self._stopping and bool(self._handles)
        self._tell()

    def _tell(self) -> None:
        for listener in list(self.listeners):
            listener.conversation_changed()


def _stopped() -> RunCancelledError:
    return RunCancelledError("The run was stopped.")
