"""What the events of the run log say about runs, model requests, messages and tool calls: the rows of the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nbagents.analysis.jsontext import json_text
from nbagents.analysis.stores import EVERY_RUN, RunQuery, RunSource, stored_records
from nbagents.core.content import FunctionCall, RefusalContent
from nbagents.core.events import RunEvent
from nbagents.core.messages import Message
from nbagents.core.prices import request_cost, warn_of_unknown_price
from nbagents.core.responses import joined_text
from nbagents.core.results import MAX_RESULT_CHARACTERS
from nbagents.core.run import STATUS_OF_STOP_REASON
from nbagents.core.runlog import RunRecord
from nbagents.core.secrets import redact
from nbagents.core.usage import Usage, total_usage, usage_complete

FREE_PROVIDERS = frozenset({"scripted", "local", "demo"})
"""Clients that cost nothing and have no price: nobody needs to be warned of that."""


class TokenCounts:
    """The counts of a `usage`, each None where nothing was reported."""

    @property
    def usage(self) -> Usage | None:
        """What was reported."""
        raise NotImplementedError

    def count(self, name: str) -> int | None:
        """One of the counts, by its name in `Usage`."""
        value: int | None = getattr(self.usage, name) if self.usage is not None else None
        return value


@dataclass(eq=False)
class RequestFacts(TokenCounts):
    """One request to a model: `asked` is its beginning, `answer` its end, if it has one."""

    run: RunFacts
    asked: dict[str, Any]
    started_at: float
    answer: dict[str, Any] | None = None
    ended_at: float | None = None

    def answered(self, name: str) -> Any:
        """A fact of the end; None where there is none."""
        return self.answer.get(name) if self.answer is not None else None

    @property
    def usage(self) -> Usage | None:
        """What the model reported."""
        usage: Usage | None = self.answered("usage")
        return usage

    @property
    def model_returned(self) -> str | None:
        """The model that answered."""
        return self.answered("model") if self.answered("error") is None else None

    @property
    def model(self) -> str | None:
        """The model that answered, or that was asked."""
        return self.model_returned or self.asked["model"]

    @cached_property
    def cost(self) -> float | None:
        """US dollars; None if the price or a count is unknown."""
        if self.usage is not None and self.run.facts["provider"] not in FREE_PROVIDERS:
            warn_of_unknown_price(self.model or "")
        return request_cost(self.model or "", self.usage)

    @property
    def error_type(self) -> str | None:
        """The class of the error, if it failed."""
        error = self.answered("error")
        return error["type"] if error else None


@dataclass(eq=False)
class MessageFacts:
    """One message that a run took up or added."""

    run: RunFacts
    message: Message
    sequence: int
    is_input: bool
    step: int
    turn: int | None = None
    index: int | None = None
    message_id: str | None = None

    @property
    def content(self) -> str | None:
        """The words: text, a refusal, or the result of a tool."""
        message = self.message
        refusal = "".join(piece.text for piece in message.contents if isinstance(piece, RefusalContent))
        return message.text or refusal or "\n".join(result.result for result in message.results) or None

    @property
    def tool_calls(self) -> str | None:
        """The calls as JSON text."""
        calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in self.message.calls]
        return json_text(calls) if calls else None

    @property
    def tool_call_id(self) -> str | None:
        """The call that this message answers."""
        results = self.message.results
        return results[0].id or None if results else None


@dataclass(eq=False)
class CallFacts:
    """One call that a model made, in the run in which it made it; a later run may have answered it."""

    run: RunFacts
    call: FunctionCall
    step: int
    started_at: float | None = None
    asked_at: float | None = None
    outcome: RunEvent | None = None
    tool_id: str | None = None

    @property
    def tool(self) -> str:
        """What the log calls the tool; the name in the call where it has not come to it yet."""
        return self.tool_id or self.call.name

    def told(self, name: str) -> Any:
        """A fact of the end; None where there is none."""
        return self.outcome.payload.get(name) if self.outcome is not None else None

    @property
    def status(self) -> str | None:
        """How it ended; None while it runs or waits."""
        if self.outcome is None:
            return None
        return "ok" if self.outcome.name == "tool.succeeded" else self.told("status")

    @property
    def arguments(self) -> str | None:
        """The arguments as JSON text; text that is not JSON stays as the model wrote it."""
        arguments = self.call.arguments
        if arguments is None:
            return None
        return redact(arguments) if isinstance(arguments, str) else json_text(arguments)

    @property
    def result_chars(self) -> int | None:
        """The length of the result."""
        result = self.told("result")
        return None if result is None else len(result)

    @property
    def truncated(self) -> bool | None:
        """Whether the result was cut for the model."""
        return None if self.result_chars is None else self.result_chars > MAX_RESULT_CHARACTERS

    @property
    def approval(self) -> str | None:
        """What a person said to it; None where nobody was asked."""
        if self.asked_at is None:
            return None
        if self.status == "denied":
            return "denied"
        return "approved" if self.started_at is not None else "waiting"


@dataclass(frozen=True)
class EventFacts:
    """One event of a run."""

    run: RunFacts
    event: RunEvent

    @property
    def event_id(self) -> str:
        """Unique over all runs."""
        return f"{self.run.run_id}:{self.event.sequence}"

    @property
    def t_rel_s(self) -> float:
        """Seconds since the start of the run."""
        return self.event.timestamp - self.run.started_at


class RunFacts(TokenCounts):
    """One run, its events read once."""

    def __init__(self, record: RunRecord) -> None:
        self.run_id = record.run_id
        self.events = list(record.events)
        self.facts = self.events[0].payload
        self.started_at = self.events[0].timestamp
        self.end = self.events[-1].payload if self.events[-1].name == "run.ended" else None
        self.requests: list[RequestFacts] = []
        self.messages: list[MessageFacts] = []
        self._read()

    def _read(self) -> None:
        requests: dict[str, RequestFacts] = {}
        step = 0
        for event in self.events:
            if event.name == "llm.requested":
                step = event.payload["step"]
                request = RequestFacts(self, event.payload, event.timestamp)
                requests[event.payload["request_id"]] = request
            elif event.name in {"llm.succeeded", "llm.failed"}:
                request = requests[event.payload["request_id"]]
                request.answer, request.ended_at = event.payload, event.timestamp
            elif event.name == "message.added":
                message = event.payload["message"]
                self.messages.append(MessageFacts(self, message, event.sequence, not requests, step))
        self.requests = list(requests.values())

    @property
    def session_id(self) -> str:
        """The conversation."""
        session_id: str = self.facts["session_id"]
        return session_id

    @property
    def model(self) -> str | None:
        """The model that was asked for, or else the first that answered."""
        return self.facts["model"] or next((r.model for r in self.requests if r.model), None)

    @cached_property
    def calls(self) -> list[CallFacts]:
        """The calls that the model made, in order, without what became of them."""
        return [
            CallFacts(self, call, row.step)
            for row in self.messages
            if row.message.role == "assistant" and not row.is_input
            for call in row.message.calls
        ]

    @property
    def ended_at(self) -> float | None:
        """Unix seconds; None while it goes on."""
        return self.events[-1].timestamp if self.end is not None else None

    @property
    def duration_s(self) -> float | None:
        """Seconds from start to end; None while it goes on."""
        return None if self.ended_at is None else self.ended_at - self.started_at

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the start of the run to the first token of any of its streams."""
        for request in self.requests:
            if (ttft := request.answered("ttft_s")) is not None:
                return request.started_at - self.started_at + float(ttft)
        return None

    @property
    def stop_reason(self) -> str | None:
        """Why it ended; None while it goes on."""
        return self.end["stop_reason"] if self.end is not None else None

    @property
    def status(self) -> str | None:
        """How it ended, in one of five words; None while it goes on."""
        return STATUS_OF_STOP_REASON[self.stop_reason] if self.stop_reason is not None else None

    def error(self, name: str) -> str | None:
        """The `type` or `message` of the error that ended it."""
        error = self.end["error"] if self.end is not None else None
        return error[name] if error else None

    @cached_property
    def usage(self) -> Usage | None:
        """The sum of what was reported."""
        return total_usage(request.usage for request in self.requests)

    @property
    def usage_complete(self) -> bool:
        """Whether every request reported its tokens."""
        return usage_complete(request.usage for request in self.requests)

    @property
    def cost(self) -> float | None:
        """US dollars: the sum of what is known."""
        return known_cost(self.requests)

    @property
    def cost_complete(self) -> bool:
        """Whether the cost of every request is known."""
        return all(request.cost is not None for request in self.requests)

    @property
    def input_text(self) -> str | None:
        """The words of the input, a newline between two messages."""
        return "\n".join(text for message in self.facts["input"] if (text := message.text)) or None

    @property
    def output_text(self) -> str | None:
        """The visible text of the replies so far, partial ones included."""
        return joined_text([row.message for row in self.messages if not row.is_input]) or None

    @property
    def n_turns(self) -> int:
        """The user turns that began in it."""
        return sum(_begins_turn(row, before) for before, row in _with_previous(self.messages))


