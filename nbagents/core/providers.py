"""Context providers: they add messages, instructions, tools or middleware to a run before it, and see it after it."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nbagents.core.callables import is_async
from nbagents.core.errors import ConfigurationError
from nbagents.core.history import HistoryProvider
from nbagents.core.messages import AgentRunInputs, Message, normalize_messages
from nbagents.core.middleware import Middleware, MiddlewareChain

if TYPE_CHECKING:
    from nbagents.core.run import RunContext

SOURCE = "source"
"""The field of a message that names the provider which added it."""


class ContextProvider:
    """Adds to a run what it should know. To write one, implement `before_run`, `after_run` or both.

    Providers are asked in order before a run and told in reverse order after it, however it ended.

    Example:
        >>> class Clock(ContextProvider):
        ...     async def before_run(self, context):
        ...         self.add(context, instructions="It is noon.")
    """

    @property
    def name(self) -> str:
        """What its messages name as their source."""
        return type(self).__name__

    async def before_run(self, context: RunContext) -> None:
        """Look at `context.inputs` and `context.session` and add what helps, with `self.add`."""

    async def on_stored(self, context: RunContext, messages: Sequence[Message]) -> None:
        """Look at messages that have just become part of the conversation, during the run and at its end.

        What this raises ends no run: it is a warning, in the log and in `response.warnings`.
        """

    async def after_run(self, context: RunContext) -> None:
        """Look at `context.added`, `context.stop_reason` and `context.error`.

        It is called once if `before_run` has returned, however the run ends. What it raises fails a run that has
        completed, whose error then has the `response`; beside another error it is a warning.
        """

    def add(
        self,
        context: RunContext,
        *,
        messages: AgentRunInputs = None,
        instructions: str | None = None,
        tools: Iterable[Any] | Any | None = None,
        middleware: Middleware | Iterable[Middleware] | None = None,
    ) -> None:
        """Add to the requests of this run; nothing of it is stored in the session.

        Args:
            context: the run.
            messages: they stand between the history and the input, and name this provider as their source.
            instructions: a line more for the system message.
            tools: tools more for the model.
            middleware: middleware more, inside that of the agent and the run; one or several.

        Raises:
            ConfigurationError: a tool of that name is there already, or something else that does not fit.
        """
        marked = [
            Message(m.role, m.contents, m.author_name, m.message_id, extra={**(m.extra or {}), SOURCE: self.name})
            for m in normalize_messages(messages)
        ]
        context.provided.extend(marked)
        if instructions:
            lines = [context.system.text] if context.system else []
            context.system = Message("system", "\n".join([*lines, instructions]))
        if tools is not None:
            context.tools = context.agent.tools_with(context.tools.values(), tools)
        if middleware is not None:
            context.middleware = context.middleware.inside(MiddlewareChain.of(middleware))


class HistoryCopy(ContextProvider):
    """Writes a copy of each message that becomes part of the conversation, wherever that is stored; never reads it.

    It is for audits, and to have what a service stores on this side too. A copy that cannot be written ends no run: it
    is a warning, and the event `provider.failed`.

    Args:
        history: where the copy goes; another place than the conversation's own.

    Raises:
        ConfigurationError: no history provider, and at a run: the conversation is stored in the same place.

    Example:
        >>> import tempfile
        >>> from nbagents import Agent, FileHistoryProvider, ScriptedChatClient
        >>> copies = FileHistoryProvider(tempfile.mkdtemp())
        >>> agent = Agent(ScriptedChatClient(["Hello!"]), context_providers=[HistoryCopy(copies)])
        >>> response = agent.run_sync("Hi")
        >>> copies.path_of(response.session).read_text().count("Hello!")
        1
    """

    def __init__(self, history: HistoryProvider) -> None:
        if not isinstance(history, HistoryProvider):
            raise ConfigurationError(f"history must be a HistoryProvider, not {type(history).__name__}.")
        self.history = history

    async def before_run(self, context: RunContext) -> None:
        """Refuse to write into the conversation itself."""
        if context.thread.turn_key == self.history.storage_key(context.session):
            raise ConfigurationError(
                f"The copy would go where the conversation itself is stored: {self.history!r}.",
                hint="Give HistoryCopy a storage of its own, such as another folder.",
            )

    async def on_stored(self, context: RunContext, messages: Sequence[Message]) -> None:
        """Write the copy."""
        await self.history.save_messages(context.session, messages)


def check_providers(providers: ContextProvider | Iterable[ContextProvider] | None) -> list[ContextProvider]:
    """Return one provider, or several, as a list.

    Raises:
        ConfigurationError: something that is no provider, or one with a method that is not async.
    """
    if providers is None:
        return []
    one = isinstance(providers, ContextProvider) or not isinstance(providers, Iterable)
    given: Any = [providers] if one else providers
    checked = list(given)
    for provider in checked:
        if isinstance(provider, type) and issubclass(provider, ContextProvider):
            raise ConfigurationError(
                f"A context provider is an object, not the class {provider.__name__}.",
                hint=f"Pass {provider.__name__}(...).",
            )
        if not isinstance(provider, ContextProvider):
            raise ConfigurationError(f"A context provider is a ContextProvider, not {type(provider).__name__}.")
        for name in ("before_run", "on_stored", "after_run"):
            if inspect.isfunction(method := getattr(type(provider), name)) and not is_async(method):
                raise ConfigurationError(
                    f"{type(provider).__name__}.{name} is not async.", hint=f"Write `async def {name}(...)`."
                )
    return checked
