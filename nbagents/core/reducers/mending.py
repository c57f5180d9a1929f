"""What must be in a request, whatever a reducer chose."""

from __future__ import annotations

from collections.abc import Sequence

from nbagents.core.balance import balanced
from nbagents.core.messages import Message
from nbagents.core.reducers.cutting import mark_of, pinned


def mended(found: Sequence[Message], messages: Sequence[Message]) -> list[Message]:
    """Return what a reducer chose of `messages` as a service takes it.

    System messages and the latest of the user are put back. A result without its call is left out; a call gets back the
    results that it had.
    """
    present = {id(message) for message in found}
    stays = [messages[place] for place in pinned(messages, len(messages)) if id(messages[place]) not in present]
    if stays:  # or there are copies of them, perhaps with a text that is not to be sent
        known = set(map(mark_of, filter(_is_marked, found)))
        lost = [message for message in stays if mark_of(message) not in known and message not in found]
        found = _with(lost, found, messages)
    whole = balanced(found)
    return whole if len(whole) == len(found) and all(map(_same, whole, found)) else _with_results(found, messages)


def _is_marked(message: Message) -> bool:
    """Whether it is known from others by more than its text."""
    return bool(message.message_id or message.created_at)


def _same(one: Message, other: Message) -> bool:
    return one is other


def _with(lost: Sequence[Message], found: Sequence[Message], messages: Sequence[Message]) -> list[Message]:
    """Put each of `lost` before the first that stands behind it among `messages`."""
    whole = list(found)
    places = {id(message): place for place, message in enumerate(messages)}
    copied = {mark_of(message): place for place, message in enumerate(messages) if _is_marked(message)} if lost else {}
    for message in lost:
        behind = places[id(message)]
        later = (at for at, one in enumerate(whole) if places.get(id(one), copied.get(mark_of(one), -1)) > behind)
        whole.insert(next(later, len(whole)), message)
    return whole


def _with_results(found: Sequence[Message], messages: Sequence[Message]) -> list[Message]:
    results = {r.id or r.call_id: m for m in (*messages, *found) if m.role == "tool" for r in m.results}
    whole: list[Message] = []
    for message in found:
        if message.role != "tool":
            whole.append(message)
            answers = [results[key] for call in message.calls if (key := call.id or call.call_id) in results]
            whole += {id(answer): answer for answer in answers}.values()
    return balanced(whole)