def known_cost(requests: Iterable[RequestFacts]) -> float | None:
    """US dollars of `requests`: the sum of what is known, None if nothing is."""
    costs = [request.cost for request in requests if request.cost is not None]
    return sum(costs) if costs else None


def logged_runs(query: RunQuery = EVERY_RUN, source: RunSource | None = None) -> list[RunFacts]:
    """The runs that `query` wants, oldest first: of the log and the store, or of `source`."""
    return [RunFacts(record) for record in stored_records(query, source)]


def placed_messages(runs: Iterable[RunFacts]) -> list[MessageFacts]:
    """The messages of `runs`, oldest first, with their turns and places in the sessions and unique ids."""
    turns: defaultdict[str, int] = defaultdict(int)
    places: defaultdict[str, int] = defaultdict(int)
    seen: defaultdict[str, int] = defaultdict(int)
    rows = []
    for run in runs:
        for before, row in _with_previous(run.messages):
            session = run.session_id
            turns[session] += _begins_turn(row, before)
            row.turn, row.index = turns[session] or None, places[session]
            places[session] += 1
            own = row.message.message_id or f"{run.run_id}:{row.sequence}"
            seen[own] += 1
            row.message_id = own if seen[own] == 1 else f"{own}#{seen[own]}"
            rows.append(row)
    return rows


def settled_calls(runs: Iterable[RunFacts]) -> list[CallFacts]:
    """The calls that models made in `runs`, oldest first, with what became of them, in whichever of the runs."""
    runs = list(runs)
    calls = [call for run in runs for call in run.calls]
    by_id = {call.call.id: call for call in calls}
    for run in runs:
        for event in run.events:
            call = by_id.get(event.payload.get("id", ""))
            if call is None:
                continue
            if event.name.startswith("tool."):
                call.tool_id = event.payload.get("tool_id", call.tool_id)
            if event.name == "tool.called":
                call.started_at = event.timestamp
            elif event.name == "approval.requested":
                call.asked_at = call.asked_at or event.timestamp
            elif event.name in {"tool.succeeded", "tool.failed"}:
                call.outcome = event
    return calls


def _with_previous(rows: list[MessageFacts]) -> Iterable[tuple[MessageFacts | None, MessageFacts]]:
    return zip([None, *rows], rows, strict=False)


def _begins_turn(row: MessageFacts, before: MessageFacts | None) -> bool:
    """A turn begins with what a person says: neighbouring user messages are one, corrections by the loop none."""
    if not row.is_input or row.message.role != "user":
        return False
    return before is None or before.message.role != "user"
