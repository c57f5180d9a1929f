"""What a spec may name: types of agents, patterns, clients. Tables that are found when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Generic, Protocol, TypeVar, overload, runtime_checkable

from nbagents.core.agent import Agent
from nbagents.core.clients import BaseChatClient, SupportsChatGetResponse
from nbagents.core.errors import ConfigurationError
from nbagents.core.tools import FunctionTool
from nbagents.spec.faults import nearest
from nbagents.spec.models import AgentSpec

T = TypeVar("T")
ChatClient = BaseChatClient | SupportsChatGetResponse

_HOME = "nbagents.spec.types"
BUILT_IN_TYPES: Mapping[str, str] = {
    "chat_completion_agent": f"{_HOME}:CHAT_COMPLETION_AGENT",
    "openai_responses": f"{_HOME}:OPENAI_RESPONSES",
    "azure_chat_completion_agent": f"{_HOME}:AZURE_CHAT_COMPLETION_AGENT",
    "azure_responses": f"{_HOME}:AZURE_RESPONSES",
    "openai_conversation": f"{_HOME}:OPENAI_CONVERSATION",
    "anthropic": f"{_HOME}:ANTHROPIC",
    "openai_assistant": f"{_HOME}:OPENAI_ASSISTANT",
    "azure_assistant": f"{_HOME}:AZURE_ASSISTANT",
}
BUILT_IN_PATTERNS: Mapping[str, str] = {"react": "nbagents.spec.patterns:react"}


class AgentType(Protocol):
    """Makes agents from specs. If its files have more fields, it has a `spec_model` too."""

    def from_spec(
        self,
        spec: Any,
        *,
        tools: Sequence[FunctionTool],
        client: ChatClient | None,
        settings: Mapping[str, Any] | None,
    ) -> Agent:
        """Return the agent.

        Args:
            spec: the spec, checked, with its placeholders replaced: an `AgentSpec`, or the type's `spec_model`.
            tools: the functions that it lists, in that order.
            client: the client that the program passes; it goes before what the spec says.
            settings: the settings that the program passes.
        """
        ...


@runtime_checkable
class HasOwnFields(Protocol):
    """A type whose files have more fields than an `AgentSpec`."""

    spec_model: type[AgentSpec]


Pattern = Callable[..., Agent]
"""`pattern(agent, **options)` returns the agent that works by it: the same, changed or another."""


class Registry(Generic[T]):
    """Names and what they stand for.

    Args:
        what: what they are, for texts.
        built_in: the names that are always there, as `package.module:name`.
    """

    def __init__(self, what: str, built_in: Mapping[str, str]) -> None:
        self._what = what
        self._built_in = built_in
        self._registered: dict[str, T] = {}

    def names(self) -> list[str]:
        """All names."""
        return [*self._built_in, *self._registered]

    def register(self, name: str, value: T, *, replace: bool = False) -> None:
        """Add a name; again with the same value, or one that was defined in the same place, it changes nothing else.

        Raises:
            ConfigurationError: the name stands for something else.
        """
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"The name of a {self._what} is a text, not {name!r}.")
        known = self._registered.get(name)
        clashes = known is not None and known is not value and not replace and not _same_place(known, value)
        if name in self._built_in or clashes:
            owner = "built in" if name in self._built_in else f"registered already: {known!r}"
            raise ConfigurationError(f"The {self._what} {name!r} is {owner}.", hint="Choose another name.")
        self._registered[name] = value

    def find(self, name: str) -> T:
        """Return what a name stands for.

        Raises:
            ConfigurationError: nothing.
        """
        if name in self._registered:
            return self._registered[name]
        if name not in self._built_in:
            hint = nearest(name, self.names()) or "None is registered."
            raise ConfigurationError(f"there is no {self._what} {name!r}.", hint=hint)
        module, _, attribute = self._built_in[name].partition(":")
        found: T = getattr(import_module(module), attribute)
        return found

    def name_of(self, value: T) -> str | None:
        """Return the name under which `value` is registered."""
        return next((name for name, one in self._registered.items() if one is value), None)


AGENT_TYPES: Registry[AgentType] = Registry("type of agent", BUILT_IN_TYPES)
PATTERNS: Registry[Pattern] = Registry("pattern", BUILT_IN_PATTERNS)
CLIENTS: Registry[ChatClient] = Registry("client", {})


@overload
def register_agent_type(name: str, kind: AgentType) -> AgentType: ...
@overload
def register_agent_type(name: str) -> Callable[[T], T]: ...
def register_agent_type(name: str, kind: Any = None) -> Any:
    """Add a type of agents that specs may name; idempotent. It can decorate a class with a classmethod `from_spec`.

    Args:
        name: what specs call it: `type: NAME`.
        kind: what makes the agents; without it, a decorator is returned.

    Raises:
        ConfigurationError: it has no `from_spec`, or the name is taken.

    Example:
        >>> from nbagents import ScriptedChatClient
        >>> @register_agent_type("greeter")
        ... class Greeter:
        ...     @classmethod
        ...     def from_spec(cls, spec, *, tools, client, settings):
        ...         return Agent(client or ScriptedChatClient(["Hello!"]), name=spec.name)
        >>> from nbagents.spec import AgentRegistry
        >>> AgentRegistry.create_from_yaml("type: greeter").run_sync("Hi").text
        'Hello!'
    """
    if kind is None:
        return lambda decorated: register_agent_type(name, decorated)
    if not callable(getattr(kind, "from_spec", None)):
        raise ConfigurationError(
            f"{kind!r} makes no agents.", hint="It needs from_spec(spec, *, tools, client, settings)."
        )
    AGENT_TYPES.register(name, kind)
    return kind


def register_pattern(name: str, pattern: Pattern, *, replace: bool = False) -> None:
    """Add a pattern that specs may name: `pattern: {type: NAME, ...}` calls `pattern(agent, **the_rest)`.

    Raises:
        ConfigurationError: it cannot be called, or the name is taken.
    """
    if not callable(pattern):
        raise ConfigurationError(f"A pattern is a function of the agent, not {type(pattern).__name__}.")
    PATTERNS.register(name, pattern, replace=replace)


def register_client(service_id: str, client: ChatClient, *, replace: bool = False) -> None:
    """Add a client that specs may name: `model: {service_id: NAME}`.

    Args:
        service_id: the name.
        client: the client.
        replace: take it in the place of another client of that name.

    Raises:
        ConfigurationError: it is no chat client, or the name is taken.
    """
    if isinstance(client, type) or not isinstance(client, BaseChatClient | SupportsChatGetResponse):
        raise ConfigurationError(f"client must be a chat client, not {type(client).__name__}.")
    CLIENTS.register(service_id, client, replace=replace)


def _same_place(one: Any, other: Any) -> bool:
    """Whether both are functions or classes that were defined in one place: a cell that was run again."""
    places = [(getattr(it, "__module__", None), getattr(it, "__qualname__", None)) for it in (one, other)]
    return places[0] == places[1] and places[0][1] is not None and "<lambda>" not in str(places[0][1])
