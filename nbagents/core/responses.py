"""Whole replies: folded from updates, and unfolded into them again."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from nbagents.core.content import ApprovalRequest, UsageContent
from nbagents.core.errors import ConfigurationError
from nbagents.core.faces import face
from nbagents.core.folding import UpdateFolder
from nbagents.core.messages import Message
from nbagents.core.notes import Thumbs, note
from nbagents.core.records import with_extra
from nbagents.core.updates import AgentResponseUpdate, ChatResponseUpdate
from nbagents.core.usage import Usage

if TYPE_CHECKING:
    from nbagents.core.sessions import AgentSession

T = TypeVar("T")

RESPONSE_VERSION = 1
"""Of the records that `to_dict` writes. Responses and sessions carry a version; what stands in them does not."""


@dataclass(slots=True)
class ChatResponse:
    """One reply of a model.

    Attributes:
        messages: what the model said, in order.
        response_id: the reply's id at the service.
        conversation_id: the service's conversation, where it keeps one.
        model: the model that answered.
        usage: tokens as reported; None if nothing was.
        finish_reason: `stop`, `length`, `tool_calls`, `content_filter` or the provider's word.
        created_at: unix seconds, UTC.
        value: the reply as `response_format` asked for it; never serialised.
        raw_representation: what the provider sent; never serialised.
        extra: fields of a stored response that this version does not know; they are written again.
    """

    record_type: ClassVar[str] = "chat_response"
    _stored: ClassVar[tuple[str, ...]] = (
        "response_id",
        "conversation_id",
        "model",
        "finish_reason",
        "created_at",
    )

    messages: list[Message] = field(default_factory=list)
    response_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    created_at: float | None = None
    value: Any = field(default=None, compare=False)
    raw_representation: Any = field(default=None, compare=False, repr=False)
    extra: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The visible text of the messages, a newline between two of them."""
        return joined_text(self.messages)

    def __str__(self) -> str:
        return self.text

    @classmethod
    def from_updates(cls, updates: Iterable[ChatResponseUpdate]) -> Self:
        """Fold `updates`, in linear time."""
        folder = UpdateFolder()
        for update in updates:
            folder.add(update)
        return cls.from_folder(folder)

    @classmethod
    async def from_update_generator(cls, updates: AsyncIterable[ChatResponseUpdate]) -> Self:
        """Fold `updates` as they arrive."""
        folder = UpdateFolder()
        async for update in updates:
            folder.add(update)
        return cls.from_folder(folder)

    @classmethod
    def from_folder(cls, folder: UpdateFolder) -> Self:
        """Take what `folder` has folded."""
        return cls(
            messages=folder.messages(),
            response_id=folder.response_id,
            conversation_id=folder.conversation_id,
            model=folder.model,
            usage=folder.usage,
            finish_reason=folder.finish_reason,
            created_at=folder.created_at,
        )

    def to_updates(self) -> list[ChatResponseUpdate]:
        """Unfold into updates, one for each message and one for the facts; `from_updates` gives an equal response."""
        updates = [_message_update(ChatResponseUpdate, message) for message in self.messages]
        return [*updates, self._facts(ChatResponseUpdate())]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able values with a version number; `from_dict` reads them.

        Value, session and raw representation are not among them.
        """
        record: dict[str, Any] = {"version": RESPONSE_VERSION, "type": self.record_type}
        record["messages"] = [message.to_dict() for message in self.messages]
        if self.usage is not None:
            record["usage"] = self.usage.to_dict()
        for name in self._stored:
            if value := getattr(self, name):
                record[name] = value
        return with_extra(record, self.extra)

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote; fields that this version does not know are kept in `extra`.

        Raises:
            ConfigurationError: another version, or no such response.
        """
        facts = (record.get("version"), record.get("type")) if isinstance(record, Mapping) else None
        if facts != (RESPONSE_VERSION, cls.record_type) or not isinstance(record.get("messages"), list):
            raise ConfigurationError(
                f"This is no {cls.record_type} of version {RESPONSE_VERSION}: {str(record)[:100]!r}.",
                hint=f"Pass what {cls.__name__}.to_dict() returned.",
            )
        known = {"version", "type", "messages", "usage", *cls._stored}
        return cls(
            messages=[Message.from_dict(message) for message in record["messages"]],
            usage=Usage.from_dict(record["usage"]) if record.get("usage") is not None else None,
            extra={name: value for name, value in record.items() if name not in known} or None,
            **{name: record[name] for name in cls._stored if name in record},
        )

    def _facts(self, update: ChatResponseUpdate) -> Any:
        update.response_id = self.response_id
        update.conversation_id = self.conversation_id
        update.model = self.model
        update.finish_reason = self.finish_reason
        update.created_at = self.created_at
        update.contents = (UsageContent(self.usage),) if self.usage else ()
        return update


