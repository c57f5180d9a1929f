"""Events at rest: the payload as JSON with secrets masked, whole or without anybody's words, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from pydantic_core import from_json, to_json

from nbagents.analysis.event_fields import check_fields, checked_error, checked_message, checked_usage
from nbagents.analysis.jsontext import json_text
from nbagents.core.content import FunctionCall, FunctionResult, TextContent
from nbagents.core.errors import NBAgentsError, StoreError
from nbagents.core.events import EVENT_TO_CHUNK_KIND, LIVE_EVENTS, OTHER_EVENTS, RunEvent
from nbagents.core.hosted import HostedToolCall, HostedToolResult
from nbagents.core.messages import Message
from nbagents.core.runlog import RunRecord
from nbagents.core.secrets import may_hold_secret
from nbagents.core.usage import Usage

Capture = Literal["full", "metadata"]
CAPTURES: tuple[str, ...] = get_args(Capture)

_KEPT_NAMES = dict(EVENT_TO_CHUNK_KIND) | dict.fromkeys(OTHER_EVENTS, "")
EVENT_NAMES = frozenset(_KEPT_NAMES) - LIVE_EVENTS
"""The events that are kept."""

_NAMES = frozenset(_KEPT_NAMES) - LIVE_EVENTS
"""The events that are kept."""

_ALWAYS_THERE: dict[str, frozenset[str]] = {
    "run.started": frozenset({"agent", "session_id", "parent_run_id", "model", "provider", "params", "input", "tags"}),
    "llm.requested": frozenset({"request_id", "step", "attempt", "model"}),
    "llm.succeeded": frozenset({"request_id"}),
    "llm.failed": frozenset({"request_id", "error"}),
    "message.added": frozenset({"message"}),
    "tool.failed": frozenset({"status"}),
    "run.ended": frozenset({"stop_reason", "error"}),
}
"""Fields without which the tables cannot do."""

_NAMES = frozenset(
    {
        *("agent", "agent_id", "session_id", "parent_run_id", "parent_call_id", "model", "provider", "host"),
        *("request_id", "finish_reason"),
        *("tool_id", "call_id", "id", "error_type", "status", "name", "kind", "stop_reason", "thumbs"),
    }
)
"""Fields whose texts name something and are nobody's words."""


def stored_payloads(events: Sequence[RunEvent], capture: Capture) -> list[str]:
    """Return the payloads of `events` as they are kept: what `json_text` gives, found faster."""
    if capture == "metadata":
        return [json_text(_without_words(event.payload)) for event in events]
    payloads = _harmless(events)
    if payloads is None:
        return [json_text(event.payload) for event in events]
    try:
        return [to_json(payload, inf_nan_mode="null").decode() for payload in payloads]
    except ValueError:  # something in one of them is odd
        return [json_text(payload) for payload in payloads]


def _harmless(events: Sequence[RunEvent]) -> list[dict[str, Any]] | None:
    """Return the payloads as JSON has them, or None where there may be a secret in them.

    What is said in a run occurs in several of its events, and is searched once.
    """
    texts: set[str] = set()
    try:
        payloads = [_READ_OUT.get(event.name, _read_out)(event.payload, texts) for event in events]
        texts.discard(None)  # words that were left out
        return None if may_hold_secret("\n".join(texts)) else payloads
    except (KeyError, TypeError, AttributeError):  # an event that somebody has made in another way
        return None


def _read_out(payload: dict[str, Any], texts: set[str]) -> dict[str, Any]:
    """Return `payload` with the objects of this package as dicts, and add the texts in it to `texts`."""
    _collect(payload, texts)
    return payload


def _read_out_start(payload: dict[str, Any], texts: set[str]) -> dict[str, Any]:
    texts.update((payload["agent"], payload["session_id"], payload["model"]))
    for words in (payload["params"], payload["tags"], payload.get("metadata")):
        if words:
            texts.update(words)
            _collect(words, texts)
    return {**payload, "input": [_read_out_message(message, texts) for message in payload["input"]]}


