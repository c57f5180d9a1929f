"""The increments of a reply. They are the values on the per-chunk path, so they are slotted and cheap to build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbagents.core.content import Content, TextContent
from nbagents.core.messages import Role


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
        extra: unknown fields of the message.
        replayed: it comes from a recording, not from a model.
        raw: what the provider sent; never serialised.
    """

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
    extra: Mapping[str, Any] | None = None
    replayed: bool = False
    raw: Any = None

    @property
    def text(self) -> str:
        """The visible text of this increment."""
        return "".join(c.text for c in self.contents if isinstance(c, TextContent))


@dataclass(slots=True)
class AgentResponseUpdate(ChatResponseUpdate):
    """One increment of an agent's reply: also tool results, and the run that it belongs to."""

    agent_id: str | None = None
    run_id: str | None = None
    stop_reason: str | None = None
