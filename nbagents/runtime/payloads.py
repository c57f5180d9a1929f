"""What each kind of chunk carries: one type for each payload, and how it is made of the event of the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from typing_extensions import TypedDict

from nbagents.analysis.jsontext import json_text
from nbagents.core.events import EVENT_TO_CHUNK_KIND

Payload = dict[str, Any]


class RunStreamChunkKind(StrEnum):
    """The kinds of chunks; a member equals its text."""

    RUN_STARTED = "run.started"
    LLM_DELTA = "llm.delta"
    LLM_REASONING_DELTA = "llm.reasoning_delta"
    LLM_FINISHED = "llm.finished"
    TOOL_STARTED = "tool.started"
    TOOL_DELTA = "tool.delta"
    TOOL_FINISHED = "tool.finished"
    APPROVAL_REQUESTED = "approval.requested"
    ARTIFACT = "artifact"
    VALIDATION_RETRY = "validation.retry"
    RETRY = "retry"
    RUN_FINISHED = "run.finished"


class _Exact(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid", use_attribute_docstrings=True)  # type: ignore[misc]


class RunStarted(_Exact):
    """A run has begun."""

    input: list[dict[str, Any]]
    """The messages that it was given, as `Message.to_dict` writes them."""
    budget: dict[str, float]
    """Its limits, those that are set."""


class Delta(_Exact):
    """The model's reply, or its reasoning, has grown."""

    text: str
    """What is new."""


class LLMFinished(_Exact):
    """The model has answered one request."""

    model: str | None
    """The model that answered."""
    usage: dict[str, Any] | None
    """The tokens that it reported; null if it did not."""
    finish_reason: str | None
    """`stop`, `length`, `tool_calls`, `content_filter` or the provider's word."""
    latency_s: float
    """Seconds from the request to the end of the reply."""
    ttft_s: float | None
    """Seconds to the first token; null if the reply came whole."""


class ToolStarted(_Exact):
    """A tool is called."""

    tool_id: str
    """The tool: its name, or `Group.function`."""
    call_id: str
    """The call, in all chunks about it."""
    params: dict[str, Any] | str | None
    """The arguments; a text where the model wrote no JSON object."""


class ToolDelta(_Exact):
    """A tool that still runs tells something."""

    tool_id: str
    """The tool."""
    call_id: str
    """The call."""
    text: str
    """What is new."""


class ToolSucceeded(_Exact):
    """A call has its result."""

    tool_id: str
    """The tool."""
    call_id: str
    """The call."""
    result: str
    """What the model reads of the result."""
    duration_s: float | None
    """Seconds that the call took."""


class ToolFailed(_Exact):
    """A call has failed, was refused or was not run: no result."""

    tool_id: str
    """The tool."""
    call_id: str
    """The call."""
    error: str
    """What the model reads of the error."""
    duration_s: float | None
    """Seconds that the call took; null if it did not begin."""


class ApprovalRequested(_Exact):
    """The run ends, as a person has to allow a call."""

    id: str
    """The request; its answer has the same id."""
    tool_id: str
    """The tool."""
    call_id: str
    """The call."""
    arguments: dict[str, Any]
    """The arguments of the call."""


class ArtifactEmitted(_Exact):
    """A tool hands out something beside its result."""

    name: str
    """What it is called."""
    kind: str
    """What it is: `data`, or the tool's word."""
    payload: Any
    """The thing, as far as JSON can hold it; a table is a preview."""


class ValidationRetry(_Exact):
    """The reply did not fit `output_type`; the model is asked again, and a full new sequence follows."""

    attempt: int
    """Which reply this was, from 1."""
    error: str
    """What did not fit."""


class RetryError(_Exact):
    """Why a request failed."""

    type: str
    """The class of the error."""
    code: str | None
    """A stable word for programs."""
    message: str
    """What was wrong."""
    hint: str | None
    """What to do about it."""


class Retry(_Exact):
    """A request failed and is made again."""

    attempt: int
    """Which attempt failed, from 1."""
    wait_s: float
    """Seconds until the next one."""
    error: RetryError
    """Why."""
    retracts: bool
    """The text that this request has shown is taken back: what follows begins the reply anew."""


class RunFinished(_Exact):
    """The run is over; the chunk has its `result`."""


