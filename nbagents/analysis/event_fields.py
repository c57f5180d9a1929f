"""What stands in the events that tables and plots read: a file or database that anybody wrote is held to it."""

from __future__ import annotations

from types import NoneType
from typing import Any

from nbagents.core.errors import StoreError
from nbagents.core.messages import Message
from nbagents.core.notes import THUMBS
from nbagents.core.run import STATUS_OF_STOP_REASON
from nbagents.core.usage import COUNTS, Usage

CALL_STATUSES = ("ok", "error", "invalid", "timeout", "denied", "cancelled", "limit")

Kinds = frozenset[type]
_TEXT: Kinds = frozenset({str})
_WHOLE: Kinds = frozenset({int})
_OBJECT: Kinds = frozenset({dict})
_LIST: Kinds = frozenset({list})
_TEXT_OR_NONE: Kinds = frozenset({str, NoneType})
_WHOLE_OR_NONE: Kinds = frozenset({int, NoneType})
_NUMBER_OR_NONE: Kinds = frozenset({int, float, NoneType})
_FLAG_OR_NONE: Kinds = frozenset({bool, NoneType})
_OBJECT_OR_NONE: Kinds = frozenset({dict, NoneType})

_REPLY = {
    **{"request_id": _TEXT, "model": _TEXT_OR_NONE, "finish_reason": _TEXT_OR_NONE, "text": _TEXT_OR_NONE},
    **{"latency_s": _NUMBER_OR_NONE, "ttft_s": _NUMBER_OR_NONE, "replayed": _FLAG_OR_NONE, "usage": _OBJECT_OR_NONE},
}
_CALL = {"id": _TEXT, "tool_id": _TEXT}
_FIELDS: dict[str, dict[str, Kinds]] = {
    "run.started": {
        **{"agent": _TEXT_OR_NONE, "session_id": _TEXT, "parent_run_id": _TEXT_OR_NONE, "team": _TEXT_OR_NONE},
        **{"model": _TEXT_OR_NONE, "provider": _TEXT_OR_NONE, "input": _LIST, "params": _OBJECT, "tags": _OBJECT},
    },
    "llm.requested": {"request_id": _TEXT, "step": _WHOLE, "attempt": _WHOLE, "model": _TEXT_OR_NONE},
    "llm.succeeded": _REPLY,
    "llm.failed": {**_REPLY, "error": _OBJECT},
    "message.added": {"message": _OBJECT},
    "tool.called": _CALL,
    "tool.succeeded": {**_CALL, "result": _TEXT_OR_NONE, "duration_s": _NUMBER_OR_NONE},
    "tool.failed": {
        **{**_CALL, "status": _TEXT, "duration_s": _NUMBER_OR_NONE},
        **{"error": _TEXT_OR_NONE, "error_type": _TEXT_OR_NONE},
    },
    "approval.requested": {"id": _TEXT},
    "artifact.emitted": {
        **{"id": _TEXT_OR_NONE, "tool_id": _TEXT_OR_NONE, "step": _WHOLE_OR_NONE},
        **{"name": _TEXT_OR_NONE, "kind": _TEXT_OR_NONE},
    },
    "run.ended": {"stop_reason": _TEXT, "error": _OBJECT_OR_NONE, "output_text": _TEXT_OR_NONE},
    "run.noted": {"text": _TEXT_OR_NONE, "thumbs": _TEXT_OR_NONE},
}
_CHECKS = {name: tuple(fields.items()) for name, fields in _FIELDS.items()}
_WORDS: dict[tuple[str, str], frozenset[str | None]] = {
    ("tool.failed", "status"): frozenset(CALL_STATUSES),
    ("run.ended", "stop_reason"): frozenset(STATUS_OF_STOP_REASON),
    ("run.noted", "thumbs"): frozenset({*THUMBS, None}),
}
_MUST_BE_THERE: dict[str, frozenset[str]] = {
    "run.started": frozenset({"agent", "parent_run_id", "model", "provider"}),
    "llm.requested": frozenset({"model"}),
    "artifact.emitted": frozenset({"payload"}),
    "run.ended": frozenset({"error"}),
}
"""Fields that may hold None and must be there all the same."""


def check_fields(name: str, payload: Any) -> None:
    """Make sure that the payload of a stored event holds what the tables and plots read.

    Raises:
        StoreError: it does not; the text goes on where the caller has named the place.
    """
    if not isinstance(payload, dict):
        raise StoreError(f"holds an event {name!r} without a payload.")
    for key, kinds in _CHECKS.get(name, ()):
        if type(payload.get(key)) not in kinds:
            raise _wrong(name, key, payload)
    for key in _MUST_BE_THERE.get(name, ()):
        if key not in payload:
            raise _wrong(name, key, payload)
    for (event, key), words in _WORDS.items():
        if event == name and payload.get(key) not in words:
            raise StoreError(f"holds an event {name!r} whose {key} is {payload[key]!r:.60}, which is none.")


def checked_error(error: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of an error with its `type` and `message`.

    Raises:
        TypeError: one of them is no text.
    """
    for key in ("type", "message"):
        _check_text(key, error.setdefault(key, None))
    return error


def checked_message(record: Any) -> Message:
    """Read a message.

    Raises:
        ConfigurationError: it is none.
        TypeError: a name or an id of it is no text.
    """
    message = Message.from_dict(record)
    for key in ("author_name", "message_id", "run_id", "agent_id"):
        _check_text(key, getattr(message, key))
    if type(message.interrupted) is not bool:
        raise TypeError(f"interrupted is a bool, not {type(message.interrupted).__name__}")
    return message


def checked_usage(record: Any) -> Usage:
    """Read a usage.

    Raises:
        ConfigurationError: it is none.
        TypeError: a count is no whole number.
    """
    usage = Usage.from_dict(record)
    for key in COUNTS:
        if type(getattr(usage, key)) not in _WHOLE_OR_NONE:
            raise TypeError(f"{key} is a whole number, not {getattr(usage, key)!r:.60}")
    return usage


def _check_text(key: str, value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{key} is a text, not {type(value).__name__}")


def _wrong(name: str, key: str, payload: dict[str, Any]) -> StoreError:
    if key not in payload:
        return StoreError(f"holds an event {name!r} without {key}.")
    return StoreError(f"holds an event {name!r} whose {key} is {payload[key]!r:.60}.")