def _read_out_added(payload: dict[str, Any], texts: set[str]) -> dict[str, Any]:
    return {"message": _read_out_message(payload["message"], texts)}


def _read_out_message(message: Message, texts: set[str]) -> dict[str, Any]:
    texts.update((message.author_name or "", message.message_id or ""))
    record = message.to_dict()
    if message.extra:
        _collect(record, texts)
        return record
    if len(message.contents) == 1 and type(piece := message.contents[0]) is TextContent and not piece.extra:
        texts.add(piece.text)  # most of them
        return record
    for piece, written in zip(message.contents, record["contents"], strict=True):
        _collect(written, texts)
        if piece.extra:
            texts.update(piece.extra)
    return record


def _read_out_request(payload: dict[str, Any], texts: set[str]) -> dict[str, Any]:
    return payload  # the start of the run has the name of the model


def _read_out_reply(payload: dict[str, Any], texts: set[str]) -> dict[str, Any]:
    texts.update((payload["text"], payload["reasoning"], payload["model"] or "", payload["finish_reason"] or ""))
    usage = payload["usage"]
    return payload if usage is None else {**payload, "usage": usage.to_dict()}


def _read_out_end(payload: dict[str, Any], texts: set[str]) -> dict[str, Any]:
    texts.update((payload["output_text"], *payload["warnings"]))
    if payload["error"]:
        _collect(payload["error"], texts)
    usage = payload["usage"]
    return payload if usage is None else {**payload, "usage": usage.to_dict()}


_READ_OUT: dict[str, Callable[[dict[str, Any], set[str]], dict[str, Any]]] = {
    "run.started": _read_out_start,
    "message.added": _read_out_added,
    "llm.requested": _read_out_request,
    "llm.succeeded": _read_out_reply,
    "run.ended": _read_out_end,
}
"""The events of every run; the rest is looked through field by field, which takes longer."""


def _collect(value: Any, texts: set[str]) -> None:
    """Add all texts in `value`, names of fields too."""
    for item in value.values() if type(value) is dict else value:
        kind = type(item)
        if kind is str:
            texts.add(item)
        elif kind is dict:
            texts.update(map(str, item))
            _collect(item, texts)
        elif kind is list or kind is tuple:
            _collect(item, texts)
        elif kind not in _WORDLESS:
            texts.add(_UNKNOWN)


_WORDLESS = frozenset({int, float, bool, type(None)})
_UNKNOWN = "secret"
"""Stands for an object that may say anything."""


def _plain_json(value: Any) -> str | None:
    """Return `value` as JSON, or None where something in it is odd and needs the rules of `json_text`."""
    try:
        return to_json(value, inf_nan_mode="null").decode()
    except ValueError:
        return None


def stored_part(events: Sequence[RunEvent], capture: Capture) -> tuple[str, str]:
    """Return consecutive events of a run as they are kept together, a JSON list.

    With it comes the payload of the first, or an empty text where nothing in it is masked or left out.
    """
    payloads = _harmless(events) if capture == "full" else None
    if payloads is not None:
        records = [
            {"sequence": event.sequence, "name": event.name, "timestamp": event.timestamp, "payload": payload}
            for event, payload in zip(events, payloads, strict=True)
        ]
        if (text := _plain_json(records)) is not None:
            return text, ""
    texts = stored_payloads(events, capture)
    listed = ",".join(
        f'{{"sequence":{event.sequence},"name":"{event.name}","timestamp":{event.timestamp!r},"payload":{text}}}'
        for event, text in zip(events, texts, strict=True)
    )
    return f"[{listed}]", texts[0]


def read_part(run_id: str, text: str) -> list[RunEvent]:
    """Return the events that `stored_part` made `text` of.

    Raises:
        StoreError: something else; the text goes on where the caller has named the place.
    """
    try:
        records = from_json(text, allow_inf_nan=False, cache_strings="keys")
    except ValueError:
        records = parse_json(text)
    try:
        return [event_of(run_id, one["sequence"], one["name"], one["timestamp"], one["payload"]) for one in records]
    except (TypeError, KeyError) as error:
        raise StoreError(f"holds something that is no list of events: {error}") from error


