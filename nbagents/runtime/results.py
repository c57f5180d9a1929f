"""`RunResult`: what a run of the runtime gave, derived from the response; it round-trips through JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, PlainValidator

from nbagents.core import Message, NBAgentsError, Usage
from nbagents.core.prices import request_cost
from nbagents.core.results import error_text
from nbagents.core.secrets import redact
from nbagents.runtime.payloads import plain_text, plain_value

if TYPE_CHECKING:
    from nbagents.core.journal import EarlierRun
    from nbagents.core.run import RunContext

MAX_CAUSES = 8
MAX_ERROR_TEXT = 2_000
_ANSWERED = ("completed", "refused", "max_steps")
"""The ways to end in which what was said last is the answer."""


def _message(given: Any) -> Message:
    return given if isinstance(given, Message) else Message.from_dict(given)


Plain = Annotated[Any, PlainSerializer(plain_value, when_used="json")]
"""Any object; in JSON it is what JSON can hold of it."""
WireMessage = Annotated[
    Message,
    PlainValidator(_message, json_schema_input_type=dict[str, Any]),
    PlainSerializer(plain_value, return_type=dict[str, Any], when_used="json"),
]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), use_attribute_docstrings=True)


class ErrorCause(_Record):
    """One error in the chain behind another."""

    type: str
    """Its class."""
    message: str
    """What it says."""


class RunErrorRecord(_Record):
    """Why a run ended early. `str()` is the message. No text in it shows a key."""

    code: str
    """A short stable word for programs."""
    message: str
    """What was wrong."""
    hint: str | None = None
    """What to do about it."""
    retryable: bool = False
    """Whether the same run may succeed later."""
    type: str
    """The class of the error."""
    original_type: str
    """The class of the error that all began with."""
    original_text: str
    """What that one said."""
    causes: tuple[ErrorCause, ...] = ()
    """The errors behind it, the nearest first, at most 8."""

    def __str__(self) -> str:
        return self.message

    @classmethod
    def of(cls, error: BaseException) -> RunErrorRecord:
        """Describe `error`."""
        chain = list(_chain(error))
        return cls(
            code=_said(str(getattr(error, "code", None) or "error")),
            message=_said(getattr(error, "message", None) or error_text(error)),
            hint=_said(error.hint) if isinstance(error, NBAgentsError) and error.hint else None,
            retryable=isinstance(error, NBAgentsError) and error.retryable,
            type=type(error).__name__,
            original_type=type(chain[-1]).__name__,
            original_text=_text_of(chain[-1]),
            causes=tuple(
                ErrorCause(type=type(one).__name__, message=_text_of(one)) for one in chain[1 : MAX_CAUSES + 1]
            ),
        )


class RunUsage(_Record):
    """The tokens and the cost of all model requests of a run, those of sub-agents included; null is unknown."""

    input_tokens: int | None = None
    """Tokens of the prompts, cached ones included."""
    output_tokens: int | None = None
    """Tokens of the replies, reasoning included."""
    total_tokens: int | None = None
    """As reported, else input plus output."""
    cached_input_tokens: int | None = None
    """The part of the input that was read from the provider's cache."""
    cache_write_tokens: int | None = None
    """The part of the input that was written to it."""
    reasoning_tokens: int | None = None
    """The part of the output that was reasoning."""
    audio_input_tokens: int | None = None
    """The part of the input that was sound."""
    audio_output_tokens: int | None = None
    """The part of the output that was sound."""
    partial: tuple[str, ...] = ()
    """Names of the counts that some of the requests did not report."""
    cost_usd: float | None = None
    """US dollars; null once the price or a count of any request is unknown."""


class RunArtifact(_Record):
    """Something that a tool handed out beside its result."""

    name: str
    """What it is called."""
    kind: str
    """What it is: `data`, or the tool's word."""
    payload: Plain
    """The thing itself; in JSON what JSON can hold of it."""


