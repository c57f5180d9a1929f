"""What must be in a request, whatever a reducer chose."""

from __future__ import annotations

from collections.abc import Sequence

from nbagents.core.balance import balanced
from nbagents.core.messages import Message
from nbagents.core.reducers.cutting import pinned


def mended(found: Sequence[Message], messages: Sequence[Message]) -> list[Message]:
    """Return what a reducer chose of `messages` as a service takes it.

    System messages and the latest of the user are put back. A result without its call is left out; a call gets back the
    results that it had.
    """
    present = {id(message) for message in found}
    stays = [messages[place] for place in pinned(messages, len(messages)) if id(messages[place]) not in present]
    if lost := [message for message in stays if message not in found]:
        systems = [message for message in lost if message.role == "system"]
        latest = [message for message in lost if message.role != "system"]
        place = _place_behind(latest[-1], found, messages) if latest else len(found)
        found = [*systems, *found[:place], *latest, *found[place:]]
    whole = balanced(found)
    return whole if len(whole) == len(found) and all(map(_same, whole, found)) else _with_results(found, messages)


def _same(one: Message, other: Message) -> bool:
    return one is other


def _place_behind(message: Message, found: Sequence[Message], messages: Sequence[Message]) -> int:
    """Where in `found` begins what stands behind `message` among `messages`."""
    later = {id(one) for one in messages[next(i for i, one in enumerate(messages) if one is message) :]}
    return next((place for place, one in enumerate(found) if id(one) in later), len(found))


def _with_results(found: Sequence[Message], messages: Sequence[Message]) -> list[Message]:
    results = {r.id or r.call_id: m for m in (*messages, *found) if m.role == "tool" for r in m.results}
    whole: list[Message] = []
    for message in found:
        if message.role != "tool":
            whole.append(message)
            answers = [results[key] for call in message.calls if (key := call.id or call.call_id) in results]
            whole += {id(answer): answer for answer in answers}.values()
    return balanced(whole)
