"""What every kind of thread is: the one door to a session's messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from nbagents.core.content import FunctionResult
from nbagents.core.errors import ThreadDeletedError
from nbagents.core.messages import Message
from nbagents.core.runlog import run_log
from nbagents.core.sessions import DELETED_KEY, PENDING_KEY, UNSENT_KEY, AgentSession


class Thread(ABC):
    """The messages of one session. Objects of the same session are the same thread.

    Attributes:
        session: the conversation.
        kind: what it is, for texts: `a local thread`.
        stores_locally: messages are stored on this side, and each request brings all of them.
        accepts_external_messages: `on_new_message` may be called by others than the run loop.
        can_delete: `delete` forgets the messages where they are.
        can_read: `get_messages` gives them.
        carries: messages that are added wait on this side for the next request.
        waits: storing may wait for something, so a cancelled run finishes it first.
    """

    kind: ClassVar[str]
    stores_locally: ClassVar[bool]
    accepts_external_messages: ClassVar[bool]
    can_delete: ClassVar[bool]
    can_read: ClassVar[bool]
    carries: ClassVar[bool] = False
    waits: bool

    def __init__(self, session: AgentSession) -> None:
        self.session = session

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.session!r}, id={self.id!r})"

    @property
    @abstractmethod
    def id(self) -> str | None:
        """What the messages are known by where they live; None until there is such an id."""

    @property
    @abstractmethod
    def turn_key(self) -> Hashable:
        """Runs with equal keys take turns."""

    async def create(self) -> None:
        """Make the thread where it lives, if it has to be made; idempotent, also for several at once.

        Raises:
            ThreadDeletedError: it was deleted.
        """
        self.check()

    @abstractmethod
    async def delete(self) -> None:
        """Forget the messages; from then on everything but `delete` raises `ThreadDeletedError`.

        That holds for this session, also when it comes back from `to_dict`; a new session of the same id begins empty.
        A run that still goes on stores nothing more and fails. A thread that does not exist yet is only marked.
        """

    @abstractmethod
    async def on_new_message(self, *messages: Message) -> None:
        """Add `messages` together: all of them or none. Those that came from this thread are left out.

        Raises:
            ThreadDeletedError: it was deleted.
            SessionError: this kind takes none, or not these, with the reason.
        """

    @abstractmethod
    async def get_messages(self) -> list[Message]:
        """Return the messages, oldest first.

        Raises:
            ThreadDeletedError: it was deleted.
        """

    @abstractmethod
    async def begin_turn(self) -> list[Message]:
        """Return what the next request has to bring before anything new: for the run loop."""

    @abstractmethod
    async def store(self, messages: Sequence[Message]) -> None:
        """Take what a run adds: for the run loop, which calls it with each step."""

    async def reduce(self) -> Any:
        """Reduce what later requests send; return None when nothing changed or no reducer is set."""
        self.check()
        return None

    def unfit(self, message: Message) -> list[str]:
        """Name the types of content in `message` that could not be stored here; such a message is refused."""
        return []

    def check(self) -> None:
        """Raise ThreadDeletedError if the thread was deleted."""
        if self.deleted:
            raise ThreadDeletedError(
                f"The thread of the session {self.session.session_id!r} was deleted.",
                hint="Begin a new session: agent.create_session().",
            )

    @property
    def deleted(self) -> bool:
        """Whether `delete` was called."""
        return bool(self.session.state.get(DELETED_KEY))

    def _mark_deleted(self) -> None:
        self.session.state[DELETED_KEY] = True
        for key in (PENDING_KEY, UNSENT_KEY):
            self.session.state.pop(key, None)


def not_among(messages: Sequence[Message], known: Sequence[Message], session_id: str) -> list[Message]:
    """Return those of `messages` that did not come from a thread of this session, which has `known`.

    A message came from there if it is the very one, has the id of one, or is equal to one and has a time; a result also
    if it is known for its call, and what a run on the session has added if it says the same. Contents alone say
    nothing: people repeat themselves.
    """
    if not known:
        return list(messages)
    objects = {id(message) for message in known}
    ids = {message.message_id for message in known if message.message_id}
    results = {key for message in known for result in message.results for key in _marks(result)}

    def came_from_there(message: Message) -> bool:
        if id(message) in objects or message.message_id in ids:
            return True
        if message.role == "tool" and message.results:
            return all(not results.isdisjoint(_marks(result)) for result in message.results)
        if message.run_id is not None and _session_of(message.run_id) == session_id:
            return any(_same_words(message, one) for one in known)
        return message.created_at is not None and message in known

    return [message for message in messages if not came_from_there(message)]


def _session_of(run_id: str) -> str | None:
    """The session of a run that is still in the log."""
    record = run_log().get(run_id)
    return record.events[0].payload.get("session_id") if record is not None and record.events else None


def _same_words(one: Message, other: Message) -> bool:
    calls = [[call.call_id for call in message.calls] for message in (one, other)]
    return (one.role, one.text, calls[0]) == (other.role, other.text, calls[1])


def _marks(result: FunctionResult) -> list[tuple[str, str]]:
    """What tells a result from others: our id of the call; else the provider's, which may repeat, with the text."""
    marks = [("own", result.id)] if result.id else []
    return [*marks, (result.call_id, result.result)] if result.call_id else marks
