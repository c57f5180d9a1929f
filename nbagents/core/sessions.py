"""A conversation: its identity and state, where its messages are stored, and the thread that a run goes through."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from nbagents.core.errors import ConfigurationError, ThreadDeletedError
from nbagents.core.ids import new_id
from nbagents.core.messages import Message

FORMAT_VERSION = 1
MESSAGES_KEY = "messages"
"""Where `InMemoryHistoryProvider` keeps the messages in `session.state`."""
PENDING_KEY = "pending"
"""Where a run that waits for approval keeps its unfinished turn in `session.state`."""
DELETED_KEY = "deleted"


class AgentSession:
    """Identity and state of one conversation. It belongs to no agent: several may share it.

    Args:
        session_id: made up if not given.
        service_session_id: the conversation's id at a service that stores it.
        state: values that serialise; messages among them are kept as messages.

    Example:
        >>> AgentSession.from_dict(AgentSession("trip").to_dict()).session_id
        'trip'
    """

    def __init__(
        self,
        session_id: str | None = None,
        *,
        service_session_id: str | None = None,
        state: dict[str, Any] | None = None,
    ) -> None:
        if session_id is not None and (not isinstance(session_id, str) or not session_id):
            raise ConfigurationError(f"session_id is a text that is not empty, not {session_id!r}.")
        self.session_id = session_id or new_id("session")
        self.service_session_id = service_session_id
        self.state: dict[str, Any] = {} if state is None else state

    def __repr__(self) -> str:
        return f"AgentSession({self.session_id!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values; `from_dict` reads them.

        Raises:
            ConfigurationError: a value of `state` that does not serialise, naming its key.
        """
        return {
            "version": FORMAT_VERSION,
            "session_id": self.session_id,
            "service_session_id": self.service_session_id,
            "state": {key: _encode(value, key) for key, value in self.state.items()},
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> AgentSession:
        """Read what `to_dict` wrote.

        Raises:
            ConfigurationError: another version, or not a session.
        """
        if not isinstance(record, Mapping):
            raise ConfigurationError(
                f"A stored session is a dict, not {type(record).__name__}.", hint="Read JSON with json.loads() first."
            )
        version = record.get("version")
        if version != FORMAT_VERSION or "session_id" not in record:
            raise ConfigurationError(
                f"This is no session of version {FORMAT_VERSION}: version {version!r}, keys {sorted(record)}.",
                hint="Pass what AgentSession.to_dict() returned.",
            )
        state = {key: _decode(value) for key, value in record.get("state", {}).items()}
        return cls(record["session_id"], service_session_id=record.get("service_session_id"), state=state)


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


class LocalThread:
    """The one door to the messages of a session that are stored on this side.

    Args:
        session: the conversation.
        history: where its messages are.
    """

    stores_locally = True
    accepts_external_messages = True
    can_delete = True

    def __init__(self, session: AgentSession, history: HistoryProvider) -> None:
        self.session = session
        self.history = history

    @property
    def id(self) -> str:
        """The `session_id`."""
        return self.session.session_id

    @property
    def turn_key(self) -> Hashable:
        """Runs with equal keys take turns."""
        return self.history.storage_key(self.session)

    async def create(self) -> None:
        """Nothing has to be made for a local thread; idempotent."""
        self._check()

    async def delete(self) -> None:
        """Forget the messages; from then on everything but `delete` raises `ThreadDeletedError`.

        That holds for this session, also when it comes back from `to_dict`; a new session of the same id begins empty.
        A run that still goes on stores nothing more and fails.
        """
        self.session.state[DELETED_KEY] = True
        self.session.state.pop(PENDING_KEY, None)
        await self.history.delete_messages(self.session)

    async def on_new_message(self, *messages: Message) -> None:
        """Store `messages` together: all of them or none."""
        self._check()
        await self.history.save_messages(self.session, messages)
        if self.session.state.get(DELETED_KEY):  # deleted while these were on their way
            await self.history.delete_messages(self.session)
            self._check()

    async def get_messages(self) -> list[Message]:
        """Return the messages, oldest first."""
        self._check()
        return await self.history.get_messages(self.session)

    async def reduce(self) -> None:
        """Nothing is reduced without a reducer."""
        self._check()

    def _check(self) -> None:
        if self.session.state.get(DELETED_KEY):
            raise ThreadDeletedError(
                f"The thread {self.id!r} was deleted.", hint="Begin a new session: agent.create_session()."
            )


_MESSAGE_TAG = "$message"


def _encode(value: Any, place: str) -> Any:
    if isinstance(value, Message):
        return {_MESSAGE_TAG: value.to_dict()}
    if isinstance(value, Mapping):
        return {str(key): _encode(item, f"{place}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(item, f"{place}[{i}]") for i, item in enumerate(value)]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise ConfigurationError(
        f"session.state[{place!r}] holds a {type(value).__name__}, which does not serialise.",
        hint="Keep plain values, lists, dicts and messages in the state.",
    )


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_MESSAGE_TAG}:
            return Message.from_dict(value[_MESSAGE_TAG])
        return {key: _decode(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_decode(item) for item in value]
    return value
