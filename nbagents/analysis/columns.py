"""The columns of the tables. To add one, add a line."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Any

from nbagents.analysis.event_fields import CALL_STATUSES
from nbagents.analysis.facts import CallFacts, EventFacts, MessageFacts, RequestFacts, RunFacts
from nbagents.analysis.frames import FLAG, INTEGER, NUMBER, TEXT, TIME, Column
from nbagents.analysis.jsontext import json_text
from nbagents.core.events import EVENT_TO_CHUNK_KIND, LIVE_EVENTS, OTHER_EVENTS
from nbagents.core.messages import ROLES
from nbagents.core.notes import THUMBS
from nbagents.core.run import STATUS_OF_STOP_REASON

STOP_REASONS = tuple(STATUS_OF_STOP_REASON)
STATUSES = ("ok", "error", "cancelled", "limit", "approval")
APPROVALS = ("waiting", "approved", "denied")
EVENT_KINDS = tuple(name for name in EVENT_TO_CHUNK_KIND if name not in LIVE_EVENTS) + tuple(sorted(OTHER_EVENTS))


TOKENS = [
    Column("input_tokens", INTEGER, "counts.input_tokens", "tokens of the prompts, cached ones included"),
    Column("cached_input_tokens", INTEGER, "counts.cached_input_tokens", "of these, read from the provider's cache"),
    Column("cache_write_tokens", INTEGER, "counts.cache_write_tokens", "of these, written to the provider's cache"),
    Column("output_tokens", INTEGER, "counts.output_tokens", "tokens of the replies, reasoning included"),
    Column("reasoning_tokens", INTEGER, "counts.reasoning_tokens", "of these, reasoning"),
    Column("total_tokens", INTEGER, "counts.total_tokens", "as reported, or input plus output"),
]
COMPLETE = Column("usage_complete", FLAG, "usage_complete", "whether the counts include every request")
COST = Column("cost_usd", NUMBER, "cost", "US dollars of what is known; missing if no price or count is known")
COST_COMPLETE = Column("cost_complete", FLAG, "cost_complete", "whether the cost of every request is known")


def _fact(name: str) -> Callable[[RunFacts], Any]:
    return lambda run: run.facts.get(name)


RUNS = [
    Column("run_id", TEXT, "run_id", "the run"),
    Column("parent_run_id", TEXT, _fact("parent_run_id"), "the run in whose tool it began"),
    Column("session_id", TEXT, "session_id", "the conversation"),
    Column("agent", TEXT, _fact("agent"), "name of the agent"),
    Column("team", TEXT, _fact("team"), "name of the team that it was part of"),
    Column("model", TEXT, "model", "the model that was asked for"),
    Column("provider", TEXT, _fact("provider"), "the kind of endpoint"),
    Column("params", TEXT, _fact("params"), "options of the requests, as JSON", is_json=True),
    Column("started_at", TIME, "started_at", "start"),
    Column("ended_at", TIME, "ended_at", "end; missing while it goes on"),
    Column("duration_s", NUMBER, "duration_s", "seconds from start to end; 0 where the clock was set back"),
    Column("ttft_s", NUMBER, "ttft_s", "seconds from start to the first token; missing without streaming"),
    Column("stop_reason", STOP_REASONS, "stop_reason", "why it ended; missing while it goes on"),
    Column("status", STATUSES, "status", "how it ended; missing while it goes on"),
    Column("error_type", TEXT, methodcaller("error", "type"), "class of the error that ended it"),
    Column("error_message", TEXT, methodcaller("error", "message"), "its message"),
    Column("n_requests", INTEGER, lambda run: len(run.requests), "requests to the model, retries included"),
    Column("n_turns", INTEGER, "n_turns", "user turns that began in it; 0 if it only took up approvals"),
    Column("n_tool_calls", INTEGER, "n_calls", "calls that the model made, also those not run"),
    *TOKENS,
    COMPLETE,
    COST,
    COST_COMPLETE,
    Column("input_text", TEXT, "input_text", "what it was asked"),
    Column("output_text", TEXT, "output_text", "what it answered, partial text included"),
    Column("tags", TEXT, _fact("tags"), "tags, as JSON", is_json=True),
    Column("notes", TEXT, "notes", "what people noted, a newline between two notes"),
    Column("thumbs", THUMBS, "thumbs", "the last thumbs that were given"),
]


def _answered(name: str) -> Callable[[RequestFacts], object]:
    return lambda request: request.answer.get(name)


REQUESTS = [
    Column("request_id", TEXT, lambda request: request.asked["request_id"], "the request"),
    Column("run_id", TEXT, "run_id", "its run"),
    Column("step", INTEGER, lambda request: request.asked["step"], "position in the run, from 1"),
    Column("attempt", INTEGER, lambda request: request.asked["attempt"], "attempt at this step, from 1"),
    Column("model_requested", TEXT, lambda request: request.asked["model"], "the model that was asked for"),
    Column("model_returned", TEXT, "model_returned", "the model that answered"),
    Column("started_at", TIME, "started_at", "when it was sent"),
    Column("latency_s", NUMBER, _answered("latency_s"), "seconds to the end of the reply"),
    Column("ttft_s", NUMBER, _answered("ttft_s"), "seconds to the first streamed token; missing without streaming"),
    *TOKENS,
    COST,
    Column("finish_reason", TEXT, _answered("finish_reason"), "why the reply ended, in the provider's word"),
    Column("error_type", TEXT, "error_type", "class of the error, if it failed"),
    Column("replayed", FLAG, _answered("replayed"), "whether the reply came from a recording"),
]


def _known_together(row: MessageFacts) -> None:
    """What no run knows alone; see `conversations.py`."""


MESSAGES = [
    Column("message_id", TEXT, "message_id", "the message; an id that comes again has #2, #3, ... appended"),
    Column("run_id", TEXT, "run_id", "the run that took it up or added it"),
    Column("session_id", TEXT, "session_id", "the conversation"),
    Column("turn", INTEGER, "begins_turn", "user turn of the session, from 1, among the logged runs"),
    Column("index", INTEGER, _known_together, "position in the session, from 0, among the logged runs"),
    Column("role", ROLES, "message.role", "who speaks"),
    Column("author_name", TEXT, "message.author_name", "name of the agent, tool or person"),
    Column("content", TEXT, "content", "the words: text, refusal or tool result"),
    Column("n_chars", INTEGER, "n_chars", "characters of `content`"),
    Column("tool_calls", TEXT, "tool_calls", "calls in it, as a JSON list of id, name and arguments", is_json=True),
    Column("tool_call_id", TEXT, "tool_call_id", "the call that it answers"),
    Column("created_at", TIME, "message.created_at", "when it was added"),
    Column("interrupted", FLAG, "message.interrupted", "whether the run ended while it was written"),
]


def _told(name: str) -> Callable[[CallFacts], object]:
    return lambda call: call.end.get(name)


TOOL_CALLS = [
    Column("tool_call_id", TEXT, "tool_call_id", "the call, unique (providers repeat theirs)"),
    Column("run_id", TEXT, "run_id", "the run in which the model made it"),
    Column("step", INTEGER, "step", "the model request that made it, by its step"),
    Column("tool", TEXT, "tool", "id of the tool: its name, or Group.function for a method of an object"),
    Column("arguments", TEXT, "arguments", "arguments as JSON; broken ones as the model wrote them", is_json=True),
    Column("result", TEXT, _told("result"), "the result as the model reads it"),
    Column("result_chars", INTEGER, "result_chars", "characters of `result`"),
    Column("truncated", FLAG, "truncated", "whether the result was cut"),
    Column("started_at", TIME, "started_at", "when the tool was called; missing if it never was"),
    Column("duration_s", NUMBER, _told("duration_s"), "seconds of the call"),
    Column("status", CALL_STATUSES, "status", "how it ended; missing while it runs or waits"),
    Column("error_type", TEXT, _told("error_type"), "class of the exception"),
    Column("error_message", TEXT, _told("error"), "what the model was told instead of a result"),
    Column("approval", APPROVALS, "approval", "what a person said; missing if nobody was asked"),
]

EVENTS = [
    Column("event_id", TEXT, "event_id", "the event", is_clean=True),
    Column("run_id", TEXT, "run_id", "its run", is_clean=True),
    Column("sequence", INTEGER, "event.sequence", "position in the run, from 1"),
    Column("t_rel_s", NUMBER, "t_rel_s", "seconds since the start of the run; below 0 where the clock was set back"),
    Column("timestamp", TIME, "event.timestamp", "when it happened"),
    Column("kind", EVENT_KINDS, "event.name", "what happened"),
    Column("data", TEXT, "text", "the facts, as JSON", is_json=True, is_clean=True),
]


def _emitted(name: str) -> Callable[[EventFacts], Any]:
    return lambda row: row.event.payload.get(name)


ARTIFACTS = [
    Column("artifact_id", TEXT, "event_id", "the artifact; the event that brought it", is_clean=True),
    Column("run_id", TEXT, "run_id", "its run", is_clean=True),
    Column("tool_call_id", TEXT, _emitted("id"), "the call that made it"),
    Column("step", INTEGER, _emitted("step"), "the model request that made the call, by its step"),
    Column("tool", TEXT, _emitted("tool_id"), "name of the tool"),
    Column("name", TEXT, _emitted("name"), "its name"),
    Column("kind", TEXT, _emitted("kind"), "what it is, in the word of the tool"),
    Column("payload", TEXT, lambda row: json_text(row.event.payload["payload"]), "the thing, as JSON", is_json=True),
    Column("timestamp", TIME, "event.timestamp", "when the tool handed it out"),
]

TABLES: dict[str, tuple[list[Column], str]] = {
    "runs_df": (RUNS, "one row for each run"),
    "requests_df": (REQUESTS, "one row for each request to a model; each retry has its own"),
    "messages_df": (MESSAGES, "one row for each message that a run took up or added"),
    "tool_calls_df": (TOOL_CALLS, "one row for each call that a model made"),
    "events_df": (EVENTS, "one row for each event of the log"),
    "artifacts_df": (ARTIFACTS, "one row for each thing that a tool handed out beside its result"),
}
"""The tables that have always the same columns. That of `usage_df` depends on what is summed."""
