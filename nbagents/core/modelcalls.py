"""One request to the model: its events, its retries, its usage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from nbagents.core.clients import ChatRequest, check_complete, reply_of
from nbagents.core.content import FunctionCall, ReasoningContent, TextContent
from nbagents.core.deadlines import check_time_for, items_in_time
from nbagents.core.errors import ModelError
from nbagents.core.events import RunEvent
from nbagents.core.failures import describe_error
from nbagents.core.folding import UpdateFolder
from nbagents.core.ids import new_id
from nbagents.core.journal import EarlierRun, KeptReply
from nbagents.core.messages import Message
from nbagents.core.middleware import ChatContext, reply_through
from nbagents.core.options import TOOL_OPTIONS
from nbagents.core.responses import ChatResponse
from nbagents.core.retries import wait_before_retry
from nbagents.core.run import RunContext
from nbagents.core.runlog import entered
from nbagents.core.service_history import note_conversation, undo_conversation
from nbagents.core.toolset import named_choice, offered
from nbagents.core.updates import AgentResponseUpdate, ChatResponseUpdate

BREATH_SECONDS = 0.010
"""A source without pauses lets the event loop run others this often."""
_KEPT_FACTS = ("latency_s", "ttft_s", "n_deltas", "first_delta_at", "last_delta_at", "replayed")


@dataclass(slots=True, eq=False)
class Reply:
    """What the model answered to one request."""

    messages: list[Message]
    finish_reason: str | None

    @property
    def calls(self) -> list[FunctionCall]:
        """The calls in it, in order."""
        return [call for message in self.messages for call in message.calls]


async def request_reply(run: RunContext, *, offer_tools: bool) -> AsyncGenerator[RunEvent, None]:
    """Ask the model, and again where that can help and what was shown may be taken back; leaves `run.reply`.

    Raises:
        ModelError: the last attempt failed.
        RunTimeoutError: the duration of the budget is used up.
    """
    request = _build_request(run, offer_tools=offer_tools)
    client = run.agent.client
    retries = getattr(client, "max_retries", 0)
    may_retract = not run.stream or getattr(client, "retry_streams", False)
    at_service = run.at_service
    attempt = 0
    while True:
        attempt += 1
        run.partial = None
        try:
            async with aclosing(_attempt(run, request, attempt)) as events:
                async for event in events:
                    yield event
            return
        except ModelError as error:
            partial = run.partial
            shown: list[str] = partial.message_ids if partial is not None and partial.messages() else []
            wait = wait_before_retry(error, attempt=attempt, retries=retries, shown=bool(shown) and not may_retract)
            if wait is None:
                raise
            check_time_for(wait, run.deadline, error)
            undo_conversation(run, request.conversation_id, at_service)
            yield _begin_again(run, attempt, wait, error, shown)
        await asyncio.sleep(wait)


def _begin_again(run: RunContext, attempt: int, wait: float, error: ModelError, shown: list[str]) -> RunEvent:
    """Log that the request is made again; the update takes back what was shown of the reply."""
    run.partial = None
    facts = {"attempt": attempt, "wait_s": wait, "error": describe_error(error), "retracts": shown}
    if not shown:
        return run.event("llm.retried", facts)
    update = AgentResponseUpdate(
        author_name=run.agent.name, run_id=run.run_id, agent_id=run.agent.id, retracts=tuple(shown)
    )
    return run.event("llm.retried", facts, update)


def _build_request(run: RunContext, *, offer_tools: bool) -> ChatRequest:
    client = run.agent.client
    tools = offered(run.tools.values()) if offer_tools else []
    options = run.options
    if not tools and not TOOL_OPTIONS.isdisjoint(options):
        options = {k: v for k, v in options.items() if k not in TOOL_OPTIONS}
    if options.get("tool_choice") not in (None, "auto", "none") and (run.step > 1 or _answers_calls(run)):
        options = {k: v for k, v in options.items() if k != "tool_choice"}  # a forced call is forced once
    if tools and isinstance(choice := options.get("tool_choice"), Mapping):
        options = {**options, "tool_choice": named_choice(choice, run.tools)}
    if run.output is not None:
        options = {**options, "response_format": run.output.to_option()}
    forced = getattr(client, "streaming", None)
    return ChatRequest(
        messages=run.conversation(),
        options=options,
        tools=tools,
        stream=run.stream if forced is None else forced,
        client_kwargs=run.client_kwargs,
        conversation_id=None if run.thread.stores_locally else run.session.service_session_id,
    )


def _answers_calls(run: RunContext) -> bool:
    """Whether the model is to read results: its turn goes on, perhaps after a person has approved a call."""
    return bool(run.transcript) and run.transcript[-1].role == "tool"


async def _attempt(run: RunContext, request: ChatRequest, attempt: int) -> AsyncGenerator[RunEvent, None]:
    call = _ModelCall(run, attempt)
    yield run.event("llm.requested", call.facts())
    kept = run.journal.next_reply() if run.journal is not None else None
    source = reply_of(run.agent.client, request) if kept is None else kept.updates()
    if kept is None and run.middleware.chat:
        context = ChatContext(run, request)
        source = reply_through(run.middleware.chat, context, lambda: reply_of(run.agent.client, context.request))
    if run.record.observer is not None:
        source = entered(run.record.observer, call.request_id, source)
    if run.deadline is not None:
        source = items_in_time(run.deadline, source)
    breathed = time.perf_counter()
    try:
        async with aclosing(source) as updates:
            async for update in updates:
                for event in call.take(update):
                    yield event
                if (now := time.perf_counter()) - breathed > BREATH_SECONDS:
                    await asyncio.sleep(0)
                    breathed = now
        folder = call.folder
        check_complete(folder)
    except BaseException as error:
        call.fail(error)
        raise
    event = call.succeed()
    if kept is not None:
        event.payload.update(kept.facts)
        run.children += [EarlierRun(kept.spent)] if kept.spent else []
    elif run.journal is not None:
        run.partial = folder  # what ends the run meanwhile keeps what was said
        await _keep(run, folder, event)
        run.partial = None
    yield event


async def _keep(run: RunContext, folder: UpdateFolder, event: RunEvent) -> None:
    """Have the reply on disk before anybody hears of it."""
    assert run.journal is not None
    assert run.reply is not None
    run.reply.messages = [run.signed(message) for message in run.reply.messages]
    response = ChatResponse.from_folder(folder)
    response.messages = run.reply.messages
    facts = {name: event.payload[name] for name in _KEPT_FACTS}
    await run.journal.keep_reply(run, KeptReply(response, facts))


class _ModelCall:
    """The bookkeeping of one attempt."""

    def __init__(self, run: RunContext, attempt: int) -> None:
        self.run = run
        self.attempt = attempt
        self.request_id = new_id("req")
        self.message_id = new_id("msg")
        run.partial = UpdateFolder()
        self.started = time.perf_counter()
        self.created_at = time.time()
        self.ttft: float | None = None
        self.n_deltas = 0
        self.first_delta_at: float | None = None
        self.replayed = False

    @property
    def folder(self) -> UpdateFolder:
        """The reply so far."""
        assert self.run.partial is not None
        return self.run.partial

    def facts(self) -> dict[str, object]:
        """What every event of this attempt says."""
        model = self.run.options.get("model") or getattr(self.run.agent.client, "model", None)
        return {
            "request_id": self.request_id,
            "step": self.run.step,
            "attempt": self.attempt,
            "model": self.folder.model or model,
        }

    def take(self, update: ChatResponseUpdate) -> list[RunEvent]:
        """Fold `update` and return it as events."""
        run = self.run
        if update.starts_message and not update.message_id:
            self.message_id = new_id("msg")
        own = AgentResponseUpdate(
            contents=update.contents,
            role=update.role or "assistant",
            author_name=update.author_name or run.agent.name,
            message_id=update.message_id or self.message_id,
            response_id=update.response_id,
            conversation_id=update.conversation_id,
            model=update.model,
            finish_reason=update.finish_reason,
            created_at=update.created_at or self.created_at,
            starts_message=update.starts_message,
            interrupted=update.interrupted,
            retracts=update.retracts,
            extra=update.extra,
            replayed=update.replayed,
            raw=update.raw,
            agent_id=run.agent.id,
            run_id=run.run_id,
        )
        self.folder.add(own, new_call_id=_new_call_id)
        if update.conversation_id is not None:
            note_conversation(run, update.conversation_id)
        self.replayed = self.replayed or update.replayed
        text, reasoning, called = "", "", False
        for content in update.contents:
            kind = type(content)
            if kind is TextContent:
                text += content.text  # type: ignore[union-attr]
            elif kind is ReasoningContent:
                reasoning += content.text  # type: ignore[union-attr]
            elif kind is FunctionCall:
                called = True
        if self.ttft is None and (text or reasoning or called):
            self.ttft = time.perf_counter() - self.started
            self.first_delta_at = time.time()
        if text and not reasoning:
            self.n_deltas += 1
            return [run.event("llm.delta", {"text": text}, own)]
        if reasoning:
            self.n_deltas += 1
            events = [run.event("llm.reasoning_delta", {"text": reasoning}, own)]
            return [*events, run.event("llm.delta", {"text": text})] if text else events
        return [run.event("llm.update", {}, own)]

    def succeed(self) -> RunEvent:
        """Close the attempt; leaves `run.reply`."""
        run, folder = self.run, self.folder
        facts = self.facts()
        run.partial = None
        usage, reasoning = folder.usage, folder.text_of("reasoning")
        run.usages.append(usage)
        if run.reduction is not None:
            run.reduction.learn(run.session, usage)
        run.finish_reason = folder.finish_reason
        run.model = folder.model or run.model
        run.response_id = folder.response_id
        messages = folder.messages()
        if not messages:
            messages = [Message("assistant", "", run.agent.name, self.message_id)]
        run.reply = Reply(messages, folder.finish_reason)
        if folder.finish_reason == "tool_calls" and not run.reply.calls:
            run.warnings.append("The model announced tool calls and made none; its text was taken as the answer.")
        return run.event(
            "llm.succeeded",
            {
                **facts,
                "usage": usage,
                "finish_reason": folder.finish_reason,
                "latency_s": time.perf_counter() - self.started,
                "ttft_s": self.ttft if run.stream else None,
                "text": folder.text,
                "reasoning": reasoning,
                "n_deltas": self.n_deltas,
                "first_delta_at": self.first_delta_at,
                "last_delta_at": time.time() if self.n_deltas else None,
                "replayed": self.replayed,
            },
        )

    def fail(self, error: BaseException) -> None:
        """Log that the attempt failed or was given up."""
        self.run.usages.append(self.folder.usage)
        if isinstance(error, ModelError) and not error.partial_text:
            error.partial_text = self.folder.text
        self.run.event(
            "llm.failed",
            {
                **self.facts(),
                "error": describe_error(error),
                "usage": self.folder.usage,
                "latency_s": time.perf_counter() - self.started,
                "ttft_s": self.ttft,
                "text": self.folder.text,
            },
        )


def _new_call_id() -> str:
    """An id of ours: those of providers may be missing, and come again."""
    return new_id("call")
