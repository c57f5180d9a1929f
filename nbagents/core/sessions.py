"""A conversation: its identity and its state. Where its messages are is for histories and threads to say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagents.core.arguments import exact_arguments
from nbagents.core.errors import ConfigurationError
from nbagents.core.ids import new_id
from nbagents.core.state import decode_state, encode_state

FORMAT_VERSION = 1
MESSAGES_KEY = "messages"
"""Where `InMemoryHistoryProvider` keeps the messages in `session.state`."""
PENDING_KEY = "nbagents.pending"
"""Where a run that waits for approval keeps its unfinished turn in `session.state`."""
DELETED_KEY = "nbagents.deleted"
"""Where a session says that its thread was deleted."""
UNSENT_KEY = "nbagents.unsent"
"""Where messages wait that a service which stores the conversation still has to get: results, and those added here."""
REDUCTION_KEY = "nbagents.reduction"
"""Where a session says what its reducer leaves out, and how far the estimate of tokens is off."""
STORED_KEY = "nbagents.stored"
"""Where a session says which history has messages of it, if they are not in the session itself."""


class AgentSession:
    """Identity and state of one conversation. It belongs to no agent: several may share it.

    Args:
        session_id: made up if not given.
        service_session_id: the conversation's id at a service that stores it; runs keep it up to date.
        state: None, text, numbers, lists, tuples, dicts with text keys, messages, and values of classes that
            `register_state_type` knows. They come back from `from_dict` as what they were. The key `messages`, and
            those that begin with `nbagents.`, are used by runs.

    Raises:
        ConfigurationError: an id that is no text, or a state that is no dict.

    Example:
        >>> AgentSession.from_dict(AgentSession("trip").to_dict()).session_id
        'trip'
    """

    @exact_arguments()
    def __init__(
        self,
        session_id: str | None = None,
        *,
        service_session_id: str | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value in (("session_id", session_id), ("service_session_id", service_session_id)):
            if value is not None and (not isinstance(value, str) or not value):
                raise ConfigurationError(f"{name} is a text that is not empty, not {value!r}.")
        if state is not None and not isinstance(state, Mapping):
            raise ConfigurationError(f"state is a dict, not {type(state).__name__}.")
        self.session_id = session_id or new_id("session")
        self.service_session_id = service_session_id
        self.state: dict[str, Any] = dict(state or {})

    def __repr__(self) -> str:
        return f"AgentSession({self.session_id!r})"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values; `from_dict` reads them.

        Raises:
            ConfigurationError: a value of `state` that would not come back as it was, naming its key.
        """
        return {
            "version": FORMAT_VERSION,
            "session_id": self.session_id,
            "service_session_id": self.service_session_id,
            "state": encode_state(self.state),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> AgentSession:
        """Read what `to_dict` wrote. The record may come from anywhere: nothing in it is imported or run.

        Raises:
            ConfigurationError: another version, not a session, or a value of a class that is not registered.
        """
        if not isinstance(record, Mapping):
            raise ConfigurationError(
                f"A stored session is a dict, not {type(record).__name__}.", hint="Read JSON with json.loads() first."
            )
        version = record.get("version")
        if version != FORMAT_VERSION or not isinstance(record.get("session_id"), str):
            keys = ", ".join(map(str, record))
            raise ConfigurationError(
                f"This is no session of version {FORMAT_VERSION}: version {version!r}, keys {keys}.",
                hint="Pass what AgentSession.to_dict() returned.",
            )
        state = decode_state(record.get("state", {}))
        return cls(record["session_id"], service_session_id=record.get("service_session_id"), state=state)
