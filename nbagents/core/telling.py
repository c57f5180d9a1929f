"""What a call tells while it runs, on its way to a consumer that may be slower: what waits there is bounded."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

MAX_WAITING = 64
"""Deltas of one call that wait as they are; those after them are joined."""
MAX_WAITING_CHARACTERS = 64_000
"""Of joined deltas, half from the beginning and half from the end; what was between is left out, and said to be."""


class Told:
    """Something that a call has told: what is not a delta, with its payload."""

    def __init__(self, name: str, payload: dict[str, Any]) -> None:
        self.name = name
        self._payload = payload

    def take(self) -> dict[str, Any]:
        """Return the payload; nothing is added to it any more."""
        return self._payload


class ToldText(Told):
    """A delta that waits, and those that were joined to it."""

    def __init__(self, payload: dict[str, Any], on_taken: Callable[[ToldText], None]) -> None:
        super().__init__("tool.delta", payload)
        self._on_taken = on_taken
        self._head: list[str] = [payload["text"]]
        self._room = MAX_WAITING_CHARACTERS // 2 - len(payload["text"])
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._left_out = 0

    def join(self, text: str) -> None:
        """Add `text`."""
        if self._room > 0:
            self._room -= len(text)
            self._head.append(text)
            return
        self._tail.append(text)
        self._tail_size += len(text)
        while self._tail_size > MAX_WAITING_CHARACTERS // 2 and len(self._tail) > 1:
            dropped = len(self._tail.popleft())
            self._tail_size -= dropped
            self._left_out += dropped

    def take(self) -> dict[str, Any]:
        """Return the payload; nothing is added to it any more."""
        self._on_taken(self)
        if len(self._head) == 1 and not self._tail:
            return self._payload
        gap = f"\n[{self._left_out} characters left out: nobody read as fast]\n" if self._left_out else ""
        return {**self._payload, "text": "".join((*self._head, gap, *self._tail))}


class Telling:
    """The way from one call to whoever reads its events; the call may tell from any thread.

    Args:
        send: brings on the way what is told.
    """

    def __init__(self, send: Callable[[Told], None]) -> None:
        self._send = send
        self._waiting: deque[ToldText] = deque()
        self._is_last = False
        self._lock = threading.Lock()

    def emit(self, name: str, payload: dict[str, Any]) -> None:
        """Tell of an event."""
        if name != "tool.delta":
            self._is_last = False  # a delta after this one is not to come before it
            self._send(Told(name, payload))
            return
        with self._lock:
            if self._is_last and len(self._waiting) >= MAX_WAITING:
                self._waiting[-1].join(payload["text"])
                return
            told = ToldText(payload, self._taken)
            self._waiting.append(told)
            self._is_last = True
            self._send(told)

    def _taken(self, told: ToldText) -> None:
        with self._lock:
            self._waiting.remove(told)
