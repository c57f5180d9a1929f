"""The events of a run and the one table of their kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nbagents.core.updates import AgentResponseUpdate

EVENT_TO_CHUNK_KIND: dict[str, str] = {
    "run.started": "run.started",
    "llm.delta": "llm.delta",
    "llm.reasoning_delta": "llm.reasoning_delta",
    "llm.succeeded": "llm.finished",
    "tool.called": "tool.started",
    "tool.delta": "tool.delta",
    "tool.succeeded": "tool.finished",
    "tool.failed": "tool.finished",
    "approval.requested": "approval.requested",
    "artifact.emitted": "artifact",
    "validation.retry": "validation.retry",
    "llm.retried": "retry",
}
"""Event name to the kind of the public chunk; `run.finished` is made by the runtime itself.

`llm.retried` has the ids of messages in `retracts` where the deltas since the last `llm.succeeded` are taken back.
"""

LIVE_EVENTS = frozenset({"llm.delta", "llm.reasoning_delta", "llm.update", "tool.delta"})
"""Events that are streamed and not kept: `llm.succeeded` has their number, times and text.

`llm.update` is an increment without text (a piece of a call, usage); it has no chunk kind.
"""

OTHER_EVENTS = frozenset(
    {
        "llm.requested",
        "llm.failed",
        "message.added",
        "history.reduced",
        "session.unconfirmed",
        "provider.failed",
        "run.ended",
        "run.noted",
    }
)
"""Events that stand in the log only.

`history.reduced`: from here on requests bring less of the conversation than is stored.
`session.unconfirmed`: the service stores the conversation, and its reply did not say under which id.
`provider.failed`: a context provider or a storage failed beside the run, which went on or had ended already.
`run.noted` is what people say of a run: it may follow `run.ended`, many times.
"""


@dataclass(slots=True)
class RunEvent:
    """One record of a run's log.

    Attributes:
        run_id: the run.
        sequence: position in the run, from 1, without gaps among the events that are kept.
        name: one of the table above.
        timestamp: unix seconds, UTC.
        payload: what happened; values are objects of this package or JSON-able.
        update: the increment of the response that this event is, if it is one.
    """

    run_id: str
    sequence: int
    name: str
    timestamp: float
    payload: dict[str, Any]
    update: AgentResponseUpdate | None = None