PAYLOADS: dict[RunStreamChunkKind, Any] = {
    RunStreamChunkKind.RUN_STARTED: RunStarted,
    RunStreamChunkKind.LLM_DELTA: Delta,
    RunStreamChunkKind.LLM_REASONING_DELTA: Delta,
    RunStreamChunkKind.LLM_FINISHED: LLMFinished,
    RunStreamChunkKind.TOOL_STARTED: ToolStarted,
    RunStreamChunkKind.TOOL_DELTA: ToolDelta,
    RunStreamChunkKind.TOOL_FINISHED: ToolSucceeded | ToolFailed,
    RunStreamChunkKind.APPROVAL_REQUESTED: ApprovalRequested,
    RunStreamChunkKind.ARTIFACT: ArtifactEmitted,
    RunStreamChunkKind.VALIDATION_RETRY: ValidationRetry,
    RunStreamChunkKind.RETRY: Retry,
    RunStreamChunkKind.RUN_FINISHED: RunFinished,
}
"""The payload of each kind."""


def payload_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schema of the payload of each kind of chunk.

    Example:
        >>> payload_schemas()["llm.delta"]["required"]
        ['text']
    """
    return {kind.value: TypeAdapter(payload).json_schema() for kind, payload in PAYLOADS.items()}


def plain_text(text: str) -> str:
    """Return `text` as JSON can hold it: half a pair of surrogates is a question mark."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def plain_value(value: Any) -> Any:
    """Return `value` as JSON holds it, by the rules of the tables: secrets are masked, a table is a preview."""
    return json.loads(json_text(value))


def _delta(event: Payload) -> Payload:
    text = event["text"]
    return {"text": text if text.isascii() else plain_text(text)}


def _call(event: Payload) -> Payload:
    return {"tool_id": event["tool_id"], "call_id": event["call_id"] or event["id"]}


def _llm_finished(event: Payload) -> Payload:
    """By hand: to look for keys in it would find the word token in every usage, and take its time."""
    usage = event["usage"]
    return {
        "model": None if event["model"] is None else plain_text(event["model"]),
        "usage": None if usage is None else usage.to_dict(),
        "finish_reason": None if event["finish_reason"] is None else plain_text(event["finish_reason"]),
        "latency_s": event["latency_s"],
        "ttft_s": event["ttft_s"],
    }


def _tool_delta(event: Payload) -> Payload:
    call = _call(event)
    call["call_id"] = plain_text(call["call_id"])
    return {**call, "text": plain_text(str(event["text"]))}


def _picked(*names: str) -> Callable[[Payload], Payload]:
    """Return a function that takes these fields of an event."""
    return lambda event: {name: event[name] for name in names}


def _called(*names: str) -> Callable[[Payload], Payload]:
    """Return a function that takes these fields of an event about a call."""
    return lambda event: {**_call(event), **{name: event[name] for name in names}}


def _retry(event: Payload) -> Payload:
    return {**_picked("attempt", "wait_s", "error")(event), "retracts": bool(event["retracts"])}


_FIELDS: dict[str, Callable[[Payload], Payload]] = {
    "run.started": _picked("input", "budget"),
    "tool.called": _called("params"),
    "tool.succeeded": _called("result", "duration_s"),
    "tool.failed": _called("error", "duration_s"),
    "approval.requested": _called("id", "arguments"),
    "artifact.emitted": _picked("name", "kind", "payload"),
    "validation.retry": _picked("attempt", "error"),
    "llm.retried": _retry,
}
_PLAIN: dict[str, Callable[[Payload], Payload]] = {
    "llm.succeeded": _llm_finished,
    "llm.delta": _delta,
    "llm.reasoning_delta": _delta,
    "tool.delta": _tool_delta,
}


def _plainly(fields: Callable[[Payload], Payload]) -> Callable[[Payload], Payload]:
    def payload(event: Payload) -> Payload:
        made: Payload = plain_value(fields(event))
        return made

    return payload


CHUNKS: dict[str, tuple[RunStreamChunkKind, Callable[[Payload], Payload]]] = {
    name: (RunStreamChunkKind(kind), _PLAIN.get(name) or _plainly(_FIELDS[name]))
    for name, kind in EVENT_TO_CHUNK_KIND.items()
}
"""For each event that has a chunk: its kind, and what makes the payload."""
