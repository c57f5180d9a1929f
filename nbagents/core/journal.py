"""What a run that can be taken up again keeps of itself, and finds again: model replies and results of tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from nbagents.core.content import FunctionCall, FunctionResult
from nbagents.core.events import RunEvent
from nbagents.core.prices import request_cost
from nbagents.core.responses import ChatResponse
from nbagents.core.runlog import RunRecord
from nbagents.core.updates import ChatResponseUpdate
from nbagents.core.usage import Usage, total_usage

if TYPE_CHECKING:
    from nbagents.core.messages import Message
    from nbagents.core.run import RunContext


Spent = dict[str, Any]
"""A request of a run that was part of another: the model that was `asked`, the `model` that answered, the `usage`."""


class EarlierRun:
    """What runs that were part of this one had used before the interruption: it counts in usage, cost and budget.

    Args:
        spent: their requests.
    """

    children = ()

    def __init__(self, spent: Sequence[Spent]) -> None:
        self._requests = [
            (one["asked"], one["model"], None if one["usage"] is None else Usage.from_dict(one["usage"]))
            for one in spent
        ]
        self.record = RunRecord("")
        for number, (asked, model, usage) in enumerate(self._requests):
            known = {"request_id": str(number), "model": asked}
            self.record.append(RunEvent("", 0, "llm.requested", 0.0, known))
            self.record.append(RunEvent("", 0, "llm.succeeded", 0.0, {**known, "model": model, "usage": usage}))

    @property
    def usage(self) -> Usage | None:
        """The usage of all of them."""
        return total_usage([usage for _, _, usage in self._requests])

    def cost(self) -> float:
        """US dollars of what is known of it."""
        return sum(request_cost(model or asked, usage, asked=asked) or 0.0 for asked, model, usage in self._requests)


def spent_by(run: RunContext | EarlierRun) -> list[Spent]:
    """Return the requests of a run and of its parts that may be charged."""
    spent: list[Spent] = []
    asked: dict[str, str] = {}
    for event in run.record.named("llm.requested", "llm.succeeded", "llm.failed"):
        facts = event.payload
        if event.name == "llm.requested":
            asked[facts["request_id"]] = facts["model"] or ""
        elif event.name == "llm.succeeded" or facts["usage"] is not None or facts["text"]:
            usage = None if facts["usage"] is None else facts["usage"].to_dict()
            spent.append({"asked": asked.get(facts["request_id"], ""), "model": facts["model"], "usage": usage})
    return [*spent, *(one for child in run.children for one in spent_by(child))]


@dataclass(frozen=True, slots=True)
class KeptReply:
    """A reply of the model.

    Attributes:
        response: what it said.
        facts: what its `llm.succeeded` says of time and usage.
        spent: what parts of the run had used until then, since the step before.
    """

    response: ChatResponse
    facts: dict[str, Any]
    spent: list[Spent] = field(default_factory=list)

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
        spent: as that of a reply.
    """

    result: FunctionResult
    status: str
    duration_s: float | None
    error_type: str | None = None
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    spent: list[Spent] = field(default_factory=list)


class RunJournal(Protocol):
    """Keeps the steps of one run; where it was interrupted, the loop runs anew and finds here what was done."""

    async def begin(self, run: RunContext, before: list[Message]) -> list[Message]:
        """Keep how the run begins; return the messages `before` it, without those that it has stored itself."""
        ...

    def before_reply(self, run: RunContext) -> None:
        """Put into the session what the reducer had left there when the next reply was asked for."""
        ...

    async def keep_reduction(self, run: RunContext) -> None:
        """Keep what the reducer has left in the session, if a model has made it."""
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
