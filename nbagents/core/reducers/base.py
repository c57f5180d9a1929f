"""What a reducer is: it chooses what of a conversation the next request brings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from nbagents.core.clients import BaseChatClient, SupportsChatGetResponse
from nbagents.core.errors import ConfigurationError
from nbagents.core.messages import Message
from nbagents.core.options import UNSET
from nbagents.core.streamhooks import outcome
from nbagents.core.tokens import TokenCounter

Client = BaseChatClient | SupportsChatGetResponse
Ask = Callable[[str, str, Client | None], Awaitable[str]]


@dataclass(slots=True)
class ReductionContext:
    """What a reducer may know and keep.

    Attributes:
        state: what this reducer keeps with the session: texts, numbers, lists and dicts of them.
        scale: how many tokens the service counts for one of the estimate, by the usage that it has reported for this
            session; 1.0 before it has.
        fixed: tokens, by the estimate, that every request has besides the messages: instructions and tools.
        ask: put a text to a model: `await ask(text, instructions, client)`; None is the agent's client.
        warn: tell of something that went wrong beside the run.
        scratch: what this reducer keeps for this run only.
    """

    state: dict[str, Any]
    scale: float
    fixed: Callable[[TokenCounter], int]
    ask: Ask
    warn: Callable[[str, Exception], None]
    scratch: dict[str, Any] = field(default_factory=dict)


class Reducer(ABC):
    """Chooses what of a conversation a request brings. To write one, implement `reduce`, or pass a function.

    It gets all messages that are stored, and those of the run so far, in a list of its own. What it returns is seen by
    the model only, and put right where a service would refuse it: system messages and the latest message of the user
    are always there, and calls stand together with their results. A message may be another one with the same
    `message_id` or `created_at`, as `dataclasses.replace` makes it: to blot out a name, say.
    """

    @abstractmethod
    async def reduce(self, messages: Sequence[Message], context: ReductionContext) -> Sequence[Message] | None:
        """Return the messages of the next request, oldest first; None if it brings all."""

    @property
    def name(self) -> str:
        """What it is called in logs."""
        return type(self).__name__

    @property
    def key(self) -> str:
        """What its state is kept under: a session may come to another reducer, or to one with another limit."""
        return self.name


class LimitedReducer(Reducer):
    """A reducer that does something once there is more than a limit, and then leaves a part of it.

    Args:
        limit: what is too much is more than this.
        keep: how much of the limit is left then, above 0 and up to 1.
    """

    unit: ClassVar[str]

    def __init__(self, limit: int, keep: float) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise ConfigurationError(f"{type(self).__name__}: {self.unit} is a whole number from 1, not {limit!r}.")
        if isinstance(keep, bool) or not isinstance(keep, int | float) or not 0 < keep <= 1:
            raise ConfigurationError(f"{type(self).__name__}: keep is a part of the limit, above 0, not {keep!r}.")
        self.limit = limit
        self.keep = keep

    @property
    def key(self) -> str:
        """Its name and limits."""
        return repr(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.limit}, keep={self.keep})"


class FunctionReducer(Reducer):
    """A function of the messages; it may be async."""

    def __init__(self, function: Callable[[list[Message]], Any]) -> None:
        self._function = function

    @property
    def name(self) -> str:
        """The name of the function."""
        return str(getattr(self._function, "__name__", type(self._function).__name__))

    async def reduce(self, messages: Sequence[Message], context: ReductionContext) -> Sequence[Message] | None:
        """Return what the function makes of `messages`."""
        return checked(await outcome(self._function(list(messages))), self.name)


class ReducerChain(Reducer):
    """Several reducers, each on what the one before it has left."""

    def __init__(self, reducers: Iterable[Reducer]) -> None:
        self._reducers = tuple(reducers)

    @property
    def name(self) -> str:
        """Their names."""
        return " > ".join(one.name for one in self._reducers)

    @property
    def key(self) -> str:
        """Their keys."""
        return " > ".join(one.key for one in self._reducers)

    async def reduce(self, messages: Sequence[Message], context: ReductionContext) -> Sequence[Message] | None:
        """Return what is left at the end."""
        left: Sequence[Message] = messages
        for place, one in enumerate(self._reducers):
            key = str(place)
            own, scratch = context.state.setdefault(key, {}), context.scratch.setdefault(key, {})
            inner = replace(context, state=own, scratch=scratch)
            found = checked(await one.reduce(left, inner), one.name)
            left = left if found is None else found
        return None if left is messages else left


ReducerLike = Reducer | Callable[[list[Message]], Any] | Sequence[Any]
"""What is taken as `reducer=`."""


def chosen_reducer(reducer: Any, default: Reducer | None = None) -> Reducer | None:
    """Return the reducer that was asked for, or `default`; `UNSET` asks for none."""
    if reducer is None:
        return default
    return None if reducer is UNSET else as_reducer(reducer)


def as_reducer(reducer: Any) -> Reducer:
    """Return what a user passes as `reducer=`: a reducer, a function of the messages, or a list of them.

    Raises:
        ConfigurationError: something else.
    """
    if isinstance(reducer, Reducer):
        return reducer
    if isinstance(reducer, type) and issubclass(reducer, Reducer):
        raise ConfigurationError(
            f"reducer is a reducer, not the class {reducer.__name__}.", hint=f"Pass {reducer.__name__}(...)."
        )
    if isinstance(reducer, Sequence) and not isinstance(reducer, str | bytes) and reducer:
        return ReducerChain(map(as_reducer, reducer))
    if callable(reducer):
        return FunctionReducer(reducer)
    raise ConfigurationError(
        f"reducer is a reducer or a function of the messages, not {type(reducer).__name__}.",
        hint="Such as TokenBudgetReducer(8_000), or a list of reducers; UNSET means none for one run.",
    )


def checked(found: Any, name: str) -> list[Message] | None:
    """Return what a reducer gave as a list.

    Raises:
        ConfigurationError: it is no list of messages.
    """
    if found is None:
        return None
    messages = list(found) if isinstance(found, Iterable) and not isinstance(found, str) else [found]
    for strange in messages:
        if not isinstance(strange, Message):
            raise ConfigurationError(
                f"The reducer {name} returned {type(strange).__name__} among the messages.",
                hint="A reducer returns a list of Message, or None where nothing is to be left out.",
            )
    return messages
