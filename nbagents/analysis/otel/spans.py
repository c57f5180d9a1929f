"""From the events of a run to its spans: one way, whether the run is going on or was long ago."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from nbagents.analysis.jsontext import clean_text, json_text
from nbagents.analysis.otel import attributes as said
from nbagents.analysis.otel.ancestry import Ancestry
from nbagents.analysis.otel.attributes import Attributes, span_name
from nbagents.analysis.otel.content import input_messages, message_text, output_messages
from nbagents.analysis.otel.ids import run_ids, span_id_of, trace_id_of
from nbagents.analysis.otel.metrics import RunMetrics
from nbagents.core.events import RunEvent
from nbagents.core.messages import Message
from nbagents.core.run import STATUS_OF_STOP_REASON

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Open:
    """A span that has begun, and what it says so far."""

    span: Span
    attributes: Attributes
    started_at: float
    reply: tuple[RunEvent, list[Message]] | None = None
    """The end of a request, and the messages of the reply that have come by now."""


@dataclass(slots=True, eq=False)
class RunSpans:
    """The spans of one run, made as its events come: `invoke_agent` > `chat` and `execute_tool`.

    Attributes:
        tracer: begins them.
        context: that of the caller.
        ancestry: where the run belongs, if there is no span in `context`.
        capture: put what people, models and tools said into them.
        metrics: takes the measurements of a run that happens now.
        sampled: whether a sampler lets the run through.
    """

    tracer: Tracer
    context: Context
    ancestry: Ancestry
    capture: bool
    metrics: RunMetrics | None = None
    sampled: bool = True
    _root: str = ""
    _facts: dict[str, Any] = field(default_factory=dict)
    _run: _Open | None = None
    _work: dict[str, _Open] = field(default_factory=dict)
    _ending: _Open | None = None
    _said: list[str] = field(default_factory=list)
    _last: Message | None = None
    _begun: dict[str, int] = field(default_factory=dict)
    _broken: bool = False

    def saw(self, event: RunEvent) -> None:
        """Take note of an event; what goes wrong with telemetry is logged, and never hurts the run."""
        if self._broken:
            return
        try:
            self.take(event)
        except Exception as error:  # noqa: BLE001  processors and samplers are other people's code
            self._broken = True
            _log.warning("The run %s has no more telemetry: %s", event.run_id, clean_text(repr(error)))

    def enter(self, work_id: str) -> Callable[[], object]:
        """Make the span of a request or call the current one here; call the result to undo that."""
        opened = self._work.get(work_id)
        if opened is None:
            return _nothing
        return partial(otel_context.detach, otel_context.attach(trace.set_span_in_context(opened.span)))

    def take(self, event: RunEvent) -> None:
        """Begin or end the span that an event is about."""
        if self._ending is not None and not self._is_of_reply(event):
            self._end_request(self._ending)
        handle = _HANDLERS.get(event.name)
        if handle is not None and (self._run is not None or event.name == "run.started"):
            handle(self, event)

    def close(self, moment: float) -> None:
        """End what has no end in the log: the program was killed, or the run goes on."""
        if self._ending is not None:
            self._end_request(self._ending)
        for work in list(self._work.values()):
            self._finish(work, {}, moment)
        self._work.clear()
        if self._run is not None:
            self._finish(self._run, {}, moment)
            self._run = None

    def _begin(self, name: str, part: str, kind: SpanKind, attributes: Attributes, event: RunEvent) -> _Open:
        run_id = event.run_id
        self._begun[part] = times = self._begun.get(part, 0) + 1
        key = part if times == 1 else f"{part}#{times}"
        context = self.context if self._run is None else trace.set_span_in_context(self._run.span, self.context)
        run_ids.set_next(trace_id_of(self._root), span_id_of(run_id, key))
        try:
            span = self.tracer.start_span(
                name, context=context, kind=kind, attributes=attributes, start_time=_nanoseconds(event.timestamp)
            )
        finally:
            run_ids.clear_next()
        return _Open(span, attributes, event.timestamp)

    def _finish(self, opened: _Open, attributes: Attributes, moment: float, failure: str | None = None) -> None:
        """End a span; `failure` describes the error that `error.type` names, where it may be told."""
        opened.attributes = {**opened.attributes, **attributes}
        opened.span.set_attributes(attributes)
        if "error.type" in attributes:
            text = clean_text(failure) if self.capture and failure else None
            opened.span.set_status(Status(StatusCode.ERROR, text))
        opened.span.end(_nanoseconds(max(moment, opened.started_at)))

    def _measure(self, opened: _Open, seconds: float) -> None:
        if self.metrics is not None:
            self.metrics.record(opened.attributes, seconds, trace.set_span_in_context(opened.span, self.context))

    def _begin_run(self, event: RunEvent) -> None:
        self._facts = {**event.payload, "run_id": event.run_id}
        self._root, self.context = self.ancestry.place(event.run_id, event.payload, self.context)
        attributes = said.run_attributes(self._facts)
        if self.capture:
            attributes["gen_ai.input.messages"] = input_messages(map(message_text, event.payload["input"]))
        name = span_name("invoke_agent", event.payload["agent"])
        self._run = self._begin(name, "", SpanKind.INTERNAL, attributes, event)
        self.sampled = self._run.span.get_span_context().trace_flags.sampled

    def _begin_request(self, event: RunEvent) -> None:
        request = event.payload
        attributes = said.request_attributes(self._facts, request)
        if self.capture:
            attributes["gen_ai.input.messages"] = input_messages(self._said)
        kind = SpanKind.INTERNAL if said.is_in_process(self._facts) else SpanKind.CLIENT
        name, part = span_name("chat", request["model"]), f"chat {request.get('step')}.{request.get('attempt')}"
        self._work[request["request_id"]] = self._begin(name, part, kind, attributes, event)

    def _reply(self, event: RunEvent) -> None:
        opened = self._work.pop(event.payload["request_id"], None)
        if opened is None:
            return
        opened.reply = (event, [])
        if self.capture and event.name == "llm.succeeded":
            self._ending = opened  # its messages are the next events
        else:
            self._end_request(opened)

    def _is_of_reply(self, event: RunEvent) -> bool:
        return event.name == "message.added" and event.payload["message"].role == "assistant"

    def _end_request(self, opened: _Open) -> None:
        self._ending = None
        assert opened.reply is not None
        event, messages = opened.reply
        attributes = said.reply_attributes(event.payload)
        if messages:
            attributes["gen_ai.output.messages"] = output_messages(messages, event.payload.get("finish_reason"))
        failure = (event.payload.get("error") or {}).get("message")
        self._finish(opened, attributes, event.timestamp, failure)
        self._measure(opened, event.payload.get("latency_s") or event.timestamp - opened.started_at)

    def _add_message(self, event: RunEvent) -> None:
        if not self.capture:
            return
        message: Message = event.payload["message"]
        self._said.append(message_text(message))
        self._last = message
        if self._ending is not None and self._ending.reply is not None:
            self._ending.reply[1].append(message)

    def _begin_call(self, event: RunEvent) -> None:
        call = event.payload
        attributes = said.call_attributes(self._facts, call)
        if self.capture:
            attributes["gen_ai.tool.call.arguments"] = _arguments(call.get("params"))
        name = span_name("execute_tool", call.get("tool_id"))
        self._work[call["id"]] = self._begin(name, call["id"], SpanKind.INTERNAL, attributes, event)

    def _end_call(self, event: RunEvent) -> None:
        end = event.payload
        opened = self._work.pop(end["id"], None)
        if opened is None:
            return  # it was never run
        attributes = said.call_end_attributes(end)
        if self.capture and end.get("result") is not None:
            attributes["gen_ai.tool.call.result"] = clean_text(str(end["result"]))
        self._finish(opened, attributes, event.timestamp, end.get("error"))
        self._measure(opened, end.get("duration_s") or event.timestamp - opened.started_at)

    def _end_run(self, event: RunEvent) -> None:
        end, run = event.payload, self._run
        assert run is not None
        status = STATUS_OF_STOP_REASON[end["stop_reason"]]
        left = "approval" if status == "approval" else "cancelled"
        for work in list(self._work.values()):  # the agent that it calls waits for a person
            self._finish(work, {"nbagents.status": left}, event.timestamp)
        self._work.clear()
        attributes = said.run_end_attributes(end, status)
        if (answer := self._last) is not None and answer.role == "assistant":
            attributes["gen_ai.output.messages"] = output_messages([answer], end.get("finish_reason"))
        self._finish(run, attributes, event.timestamp, (end.get("error") or {}).get("message"))
        self._measure(run, event.timestamp - run.started_at)
        self._run = None


_HANDLERS: dict[str, Callable[[RunSpans, RunEvent], None]] = {
    "run.started": RunSpans._begin_run,
    "llm.requested": RunSpans._begin_request,
    "llm.succeeded": RunSpans._reply,
    "llm.failed": RunSpans._reply,
    "message.added": RunSpans._add_message,
    "tool.called": RunSpans._begin_call,
    "tool.succeeded": RunSpans._end_call,
    "tool.failed": RunSpans._end_call,
    "run.ended": RunSpans._end_run,
}


def _arguments(arguments: Any) -> str:
    """The arguments of a call as JSON; a text that is none is as the model wrote it."""
    return clean_text(arguments) if isinstance(arguments, str) else json_text(arguments or {})


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000) * 1_000


def _nothing() -> None:
    """There was nothing to undo."""
