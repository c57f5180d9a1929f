"""Threads that live at a service. A further service is one class here: `HostedThread` with what the service can do."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar

from nbagents.core.errors import SessionError
from nbagents.core.ids import new_id
from nbagents.core.messages import Message, attributed
from nbagents.core.sessions import PENDING_KEY, UNSENT_KEY
from nbagents.core.thread_base import Thread, not_among
from nbagents.core.turns import end_turn, take_free_turn, take_turn

READ_HINT = "Keep a copy: Agent(..., context_providers=[HistoryCopy(FileHistoryProvider('copies/'))])."
SEND_HINT = "Pass them to agent.run(), or keep the history on this side: options={'store': False}."


class HostedThread(Thread):
    """Messages that a service stores: a request brings what is new and the id that it goes on with.

    To write a kind, say what the service can do by these attributes, and implement the methods that end in
    `_at_service` for it. What holds for every kind is done here: nothing is asked of the service once the thread is
    deleted, it is made once, also if several ask for it at the same time, and forgotten once. A client's
    `service_thread(session)` returns it.

    Attributes:
        kind: what it is, for texts: `an OpenAI conversation`.
        accepts_external_messages: messages can be added without asking the model.
        carries: they are added with the next request, since the service takes them in no other way.
        can_read: `read_at_service` is implemented.
        can_delete: `delete_at_service` is implemented.
        refusal: why messages cannot be added, where that is so.
    """

    kind = "a conversation that its service stores"
    stores_locally = False
    accepts_external_messages = False
    can_delete = False
    can_read = False
    waits = False
    refusal: ClassVar[str] = "they get there with a request only."

    async def create_at_service(self) -> str | None:
        """Make the thread and return its id; None where the first reply makes it."""
        return None

    async def read_at_service(self, id: str) -> list[Message]:
        """Return the messages that are stored there, oldest first; each has a `message_id`."""
        raise NotImplementedError

    async def add_at_service(self, id: str, messages: Sequence[Message]) -> None:
        """Store `messages` after the others."""
        raise NotImplementedError

    async def delete_at_service(self, id: str) -> None:
        """Forget it there; that it is not there any more is no error."""
        raise NotImplementedError

    def kind_of(self, id: str) -> str:
        """Return the kind of thread that `id` belongs to, as far as the id shows that."""
        return self.kind

    @property
    def id(self) -> str | None:
        """The `service_session_id`; None before `create`, or where that cannot make it, before the first reply."""
        return self.session.service_session_id

    @property
    def turn_key(self) -> Hashable:
        """The session: the service's id changes with each reply where it is that of a reply."""
        return "service", self.session.session_id

    async def create(self) -> None:
        """Make the thread at the service, if it has to be made there; idempotent, also for several at once."""
        self.check()
        if self.id is not None:
            return
        async with self._alone("create"):
            self.check()
            if self.id is None:
                self.session.service_session_id = await self.create_at_service()
        if self.deleted:  # while it was made
            await self.delete()
            self.check()

    async def delete(self) -> None:
        """Forget the messages at the service; from then on everything but `delete` raises `ThreadDeletedError`.

        A thread that has no id yet is only marked. A service that cannot forget keeps them, with a warning. If the
        service fails, the thread is deleted here all the same, and another `delete` asks it again.
        """
        self._mark_deleted()
        async with self._alone("delete"):
            kept = self.id
            if kept is None:
                return
            if self.can_delete:
                await self.delete_at_service(kept)
            self.session.service_session_id = None
        if not self.can_delete:
            warnings.warn(
                f"The service still stores the messages of {kept!r}: this client cannot delete them there.",
                stacklevel=2,
            )

    async def on_new_message(self, *messages: Message) -> None:
        """Add `messages` together; makes the thread first if needed, and leaves out those that came from it.

        Raises:
            ThreadDeletedError: it was deleted.
            SessionError: the service takes no messages, or not these, or a turn of the session is not finished.
        """
        self.check()
        if not self.accepts_external_messages:
            raise SessionError(
                f"The messages of {self.session.session_id!r} are stored by the service ({self.kind}): {self.refusal}",
                hint=SEND_HINT,
            )
        if unfit := sorted({what for message in messages for what in self.unfit(message)}):
            raise SessionError(f"{self._named} cannot store content of the type {', '.join(unfit)}.")
        async with self._alone("messages"), self._between_turns():
            is_new = self.id is None and not self.carries
            if is_new:
                await self.create()
            new = list(messages) if is_new else await self._new_among(messages)
            if new:
                await self._add(new)
        if self.deleted:  # while they were on their way
            await self.delete()
            self.check()

    async def get_messages(self) -> list[Message]:
        """Return the messages, oldest first: those at the service, then those that a request is still to bring there.

        Raises:
            ThreadDeletedError: it was deleted.
            SessionError: the service does not give them out.
        """
        self.check()
        if not self.can_read:
            raise SessionError(
                f"The messages of {self.session.session_id!r} are stored by the service, which does not give them out.",
                hint=READ_HINT,
            )
        there = await self.read_at_service(self.id) if self.id is not None else []
        self.check()
        return [*there, *self.unsent(there)]

    async def store(self, messages: Sequence[Message]) -> None:
        """See that a run whose thread was deleted ends; what it has brought to the service since is forgotten too."""
        if self.deleted:
            await self.delete()
            self.check()

    async def begin_turn(self) -> list[Message]:
        """Return what the next request has to bring before anything new: for the run loop."""
        self.check()
        waiting: list[Message] = self.session.state.get(UNSENT_KEY, [])
        has_results = any(message.role == "tool" for message in waiting)
        if has_results and self.id is not None and self.can_read and not self.carries:
            return self.unsent(await self.read_at_service(self.id))  # a request that was cancelled may have arrived
        return list(waiting)

    def unsent(self, there: Sequence[Message]) -> list[Message]:
        """Return the messages that wait here for the next request, without results that are `there` already."""
        waiting: list[Message] = self.session.state.get(UNSENT_KEY, [])
        answered: set[str | None] = set()
        for message in [*there, *(message for message in waiting if message.calls)]:
            answered |= {result.call_id for result in message.results}
            answered -= {call.call_id for call in message.calls}  # providers repeat their ids
        return [m for m in waiting if m.role != "tool" or any(r.call_id not in answered for r in m.results)]

    async def _add(self, new: list[Message]) -> None:
        state = self.session.state
        if self.carries:
            named = [attributed(message, message_id=new_id("msg")) for message in new]  # by that they are known again
            state[UNSENT_KEY] = [*state.get(UNSENT_KEY, ()), *named]
            return
        assert self.id is not None
        await self.add_at_service(self.id, [*await self.begin_turn(), *new])
        state.pop(UNSENT_KEY, None)

    async def _new_among(self, messages: Sequence[Message]) -> list[Message]:
        if not self.can_read or not any(m.message_id or m.created_at or m.role == "tool" for m in messages):
            return list(messages)  # made by hand: no need to ask the service
        return not_among(messages, await self.get_messages(), self.session.session_id)

    @property
    def _named(self) -> str:
        return f"The session {self.session.session_id!r} ({self.kind})"

    @asynccontextmanager
    async def _alone(self, what: str) -> AsyncIterator[None]:
        """One at a time for this session, across tasks, threads and loops."""
        key = (what, self.turn_key)
        await take_turn(key)
        try:
            yield
        finally:
            end_turn(key)

    @asynccontextmanager
    async def _between_turns(self) -> AsyncIterator[None]:
        """Keep runs out meanwhile: nothing may stand between a call and its result.

        Raises:
            SessionError: a run goes on, or calls wait for a person.
        """
        if not take_free_turn(self.turn_key):
            raise SessionError(
                f"{self._named} takes no messages while a run goes on in it.", hint="Add them after the run."
            )
        try:
            if PENDING_KEY in self.session.state:
                raise SessionError(
                    f"{self._named} takes no messages while calls wait for approval.",
                    hint="Answer them first: agent.run([request.approve(), ...], session=session).",
                )
            yield
        finally:
            end_turn(self.turn_key)


class ReadOnlyThread(HostedThread):
    """A conversation that its service gives out, and to which only requests add.

    Implement `read_at_service`, and say in `refusal` why nothing else can be added.
    """

    kind = "a read-only conversation of a service"
    can_read = True

    @abstractmethod
    async def read_at_service(self, id: str) -> list[Message]:
        """Return the messages that are stored there, oldest first; each has a `message_id`."""


class ServiceThread(HostedThread):
    """A conversation that its service goes on with and does not give out: what there is for a client of any kind."""
