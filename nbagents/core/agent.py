"""`Agent`: instructions, client, tools and policy. A run never changes it; it serves any number of sessions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from os import PathLike
from typing import Any, Literal, TypeVar, Unpack, overload

from nbagents.core.arguments import RunSettings, exact_arguments
from nbagents.core.baseagent import AgentRunHandle, BaseAgent
from nbagents.core.budget import DEFAULT_BUDGET, RunBudget
from nbagents.core.clients import BaseChatClient, SupportsChatGetResponse
from nbagents.core.errors import ConfigurationError, NBAgentsError
from nbagents.core.history import HistoryProvider, InMemoryHistoryProvider
from nbagents.core.ids import new_id
from nbagents.core.loop import run_events
from nbagents.core.messages import AgentRunInputs, Message, normalize_messages, split_answers
from nbagents.core.middleware import Middleware, MiddlewareChain, listed
from nbagents.core.options import TypedOptions, check_options, merge_options
from nbagents.core.origins import with_origin
from nbagents.core.outputs import output_format
from nbagents.core.pending import PendingResponse
from nbagents.core.prices import has_price
from nbagents.core.providers import ContextProvider, check_providers
from nbagents.core.reducers.base import ReducerLike, chosen_reducer
from nbagents.core.reducers.view import RunReduction, reduced
from nbagents.core.responses import AgentResponse
from nbagents.core.run import RunContext, current_run
from nbagents.core.sessions import PENDING_KEY, AgentSession
from nbagents.core.specs import WrittenAsSpec
from nbagents.core.streams import ResponseStream
from nbagents.core.subagents import AgentTool, ChildSession
from nbagents.core.sync_streams import SyncResponseStream
from nbagents.core.templates import PromptTemplate, as_template, check_arguments, warn_of_no_template
from nbagents.core.threads import LocalThread, Thread, thread_of
from nbagents.core.tools import FunctionTool
from nbagents.core.toolset import Tool, check_tools, collect_tools, tools_of_run, usable, warn_of_unused
from nbagents.core.updates import AgentResponseUpdate

T = TypeVar("T")
AgentStream = ResponseStream[AgentResponseUpdate, AgentResponse[Any]]


class Agent(WrittenAsSpec, BaseAgent):
    """Instructions, a chat client, tools and limits.

    Args:
        client: the chat client.
        instructions: the system message of every request; it is never stored.
        id: a stable id; the name by default.
        name: what it is called in messages and tables; `agent` by default.
        description: what it is for, for people and other agents.
        tools: functions, `@tool`s, objects with `@tool` methods, agents, hosted tools of the client; one or several.
        options: defaults for every request, by their Chat Completions names.
        arguments: values for the instructions' template, and for tools (`ToolContext.arguments`).
        history: where the messages of its sessions are stored; in the session itself by default.
        context_providers: they add to each run and see its result; one or several.
        middleware: functions around its runs, model requests and tool calls, the outermost first; one or several.
        reducer: what a request leaves out of a long conversation, such as `TokenBudgetReducer(8_000)`: a reducer, a
            function of the messages, or a list of them. What is stored stays whole. Where the service stores the
            conversation, nothing can be left out.
        budget: the limits of each run.
        template: how `instructions` are rendered: `nbagents` (`{{$name}}`), `jinja2`, or None to send them as they are.

    Raises:
        ConfigurationError: an argument that does not fit, naming it.

    Example:
        >>> from nbagents import ScriptedChatClient
        >>> Agent(ScriptedChatClient(["Hello!"])).run_sync("Hi").text
        'Hello!'
    """

    @exact_arguments()
    def __init__(
        self,
        client: BaseChatClient | SupportsChatGetResponse,
        instructions: str | None = None,
        *,
        id: str | None = None,
        name: str | None = None,
        description: str | None = None,
        tools: Iterable[Any] | Any | None = None,
        options: Mapping[str, Any] | None = None,
        arguments: Mapping[str, Any] | None = None,
        history: HistoryProvider | None = None,
        context_providers: ContextProvider | Iterable[ContextProvider] | None = None,
        middleware: Middleware | Iterable[Middleware] | None = None,
        reducer: ReducerLike | None = None,
        budget: RunBudget | None = None,
        template: PromptTemplate | str | None = None,
    ) -> None:
        _check_kinds(client, instructions, budget, history)
        super().__init__(id=id, name=name, description=description)
        self.client = client
        self.instructions = instructions
        self.tools = collect_tools(tools)
        self.options = check_options(options)
        self.arguments = check_arguments(arguments)
        self.template = as_template(template)
        self._warned_of_template = self.template is None and warn_of_no_template(instructions, self.arguments)
        self.history = history or InMemoryHistoryProvider()
        self.budget = budget
        self.context_providers = check_providers(context_providers)
        self.middleware = listed(middleware)
        MiddlewareChain.of(self.middleware)  # what is no middleware is an error here
        self.reducer = chosen_reducer(reducer)
        self._warned_of_tools = False
        self._check_tools(self.tools)  # a tool that cannot be sent is an error here, not at the first run

    def __repr__(self) -> str:
        tools = ", ".join(one.name for one in self.tools)
        return f"Agent({self.name!r}, client={self.client!r}, tools=[{tools}])"

    def thread(self, session: AgentSession) -> Thread:
        """Return the door to the stored messages of `session`: where a run with the agent's own options has them.

        They are stored on this side, by `history`, unless the service does it: then the agent's option `store` is
        True, or it is not set and the client's `stores_by_default` is true or the session goes on at the service.

        Raises:
            ConfigurationError: the session is of another kind than what this agent can go on with.
        """
        _check_session(session)
        thread = thread_of(session, self.history, self.client, self.options.get("store"))
        if self.reducer is not None and isinstance(thread, LocalThread):
            thread.reducing = partial(reduced, reducer=self.reducer, session=session, client=self.client)
        return thread

    @exact_arguments()
    def as_tool(
        self,
        name: str | None = None,
        description: str | None = None,
        *,
        session: ChildSession = "fresh",
        instructions: bool = False,
    ) -> FunctionTool:
        """Return a tool that gives this agent `messages` and returns its answer.

        The child's run is nested in the log of the caller, its text shows in the call's card, its usage counts in the
        caller's budget, and what needs approval in it ends the caller's run with the requests.

        Args:
            name: what the model calls it; made from the agent's name by default.
            description: what it is for; the agent's description, else the first line of its instructions.
            session: `fresh` for each call; `shared`, one that goes on within the caller's session; `transcript`, fresh
                and told what was said so far.
            instructions: the agent accepts an override: a call may give instructions in the place of its own.

        Raises:
            ConfigurationError: nothing says what the agent is for.
        """
        return AgentTool(self, name, description, session, instructions)

    @overload  # type: ignore[override]  # more exact than the base's, which leaves settings open
    def run(
        self,
        messages: AgentRunInputs = None,
        *,
        stream: Literal[False] = False,
        options: TypedOptions[T],
        **settings: Unpack[RunSettings],
    ) -> Awaitable[AgentResponse[T]]: ...
    @overload
    def run(
        self,
        messages: AgentRunInputs = None,
        *,
        stream: Literal[True],
        options: TypedOptions[T],
        **settings: Unpack[RunSettings],
    ) -> ResponseStream[AgentResponseUpdate, AgentResponse[T]]: ...
    @overload
    def run(
        self,
        messages: AgentRunInputs = None,
        *,
        stream: Literal[False] = False,
        options: Mapping[str, Any] | None = None,
        **settings: Unpack[RunSettings],
    ) -> Awaitable[AgentResponse[Any]]: ...
    @overload
    def run(
        self,
        messages: AgentRunInputs = None,
        *,
        stream: Literal[True],
        options: Mapping[str, Any] | None = None,
        **settings: Unpack[RunSettings],
    ) -> AgentStream: ...
    @exact_arguments(RunSettings)
    def run(
        self,
        messages: AgentRunInputs = None,
        *,
        stream: bool = False,
        options: Mapping[str, Any] | None = None,
        **settings: Unpack[RunSettings],
    ) -> Any:
        """Answer `messages`.

        Nothing happens before the result is awaited or iterated; arguments are checked at once.

        Args:
            messages: a text, content, messages, answers to approval requests, or several of them.
            stream: return a `ResponseStream` of updates; else an awaitable `AgentResponse`.
            session: the conversation to go on with; a new one by default.
            tools: more tools for this run.
            options: options of this run, over the agent's; `UNSET` removes one.
            budget: the limits of this run, instead of the agent's.
            arguments: values for the instructions' template and for tools, over the agent's.
            middleware: more middleware for this run, inside the agent's; one or several.
            reducer: another reducer for this run; `UNSET` for none.
            on_message: called with each whole message that the run adds, in causal order; may be async.
            client_kwargs: what reaches the provider untouched.

        Returns:
            An awaitable `AgentResponse`, or with `stream=True` a `ResponseStream` of `AgentResponseUpdate`.

        Raises:
            ConfigurationError: an argument that does not fit, at the call.
            NBAgentsError: the run ended early; `response` has what there is.
        """
        reply = self._stream_of(self._prepare(messages, stream, options, settings))
        return reply if stream else PendingResponse(reply.get_final_response)

    @overload  # type: ignore[override]  # as `run`
    def run_sync(
        self, messages: AgentRunInputs = None, *, options: TypedOptions[T], **settings: Unpack[RunSettings]
    ) -> AgentResponse[T]: ...
    @overload
    def run_sync(
        self,
        messages: AgentRunInputs = None,
        *,
        options: Mapping[str, Any] | None = None,
        **settings: Unpack[RunSettings],
    ) -> AgentResponse[Any]: ...
    @exact_arguments(RunSettings)
    def run_sync(
        self,
        messages: AgentRunInputs = None,
        *,
        options: Mapping[str, Any] | None = None,
        **settings: Unpack[RunSettings],
    ) -> AgentResponse[Any]:
        return super().run_sync(messages, options=options, **settings)

    @exact_arguments(RunSettings)
    def stream_sync(  # type: ignore[override]  # as `run`
        self,
        messages: AgentRunInputs = None,
        *,
        options: Mapping[str, Any] | None = None,
        **settings: Unpack[RunSettings],
    ) -> SyncResponseStream[AgentResponseUpdate, AgentResponse[Any]]:
        return super().stream_sync(messages, options=options, **settings)

    @exact_arguments(RunSettings)
    def start(  # type: ignore[override]  # as `run`
        self,
        messages: AgentRunInputs = None,
        *,
        options: Mapping[str, Any] | None = None,
        **settings: Unpack[RunSettings],
    ) -> AgentRunHandle:
        return super().start(messages, options=options, **settings)

    def _prepare(
        self, messages: AgentRunInputs, stream: bool, options: Mapping[str, Any] | None, settings: RunSettings
    ) -> RunContext:
        """Check the arguments of a run and put it together."""
        session, budget, on_message = settings.get("session"), settings.get("budget"), settings.get("on_message")
        if session is not None:
            _check_session(session)
        _check_budget(budget)
        if on_message is not None and not callable(on_message):
            raise ConfigurationError(f"on_message must be a function, not {type(on_message).__name__}.")
        inputs = normalize_messages(messages)
        merged = merge_options(self.options, options)
        asked = merged.get("response_format")
        output = output_format(asked)
        session = session or self.create_session()
        own, inputs = split_answers(inputs, held=PENDING_KEY in session.state)
        chosen = budget or self.budget or DEFAULT_BUDGET
        values = {**self.arguments, **check_arguments(settings.get("arguments"))}
        parent, chosen_tools = current_run.get(), self.tools_with(self.tools, settings.get("tools"))
        budgets = [chosen, *(one.budget for one in parent.and_parents())] if parent is not None else [chosen]
        if any(one.max_cost_usd is not None for one in budgets):
            self._check_prices(merged, chosen_tools.values())
        run = RunContext(
            agent=self,
            run_id=new_id("run"),
            session=session,
            thread=thread_of(
                session,
                self.history,
                self.client,
                merged.get("store"),
                begins_anew=(options or {}).get("store") is True,
            ),
            inputs=inputs,
            answers=own,
            system=self._system_message(values),
            arguments=values,
            tools=chosen_tools,
            options={k: v for k, v in merged.items() if k != "response_format" or output is None},
            client_kwargs=_checked_kwargs(settings.get("client_kwargs")),
            budget=chosen,
            output=output,
            stream=stream,
            on_message=on_message,
            middleware=MiddlewareChain.of(self.middleware, settings.get("middleware")),
            parent=parent,
        )
        chosen_reduction = chosen_reducer(settings.get("reducer"), self.reducer)
        if chosen_reduction is not None:
            run.reduction = RunReduction.of(run, chosen_reduction)
        return with_origin(run)

    def tools_with(self, present: Iterable[Tool], more: Iterable[Any] | Any | None) -> dict[str, Tool]:
        """Return the tools of a run by name: those `present` and `more`, without functions where its client calls none.

        Raises:
            ConfigurationError: a tool that cannot be sent, or two of one name.
        """
        chosen = tools_of_run(present, more, self.tools)
        if more is not None:
            self._check_tools(chosen.values())
        return usable(self.client, chosen)

    def _check_tools(self, tools: Iterable[Tool]) -> None:
        check_tools(self.client, tools)
        self._warned_of_tools = self._warned_of_tools or warn_of_unused(self.client, tools, self.name)

    def _system_message(self, arguments: Mapping[str, Any]) -> Message | None:
        text = self.instructions or ""
        if self.template is not None:
            text = self.template.render(text, arguments)
        elif not self._warned_of_template:
            self._warned_of_template = warn_of_no_template(text, arguments)
        return Message("system", text) if text.strip() else None

    def _check_prices(self, options: Mapping[str, Any], tools: Iterable[Tool]) -> None:
        """Raise ConfigurationError where this agent, or one that it may call, has a model without a price."""
        checked = {id(self)}
        waiting: list[tuple[Agent, Mapping[str, Any], Iterable[Tool]]] = [(self, options, tools)]
        while waiting:
            agent, options, tools = waiting.pop()
            model = options.get("model") or getattr(agent.client, "model", None) or ""
            if not has_price(model):
                raise ConfigurationError(
                    f"max_cost_usd needs a price, and that of the model {model!r} of {agent.name!r} is unknown.",
                    hint="pip install genai-prices (the extra `prices`), set_price(model, ...), or limit max_tokens.",
                )
            called = [one.agent for one in tools if isinstance(one, AgentTool) and id(one.agent) not in checked]
            checked |= {id(one) for one in called}
            waiting += [(one, one.options, one.tools) for one in called]

    def _stream_of(self, run: RunContext) -> AgentStream:
        async def updates() -> AsyncGenerator[AgentResponseUpdate, None]:
            async with aclosing(run_events(run)) as source:
                async for event in source:
                    if event.update is not None:
                        yield event.update

        def finish() -> AgentResponse[Any]:
            if run.response is None:  # closed before it had begun: that is in the log too
                run.begin()
                run.end("cancelled")
            if isinstance(run.error, NBAgentsError):
                raise run.error
            assert run.response is not None
            return run.response

        async def messages() -> AsyncGenerator[Message, None]:
            given = 0
            async with aclosing(run_events(run)) as source:
                async for _ in source:
                    while given < run.settled:
                        yield run.added[given]
                        given += 1

        return ResponseStream(updates, finish, events=lambda: run_events(run), messages=messages)


def _check_kinds(client: Any, instructions: Any, budget: Any, history: Any) -> None:
    """Raise ConfigurationError for the first argument of an agent that is something else."""
    if isinstance(client, type) and issubclass(client, BaseChatClient):
        raise ConfigurationError(
            f"client must be a chat client, not the class {client.__name__}.", hint=f"Pass {client.__name__}(...)."
        )
    # The protocol alone is slow to check, and a class has its methods too.
    if isinstance(client, type) or not isinstance(client, BaseChatClient | SupportsChatGetResponse):
        raise ConfigurationError(
            f"client must be a chat client, not {type(client).__name__}.",
            hint="Pass OpenAIChatClient(...), ScriptedChatClient([...]) or another BaseChatClient.",
        )
    if instructions is not None and not isinstance(instructions, str):
        raise ConfigurationError(f"instructions must be a text, not {type(instructions).__name__}.")
    _check_budget(budget)
    if history is not None and not isinstance(history, HistoryProvider):
        hint = f"Pass FileHistoryProvider({str(history)!r})." if isinstance(history, str | PathLike) else None
        raise ConfigurationError(f"history must be a HistoryProvider, not {type(history).__name__}.", hint=hint)


def _checked_kwargs(given: Any) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise ConfigurationError(f"client_kwargs is a mapping, not {type(given).__name__}.")
    return dict(given or {})


def _check_session(session: Any) -> None:
    if isinstance(session, AgentSession):
        return
    hint = "Use agent.create_session() or AgentSession(session_id=...)."
    if isinstance(session, AgentResponse):
        hint = "Pass response.session."
    elif isinstance(session, Mapping):
        hint = "Pass AgentSession.from_dict(...) of it."
    raise ConfigurationError(f"session must be an AgentSession, not {type(session).__name__}.", hint=hint)


def _check_budget(budget: Any) -> None:
    if budget is None or isinstance(budget, RunBudget):
        return
    limits = budget if isinstance(budget, Mapping) else {}
    named = ", ".join(f"{name}={limit!r}" for name, limit in limits.items())
    raise ConfigurationError(
        f"budget must be a RunBudget, not {type(budget).__name__}.", hint=f"Pass RunBudget({named or 'max_steps=5'})."
    )