@dataclass(slots=True)
class AgentResponse(ChatResponse, Generic[T]):
    """What a run gave.

    Attributes:
        messages: what the run added to the conversation, without the input.
        value: the reply as `response_format` asked for it; None without one.
        session: the session of the run; pass it to the next run to go on.
        run_id: the run's id, the key of all tables.
        agent_id: the agent's id.
        stop_reason: `completed`, `approval_required`, `refused`, `max_steps`, or how it ended early.
        usage: the sum over all model requests, those of sub-agents too; `usage_df(by="run_id")` has each run alone.
        warnings: what was odd about the replies, in words.
    """

    record_type: ClassVar[str] = "agent_response"
    _stored: ClassVar[tuple[str, ...]] = (
        *ChatResponse._stored,
        "run_id",
        "agent_id",
        "stop_reason",
        "warnings",
    )

    value: T | None = field(default=None, compare=False)
    session: AgentSession | None = field(default=None, compare=False, repr=False)
    run_id: str | None = None
    agent_id: str | None = None
    stop_reason: str | None = None
    warnings: list[str] = field(default_factory=list, compare=False)

    def __str__(self) -> str:
        """The text; of a response that waits for a person also what for."""
        return face("response.mimebundle")(self)["text/plain"] if self.approvals else self.text

    @property
    def approvals(self) -> list[ApprovalRequest]:
        """The calls that wait for a person: answer with `agent.run([a.approve(), ...], session=response.session)`."""
        return [c for message in self.messages for c in message.contents if isinstance(c, ApprovalRequest)]

    def note(self, text: str | None = None, *, thumbs: Thumbs | None = None) -> None:
        """Write down what you think of this run: `notes` and `thumbs` of `runs_df`.

        Args:
            text: some words.
            thumbs: `up` or `down`.

        Raises:
            ConfigurationError: nothing to note, or the run has left the log.
        """
        note(self, text, thumbs=thumbs)

    @classmethod
    def from_folder(cls, folder: UpdateFolder) -> Self:
        """Take what `folder` has folded."""
        response = super(AgentResponse, cls).from_folder(folder)
        response.run_id, response.agent_id = folder.run_id, folder.agent_id
        response.stop_reason = folder.stop_reason
        return response

    def to_updates(self) -> list[AgentResponseUpdate]:  # type: ignore[override]
        """Unfold into updates, one for each message and one for the facts; `from_updates` gives an equal response."""
        updates = [_message_update(AgentResponseUpdate, message) for message in self.messages]
        facts: AgentResponseUpdate = self._facts(AgentResponseUpdate())
        facts.run_id, facts.agent_id, facts.stop_reason = self.run_id, self.agent_id, self.stop_reason
        return [*updates, facts]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = face("response.mimebundle")(self)
        return bundle


U = TypeVar("U", bound=ChatResponseUpdate)


def joined_text(messages: Sequence[Message]) -> str:
    """The visible text of the assistant's messages, a newline between two; blank text before a call is none."""
    return "\n".join(
        text
        for message in messages
        if message.role == "assistant" and (text := message.text) and (text.strip() or not message.calls)
    )


def _message_update(kind: type[U], message: Message) -> U:
    update = kind(
        contents=message.contents,
        role=message.role,
        author_name=message.author_name,
        message_id=message.message_id,
        created_at=message.created_at,
        starts_message=True,
        interrupted=message.interrupted,
        extra=message.extra,
    )
    if isinstance(update, AgentResponseUpdate):
        update.run_id, update.agent_id = message.run_id, message.agent_id
    return update
