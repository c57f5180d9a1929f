"""Whole replies: folded from updates, and unfolded into them again."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from nbagents.core.content import ApprovalRequest, UsageContent
from nbagents.core.faces import face
from nbagents.core.folding import UpdateFolder
from nbagents.core.messages import Message
from nbagents.core.updates import AgentResponseUpdate, ChatResponseUpdate
from nbagents.core.usage import Usage

if TYPE_CHECKING:
    from nbagents.core.sessions import AgentSession

T = TypeVar("T")


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
        raw_representation: what the provider sent; never serialised.
    """

    messages: list[Message] = field(default_factory=list)
    response_id: str | None = None
    conversation_id: str | None = None
    model: str | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    created_at: float | None = None
    raw_representation: Any = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The visible text of the messages, a newline between two of them."""
        return joined_text(self.messages)

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
        usage: the sum over all model requests of the run.
        warnings: what was odd about the replies, in words.
    """

    value: T | None = field(default=None, compare=False)
    session: AgentSession | None = field(default=None, compare=False, repr=False)
    run_id: str | None = None
    agent_id: str | None = None
    stop_reason: str | None = None
    warnings: list[str] = field(default_factory=list, compare=False)

    @property
    def approvals(self) -> list[ApprovalRequest]:
        """The calls that wait for a person: answer with `agent.run([a.approve(), ...], session=response.session)`."""
        return [c for message in self.messages for c in message.contents if isinstance(c, ApprovalRequest)]

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