class RunResult(_Record):
    """What a run gave, however it ended. `str()` is the answer as text, or else the error."""

    run_id: str
    """The run, the key of all tables."""
    session_id: str
    """The conversation; a request with this id goes on with it."""
    agent_id: str
    """The agent."""
    final_output: Plain = None
    """The answer: a text, or the value that `output_type` asked for; null if there is none."""
    stop_reason: str
    """How it ended: `completed`, `approval_required`, `refused`, `max_steps`, or early: `failed`, `timeout`,
    `budget_exhausted`, `cancelled`."""
    usage: RunUsage | None = None
    """Tokens and cost; null if nothing was reported."""
    artifacts: tuple[RunArtifact, ...] = ()
    """What tools handed out, in order."""
    error: RunErrorRecord | None = None
    """Why it ended early; null if it did not, or was cancelled."""
    messages: tuple[WireMessage, ...] = Field(default=(), repr=False)
    """What the run added to the conversation, without the input."""
    metadata: dict[str, Plain] = {}
    """That of the request."""

    def __str__(self) -> str:
        if self.final_output is not None:
            return str(self.final_output)
        return str(self.error) if self.error is not None else f"[{self.stop_reason}]"


def result_of(run: RunContext, error: NBAgentsError | None, metadata: dict[str, Any]) -> RunResult:
    """Return what a run that has ended gave."""
    response = run.response
    if response is None:  # asyncio.run closes all generators of its loop at once, the run's own after its reader's
        return RunResult(
            run_id=run.run_id,
            session_id=run.session.session_id,
            agent_id=run.agent.id,
            stop_reason="cancelled",
            metadata=metadata,
        )
    return RunResult(
        run_id=run.run_id,
        session_id=run.session.session_id,
        agent_id=run.agent.id,
        final_output=_final_output(run) if response.stop_reason in _ANSWERED else None,
        stop_reason=response.stop_reason or "completed",
        usage=_usage(run, response.usage),
        artifacts=tuple(
            RunArtifact(name=plain_text(made["name"]), kind=plain_text(made["kind"]), payload=made["payload"])
            for made in (event.payload for event in run.record.named("artifact.emitted"))
        ),
        error=None if error is None or response.stop_reason == "cancelled" else RunErrorRecord.of(error),
        messages=tuple(response.messages),
        metadata=metadata,
    )


def _final_output(run: RunContext) -> Any:
    response = run.response
    assert response is not None
    if response.value is not None:
        return response.value
    return response.text if run.output is None or response.stop_reason == "refused" else None


def _usage(run: RunContext, usage: Usage | None) -> RunUsage | None:
    if usage is None or usage == Usage():
        return None
    costs = list(_costs(run))
    known = [cost for cost in costs if cost is not None]
    counts = {field.name: getattr(usage, field.name) for field in fields(Usage)}
    return RunUsage(**counts, cost_usd=sum(known) if len(known) == len(costs) else None)


def _costs(run: RunContext | EarlierRun) -> Iterator[float | None]:
    """What each request cost, sub-agents' too; one that failed before anything was said or reported is not charged."""
    asked: dict[str, str] = {}
    for event in run.record.named("llm.requested", "llm.succeeded", "llm.failed"):
        facts = event.payload
        if event.name == "llm.requested":
            asked[facts["request_id"]] = facts["model"] or ""
        elif event.name == "llm.succeeded" or facts["usage"] is not None or facts["text"]:
            name = asked.get(facts["request_id"], "")
            yield request_cost(facts["model"] or name, facts["usage"], asked=name)
    for child in run.children:
        yield from _costs(child)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it was raised from, each once."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _text_of(error: BaseException) -> str:
    try:
        return _said(str(error))
    except Exception:  # noqa: BLE001  an error that cannot say what it is still has a class
        return type(error).__name__


def _said(text: str) -> str:
    return plain_text(redact(text))[:MAX_ERROR_TEXT]
