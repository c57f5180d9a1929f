"""How much memory the payloads of events hold: their texts, files and numbers, each counted once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from sys import getsizeof
from typing import Any

from nbagents.core.content import DataContent, FunctionCall, TextContent
from nbagents.core.events import RunEvent
from nbagents.core.messages import Message
from nbagents.core.records import Piece

ENVELOPE = 1_000
"""Bytes of an event around what it says, about."""
SHARED = 4_000
"""From this size on it is looked whether a value has been counted already."""
SAMPLE = 1_000
"""Items of a list or dict that are looked at."""
EMPTY = 50
"""Bytes of a text without characters."""
DEEPEST = 8
"""Lists and dicts further inside count as they stand."""
_SPOKEN: dict[str, tuple[str, ...]] = {
    "message.added": ("message",),
    "llm.succeeded": ("text", "reasoning"),
    "llm.failed": ("text",),
    "tool.called": ("params",),
    "tool.succeeded": ("result",),
    "tool.failed": ("error", "traceback"),
    "approval.requested": ("arguments",),
    "artifact.emitted": ("payload",),
    "validation.retry": ("error",),
    "run.ended": ("output_text",),
    "run.noted": ("text",),
}
"""What may be long in the payload of an event. The input of a run comes again in `message.added`."""


def size_of_events(events: Sequence[RunEvent], counted: set[int]) -> int:
    """Return about how many bytes `events` hold in memory.

    Args:
        events: what happened.
        counted: the ids of long values that were counted before; those of these are added.
    """
    size = ENVELOPE * len(events)
    for event in events:
        for key in _SPOKEN.get(event.name, ()):
            value = event.payload.get(key)
            if type(value) is str and len(value) < SHARED:  # on every run, so without a call
                size += len(value) + EMPTY
            elif value is not None:
                size += _size(value, counted)
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
    size = 0
    for piece in message.contents:
        if type(piece) is TextContent and len(piece.text) < SHARED:
            size += len(piece.text) + EMPTY
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
