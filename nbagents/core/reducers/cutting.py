"""Reducers that leave out the oldest: by number of messages, by turns, by tokens."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from nbagents.core.messages import Message
from nbagents.core.reducers.base import LimitedReducer, ReductionContext
from nbagents.core.tokens import Counter, TokenCounter

DEFAULT_KEEP = 0.75


class CuttingReducer(LimitedReducer):
    """Leaves out the oldest messages once there is too much, and then so many that the next cut is some way off.

    Between two cuts the requests of a conversation begin alike, so that the service can take what it has read from its
    cache. System messages and the latest message of the user stay, whatever their size, and so does the question of a
    turn that is cut within; a call and its results are left out together. The last of these stays too, so a single
    message that is too large is sent as it is.
    """

    async def reduce(self, messages: Sequence[Message], context: ReductionContext) -> Sequence[Message] | None:
        """Return the messages behind the last cut; cut again if they are too many."""
        cut = self.next_cut(messages, context.state, context)
        remember_cut(messages, cut, context.state)
        return behind(messages, cut) if cut else None

    def next_cut(
        self,
        messages: Sequence[Message],
        state: dict[str, Any],
        context: ReductionContext,
        extra: Sequence[Message] = (),
    ) -> int:
        """Return where what a request brings begins: the last cut, or one further on where there is too much.

        `extra` are messages that a request brings besides.
        """
        cut = remembered_cut(messages, state)
        scale = self.scale(context)
        sizes = self.sizes(messages)
        fixed = self.fixed(context) + sum(self.sizes(extra))
        if (fixed + sum(sizes[cut:]) + sum(sizes[place] for place in pinned(messages, cut))) * scale <= self.limit:
            return cut
        target = max(math.floor(self.limit * self.keep), 1) / scale
        always = set(pinned(messages, len(messages)))
        left = fixed + sum(sizes[place] for place in always)
        found = end = len(messages)
        first = next((place for place, message in enumerate(messages) if message.role == "user"), end)
        about: list[int] = []
        for place in reversed([cut, *(start for start in self.starts(messages) if start > cut)]):
            left += sum(sizes[index] for index in range(place, end) if index not in always)
            if place <= first or not about or place <= about[-1]:
                about = question(messages, place) if place > first else []
            asked = sum(sizes[index] for index in about if index not in always)
            if left + asked > target and found < len(messages):
                break
            found = end = place
        return found

    @abstractmethod
    def sizes(self, messages: Sequence[Message]) -> list[int]:
        """What each message adds to what the limit is about."""

    def scale(self, context: ReductionContext) -> float:
        """What sizes are multiplied by."""
        return 1.0

    def fixed(self, context: ReductionContext) -> int:
        """What every request has besides the messages."""
        return 0

    def starts(self, messages: Sequence[Message]) -> list[int]:
        """Where a request may begin."""
        return group_starts(messages)


class TruncationReducer(CuttingReducer):
    """Brings the last `max_messages` at most; see `CuttingReducer`.

    Args:
        max_messages: the limit.
        keep: the part of it that a cut leaves.

    Example:
        >>> TruncationReducer(40)
        TruncationReducer(40, keep=0.75)
    """

    unit = "max_messages"

    def __init__(self, max_messages: int, *, keep: float = DEFAULT_KEEP) -> None:
        super().__init__(max_messages, keep)

    def sizes(self, messages: Sequence[Message]) -> list[int]:
        """One for each."""
        return [1] * len(messages)


class SlidingWindowReducer(CuttingReducer):
    """Brings the last `max_turns` at most, each from the first message of the user on; the last one is always whole.

    Args:
        max_turns: the limit.
        keep: the part of it that a cut leaves.
    """

    unit = "max_turns"

    def __init__(self, max_turns: int, *, keep: float = DEFAULT_KEEP) -> None:
        super().__init__(max_turns, keep)

    def sizes(self, messages: Sequence[Message]) -> list[int]:
        """One where a turn begins."""
        return [int(_begins_turn(messages, place)) for place in range(len(messages))]

    def starts(self, messages: Sequence[Message]) -> list[int]:
        """Where turns begin."""
        return [place for place in range(len(messages)) if _begins_turn(messages, place)]


class TokenBudgetReducer(CuttingReducer):
    """Keeps what a request brings, with instructions and tools, below `max_tokens`; see `CuttingReducer`.

    Tokens are estimated, and the estimate is corrected by the usage that the service reports for the session.

    Args:
        max_tokens: the limit. Leave the reply some room in the model's window.
        keep: the part of it that a cut leaves.
        counter: counts the tokens of a text instead of the estimate, such as a tiktoken encoding's `encode`.
    """

    unit = "max_tokens"

    def __init__(self, max_tokens: int, *, keep: float = DEFAULT_KEEP, counter: Counter | None = None) -> None:
        super().__init__(max_tokens, keep)
        self.counter = TokenCounter(counter)

    def sizes(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of each."""
        return list(map(self.counter.message, messages))

    def scale(self, context: ReductionContext) -> float:
        """The correction of the estimate; a counter of the user's is right."""
        return 1.0 if self.counter.exact else context.scale

    def fixed(self, context: ReductionContext) -> int:
        """Instructions and tools."""
        return context.fixed(self.counter)


