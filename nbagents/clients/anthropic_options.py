"""From options by their Chat Completions names to those of Anthropic's Messages API: pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from nbagents.clients.anthropic_wire import plain_schema
from nbagents.core.errors import ConfigurationError
from nbagents.core.outputs import output_format

MAX_TOKENS = 8_192
"""What is sent as `max_tokens`, which the service wants to have, where neither option nor client says it."""

_SERVICE = "api.anthropic.com"
_SAME = ("temperature", "top_p")
_NOT_THERE = ("seed", "logit_bias", "frequency_penalty", "presence_penalty")
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_EFFORTS = {"minimal": "low", **{word: word for word in ("low", "medium", "high", "xhigh", "max")}}
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 20_480, "max": 20_480}
"""Tokens of thought for the models that are given a number of them."""
_DECIDES_ITSELF = re.compile(r"claude-(?!\d)(?!(?:opus|sonnet|haiku)-4(?:[-@.][0-5])?(?:[-@:]\D|[-@]\d{8}|$))")
"""Models that decide themselves how much to think, and are told the effort: the names of those since Claude 4.6."""


def wire_options(
    options: Mapping[str, Any],
    *,
    model: str,
    host: str,
    max_tokens: int | None = None,
    thinking: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return `options` under the names of the service.

    `stop` is `stop_sequences`, `user` the `user_id` of `metadata`, `parallel_tool_calls` a part of `tool_choice`.
    `reasoning_effort` is the effort of models that decide themselves how much to think, and a number of tokens for
    older ones (see `thinking_options`). A `response_format` with a strict schema is the service's own structured
    output; for another the model is told (see `output_instruction`). `seed`, `logit_bias` and the penalties are sent
    as they are to other servers that speak this API. `store` is not sent: nothing is stored there.

    Args:
        options: by their Chat Completions names.
        model: the model's name.
        host: of the endpoint.
        max_tokens: the client's default.
        thinking: what the client says of it; that goes before what `reasoning_effort` means.

    Raises:
        ConfigurationError: an option that the service does not have, or a value that it does not know.
    """
    sent: dict[str, Any] = {name: options[name] for name in _SAME if name in options}
    for name in _NOT_THERE:
        if name in options and host.partition(":")[0] == _SERVICE:
            raise ConfigurationError(
                f"Anthropic's API has no option {name!r}.", hint=f"Leave it out, or pass {name}=UNSET for one run."
            )
        if name in options:
            sent[name] = options[name]
    if "stop" in options:
        stop = options["stop"]
        sent["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if metadata := {**options.get("metadata", {}), **({"user_id": options["user"]} if "user" in options else {})}:
        sent["metadata"] = metadata
    if choice := _tool_choice(options):
        sent["tool_choice"] = choice
    effort = options.get("reasoning_effort")
    sent |= thinking_options(effort, model) if effort is not None else {}
    if thinking is not None:
        sent["thinking"] = dict(thinking)
    sent["max_tokens"] = _max_tokens(options.get("max_tokens"), max_tokens, sent.get("thinking", {}))
    if (schema := _native_schema(options)) is not None:
        output = {"type": "json_schema", "schema": plain_schema(schema)}
        sent["output_config"] = {**sent.get("output_config", {}), "format": output}
    return sent


def thinking_options(effort: str, model: str) -> dict[str, Any]:
    """Return what asks `model` to think with this effort: `none`, or from `minimal` to `max`.

    Raises:
        ConfigurationError: there is no such effort.
    """
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    if effort not in _EFFORTS:
        raise ConfigurationError(
            f"reasoning_effort={effort!r} is no effort.", hint=f"Use one of: none, {', '.join(_EFFORTS)}."
        )
    if _DECIDES_ITSELF.search(model):
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": _EFFORTS[effort]}}
    return {"thinking": {"type": "enabled", "budget_tokens": _BUDGETS[effort]}}


def output_instruction(options: Mapping[str, Any]) -> str | None:
    """Return what the model is told of a `response_format` for which the service has nothing of its own; else None.

    That is any JSON object, and a schema with no strict form, such as one with free keys.
    """
    asked = output_format(options.get("response_format"))
    if asked is None or _native_schema(options) is not None:
        return None
    if asked.to_option()["type"] == "json_object":
        return "Reply with one JSON object and nothing else."
    schema = json.dumps(asked.schema, ensure_ascii=False)
    return f"Reply with JSON only, without words around it, of this schema: {schema}"


def _native_schema(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema of a `response_format` that the service can enforce."""
    asked = output_format(options.get("response_format"))
    described = asked.to_option().get("json_schema") if asked is not None else None
    if not isinstance(described, Mapping) or not described.get("strict"):
        return None
    schema: dict[str, Any] = described["schema"]
    return schema


def _max_tokens(asked: int | None, default: int | None, thinking: Mapping[str, Any]) -> int:
    """Thoughts are part of the output: a default is raised by what is allowed for them."""
    budget: int = thinking.get("budget_tokens", 0)
    if asked is None:
        return (default or MAX_TOKENS) + budget
    if asked <= budget:
        raise ConfigurationError(
            f"max_tokens={asked} leaves no room for an answer: {budget} tokens of thought are allowed.",
            hint="Raise max_tokens, or let the model think less.",
        )
    return asked


def _tool_choice(options: Mapping[str, Any]) -> dict[str, Any] | None:
    asked = options.get("tool_choice")
    if isinstance(asked, Mapping):
        function = asked.get("function")
        # Else it is in the service's own words already.
        chosen = {"type": "tool", "name": function["name"]} if isinstance(function, Mapping) else dict(asked)
    elif asked is None or asked in _CHOICES:
        chosen = {"type": _CHOICES[asked or "auto"]}
    else:
        raise ConfigurationError(
            f"tool_choice={asked!r} is no choice.",
            hint="Use auto, required, none, or a mapping that names a function.",
        )
    if options.get("parallel_tool_calls") is False and chosen["type"] != "none":
        return {**chosen, "disable_parallel_tool_use": True}
    return chosen if asked is not None else None
