"""What spans and metrics say of runs, requests and calls, by OpenTelemetry's semantic conventions for GenAI.

The version is v1.41.0, the last one before they moved to a repository of their own, where metrics get other names:
https://github.com/open-telemetry/semantic-conventions/tree/v1.41.0/docs/gen-ai. The rest is called `nbagents.*`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nbagents.analysis.facts import FREE_PROVIDERS
from nbagents.analysis.jsontext import clean_text
from nbagents.core.usage import Usage

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
MAX_NAME = 200
"""So many characters of a name are kept: a model can call a tool by any."""

Attributes = dict[str, Any]

_PROVIDERS = {"azure": "azure.ai.openai"}
_NUMBERS = {
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}
_INTEGERS = {"max_tokens": "gen_ai.request.max_tokens", "seed": "gen_ai.request.seed"}
_COUNTS = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_input_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
}
_GIVEN_UP = frozenset({"CancelledError", "GeneratorExit", "KeyboardInterrupt", "RunCancelledError"})
"""Errors that say that nobody waits for an answer any more: nothing has failed."""
_TOO_LARGE = 2**63
_FAILED_CALLS = frozenset({"error", "invalid", "timeout"})


def span_name(operation: str, what: object) -> str:
    """Return `operation what`, or the operation alone where there is no name."""
    return f"{operation} {_name(what)}" if what else operation


def run_attributes(facts: Mapping[str, Any]) -> Attributes:
    """What is known of a run when it begins."""
    return _known(
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": facts["agent"],
            "gen_ai.agent.id": facts.get("agent_id"),
            "nbagents.run.id": facts["run_id"],
            **_endpoint(facts),
            **_asked(facts, facts["model"]),
        }
    )


def run_end_attributes(end: Mapping[str, Any], status: str) -> Attributes:
    """What is known of a run when it has ended."""
    reason = end.get("finish_reason")
    return _known(
        {
            "gen_ai.response.finish_reasons": [_name(reason)] if reason else None,
            "nbagents.run.stop_reason": end["stop_reason"],
            "nbagents.status": status,
            "error.type": error_type(end.get("error")),
            **usage_attributes(end.get("usage")),
        }
    )


def request_attributes(facts: Mapping[str, Any], request: Mapping[str, Any]) -> Attributes:
    """What is known of a request to a model when it is sent."""
    return _known(
        {
            "gen_ai.operation.name": "chat",
            "nbagents.step": request.get("step"),
            "nbagents.attempt": request.get("attempt"),
            **_endpoint(facts),
            **_asked(facts, request["model"]),
        }
    )


def reply_attributes(reply: Mapping[str, Any]) -> Attributes:
    """What is known of a request when it is over."""
    error = reply.get("error")
    reason, ttft = reply.get("finish_reason"), reply.get("ttft_s")
    return _known(
        {
            "gen_ai.response.model": reply.get("model") if error is None else None,
            "gen_ai.response.finish_reasons": [_name(reason)] if reason else None,
            "gen_ai.response.time_to_first_chunk": ttft if error is None else None,
            "nbagents.status": request_status(error),
            "nbagents.replayed": reply.get("replayed") or None,
            "error.type": error_type(error),
            **usage_attributes(reply.get("usage")),
        }
    )


def call_attributes(facts: Mapping[str, Any], call: Mapping[str, Any]) -> Attributes:
    """What is known of the call of a tool when it begins."""
    return _known(
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.get("tool_id"),
            "gen_ai.tool.call.id": call.get("call_id") or call["id"],
            "gen_ai.tool.type": "function",
            "gen_ai.conversation.id": facts["session_id"],
            "nbagents.step": call.get("step"),
        }
    )


def call_end_attributes(end: Mapping[str, Any]) -> Attributes:
    """What is known of the call of a tool when it is over."""
    status = end.get("status", "ok")
    failed = (end.get("error_type") or status) if status in _FAILED_CALLS else None
    return _known({"nbagents.status": status, "error.type": failed})


def usage_attributes(usage: Usage | None) -> Attributes:
    """The tokens that were reported: what is unknown is not there."""
    counts = {} if usage is None else {name: getattr(usage, count) for count, name in _COUNTS.items()}
    return {name: count for name, count in counts.items() if _is_number(count)}


def error_type(error: Mapping[str, Any] | None) -> str | None:
    """The class of `error`; None where there is none, or nobody waited any more."""
    kind: str | None = error.get("type") if error else None
    return None if kind in _GIVEN_UP else kind


def request_status(error: Mapping[str, Any] | None) -> str:
    """How a request ended: ok, error or cancelled."""
    if error is None:
        return "ok"
    return "cancelled" if error.get("type") in _GIVEN_UP else "error"


def is_in_process(facts: Mapping[str, Any]) -> bool:
    """Whether the model of a run is in this process."""
    return facts["provider"] in FREE_PROVIDERS


def _endpoint(facts: Mapping[str, Any]) -> Attributes:
    provider = facts["provider"]
    address, _, port = str(facts.get("host") or "").rpartition(":")
    if not port.isdecimal():
        address, port = f"{address}:{port}" if address else port, ""
    return {
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider) or "_OTHER",
        "server.address": address.strip("[]") or None,
        "server.port": int(port) if port else None,
    }


def _asked(facts: Mapping[str, Any], model: object) -> Attributes:
    params = facts["params"]
    stop = params.get("stop")
    sequences = stop if isinstance(stop, list | tuple) else [stop] if stop is not None else ()
    return {
        "gen_ai.conversation.id": facts["session_id"],
        "gen_ai.request.model": model,
        **{name: float(value) for option, name in _NUMBERS.items() if _is_number(value := params.get(option))},
        **{name: int(value) for option, name in _INTEGERS.items() if _is_number(value := params.get(option))},
        "gen_ai.request.stop_sequences": [clean_text(str(one)) for one in sequences] if sequences else None,
    }


def _is_number(value: object) -> bool:
    """Whether a span can hold it: OTLP has 64 bits for it, and whole numbers are neither infinite nor NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _TOO_LARGE


def _known(attributes: Attributes) -> Attributes:
    return {
        name: _name(value) if isinstance(value, str) else value
        for name, value in attributes.items()
        if value is not None
    }


def _name(value: object) -> str:
    return clean_text(str(value))[:MAX_NAME]