def event_of(run_id: str, sequence: int, name: str, timestamp: float, payload: Any) -> RunEvent:
    """Return the event with this payload, whose values are made what they were: messages, usage.

    Raises:
        StoreError: it is none; the text goes on where the caller has named the place.
    """
    if name not in EVENT_NAMES:
        raise StoreError(
            f"holds an event {name!r:.60} that this nbagents does not know.",
            hint="A newer nbagents may have written it, or another program.",
        )
    check_fields(name, payload)
    try:
        for key, read in _READERS.get(name, ()):
            if (value := payload.get(key)) is not None:
                payload[key] = read(value)
    except (NBAgentsError, TypeError, AttributeError, ValueError) as error:
        raise StoreError(f"holds an event {name!r} that cannot be read: {error}") from error
    return RunEvent(run_id, sequence, name, timestamp, payload)


def check_record(record: RunRecord) -> None:
    """Make sure that a record can be shown.

    Raises:
        StoreError: its beginning is missing; the text goes on where the caller has named the place.
    """
    if not record.events or record.events[0].name != "run.started":
        raise StoreError(f"holds the run {record.run_id!r:.60} without its beginning.")
    requested = {event.payload["request_id"] for event in record.events if event.name == "llm.requested"}
    answered = {e.payload["request_id"] for e in record.events if e.name in ("llm.succeeded", "llm.failed")}
    if not answered <= requested:
        raise StoreError(f"holds the run {record.run_id!r:.60} with an answer to a request that is not there.")


def parse_json(text: str) -> Any:
    """Read what a stricter parser does not: halves of surrogate pairs, and NaN, which becomes None.

    Raises:
        StoreError: it is no JSON; the text goes on where the caller has named the place.
    """
    try:
        return json.loads(text, parse_constant=lambda name: None)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"holds something that is no JSON: {error}") from error


def _messages(records: list[Any]) -> list[Message]:
    return [checked_message(record) for record in records]


_READERS: dict[str, tuple[tuple[str, Callable[[Any], Any]], ...]] = {
    "run.started": (("input", _messages),),
    "message.added": (("message", checked_message),),
    "llm.succeeded": (("usage", checked_usage),),
    "llm.failed": (("usage", checked_usage), ("error", checked_error)),
    "run.ended": (("usage", checked_usage), ("error", checked_error)),
}
"""Fields that are objects."""


def _without_words(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return `payload` with None for whatever somebody may have said."""
    return {key: _bare(key, value) for key, value in payload.items()}


def _bare(key: str, value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | Usage):
        return value
    if isinstance(value, str):
        return value if key in _NAMES else None
    if isinstance(value, Message):
        return _bare_message(value)
    if key == "input":
        return [_bare_message(message) for message in value]
    if key == "tags":
        return dict(value)
    if key in ("params", "budget"):
        return {name: item for name, item in value.items() if isinstance(item, bool | int | float)}
    if key == "error":
        return {"type": None, "message": None} | {name: value.get(name) for name in ("type", "code")}
    return None


def _bare_message(message: Message) -> Message:
    """Return `message` with its role, its calls and results, and nothing that is said in them."""
    pieces: list[Any] = []
    for piece in message.contents:
        if isinstance(piece, FunctionCall):
            pieces.append(FunctionCall(piece.call_id, piece.name, id=piece.id, invalid=piece.invalid))
        elif isinstance(piece, FunctionResult):
            pieces.append(FunctionResult(piece.call_id, piece.name, "", id=piece.id, interrupted=piece.interrupted))
        elif isinstance(piece, HostedToolCall):
            pieces.append(HostedToolCall(piece.kind, piece.id, name=piece.name))
        elif isinstance(piece, HostedToolResult):
            pieces.append(HostedToolResult(piece.kind, piece.id))
    return Message(
        message.role,
        pieces,
        message.author_name,
        message.message_id,
        created_at=message.created_at,
        run_id=message.run_id,
        agent_id=message.agent_id,
        interrupted=message.interrupted,
    )
