"""An agent as a spec: what builds the same requests again. Keys become placeholders."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from inspect import signature
from pathlib import Path as FilePath
from typing import Any, Literal

from nbagents.clients import AnthropicChatClient, LocalChatClient, OpenAIChatClient, OpenAIResponsesClient
from nbagents.clients.service import ServiceClient
from nbagents.core.agent import Agent
from nbagents.core.budget import RunBudget
from nbagents.core.errors import ConfigurationError
from nbagents.core.history import InMemoryHistoryProvider
from nbagents.core.history_file import FileHistoryProvider
from nbagents.core.history_sql import SQLHistoryProvider
from nbagents.core.hosted import HostedTool
from nbagents.core.options import UNSET
from nbagents.core.outputs import output_format
from nbagents.core.reducers import SlidingWindowReducer, SummarizationReducer, TokenBudgetReducer, TruncationReducer
from nbagents.core.secrets import mask_known
from nbagents.core.templates import PromptTemplate
from nbagents.core.tools import FunctionTool
from nbagents.spec.checking import Collected
from nbagents.spec.documents import read_dict
from nbagents.spec.faults import SpecError, SpecFault
from nbagents.spec.models import DEFAULT_TYPE
from nbagents.spec.parts import InputCheck
from nbagents.spec.placeholders import escaped
from nbagents.spec.registry import CLIENTS
from nbagents.spec.skills import LocalSkills
from nbagents.spec.sources import is_default, key_of, written_part

_TYPES: Mapping[tuple[type, bool], str] = {
    (OpenAIChatClient, False): DEFAULT_TYPE,
    (OpenAIChatClient, True): "azure_chat_completion_agent",
    (OpenAIResponsesClient, False): "openai_responses",
    (OpenAIResponsesClient, True): "azure_responses",
    (AnthropicChatClient, False): "anthropic",
}
_REDUCERS: Mapping[type, str] = {
    SlidingWindowReducer: "window",
    SummarizationReducer: "summary",
    TokenBudgetReducer: "token_budget",
    TruncationReducer: "truncation",
}
_ADDRESS = ("base_url", "azure_endpoint")
_ADVICE = "Make the agent in code, or leave that out."


def spec_text(
    agent: Agent, path: str | os.PathLike[str] | None = None, *, format: Literal["yaml", "json"] | None = None
) -> str:
    """Return an agent as the text of a spec, and write it to `path` if there is one.

    Raises:
        SpecError: the agent has parts that no file can hold; all of them are named.
    """
    if format not in (None, "yaml", "json"):
        raise ConfigurationError(f"format is 'yaml' or 'json', not {format!r}.")
    chosen = format or ("json" if path is not None and str(path).lower().endswith(".json") else "yaml")
    spec = spec_dict(agent)
    if chosen == "json":
        text = json.dumps(spec, indent=2) + "\n"
    else:
        from nbagents.spec.yamltext import write_yaml

        text = write_yaml(spec)
    if path is not None:
        try:
            FilePath(path).expanduser().write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be written: {error.strerror}.") from error
    return text


def spec_dict(agent: Agent) -> dict[str, Any]:
    """Return an agent as the values of a spec.

    Raises:
        SpecError: the agent has parts that no file can hold.
    """
    collected = Collected()
    made: dict[str, Any] = {}
    with collected.at():
        _check_plain(agent)
    for name, write in _PARTS.items():
        with collected.at(name):
            part = write(agent)
            if part is not None and part != {}:
                made[name] = part
    collected.check()
    model = made.get("model", {})
    spec = {"type": model.pop("type", DEFAULT_TYPE), **{name: part for name, part in made.items() if part != {}}}
    document = read_dict(_shielded(spec, ()))
    if document.faults:
        raise document.error()
    spec = document.root
    if mask_known(json.dumps(spec, ensure_ascii=False)) != json.dumps(spec, ensure_ascii=False):
        raise ConfigurationError("The spec would show a key.", hint="Take it out of the texts and names of the agent.")
    return dict(spec)


def _check_plain(agent: Agent) -> None:
    """Raise SpecError for what has no field in a spec."""
    other = [type(one).__name__ for one in agent.context_providers if type(one) not in (LocalSkills, InputCheck)]
    faults = [
        SpecFault(("type",), f"a {type(agent).__name__} is no agent of a built-in type.", _ADVICE)
        if type(agent) is not Agent
        else None,
        SpecFault(("middleware",), "middleware cannot be written to a file.", _ADVICE) if agent.middleware else None,
        SpecFault(("context_providers",), f"{', '.join(other)} cannot be written to a file.", _ADVICE)
        if other
        else None,
    ]
    found = [fault for fault in faults if fault is not None]
    if found:
        raise SpecError(found)


def _model(agent: Agent) -> dict[str, Any]:
    options = _options(agent.options)
    client: Any = agent.client
    model = {} if is_default(client) else _client(client)
    return {**model, **({"options": options} if options else {})}


def _client(client: Any) -> dict[str, Any]:
    """The fields of `model`, and `type`, for a client; one that a file cannot make goes by the id of a service."""
    if (service_id := CLIENTS.name_of(client)) is not None:
        return {"service_id": service_id}
    if type(client) is LocalChatClient:
        return {"provider": "local", "id": str(client.model_path)}
    azure = isinstance(client, ServiceClient) and client.provider == "azure"
    kind = _TYPES.get((type(client), azure))
    if kind is None or not isinstance(client, ServiceClient):
        return {"service_id": type(client).__name__}
    settings = dict(client.__reduce__()[1][1])
    if settings.pop("client", None) is not None or settings.pop("azure_ad_token_provider", None) is not None:
        raise ConfigurationError("a client with functions of yours cannot be written to a file.", hint=_ADVICE)
    parameters = signature(type(client)).parameters
    changed = {name: value for name, value in settings.items() if name != "model" and value != parameters[name].default}
    conversations = changed.pop("conversations", False)
    connection: dict[str, Any] = {}
    for name in _ADDRESS:
        if (address := changed.pop(name, None)) is not None:
            connection["endpoint"] = address
    if (key := key_of(client)) is not None:
        connection["api_key"] = _Placeholder(key)
    connection |= changed
    model: dict[str, Any] = {"type": kind, "id": client.model}
    if conversations and azure:
        model |= {"type": DEFAULT_TYPE, "provider": "azure", "api": "conversations"}
    elif conversations:
        model["type"] = "openai_conversation"
    return {**model, **({"connection": connection} if connection else {})}


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    written = {name: value for name, value in options.items() if value is not UNSET}
    if isinstance(bias := written.get("logit_bias"), Mapping):
        written["logit_bias"] = {str(token): value for token, value in bias.items()}
    asked = written.get("response_format")
    if asked is not None and not isinstance(asked, Mapping):
        form = output_format(asked)
        assert form is not None
        written["response_format"] = form.to_option()
    return written


def _tools(agent: Agent) -> list[dict[str, Any]] | None:
    return [_tool(one) for one in agent.tools] or None


def _tool(tool: FunctionTool | HostedTool) -> dict[str, Any]:
    if isinstance(tool, HostedTool):
        return {"type": tool.type, **({"options": dict(tool.options)} if tool.options else {})}
    written: dict[str, Any] = {"id": written_part(tool) or tool.tool_id, "type": "function"}
    if type(tool) is not FunctionTool:
        return written
    settings = tool.settings
    if settings["description"] is not None:
        written["description"] = settings["description"]
    defaults = {"approval": "never", "timeout": None, "strict": None, "concurrency": None}
    options = {
        name: settings[name]
        for name, default in defaults.items()
        if settings[name] != default and not callable(settings[name])  # a function stays with the tool that is passed
    }
    return {**written, **({"options": options} if options else {})}


def _inputs(agent: Agent) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for check in agent.context_providers:
        if isinstance(check, InputCheck):
            written |= {name: one.model_dump(exclude_defaults=True) for name, one in check.inputs.items()}
    for name, value in agent.arguments.items():
        if value is None:
            raise ConfigurationError(f"the argument {name!r} is None, which means no value in a file.")
        own = {key: one for key, one in written.get(name, {}).items() if key != "default"}
        written[name] = {**own, "required": False} if value == "" else {**own, "default": value}
    return written


def _template(agent: Agent) -> Any:
    template = agent.template
    if template is None:
        return "none" if agent.arguments or _inputs(agent) else None
    if type(template) is not PromptTemplate:
        raise ConfigurationError(f"a {type(template).__name__} cannot be written to a file.", hint=_ADVICE)
    return template.format if template.missing == "error" else {"format": template.format, "missing": template.missing}


def _memory(agent: Agent) -> dict[str, Any] | None:
    reducer: Any = agent.reducer
    if reducer is None:
        return None
    if (written := written_part(reducer)) is not None:
        return dict(written)
    kind = _REDUCERS.get(type(reducer))
    if kind is None or (kind == "token_budget" and reducer.counter.exact) or _is_special(reducer):
        raise ConfigurationError(f"{reducer!r} cannot be written to a file.", hint=_ADVICE)
    return {"type": kind, reducer.unit: reducer.limit, "keep": reducer.keep}


def _is_special(reducer: Any) -> bool:
    """Whether it sums up in another way than a file can say."""
    if type(reducer) is not SummarizationReducer:
        return False
    limits: dict[str, Any] = {reducer.unit: reducer.limit, "keep": reducer.keep}
    usual = SummarizationReducer(**limits)
    return any(getattr(reducer, name) != getattr(usual, name) for name in _OF_SUMMARIES)


_OF_SUMMARIES = ("client", "instructions", "stacked", "counter")


def _session(agent: Agent) -> dict[str, Any] | None:
    history = agent.history
    if type(history) is InMemoryHistoryProvider:
        return None
    if type(history) is FileHistoryProvider:
        return {"type": "jsonl_file", "path": str(history.folder)}
    if type(history) is SQLHistoryProvider:
        address = history.__reduce__()[1][0]
        if address.startswith("sqlite:///"):
            return {"type": "sqlite", "path": address.removeprefix("sqlite:///")}
    raise ConfigurationError(f"{history!r} cannot be written to a file.", hint=_ADVICE)


def _skills(agent: Agent) -> dict[str, Any] | None:
    paths = [
        str(path.absolute()) for one in agent.context_providers if isinstance(one, LocalSkills) for path in one.paths
    ]
    return {"type": "local", "paths": paths} if paths else None


def _budget(agent: Agent) -> dict[str, Any] | None:
    if agent.budget is None:
        return None
    default = RunBudget()
    limits = {one.name: getattr(agent.budget, one.name) for one in fields(RunBudget)}
    return {name: limit for name, limit in limits.items() if limit != getattr(default, name)}


_PARTS: Mapping[str, Callable[[Agent], Any]] = {
    "id": lambda agent: agent.id if agent.id != agent.name else None,
    "name": lambda agent: agent.name,
    "description": lambda agent: agent.description,
    "instructions": lambda agent: _Instructions(agent.instructions) if agent.instructions is not None else None,
    "template": _template,
    "model": _model,
    "tools": _tools,
    "inputs": _inputs,
    "memory": _memory,
    "session": _session,
    "pattern": lambda agent: written_part(agent),
    "skills": _skills,
    "budget": _budget,
}


class _Placeholder(str):
    """A text that is a placeholder already."""

    __slots__ = ()


class _Instructions(str):
    """A text in which placeholders mean nothing."""

    __slots__ = ()


def _shielded(value: Any, path: tuple[str | int, ...]) -> Any:
    """Return values with their secrets as placeholders, and what looks like a placeholder escaped."""
    if isinstance(value, _Placeholder | _Instructions):
        return str(value)
    if isinstance(value, str):
        return _text_shielded(escaped(value), path)
    if isinstance(value, Mapping):
        return {key: _shielded(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shielded(item, (*path, place)) for place, item in enumerate(value)]
    return value


def _text_shielded(text: str, path: tuple[str | int, ...]) -> str:
    if mask_known(text) == text:
        return text
    for name, value in _secret_variables():
        text = text.replace(escaped(value), f"${{{name}}}")
    if mask_known(text) == text:
        return text
    return f"${{{re.sub(r'[^A-Z0-9]+', '_', '_'.join(map(str, path)).upper()).strip('_')}}}"


def _secret_variables() -> Iterator[tuple[str, str]]:
    """Yield the variables of the environment whose values are secrets, the longest values first."""
    for name, value in sorted(os.environ.items(), key=lambda item: -len(item[1])):
        if mask_known(value) != value and re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            yield name, value
