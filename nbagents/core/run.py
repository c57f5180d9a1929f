"""The state of one run: what it was asked, what it has so far, and what of it is stored."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nbagents.core.budget import RunBudget
from nbagents.core.content import ApprovalResponse, Content, FunctionCall, FunctionResult
from nbagents.core.events import LIVE_EVENTS, RunEvent
from nbagents.core.failures import describe_error, traceback_text
from nbagents.core.folding import UpdateFolder
from nbagents.core.ids import new_id
from nbagents.core.messages import AgentRunInputs, Message, attributed, normalize_messages, own_message, result_message
from nbagents.core.outputs import OutputFormat
from nbagents.core.prices import request_cost
from nbagents.core.responses import AgentResponse, joined_text
from nbagents.core.runlog import RunRecord, run_log
from nbagents.core.sessions import AgentSession
from nbagents.core.streamhooks import outcome
from nbagents.core.tagging import TagValue, current_tags
from nbagents.core.threads import Thread
from nbagents.core.tools import ApprovalNeeded
from nbagents.core.toolset import Tool, find_tool
from nbagents.core.uninterrupted import uninterrupted
from nbagents.core.updates import AgentResponseUpdate
from nbagents.core.usage import Usage, total_usage, usage_complete

if TYPE_CHECKING:
    from nbagents.core.agent import Agent
    from nbagents.core.journal import EarlierRun, RunJournal
    from nbagents.core.middleware import MiddlewareChain
    from nbagents.core.modelcalls import Reply
    from nbagents.core.providers import ContextProvider
    from nbagents.core.reducers.view import RunReduction

OnMessage = Callable[[Message], Any]

current_run: ContextVar[RunContext | None] = ContextVar("current_run", default=None)
"""The run whose tool is being called: a run that begins inside it is its child."""

current_call: ContextVar[str | None] = ContextVar("current_call", default=None)
"""Our id of the call for which that tool is being called."""

_NO_ERROR = ("cancelled", "completed")
STATUS_OF_STOP_REASON = {
    "completed": "ok",
    "refused": "ok",
    "approval_required": "approval",
    "max_steps": "limit",
    "timeout": "limit",
    "budget_exhausted": "limit",
    "cancelled": "cancelled",
    "failed": "error",
}
"""How a run ended, in the five words of the tables."""


@dataclass(slots=True, repr=False, eq=False)
class RunContext:
    """One run. What stands above the line is fixed when it is prepared; the loop changes what stands below.

    Attributes:
        inputs: the messages that the caller gave.
        answers: the answers to approval requests among them.
        system: the system message, or None.
        arguments: what the instructions were rendered with.
        stream: ask the endpoint for a stream.
        transcript: the conversation as the next request sends it, without the system message.
        added: what the run has added, without the input.
        unstored: messages that are not in the thread yet.
        usages: the usage of each model request.
        reply: what the model answered last, until it is taken.
        partial: the reply that is still arriving.
        parent: the run whose tool began this one; their budgets hold for this one too.
        children: the runs that tools of this one have begun, also before an interruption.
        needed: calls that turned out to need a person, by their id.
        resumed: what such calls left behind in an earlier run.
        reply_instead: what middleware answers in the place of the model.
        reduction: what chooses which messages of the transcript a request brings, where a reducer is set.
        provided: messages of context providers; requests have them between history and input.
        history: how many messages of the transcript were there before the run.
        at_service: how many messages of the transcript the service has, where it stores the conversation.
        confirmed: the reply that is arriving has said under which id the service stores it.
        entered: context providers that were asked and are still to be told how the run ended.
        asked: the inputs are in the transcript.
        settled: how many messages of `added` will stay as they are; `on_message` knows of these.
        error: what ended the run early, for those who look after it.
        metadata: for middleware to keep things in; what is there when the run begins is in its log.
        deps: what its tools get as `ToolContext.deps`.
        parent_run_id: the run that this one is part of, where no tool of it began this one.
        parent_call_id: our id of the call of `parent` for which this one began.
        tags: what the caller called runs like this one, and their parents.
        open_calls: calls that are not all answered yet, with the answers so far in `results`.
        journal: what keeps the steps of the run on disk, where it can be taken up again.
    """

    agent: Agent
    run_id: str
    session: AgentSession
    thread: Thread
    inputs: list[Message]
    answers: list[ApprovalResponse]
    system: Message | None
    arguments: dict[str, Any]
    tools: dict[str, Tool]
    options: dict[str, Any]
    client_kwargs: Mapping[str, Any]
    budget: RunBudget
    output: OutputFormat | None
    stream: bool
    on_message: OnMessage | None
    middleware: MiddlewareChain
    parent: RunContext | None
    # ---
    record: RunRecord = field(init=False)
    transcript: list[Message] = field(default_factory=list)
    added: list[Message] = field(default_factory=list)
    unstored: list[Message] = field(default_factory=list)
    usages: list[Usage | None] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    step: int = 0
    tool_calls: int = 0
    consecutive_errors: int = 0
    sequence: int = 0
    finish_reason: str | None = None
    model: str | None = None
    response_id: str | None = None
    conversation_id: str | None = None
    value: Any = None
    deadline: float | None = None
    stop_reason: str = "completed"
    validation_retries: int = 0
    reply: Reply | None = None
    partial: UpdateFolder | None = None
    open_calls: list[FunctionCall] = field(default_factory=list)
    results: dict[str, FunctionResult] = field(default_factory=dict)
    children: list[RunContext | EarlierRun] = field(default_factory=list)
    needed: dict[str, ApprovalNeeded] = field(default_factory=dict)
    resumed: dict[str, dict[str, Any]] = field(default_factory=dict)
    reply_instead: list[Message] | None = None
    reduction: RunReduction | None = None
    provided: list[Message] = field(default_factory=list)
    history: int = 0
    at_service: int = 0
    confirmed: bool = False
    entered: list[ContextProvider] = field(default_factory=list)
    asked: bool = False
    settled: int = 0
    error: BaseException | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    deps: Any = None
    journal: RunJournal | None = None
    parent_run_id: str | None = None
    parent_call_id: str | None = field(default_factory=current_call.get)
    tags: Mapping[str, TagValue] = field(default_factory=current_tags)
    response: AgentResponse[Any] | None = None

    def __repr__(self) -> str:
        return f"RunContext({self.run_id!r}, agent={self.agent.name!r})"  # arguments and headers are nobody's business

    @property
    def text(self) -> str:
        """The text of the run so far."""
        return joined_text(self.added)

    def answer(self, messages: AgentRunInputs, value: Any = None) -> None:
        """Give this answer instead of the model's last one; for middleware, with or without `call_next()`.

        A text becomes one message of the agent; `value` is that of the response.
        """
        given = [Message("assistant", messages)] if isinstance(messages, str) else normalize_messages(messages)
        named = [attributed(message, author_name=self.agent.name, message_id=new_id("msg")) for message in given]
        self.reply_instead, self.value = named, value

    def event(self, name: str, payload: dict[str, Any], update: AgentResponseUpdate | None = None) -> RunEvent:
        """Make the next event and keep it, unless it is one that is only streamed."""
        if name in LIVE_EVENTS:
            return RunEvent(self.run_id, self.sequence, name, time.time(), payload, update)
        self.sequence += 1
        event = RunEvent(self.run_id, self.sequence, name, time.time(), payload, update)
        self.record.append(event)
        return event

    def begin(self) -> RunEvent:
        """Open the log."""
        self.record = run_log().open(self.run_id)
        if self.budget.max_duration_ms is not None:
            self.deadline = time.monotonic() + self.budget.max_duration_ms / 1000
        if self.parent is not None:
            self.parent.children.append(self)
            self.tags = {**self.parent.tags, **self.tags}
            ends = [one.deadline for one in (self, self.parent) if one.deadline is not None]
            self.deadline = min(ends, default=None)
        client = self.agent.client
        return self.event(
            "run.started",
            {
                "agent": self.agent.name,
                "agent_id": self.agent.id,
                "session_id": self.session.session_id,
                "parent_run_id": self.parent_run_id or (self.parent.run_id if self.parent else None),
                "model": self.options.get("model") or getattr(client, "model", None),
                "provider": getattr(client, "provider", None),
                "host": getattr(client, "host", None),
                "params": {k: v for k, v in self.options.items() if k != "response_format"},
                "input": list(self.inputs),
                "budget": self.budget.to_dict(),
                "tags": dict(self.tags),
                **({"parent_call_id": self.parent_call_id} if self.parent and not self.parent_run_id else {}),
                **({"metadata": dict(self.metadata)} if self.metadata else {}),
            },
        )

    def take(self, message: Message, *, is_input: bool = False, shown: bool = True) -> RunEvent:
        """Add `message` to the conversation; it is stored with the next `commit`.

        Args:
            message: what is added.
            is_input: it comes from the caller.
            shown: its contents have gone out as updates already; if not, the event is their update.
        """
        message = (own_message if is_input else attributed)(message, **self._signature())
        self.transcript.append(message)
        self.unstored.append(message)
        if not is_input:
            self.added.append(message)
        update = None
        if not shown or message.interrupted:
            update = self.update(message, () if shown else message.contents)
            update.interrupted = message.interrupted
        return self.event("message.added", {"message": message}, update)

    def signed(self, message: Message) -> Message:
        """Return `message` with time, run and agent, where it has none yet."""
        return attributed(message, **self._signature())

    def _signature(self) -> dict[str, Any]:
        return {"created_at": time.time(), "run_id": self.run_id, "agent_id": self.agent.id}

    def update(self, message: Message, contents: Sequence[Content]) -> AgentResponseUpdate:
        """Return the increment that adds `contents` to `message`."""
        return AgentResponseUpdate(
            contents=contents,
            role=message.role,
            author_name=message.author_name,
            message_id=message.message_id,
            run_id=self.run_id,
            agent_id=self.agent.id,
        )

    def tool_succeeded(self, call: FunctionCall, result: FunctionResult, duration_s: float) -> RunEvent:
        """Log that a call gave a result."""
        payload = {**self.call_facts(call), "result": result.result, "duration_s": duration_s}
        return self.event("tool.succeeded", payload, self._result_update(result))

    def tool_failed(
        self,
        call: FunctionCall,
        result: FunctionResult,
        *,
        status: str,
        cause: BaseException | None = None,
        duration_s: float | None = None,
    ) -> RunEvent:
        """Log that a call gave no result; `status` says how: error, invalid, timeout, denied, cancelled or limit."""
        payload = {
            **self.call_facts(call),
            "error": result.error,
            "error_type": type(cause).__name__ if cause is not None else None,
            "traceback": traceback_text(cause) if cause is not None else None,
            "duration_s": duration_s,
            "status": status,
        }
        return self.event("tool.failed", payload, self._result_update(result))

    def call_facts(self, call: FunctionCall) -> dict[str, Any]:
        """What every event of this call says."""
        return {"tool_id": self.tool_id_of(call), "call_id": call.call_id, "id": call.id, "step": self.step}

    def tool_id_of(self, call: FunctionCall) -> str:
        """What events call the tool: `Group.function` for a method of an object, else the name in the call."""
        tool = find_tool(self.tools, call.name)
        return tool.tool_id if tool is not None else call.name

    def _result_update(self, result: FunctionResult) -> AgentResponseUpdate:
        return self.update(result_message(result), [result])

    def conversation(self) -> list[Message]:
        """The messages of the next request."""
        system = [self.system] if self.system else []
        if self.reduction is not None:
            return [*system, *self.reduction.with_provided(self.provided, self.transcript[self.history :])]
        if self.at_service:
            return [*system, *self.transcript[self.at_service :]]
        if not self.provided:
            return [*system, *self.transcript]
        return [*system, *self.transcript[: self.history], *self.provided, *self.transcript[self.history :]]

    async def settle(self) -> None:
        """What `added` holds by now will stay: tell `on_message` of what is new, the one place where that happens."""
        begin, self.settled = self.settled, len(self.added)
        if self.on_message is None:
            return
        for message in self.added[begin:]:
            try:
                await outcome(self.on_message(message))
            except BaseException:
                self.on_message = None  # it failed, or was cancelled in the middle: it is told nothing more
                raise

    async def commit(self) -> None:
        """Store what is not stored yet, together."""
        if self.unstored:
            messages, self.unstored = self.unstored, []
            if self.journal is not None and not (messages := self.journal.not_stored(messages)):
                return
            saving = self._store(messages)
            await (uninterrupted(saving) if self.thread.waits or self.entered else saving)

    async def _store(self, messages: Sequence[Message]) -> None:
        if self.reduction is not None:
            messages = self.reduction.stamped(messages)
        await self.thread.store(messages)
        for provider in self.entered:
            try:
                await provider.on_stored(self, messages)
            except Exception as error:  # noqa: BLE001  the messages are stored, and the run can go on
                self.note_failure(provider.name, error)

    def note_failure(self, source: str, error: Exception) -> None:
        """Tell of something that failed beside the run, by name, in the log, the response and as a warning."""
        failure = describe_error(error)
        text = f"{source} failed: {failure['message']}"
        self.event("provider.failed", {"source": source, "error": failure})
        self.warnings.append(text)
        warnings.warn(text, stacklevel=2)

    def and_parents(self) -> Iterator[RunContext]:
        """This run, the one whose tool began it, and so on upwards."""
        run: RunContext | None = self
        while run is not None:
            yield run
            run = run.parent

    @property
    def usage(self) -> Usage | None:
        """The usage of all model requests so far, those of sub-agents included, each once."""
        if len(self.usages) == 1 and not self.children:
            return self.usages[0]
        return total_usage([*self.usages, *(child.usage for child in self.children)])

    def tokens(self) -> int:
        """The tokens that were reported so far."""
        return (usage.total_tokens or 0) if (usage := self.usage) else 0

    def cost(self) -> float:
        """US dollars of what is known of `usage`: what one request does not report lifts no limit."""
        asked = self.options.get("model") or getattr(self.agent.client, "model", None) or ""
        costs = [request_cost(self.model or asked, usage, asked=asked) for usage in self.usages]
        return sum(cost or 0.0 for cost in costs) + sum(child.cost() for child in self.children)

    def end(self, stop_reason: str, error: BaseException | None = None) -> RunEvent:
        """Close the log and make the response."""
        usage = self.usage
        self.response = AgentResponse(
            messages=list(self.added),
            response_id=self.response_id,
            conversation_id=self.conversation_id,
            model=self.model,
            usage=usage,
            finish_reason=self.finish_reason,
            created_at=time.time(),
            value=self.value,
            session=self.session,
            run_id=self.run_id,
            agent_id=self.agent.id,
            stop_reason=stop_reason,
            warnings=list(self.warnings),
        )
        event = self.event(
            "run.ended",
            {
                "stop_reason": stop_reason,
                "finish_reason": self.finish_reason,
                "error": describe_error(error) if error is not None and stop_reason not in _NO_ERROR else None,
                "output_text": self.response.text,
                "usage": total_usage(self.usages) if self.children else usage,
                "usage_complete": usage_complete(self.usages),
                "warnings": list(self.warnings),
            },
            AgentResponseUpdate(
                finish_reason=self.finish_reason,
                run_id=self.run_id,
                agent_id=self.agent.id,
                author_name=self.agent.name,
                stop_reason=stop_reason,
            ),
        )
        run_log().close(self.record)
        return event
