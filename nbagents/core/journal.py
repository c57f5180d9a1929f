"""What a run that can be taken up again keeps of itself, and finds again: model replies and results of tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from nbagents.core.content import FunctionCall, FunctionResult
from nbagents.core.responses import ChatResponse
from nbagents.core.updates import ChatResponseUpdate

if TYPE_CHECKING:
    from nbagents.core.messages import Message
    from nbagents.core.run import RunContext


@dataclass(frozen=True, slots=True)
class KeptReply:
    """A reply of the model.

    Attributes:
        response: what it said.
        facts: what its `llm.succeeded` says of time and usage.
    """

    response: ChatResponse
    facts: dict[str, Any]

    async def updates(self) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield the reply as increments, instead of asking the model."""
        for update in self.response.to_updates():
            update.replayed = True
            yield update


@dataclass(frozen=True, slots=True)
class KeptResult:
    """The answer to a call.

    Attributes:
        result: what the model reads.
        status: `ok`, or how it failed.
        duration_s: seconds that the call took.
        error_type: the class of what the tool raised, if it did.
        artifacts: payloads of what it handed out beside its result.
    """

    result: FunctionResult
    status: str
    duration_s: float | None
    error_type: str | None = None
    artifacts: list[dict[str, Any]] = field(default_factory=list)


class RunJournal(Protocol):
    """Keeps the steps of one run; where it was interrupted, the loop runs anew and finds here what was done."""

    async def begin(self, run: RunContext, before: list[Message]) -> list[Message]:
        """Keep how the run begins; return the messages `before` it, without those that it has stored itself."""
        ...

    def before_reply(self, run: RunContext) -> None:
        """Put into the session what the reducer had left there when the next reply was asked for."""
        ...

    def next_reply(self) -> KeptReply | None:
        """Take the next reply, if the model has given it."""
        ...

    async def keep_reply(self, run: RunContext, kept: KeptReply) -> None:
        """Keep a reply; when this returns, it is on disk."""
        ...

    def result_of(self, call: FunctionCall) -> KeptResult | None:
        """The result of a call, if there is one."""
        ...

    async def keep_result(self, run: RunContext, call: FunctionCall, kept: KeptResult) -> None:
        """Keep a result; when this returns, it is on disk."""
        ...

    def not_stored(self, messages: Sequence[Message]) -> list[Message]:
        """Return those of the messages to be stored that were not stored before the interruption."""
        ...
