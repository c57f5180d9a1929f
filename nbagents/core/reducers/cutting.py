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
    cache. System messages and the latest message of the user stay, whatever their size; a call and its results are left
    out together. The last of these stays too, so a single message that is too large is sent as it is.
    """

    async def reduce(self, messages: Sequence[Message], context: ReductionContext) -> Sequence[Message] | None:
        """Return the messages behind the last cut; cut again if they are too many."""
        cut = self.next_cut(messages, context)
        remember_cut(messages, cut, context.state)
        return behind(messages, cut) if cut else None

    def next_cut(self, messages: Sequence[Message], context: ReductionContext, extra: Sequence[Message] = ()) -> int:
        """Return where what a request brings begins: the last cut, or one further on where there is too much.

        `extra` are messages that a request brings besides.
        """
        cut = remembered_cut(messages, context.state)
        scale = self.scale(context)
        fixed = self.fixed(context) + sum(map(self.size, extra))
        if (fixed + sum(map(self.size, behind(messages, cut)))) * scale <= self.limit:
            return cut
        target = max(math.floor(self.limit * self.keep), 1) / scale
        starts = [place for place in self.starts(messages) if place > cut]
        stays = set(pinned(messages, len(messages)))
        left = fixed + sum(self.size(messages[place]) for place in stays)
        found = end = len(messages)
        for place in reversed([cut, *starts]):
            left += sum(self.size(messages[index]) for index in range(place, end) if index not in stays)
            if left > target and found < len(messages):
                break
            found = end = place
        # A conversation that begins with an answer is hard to follow, and some services refuse it.
        return next((place for place in starts if place >= found and messages[place].role == "user"), found)

    @abstractmethod
    def size(self, message: Message) -> float:
        """What `message` adds to what the limit is about."""

    def scale(self, context: ReductionContext) -> float:
        """What sizes are multiplied by."""
        return 1.0

    def fixed(self, context: ReductionContext) -> float:
        """What every request has besides the messages."""
        return 0.0

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

    def size(self, message: Message) -> float:
        """One."""
        return 1.0


class SlidingWindowReducer(CuttingReducer):
    """Brings the last `max_turns` at most, each from a message of the user on; the turn under way is always whole.

    Args:
        max_turns: the limit.
        keep: the part of it that a cut leaves.
    """

    unit = "max_turns"

    def __init__(self, max_turns: int, *, keep: float = DEFAULT_KEEP) -> None:
        super().__init__(max_turns, keep)

    def size(self, message: Message) -> float:
        """One for a message of the user."""
        return 1.0 if message.role == "user" else 0.0

    def starts(self, messages: Sequence[Message]) -> list[int]:
        """Where turns begin."""
        return [place for place, message in enumerate(messages) if message.role == "user"]


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

    def size(self, message: Message) -> float:
        """Its tokens."""
        return self.counter.message(message)

    def scale(self, context: ReductionContext) -> float:
        """The correction of the estimate; a counter of the user's is right."""
        return 1.0 if self.counter.exact else context.scale

    def fixed(self, context: ReductionContext) -> float:
        """Instructions and tools."""
        return context.fixed(self.counter)


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
    """Return which messages before `cut` stay all the same: those of the system and the latest of the user."""
    latest = next((place for place in reversed(range(len(messages))) if messages[place].role == "user"), -1)
    stays = [place for place in range(cut) if messages[place].role == "system"]
    if latest < cut:
        while latest >= 0 and messages[latest].role == "user":  # it may have come in several
            stays.append(latest)
            latest -= 1
    return sorted(stays)


def behind(messages: Sequence[Message], cut: int) -> list[Message]:
    """Return what a request brings after a cut."""
    return [*(messages[place] for place in pinned(messages, cut)), *messages[cut:]] if cut else list(messages)


def remembered_cut(messages: Sequence[Message], state: dict[str, Any]) -> int:
    """Return where the last cut was; 0 if there was none, or the conversation is not the same any more."""
    cut, mark = state.get("cut", 0), state.get("mark")
    if not isinstance(cut, int) or not mark:
        return 0
    if 0 < cut < len(messages) and _mark(messages[cut]) == mark:
        return cut
    return next((place for place in reversed(range(len(messages))) if _mark(messages[place]) == mark), 0)


def remember_cut(messages: Sequence[Message], cut: int, state: dict[str, Any]) -> None:
    """Keep the cut for the requests to come, with what tells the message there from others."""
    if cut:
        state["cut"], state["mark"] = cut, _mark(messages[cut])
    else:
        state.pop("cut", None)
        state.pop("mark", None)


def _mark(message: Message) -> str:
    if message.message_id:
        return message.message_id
    return f"{message.role} {message.created_at} {crc32(message.text.encode(errors='replace')):08x}"
