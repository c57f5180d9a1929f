"""The ids of calls in one request: unique, and the same in a call and its result."""

from __future__ import annotations

from collections.abc import Callable

from nbagents.core.content import FunctionCall, FunctionResult
from nbagents.core.messages import Message


class CallIds:
    """Chooses them while the messages of a request are gone through, in order.

    An id is the provider's while that is there and unique in the conversation, else ours; a result carries the id of
    its call.

    Args:
        clean: puts an id into the form that the service takes.
    """

    def __init__(self, clean: Callable[[str], str] = str) -> None:
        self._clean = clean
        self._taken: set[str] = set()
        self._by_own_id: dict[str, str] = {}
        self._waiting: list[tuple[str | None, str]] = []

    def open(self, message: Message) -> list[str]:
        """Return an id for each call of `message` that no earlier call has."""
        self._waiting = []
        ids = []
        for call in message.calls:
            chosen = self._free(call)
            self._taken.add(chosen)
            self._waiting.append((call.call_id, chosen))
            if call.id:
                self._by_own_id[call.id] = chosen
            ids.append(chosen)
        return ids

    def answer(self, message: Message) -> list[str]:
        """Return for each result of `message` the id of its call."""
        return [self._id_of(result) for result in message.results]

    def _free(self, call: FunctionCall) -> str:
        for wanted in (call.call_id, call.id):
            if wanted and (wanted := self._clean(wanted)) not in self._taken:
                return wanted
        base = self._clean(call.id or call.call_id or "call")
        number = 2
        while f"{base}_{number}" in self._taken:
            number += 1
        return f"{base}_{number}"

    def _id_of(self, result: FunctionResult) -> str:
        known = self._by_own_id.get(result.id)
        if known is None:  # a message made by hand: the provider's id, among the calls that still wait
            known = next((chosen for call_id, chosen in self._waiting if call_id == result.call_id), None)
        self._waiting = [(call_id, chosen) for call_id, chosen in self._waiting if chosen != known]
        return known or self._clean(result.call_id or result.id)
