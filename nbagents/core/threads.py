"""Threads: the one door to a session's messages that the run loop uses. Kinds differ in where the messages live."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import Any, Protocol, runtime_checkable

from nbagents.core.errors import ConfigurationError, SessionError, ThreadDeletedError
from nbagents.core.history import HistoryProvider
from nbagents.core.messages import Message
from nbagents.core.sessions import DELETED_KEY, PENDING_KEY, UNSENT_KEY, AgentSession


class Thread(ABC):
    """The messages of one session.

    Attributes:
        session: the conversation.
        stores_locally: messages are stored on this side, and each request brings all of them.
        accepts_external_messages: `on_new_message` may be called by others than the run loop.
        can_delete: `delete` forgets the messages where they are.
        waits: storing may wait for something, so a cancelled run finishes it first.
    """

    stores_locally: bool
    accepts_external_messages: bool
    can_delete: bool
    waits: bool

    def __init__(self, session: AgentSession) -> None:
        self.session = session

    @property
    @abstractmethod
    def id(self) -> str | None:
        """What the messages are known by where they live."""

    @property
    @abstractmethod
    def turn_key(self) -> Hashable:
        """Runs with equal keys take turns."""

    async def create(self) -> None:
        """Make the thread where it lives, if it has to be made; idempotent."""
        self.check()

    @abstractmethod
    async def delete(self) -> None:
        """Forget the messages; from then on everything but `delete` raises `ThreadDeletedError`.

        That holds for this session, also when it comes back from `to_dict`; a new session of the same id begins empty.
        A run that still goes on stores nothing more and fails.
        """

    @abstractmethod
    async def on_new_message(self, *messages: Message) -> None:
        """Store `messages` together: all of them or none."""

    @abstractmethod
    async def get_messages(self) -> list[Message]:
        """Return the messages, oldest first."""

    async def reduce(self) -> None:
        """Nothing is reduced without a reducer."""
        self.check()

    def check(self) -> None:
        """Raise ThreadDeletedError if the thread was deleted."""
        if self.session.state.get(DELETED_KEY):
            raise ThreadDeletedError(
                f"The thread {self.id!r} was deleted.", hint="Begin a new session: agent.create_session()."
            )

    def _mark_deleted(self) -> None:
        self.session.state[DELETED_KEY] = True
        for key in (PENDING_KEY, UNSENT_KEY):
            self.session.state.pop(key, None)


class LocalThread(Thread):
    """Messages that are stored on this side, by a history provider.

    Args:
        session: the conversation.
        history: where its messages are.
    """

    stores_locally = True
    accepts_external_messages = True
    can_delete = True

    def __init__(self, session: AgentSession, history: HistoryProvider) -> None:
        super().__init__(session)
        self.history = history
        self.waits = history.waits

    @property
    def id(self) -> str:
        """The `session_id`."""
        return self.session.session_id

    @property
    def turn_key(self) -> Hashable:
        """Runs with equal keys take turns."""
        return self.history.storage_key(self.session)

    async def delete(self) -> None:
        """Forget the messages; from then on everything but `delete` raises `ThreadDeletedError`."""
        self._mark_deleted()
        await self.history.delete_messages(self.session)

    async def on_new_message(self, *messages: Message) -> None:
        """Store `messages` together: all of them or none."""
        self.check()
        await self.history.save_messages(self.session, messages)
        if self.session.state.get(DELETED_KEY):  # deleted while these were on their way
            await self.history.delete_messages(self.session)
            self.check()

    async def get_messages(self) -> list[Message]:
        """Return the messages, oldest first.

        Raises:
            SessionError: the history gave something else.
        """
        self.check()
        found = await self.history.get_messages(self.session)
        messages = list(found) if isinstance(found, Iterable) else [found]
        for strange in set(map(type, messages)) - {Message}:
            raise SessionError(
                f"{type(self.history).__name__} gave a {strange.__name__} among the messages of {self.id!r}.",
                hint="get_messages(session) returns a list of Message; Message.from_dict(...) makes one of a dict.",
            )
        return messages


class ServiceThread(Thread):
    """Messages that the model's service stores: a request brings what is new and the id that it goes on with.

    What the service offers beyond that, such as reading them, is for the kinds that its client has.
    """

    stores_locally = False
    accepts_external_messages = False
    can_delete = False
    waits = False

    @property
    def id(self) -> str | None:
        """The `service_session_id`; None before the first reply."""
        return self.session.service_session_id

    @property
    def turn_key(self) -> Hashable:
        """The session: the service's id changes with each reply where it is that of a reply."""
        return "service", self.session.session_id

    async def delete(self) -> None:
        """Forget the conversation here; the service keeps it, with a warning."""
        kept = self.session.service_session_id
        self._mark_deleted()
        if kept is not None:
            self.session.service_session_id = None
            warnings.warn(
                f"The service still stores the messages of {kept!r}: this client cannot delete them there.",
                stacklevel=2,
            )

    async def on_new_message(self, *messages: Message) -> None:
        """Messages get there with a request only.

        Raises:
            SessionError: always.
        """
        self.check()
        raise SessionError(
            f"The messages of {self.session.session_id!r} are stored by the service.",
            hint="Pass them to agent.run(), or keep the history on this side: options={'store': False}.",
        )

    async def get_messages(self) -> list[Message]:
        """Return the messages, oldest first.

        Raises:
            SessionError: always: the service has no general way to ask for them.
        """
        self.check()
        raise SessionError(
            f"The messages of {self.session.session_id!r} are stored by the service, which does not give them out.",
            hint="Keep a copy: Agent(..., context_providers=[HistoryCopy(FileHistoryProvider('copies/'))]).",
        )


@runtime_checkable
class OffersThreads(Protocol):
    """A client that has a kind of thread of its own."""

    def service_thread(self, session: AgentSession) -> Thread:
        """Return the door to what the service stores of `session`."""
        ...


def thread_of(session: AgentSession, history: HistoryProvider, client: Any, store: Any) -> Thread:
    """Decide where the messages of `session` live, and return the door to them.

    Args:
        session: the conversation.
        history: where local messages are.
        client: the chat client: its service can only store what it can go on with.
        store: the option of that name: True, False, or something else if it is not set.

    Raises:
        ConfigurationError: the session goes on at a service, and this client cannot.
    """
    begun = session.service_session_id is not None
    by_default = getattr(client, "stores_by_default", False)
    able = by_default or getattr(client, "supports_service_sessions", False)
    if not (store if isinstance(store, bool) else begun or by_default):
        return LocalThread(session, history)
    if able:
        return client.service_thread(session) if isinstance(client, OffersThreads) else ServiceThread(session)
    if begun:
        raise ConfigurationError(
            f"The session {session.session_id!r} goes on with {session.service_session_id!r}, a conversation that a "
            f"service stores, and {type(client).__name__} cannot.",
            hint="Use the client that began it, another session, or options={'store': False} to begin anew here.",
        )
    return LocalThread(session, history)  # to this service `store` is a mark on the request and no memory
