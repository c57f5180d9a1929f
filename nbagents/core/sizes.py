"""How much memory the payloads of events hold: their texts, files and numbers, each counted once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from sys import getsizeof
from typing import Any

from nbagents.core.content import DataContent, FunctionCall, ReasoningContent, TextContent
from nbagents.core.events import RunEvent
from nbagents.core.messages import Message
from nbagents.core.records import Piece

ENVELOPE = 1_000
"""Bytes of an event around what it says, about."""
SHARED = 4_000
"""From this size on it is looked whether a value has been counted already."""
SAMPLE = 1_000
"""Items of a list or dict that are looked at."""
DEEPEST = 8
"""Lists and dicts further inside count as they stand."""
_SPOKEN: dict[str, tuple[str, ...]] = {
    "llm.failed": ("text",),
    "tool.called": ("params",),
    "tool.succeeded": ("result",),
    "tool.failed": ("error", "traceback"),
    "approval.requested": ("arguments",),
    "artifact.emitted": ("payload",),
    "validation.retry": ("error",),
    "run.noted": ("text",),
}
"""What may be long in the payload of an event besides messages."""
COPIES = 3
"""What a model says stands in its message, in the event of its reply and at the end of the run."""


def size_of_events(events: Sequence[RunEvent], counted: set[int]) -> int:
    """Return about how many bytes `events` hold in memory.

    Args:
        events: what happened.
        counted: the ids of long values that were counted before; those of these are added.
    """
    size = ENVELOPE * len(events)
    for event in events:
        if event.name == "message.added":  # on every run, so in few steps
            size += _size_of_message(event.payload["message"], counted)
        elif event.name in _SPOKEN:
            size += sum(_size(event.payload.get(key), counted) for key in _SPOKEN[event.name])
    return size


def _size(value: Any, counted: set[int], depth: int = 0) -> int:
    kind = type(value)
    if value is None:
        return 0
    if kind is Message:
        return _size_of_message(value, counted)
    if depth < DEEPEST and kind in (list, tuple, dict):
        return _size_of_items(value, counted, depth + 1)
    if isinstance(value, Piece):
        return _size_of_piece(value, counted)
    size = getsizeof(value) if kind is str else _own_size(value)
    if size >= SHARED:
        if id(value) in counted:
            return 0
        counted.add(id(value))
    return size


def _size_of_message(message: Message, counted: set[int]) -> int:
    copies = COPIES if message.role == "assistant" else 1
    size = 0
    for piece in message.contents:
        if type(piece) is TextContent or type(piece) is ReasoningContent:
            size += copies * (len(piece.text) if len(piece.text) < SHARED else _size(piece.text, counted))
        else:
            size += _size_of_piece(piece, counted)
    return size


def _size_of_items(values: Any, counted: set[int], depth: int) -> int:
    """Of a long list or dict the first items say how large all of them are."""
    items = islice(chain.from_iterable(values.items()) if type(values) is dict else values, SAMPLE)
    size = sum(_size(item, counted, depth) for item in items)
    return getsizeof(values) + (size if len(values) <= SAMPLE else size * len(values) // SAMPLE)


def _size_of_piece(piece: Any, counted: set[int]) -> int:
    if isinstance(piece, TextContent):
        return _size(piece.text, counted)
    if isinstance(piece, DataContent):
        return _size(piece.uri, counted)
    if isinstance(piece, FunctionCall):
        return _size(piece.arguments, counted)
    return sum(_size(getattr(piece, name), counted) for name in type(piece).__match_args__)


def _own_size(value: Any) -> int:
    """Bytes of one value. Arrays tell of theirs, and tables of those of their columns, strings by their places only."""
    try:
        if isinstance(held := getattr(value, "nbytes", None), int):
            return held
        columns = getattr(value, "memory_usage", None)
        return int(sum(columns())) if callable(columns) else getsizeof(value)
    except Exception:  # noqa: BLE001  a tool returns objects of whatever class; of one that cannot tell the shell counts
        return object.__sizeof__(value)
