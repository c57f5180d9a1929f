"""The increments of a reply. They are the values on the per-chunk path, so they are slotted and cheap to build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from nbagents.core.content import Content, TextContent, content_from_dict, content_to_dict
from nbagents.core.errors import ConfigurationError
from nbagents.core.messages import Role
from nbagents.core.records import with_extra

UPDATE_VERSION = 1
"""Of the records that `to_dict` writes."""
BEGINS_AGAIN = "\n[The reply broke off and begins again.]\n"
"""What stands in the place of `retracts` where text cannot be taken back."""
_UNSTORED = {"contents", "raw", "unknown"}


@dataclass(slots=True)
class ChatResponseUpdate:
    """One increment of a chat client's reply.

    Attributes:
        contents: the new pieces; arguments of a `FunctionCall` may be a fragment.
        role: the role of the message that grows, if known.
        author_name: who writes.
        message_id: the message that grows; without one, the newest of the same role and author.
        response_id: the reply's id at the service.
        conversation_id: the service's conversation, where it keeps one.
        model: the model that answers.
        finish_reason: why the reply ended (`stop`, `length`, `tool_calls`, `content_filter`), on the last increment.
        created_at: unix seconds, UTC.
        starts_message: a new message begins here, whatever its role and author.
        interrupted: the message was cut short.
        retracts: the ids of messages that are taken back: the reply broke off and begins again (`retry_streams` of the
            client). Who has shown them removes them; the response does not have them.
        extra: unknown fields of the message.
        replayed: it comes from a recording, not from a model.
        raw: what the provider sent; never serialised.
        unknown: fields of a stored update that this version does not know; they are written again.
    """

    record_type: ClassVar[str] = "chat_update"

    contents: Sequence[Content] = ()
    role: Role | None = None
    author_name: str | None = None
    message_id: str | None = None
    response_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None
    finish_reason: str | None = None
    created_at: float | None = None
    starts_message: bool = False
    interrupted: bool = False
    retracts: Sequence[str] = ()
    extra: Mapping[str, Any] | None = None
    replayed: bool = False
    raw: Any = field(default=None, compare=False, repr=False)
    unknown: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The visible text of this increment."""
        return "".join(c.text for c in self.contents if isinstance(c, TextContent))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values with a version number; `from_dict` reads them."""
        record: dict[str, Any] = {"version": UPDATE_VERSION, "type": self.record_type}
        record["contents"] = [content_to_dict(content) for content in self.contents]
        for f in fields(self):
            if f.name not in _UNSTORED and (value := getattr(self, f.name)) != f.default:
                record[f.name] = value
        return with_extra(record, self.unknown)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote; fields that this version does not know are kept.

        Raises:
            ConfigurationError: another version, or no such update.
        """
        facts = (record.get("version"), record.get("type")) if isinstance(record, Mapping) else None
        if facts != (UPDATE_VERSION, cls.record_type) or not isinstance(record.get("contents"), list):
            raise ConfigurationError(
                f"This is no {cls.record_type} of version {UPDATE_VERSION}: {str(record)[:100]!r}.",
                hint=f"Pass what {cls.__name__}.to_dict() returned.",
            )
        known = {f.name: record[f.name] for f in fields(cls) if f.name in record and f.name not in _UNSTORED}
        unknown = {k: v for k, v in record.items() if k not in known and k not in ("version", "type", "contents")}
        contents = tuple(content_from_dict(content) for content in record["contents"])
        if "retracts" in known:
            known["retracts"] = tuple(known["retracts"])
        return cls(contents=contents, unknown=unknown or None, **known)


@dataclass(slots=True)
class AgentResponseUpdate(ChatResponseUpdate):
    """One increment of an agent's reply: also tool results, and the run that it belongs to."""

    record_type: ClassVar[str] = "agent_update"

    agent_id: str | None = None
    run_id: str | None = None
    stop_reason: str | None = None
