"""What the events of the run log say about runs, model requests, messages and tool calls: the rows of the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from nbagents.analysis.jsontext import clean_text
from nbagents.analysis.stores import EVERY_RUN, RunQuery, RunSource, stored_records
from nbagents.analysis.sums import RequestSums, TokenCounts
from nbagents.core.content import FunctionCall, FunctionResult, RefusalContent, TextContent
from nbagents.core.events import RunEvent
from nbagents.core.messages import Message
from nbagents.core.prices import request_cost, warn_of_unknown_price
from nbagents.core.responses import joined_text
from nbagents.core.results import MAX_RESULT_CHARACTERS
from nbagents.core.run import STATUS_OF_STOP_REASON
from nbagents.core.runlog import RunRecord
from nbagents.core.usage import Usage

T = TypeVar("T")
FREE_PROVIDERS = frozenset({"scripted", "local", "demo"})
"""Clients that cost nothing and have no price: nobody needs to be warned of that."""


@dataclass(eq=False, slots=True)
class RequestFacts(TokenCounts):
    """One request to a model: `asked` is its beginning, `answer` its end, which may be missing."""

    run_id: str
    provider: str | None
    asked: dict[str, Any]
    started_at: float
    answer: dict[str, Any] = field(default_factory=dict)
    ended_at: float | None = None
    usage: Usage | None = None

    def take(self, event: RunEvent) -> None:
        """Take note of its end."""
        self.answer, self.ended_at, self.usage = event.payload, event.timestamp, event.payload.get("usage")

    def answered(self, name: str) -> Any:
        """A fact of the end; None where there is none."""
        return self.answer.get(name)

    @property
    def model_returned(self) -> str | None:
        """The model that answered."""
        return self.answer.get("model") if self.answer.get("error") is None else None

    @property
    def model(self) -> str | None:
        """The model that answered, or that was asked."""
        return self.model_returned or self.asked["model"]

    @property
    def cost(self) -> float | None:
        """US dollars; None if the price or a count is unknown."""
        if self.usage is None:
            return None
        model, asked = self.model or "", self.asked["model"] or ""
        if self.provider not in FREE_PROVIDERS:
            warn_of_unknown_price(model, asked=asked)
        return request_cost(model, self.usage, asked=asked)

    @property
    def error_type(self) -> str | None:
        """The class of the error, if it failed."""
        error = self.answer.get("error")
        return error["type"] if error else None


_UNREAD = "not looked for yet"


@dataclass(eq=False, slots=True)
class MessageFacts:
    """One message that a run took up or added."""

    run_id: str
    session_id: str
    message: Message
    sequence: int
    is_input: bool
    step: int
    begins_turn: bool
    """Whether a user turn begins with it, as far as this run knows."""
    _content: str | None = _UNREAD

    @property
    def message_id(self) -> str:
        """The id of the message, or else its place in the log."""
        return self.message.message_id or f"{self.run_id}:{self.sequence}"

    @property
    def content(self) -> str | None:
        """What was said: text, a refusal, or the result of a tool."""
        if self._content is _UNREAD:
            self._content = _words(self.message)
        return self._content

    @property
    def n_chars(self) -> int:
        """The characters of `content`."""
        return len(self.content or "")

    @property
    def tool_calls(self) -> list[dict[str, Any]] | None:
        """The calls in it."""
        if self.message.role != "assistant":
            return None
        calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in self.message.calls]
        return calls or None

    @property
    def tool_call_id(self) -> str | None:
        """The call that this message answers."""
        results = self.message.results if self.message.role == "tool" else ()
        return results[0].id or None if results else None


def _words(message: Message) -> str | None:
    texts, refusals, results = [], [], []
    for piece in message.contents:
        if isinstance(piece, TextContent):
            texts.append(piece.text)
        elif isinstance(piece, FunctionResult):
            results.append(piece.result)
        elif isinstance(piece, RefusalContent):
            refusals.append(piece.text)
    return "".join(texts) or "".join(refusals) or "\n".join(results) or None


@dataclass(eq=False, slots=True)
class CallFacts:
    """One call that a model made, in the run in which it made it; a later run may have answered it."""

    run_id: str
    call: FunctionCall
    step: int
    started_at: float | None = None
    asked_at: float | None = None
    status: str | None = None
    """How it ended; None while it runs or waits."""
    ended_at: float | None = None
    end: dict[str, Any] = field(default_factory=dict)
    tool_id: str | None = None

    @property
    def tool_call_id(self) -> str:
        """The id of the call."""
        return self.call.id

    def take(self, event: RunEvent) -> None:
        """Take note of what happened to it."""
        payload = event.payload
        if event.name == "approval.requested":
            self.asked_at = self.asked_at or event.timestamp
            return
        self.tool_id = payload.get("tool_id", self.tool_id)
        if event.name == "tool.called":
            self.started_at = event.timestamp
        else:
            self.status = "ok" if event.name == "tool.succeeded" else payload["status"]
            self.end, self.ended_at = payload, event.timestamp

    @property
    def tool(self) -> str:
        """What the log calls the tool; the name in the call where it has not come to it yet."""
        return self.tool_id or self.call.name

    def told(self, name: str) -> Any:
        """A fact of the end; None where there is none."""
        return self.end.get(name)

    @property
    def arguments(self) -> dict[str, Any] | str | None:
        """The arguments; a text that is not JSON is as the model wrote it, without secrets."""
        arguments = self.call.arguments
        return clean_text(arguments) or None if isinstance(arguments, str) else arguments

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


class EventFacts(NamedTuple):
    """One event of a run.

    Attributes:
        event_id: unique over all runs.
        run_id: the run.
        event: what happened.
        t_rel_s: seconds since the start of the run; below 0 where the clock was set back.
        text: the facts as JSON, where they were asked for.
    """

    event_id: str
    run_id: str
    event: RunEvent
    t_rel_s: float
    text: str | None = None


class RunFacts(RequestSums):
    """One run, its events read once."""

    def __init__(self, record: RunRecord) -> None:
        begin, end = record.events[0], record.end()
        self.record = record
        self.run_id = record.run_id
        self.events = list(record.events)
        self.facts = begin.payload
        self.started_at = begin.timestamp
        self.ended_at = None if end is None else end.timestamp
        """Unix seconds; None while it goes on."""
        self.end = None if end is None else end.payload

    def kept(self, name: str, make: Callable[[], T]) -> T:
        """Return what `make` gives; that of a run that has ended stays in its record until there is a note."""
        views = self.record.views
        view = views.get(name) if views is not None else None
        if view is not None and view[0] == len(self.events):
            return view[1]  # type: ignore[no-any-return]
        made = make()
        if self.end is not None:
            self.record.keep(name, (len(self.events), made))
        return made

    @cached_property
    def _parts(self) -> tuple[list[RequestFacts], list[MessageFacts]]:
        return self.kept("parts", self._read_parts)

    def _read_parts(self) -> tuple[list[RequestFacts], list[MessageFacts]]:
        run_id, session_id, provider = self.run_id, self.session_id, self.facts["provider"]
        requests: dict[str, RequestFacts] = {}
        messages: list[MessageFacts] = []
        step, last_role = 0, ""
        for event in self.events:
            name, payload = event.name, event.payload
            if name == "message.added":
                message, is_input = payload["message"], not requests
                begins = is_input and message.role == "user" != last_role
                last_role = message.role
                messages.append(MessageFacts(run_id, session_id, message, event.sequence, is_input, step, begins))
            elif name == "llm.requested":
                step = payload["step"]
                requests[payload["request_id"]] = RequestFacts(run_id, provider, payload, event.timestamp)
            elif name in ("llm.succeeded", "llm.failed"):
                requests[payload["request_id"]].take(event)
        return list(requests.values()), messages

    @property
    def requests(self) -> list[RequestFacts]:
        """The requests to models, retries included, in order."""
        return self._parts[0]

    @property
    def messages(self) -> list[MessageFacts]:
        """The messages that it took up or added, in order."""
        return self._parts[1]

    @property
    def session_id(self) -> str:
        """The conversation."""
        session_id: str = self.facts["session_id"]
        return session_id

    @property
    def model(self) -> str | None:
        """The model that was asked for, or else the first that answered."""
        return self.facts["model"] or next((r.model for r in self.requests if r.model), None)

    @property
    def n_calls(self) -> int:
        """How many calls the model made."""
        return sum(
            len(row.message.calls) for row in self.messages if row.message.role == "assistant" and not row.is_input
        )

    @property
    def calls(self) -> list[CallFacts]:
        """The calls that the model made, in order, with what became of them in this run."""
        return self._settled[0]

    @property
    def strays(self) -> list[RunEvent]:
        """Its events about calls of earlier runs: they waited for approval."""
        return self._settled[1]

    @cached_property
    def _settled(self) -> tuple[list[CallFacts], list[RunEvent]]:
        return self.kept("calls", self._settle)

    def _settle(self) -> tuple[list[CallFacts], list[RunEvent]]:
        calls = [
            CallFacts(self.run_id, call, row.step)
            for row in self.messages
            if row.message.role == "assistant" and not row.is_input
            for call in row.message.calls
        ]
        strays: list[RunEvent] = []
        by_id: dict[str, list[CallFacts]] = {}
        for call in calls:
            by_id.setdefault(call.call.id, []).append(call)
        for event in self.events:
            if event.name in _CALL_EVENTS:
                same = by_id.get(event.payload["id"])
                if same:
                    open_one(same).take(event)
                else:
                    strays.append(event)
        return calls, strays

    @property
    def duration_s(self) -> float | None:
        """Seconds from start to end, 0 where the clock was set back meanwhile; None while it goes on."""
        return None if self.ended_at is None else max(self.ended_at - self.started_at, 0.0)

    @property
    def ttft_s(self) -> float | None:
        """Seconds from the start of the run to the first token of any of its streams."""
        for request in self.requests:
            if (ttft := request.answered("ttft_s")) is not None:
                return max(request.started_at - self.started_at, 0.0) + float(ttft)
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

    @property
    def input_text(self) -> str | None:
        """The words of the input, a newline between two messages."""
        return "\n".join(text for message in self.facts["input"] if (text := message.text)) or None

    @cached_property
    def noted(self) -> list[dict[str, Any]]:
        """What people noted, in order."""
        return [event.payload for event in self.events if event.name == "run.noted"]

    @property
    def notes(self) -> str | None:
        """The words of the notes, a newline between two."""
        return "\n".join(text for noted in self.noted if (text := noted.get("text"))) or None

    @property
    def thumbs(self) -> str | None:
        """The last thumbs that were given."""
        return next((thumbs for noted in reversed(self.noted) if (thumbs := noted.get("thumbs"))), None)

    @property
    def output_text(self) -> str | None:
        """The visible text of the response, or of the replies so far, partial ones included."""
        if self.end is not None:  # what a reply that did not fit, or that middleware has replaced, said is not in it
            return self.end.get("output_text") or None
        return joined_text([row.message for row in self.messages if not row.is_input]) or None

    @property
    def n_turns(self) -> int:
        """The user turns that began in it."""
        return sum(row.begins_turn for row in self.messages)


def logged_runs(query: RunQuery = EVERY_RUN, source: RunSource | None = None) -> list[RunFacts]:
    """The runs that `query` wants, oldest first: of the log and the store, or of `source`."""
    return [RunFacts(record) for record in stored_records(query, source)]


def open_one(calls: Sequence[CallFacts]) -> CallFacts:
    """Of calls with the same id, the one that an event is about: the first that is open, or else the last."""
    if len(calls) == 1:
        return calls[0]
    return next((call for call in calls if call.status is None), calls[-1])


_CALL_EVENTS = frozenset({"tool.called", "approval.requested", "tool.succeeded", "tool.failed"})
