"""Threads on this side, and the choice of where the messages of a session live."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from nbagents.core.errors import ConfigurationError, SessionError
from nbagents.core.history import HistoryProvider
from nbagents.core.hosted_threads import HostedThread as HostedThread
from nbagents.core.hosted_threads import ReadOnlyThread as ReadOnlyThread
from nbagents.core.hosted_threads import ServiceThread as ServiceThread
from nbagents.core.messages import Message
from nbagents.core.sessions import MESSAGES_KEY, PENDING_KEY, STORED_KEY, AgentSession
from nbagents.core.thread_base import Thread as Thread
from nbagents.core.thread_base import not_among


class LocalThread(Thread):
    """Messages that are stored on this side, by a history provider.

    Args:
        session: the conversation.
        history: where its messages are.

    Attributes:
        reducing: what the agent's reducer leaves of the messages, where it has one.
    """

    kind = "a local thread"
    stores_locally = True
    accepts_external_messages = True
    can_delete = True
    can_read = True

    def __init__(self, session: AgentSession, history: HistoryProvider) -> None:
        super().__init__(session)
        self.history = history
        self.waits = history.waits
        self.reducing: Callable[[list[Message]], Awaitable[list[Message] | None]] | None = None

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
        self.session.state.pop(STORED_KEY, None)
        await self.history.delete_messages(self.session)

    async def on_new_message(self, *messages: Message) -> None:
        """Add `messages` together: all of them or none. Those that came from this thread are left out."""
        new = not_among(messages, await self.get_messages(), self.session.session_id)
        if new:
            await self.store([replace(message) for message in new])  # the stored ones are known by being those

    async def begin_turn(self) -> list[Message]:
        """Return the messages: every request brings all of them."""
        return await self.get_messages()

    async def store(self, messages: Sequence[Message]) -> None:
        """Store `messages` together: all of them or none."""
        self.check()
        await self.history.save_messages(self.session, messages)
        if MESSAGES_KEY not in self.session.state:  # else that shows where the messages are
            self.session.state[STORED_KEY] = type(self.history).__name__
        if self.deleted:  # while these were on their way
            await self.delete()
            self.check()

    async def reduce(self) -> list[Message] | None:
        """Reduce what later requests bring, and return that; None when nothing changed or no reducer is set.

        `get_messages` still gives all of them.
        """
        messages = await self.get_messages()
        return None if self.reducing is None else await self.reducing(messages)

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


@runtime_checkable
class OffersThreads(Protocol):
    """A client that has a kind of thread of its own."""

    def service_thread(self, session: AgentSession) -> Thread:
        """Return the door to what the service stores of `session`."""
        ...


def thread_of(
    session: AgentSession, history: HistoryProvider, client: Any, store: Any, *, begins_anew: bool = False
) -> Thread:
    """Decide where the messages of `session` live, and return the door to them.

    Args:
        session: the conversation.
        history: where local messages are.
        client: the chat client: its service can only store what it can go on with.
        store: the option of that name: True, False, or something else if it is not set.
        begins_anew: whoever wants the service to store knows that it does not have what is stored on this side.

    Raises:
        ConfigurationError: the session is of another kind than what this agent can go on with.
    """
    begun = session.service_session_id is not None
    by_default = getattr(client, "stores_by_default", False)
    able = by_default or getattr(client, "supports_service_sessions", False)
    if not (store if isinstance(store, bool) else begun or by_default):
        return LocalThread(session, history)
    if able:
        thread = client.service_thread(session) if isinstance(client, OffersThreads) else ServiceThread(session)
        _check_kind(session, thread, client, begins_anew=begins_anew)
        return thread
    if begun:
        raise ConfigurationError(
            f"The session {session.session_id!r} goes on with {session.service_session_id!r}, a conversation that a "
            f"service stores, and {type(client).__name__} cannot: messages of its agent live in {LocalThread.kind}.",
            hint="Use the client that began it, or options={'store': False} to begin anew here. " + _COPY_HINT,
        )
    return LocalThread(session, history)  # to this service `store` is a mark on the request and no memory


_COPY_HINT = (
    "To take the messages along: other = agent.create_session(); await copy_thread(source, agent.thread(other)), "
    "with the source's own agent: source = its_agent.thread(session)."
)


def _check_kind(session: AgentSession, thread: Thread, client: Any, *, begins_anew: bool) -> None:
    """Raise ConfigurationError if the messages of `session` are where `thread` does not look."""
    name, known = session.session_id, session.service_session_id
    if known is None:
        if begins_anew or (where := _kept_here(session)) is None:
            return
        what = f"{LocalThread.kind} (its messages are stored by {where})"
    elif isinstance(thread, HostedThread) and (kind := thread.kind_of(known)) != thread.kind:
        what = f"{kind} ({known!r})"
    else:
        return
    raise ConfigurationError(
        f"The session {name!r} is {what}, and the messages of an agent with {type(client).__name__} live in "
        f"{thread.kind}.",
        hint=_COPY_HINT + " To go on on this side: options={'store': False}.",
    )


def _kept_here(session: AgentSession) -> str | None:
    """Name what keeps the messages of `session` on this side; None if there are none, as far as it knows."""
    if session.state.get(MESSAGES_KEY) or PENDING_KEY in session.state:
        return "the session itself"
    stored: str | None = session.state.get(STORED_KEY)
    return stored