def _begins_turn(messages: Sequence[Message], place: int) -> bool:
    """Whether what the user says begins there; he may say it in several messages."""
    return messages[place].role == "user" and (place == 0 or messages[place - 1].role != "user")


def group_starts(messages: Sequence[Message]) -> list[int]:
    """Return where the conversation can be cut: not between a call and its results, nor within one reply.

    Messages of one reply stand side by side and their calls are answered behind them all.
    """
    starts, open_calls, before = [], 0, ""
    for place, message in enumerate(messages):
        if message.role == "tool":
            open_calls -= len(message.results)
        elif open_calls <= 0 or message.role == "user":
            if message.role != "assistant" or before != "assistant":
                starts.append(place)
            open_calls = 0
        if message.role == "assistant":
            open_calls += len(message.calls)
        before = message.role
    return starts


def pinned(messages: Sequence[Message], cut: int) -> list[int]:
    """Return which messages before `cut` stay all the same: those of the system, and what the turn there is about."""
    return sorted([*(place for place in range(cut) if messages[place].role == "system"), *question(messages, cut)])


def question(messages: Sequence[Message], cut: int) -> list[int]:
    """Return the messages of the user, before `cut`, that began the turn which goes on there; none where one begins."""
    if cut < len(messages) and messages[cut].role == "user":
        return []
    last = next((place for place in range(cut - 1, -1, -1) if messages[place].role == "user"), -1)
    first = last
    while first > 0 and messages[first - 1].role == "user":  # it may have come in several
        first -= 1
    return list(range(first, last + 1)) if last >= 0 else []


def behind(messages: Sequence[Message], cut: int) -> list[Message]:
    """Return what a request brings after a cut."""
    return [*(messages[place] for place in pinned(messages, cut)), *messages[cut:]] if cut else list(messages)


def remembered_cut(messages: Sequence[Message], state: dict[str, Any]) -> int:
    """Return where the last cut was; 0 if there was none, or the conversation is not the same any more."""
    cut, mark = state.get("cut", 0), state.get("mark")
    if not isinstance(cut, int) or not mark:
        return 0
    if 0 < cut < len(messages) and mark_of(messages[cut]) == mark:
        return cut
    return next((place for place in reversed(range(len(messages))) if mark_of(messages[place]) == mark), 0)


def remember_cut(messages: Sequence[Message], cut: int, state: dict[str, Any]) -> None:
    """Keep the cut for the requests to come, with what tells the message there from others."""
    if cut:
        state["cut"], state["mark"] = cut, mark_of(messages[cut])
    else:
        state.pop("cut", None)
        state.pop("mark", None)


def mark_of(message: Message) -> str:
    """Return what tells `message` from others, also after a restart, and in a copy with other contents."""
    if message.message_id:
        return message.message_id
    if message.created_at:
        return f"{message.role} {message.created_at}"
    return f"{message.role} {crc32(repr(message.contents).encode(errors='replace')):08x}"
