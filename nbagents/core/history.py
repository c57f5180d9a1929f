"""The storages behind local threads: what one has to do, and the one that keeps messages in the session itself."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence

from nbagents.core.messages import Message
from nbagents.core.sessions import MESSAGES_KEY, AgentSession


class HistoryProvider(ABC):
    """The storage behind a local thread. To write one, implement `get_messages` and `save_messages`.

    `delete_messages` is for storages that can forget, `storage_key` for those that several objects share.

    Attributes:
        waits: saving may wait for something, so a cancelled run finishes it first.
    """

    waits = True

    @abstractmethod
    async def get_messages(self, session: AgentSession) -> list[Message]:
        """Return the stored messages of `session`, oldest first."""

    @abstractmethod
    async def save_messages(self, session: AgentSession, messages: Sequence[Message]) -> None:
        """Append `messages`, all of them or none."""

    async def delete_messages(self, session: AgentSession) -> None:
        """Forget the messages of `session`; a storage that does not implement this keeps them, with a warning."""
        warnings.warn(
            f"{type(self).__name__} cannot delete: the messages of {session.session_id!r} are still stored. "
            "Implement delete_messages(session).",
            stacklevel=2,
        )

    def storage_key(self, session: AgentSession) -> Hashable:
        """What tells this storage of `session` from others: runs with equal keys take turns."""
        return id(self), session.session_id


class InMemoryHistoryProvider(HistoryProvider):
    """Keeps messages in `session.state`, so they travel with `session.to_dict()`."""

    waits = False

    async def get_messages(self, session: AgentSession) -> list[Message]:
        """Return the stored messages of `session`, oldest first."""
        return list(session.state.get(MESSAGES_KEY, ()))

    async def save_messages(self, session: AgentSession, messages: Sequence[Message]) -> None:
        """Append `messages`."""
        session.state.setdefault(MESSAGES_KEY, []).extend(messages)

    async def delete_messages(self, session: AgentSession) -> None:
        """Remove the messages from the state."""
        session.state.pop(MESSAGES_KEY, None)

    def storage_key(self, session: AgentSession) -> Hashable:
        """The state itself is the storage."""
        return id(session.state), session.session_id
