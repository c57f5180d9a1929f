"""The parts of an agent as its spec names them: client, memory, history, inputs, instructions, hosted tools."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from nbagents.clients import default_client
from nbagents.core.errors import ConfigurationError
from nbagents.core.history import HistoryProvider
from nbagents.core.hosted import HOSTED_KINDS, HostedTool, method_for
from nbagents.core.providers import ContextProvider
from nbagents.core.reducers import (
    Reducer,
    SlidingWindowReducer,
    SummarizationReducer,
    TokenBudgetReducer,
    TruncationReducer,
)
from nbagents.core.run import RunContext
from nbagents.core.templates import PromptTemplate
from nbagents.spec.faults import SpecError, SpecFault, nearest
from nbagents.spec.fields import InputSpec, fits, is_schema, object_schema
from nbagents.spec.models import AgentSpec, ConnectionSpec, MemorySpec, ModelSpec, SessionSpec, ToolSpec
from nbagents.spec.registry import CLIENTS, ChatClient
from nbagents.spec.sources import default_of, remember_part

DEFAULT_TURNS, DEFAULT_TOKENS, DEFAULT_MESSAGES = 20, 8_000, 40

Service = tuple[str, str]
"""A provider, and its API."""

_CLIENTS: Mapping[Service, tuple[str, Mapping[str, Any]]] = {
    ("openai", "chat"): ("OpenAIChatClient", {}),
    ("openai", "responses"): ("OpenAIResponsesClient", {}),
    ("openai", "conversations"): ("OpenAIResponsesClient", {"conversations": True}),
    ("azure", "chat"): ("OpenAIChatClient", {}),
    ("azure", "responses"): ("OpenAIResponsesClient", {}),
    ("azure", "conversations"): ("OpenAIResponsesClient", {"conversations": True}),
    ("anthropic", "messages"): ("AnthropicChatClient", {}),
    ("local", "chat"): ("LocalChatClient", {}),
}
DEFAULT_APIS = {"openai": "chat", "azure": "chat", "anthropic": "messages", "local": "chat"}
_OWN_FIELDS = frozenset({"endpoint", "api_key", "api_key_env", "service_id"})
"""The fields of a connection that are no argument of a client under their own name."""
_AZURE_ENDPOINT = "AZURE_OPENAI_ENDPOINT"


def client_of(model: ModelSpec | None, service: Service | None) -> ChatClient:
    """Return the client that a spec names; without a model, the default one.

    Args:
        model: the field `model`.
        service: what the agent's type speaks to; None leaves it to the model.

    Raises:
        ConfigurationError: it cannot be made.
    """
    if model is None or (model == ModelSpec(options=model.options) and service is None):
        if service is not None:
            raise ConfigurationError("this type of agent needs a model.", hint="Write model: {id: ...}.")
        return default_of(default_client)
    service_id = model.service_id or model.connection.service_id
    if service_id is not None:
        return CLIENTS.find(service_id)
    service = _service(model, service)
    name, fixed = _CLIENTS[service]
    kind = getattr(import_module("nbagents.clients"), name)
    arguments = {**_settings(model.connection, kind), **_address(model, service), **fixed}
    if service[0] == "local":
        return _made(kind, {"model_path": model.id, **arguments} if model.id else arguments)
    if not model.id:
        raise ConfigurationError("the field 'id' is missing.", hint="It is the model's name.")
    return _made(kind, {"model": model.id, **arguments})


def _made(kind: Callable[..., ChatClient], arguments: Mapping[str, Any]) -> ChatClient:
    return kind(**arguments)


def _service(model: ModelSpec, asked: Service | None) -> Service:
    provider = model.provider or (asked[0] if asked else "openai")
    api = model.api or (asked[1] if asked else DEFAULT_APIS[provider])
    if asked is not None and (provider, api) != asked:
        raise ConfigurationError(
            f"this type of agent speaks to {asked[0]} ({asked[1]}), not {provider} ({api}).",
            hint="Leave provider and api out, or write type: chat_completion_agent.",
        )
    if (provider, api) not in _CLIENTS:
        there = ", ".join(one for who, one in _CLIENTS if who == provider)
        raise ConfigurationError(f"{provider} has no api {api!r}.", hint=f"There are: {there}.")
    return provider, api


def _address(model: ModelSpec, service: Service) -> dict[str, Any]:
    """Where the service is, and the key."""
    connection, provider = model.connection, service[0]
    found: dict[str, Any] = {}
    endpoint = connection.endpoint
    if provider == "azure":
        endpoint = endpoint or os.environ.get(_AZURE_ENDPOINT)
        if not endpoint:
            raise SpecError(
                [
                    SpecFault(
                        ("connection",),
                        "the field 'endpoint' is missing.",
                        f"It is the address of the resource at Azure; the variable {_AZURE_ENDPOINT} serves too.",
                    )
                ]
            )
    if endpoint:
        found["azure_endpoint" if provider == "azure" else "base_url"] = endpoint
    key = _key(connection)
    if key:
        found["api_key"] = key
    return found


def _key(connection: ConnectionSpec) -> str | None:
    if connection.api_key_env is None:
        return connection.api_key.get_secret_value() if connection.api_key is not None else None
    if connection.api_key is not None:
        raise ConfigurationError("connection has both api_key and api_key_env.", hint="Keep one of them.")
    key = os.environ.get(connection.api_key_env)
    if not key:
        told = f"the environment variable {connection.api_key_env} is not set."
        raise SpecError([SpecFault(("connection", "api_key_env"), told, "It has the key.")])
    return key


def _settings(connection: ConnectionSpec, kind: Any) -> dict[str, Any]:
    """The other arguments of the client; one that it does not take is a fault."""
    takes = inspect.signature(kind).parameters
    given = {name: value for name in type(connection).model_fields if (value := getattr(connection, name)) is not None}
    settings = {name: value for name, value in given.items() if name not in _OWN_FIELDS}
    unknown = [name for name in settings if name not in takes]
    if unknown:
        raise SpecError(
            SpecFault(("connection", name), f"{kind.__name__} has no setting {name!r}.", "Leave it out.")
            for name in unknown
        )
    known = [name for name in type(connection).model_fields if name in takes or name in _OWN_FIELDS]
    for name in connection.model_extra or {}:
        if near := get_close_matches(name, known, n=1, cutoff=0.75):
            warnings.warn(
                f"connection.{name} of the spec is kept, but no client reads it: did you mean {near[0]!r}?",
                UserWarning,
                stacklevel=2,
            )
    return settings


def reducer_of(memory: MemorySpec | None) -> Reducer | None:
    """Return what leaves messages out of long requests."""
    if memory is None or memory.type == "noop":
        return None
    takes = {
        "window": ("max_turns",),
        "token_budget": ("max_tokens",),
        "summary": ("max_tokens", "max_messages"),
        "truncation": ("max_messages",),
    }[memory.type]
    limits = ("max_turns", "max_tokens", "max_messages")
    wrong = [name for name in limits if getattr(memory, name) is not None and name not in takes]
    if wrong:
        raise SpecError(
            SpecFault((name,), f"memory of the type {memory.type!r} has no {name!r}.", nearest(name, takes))
            for name in wrong
        )
    keep: dict[str, Any] = {} if memory.keep is None else {"keep": memory.keep}
    if memory.type == "window":
        return SlidingWindowReducer(memory.max_turns or DEFAULT_TURNS, **keep)
    if memory.type == "token_budget":
        return TokenBudgetReducer(memory.max_tokens or DEFAULT_TOKENS, **keep)
    if memory.type == "truncation":
        return TruncationReducer(memory.max_messages or DEFAULT_MESSAGES, **keep)
    if memory.max_messages is not None:
        summary = SummarizationReducer(memory.max_tokens, max_messages=memory.max_messages, **keep)
    else:
        summary = SummarizationReducer(memory.max_tokens or DEFAULT_TOKENS, **keep)
    remember_part(summary, memory.model_dump(exclude_none=True))
    return summary


def history_of(session: SessionSpec | None) -> HistoryProvider | None:
    """Return where conversations are stored; None is in the session itself."""
    if session is None or session.type == "in_memory":
        if session is not None and session.path is not None:
            raise SpecError([SpecFault(("path",), "a session in memory has no path.", "Leave it out.")])
        return None
    if session.type == "jsonl_file":
        from nbagents.core.history_file import FileHistoryProvider

        return FileHistoryProvider(session.path or "sessions")
    from nbagents.core.history_sql import SQLHistoryProvider

    return SQLHistoryProvider(f"sqlite:///{session.path or 'chat.db'}")


def hosted_tool(tool: ToolSpec, client: ChatClient) -> HostedTool:
    """Return a tool that the service runs.

    Raises:
        ConfigurationError: the client has none of this type, or its settings do not fit.
    """
    if tool.id is not None or tool.description is not None:
        name = "id" if tool.id is not None else "description"
        raise ConfigurationError(f"a tool of the type {tool.type!r} has no {name!r}.", hint="Its settings are options.")
    make = getattr(client, method_for(tool.type), None)
    if callable(make):
        made: HostedTool = make(**tool.options)
        return made
    made = HostedTool(tool.type, tool.options)
    if made.method is None or made.type in HOSTED_KINDS:
        there = [kind for kind in HOSTED_KINDS if callable(getattr(client, method_for(kind), None))]
        who = type(client).__name__
        raise ConfigurationError(
            f"{who} runs no tool of the type {tool.type!r}.", hint=nearest(tool.type, ["function", *there])
        )
    return made


def template_of(spec: AgentSpec) -> PromptTemplate | None:
    """Return how the instructions are rendered: as the spec says, else with its inputs if it has any."""
    if spec.template is None:
        return PromptTemplate("nbagents") if spec.inputs else None
    if spec.template.format == "none":
        return None
    return PromptTemplate("jinja2" if spec.template.format == "jinja2" else "nbagents", spec.template.missing)


def arguments_of(inputs: Mapping[str, InputSpec]) -> dict[str, Any]:
    """Return the values that inputs have where a run gives none."""
    wrong = [name for name, one in inputs.items() if one.default is not None and not fits(one.default, one.type)]
    if wrong:
        raise SpecError(SpecFault((name, "default"), f"this is no {inputs[name].type}.") for name in wrong)
    with_value = {name: one for name, one in inputs.items() if one.default is not None or not one.required}
    return {name: "" if one.default is None else one.default for name, one in with_value.items()}


def response_format(spec: AgentSpec) -> dict[str, Any] | None:
    """Return the JSON schema of the answer."""
    if not spec.outputs:
        return None
    fields: Any = spec.outputs
    return dict(fields) if is_schema(fields) else object_schema(fields)


class InputCheck(ContextProvider):
    """Sees to it that a run has the values that the spec says it needs.

    Args:
        inputs: the inputs of the spec.
    """

    def __init__(self, inputs: Mapping[str, InputSpec]) -> None:
        self.inputs = dict(inputs)

    async def before_run(self, context: RunContext) -> None:
        """Raise ConfigurationError for a missing value, and for one of another type."""
        missing = [name for name, one in self.inputs.items() if one.required and name not in context.arguments]
        if missing:
            raise ConfigurationError(
                f"The agent {context.agent.name!r} needs inputs that are missing: {', '.join(missing)}.",
                hint=f"Pass arguments={{{missing[0]!r}: ...}} to the run.",
            )
        for name, one in self.inputs.items():
            value = context.arguments.get(name)
            if value is not None and value != "" and not fits(value, one.type):
                raise ConfigurationError(
                    f"The input {name!r} of the agent {context.agent.name!r} is a {one.type}, "
                    f"not {type(value).__name__}."
                )
