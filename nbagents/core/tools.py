"""Functions that a model may call: `@tool`, what a tool is, and how one call of it runs."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, overload

from nbagents.core import callables
from nbagents.core.arguments import exact_arguments
from nbagents.core.concurrency import ConcurrencyLimit, place_in
from nbagents.core.content import ApprovalRequest, ApprovalResponse
from nbagents.core.errors import ConfigurationError
from nbagents.core.names import VALID_NAME, safe_name
from nbagents.core.plaincalls import collected, drained, run_in_thread, stays_here
from nbagents.core.strict import NotStrictError, strict_schema

if TYPE_CHECKING:
    from nbagents.core.run import RunContext
    from nbagents.core.schema import FunctionSchema
    from nbagents.core.sessions import AgentSession

Approval = Literal["never", "always"] | Callable[[dict[str, Any]], bool]


@dataclass(frozen=True, slots=True, eq=False)
class ToolContext:
    """What a tool may know of the run that calls it: declare a parameter of this type and it is filled in.

    Attributes:
        run: the run.
        call_id: our id of the call.
        emit: sends an event of the run.
        resumed: what an earlier `ApprovalNeeded` of this very call left.
        answers: the answers to its requests.
    """

    run: RunContext
    call_id: str
    emit: Callable[[str, dict[str, Any]], None]
    resumed: dict[str, Any] | None = None
    answers: Sequence[ApprovalResponse] = ()

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.run.run_id

    @property
    def session(self) -> AgentSession:
        """The session of the run."""
        return self.run.session

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the run (not of the call)."""
        return self.run.arguments

    @property
    def deps(self) -> Any:
        """What the caller of the run gave its tools to work with; None if nothing."""
        return self.run.deps

    def emit_delta(self, text: str) -> None:
        """Show `text` in the call's card while the tool still runs."""
        self.emit("tool.delta", {"text": text})

    def emit_artifact(self, name: str, payload: Any, *, kind: str = "data") -> None:
        """Hand out something that the run made, beside its answer."""
        self.emit("artifact.emitted", {"name": name, "kind": kind, "payload": payload})


class ArgumentsError(Exception):
    """Arguments that do not fit; the text is for the model."""


class ApprovalNeeded(Exception):
    """Raised by a tool that cannot go on without a person: the run ends with these requests.

    When they are answered, the tool is called again with `state` as `ToolContext.resumed`.
    """

    def __init__(self, requests: Sequence[ApprovalRequest], state: dict[str, Any]) -> None:
        super().__init__(f"{len(requests)} calls need approval")
        self.requests = list(requests)
        self.state = state


@dataclass(frozen=True)
class ToolDefinition:
    """What a chat client sends of a tool.

    Attributes:
        name: what the model calls it.
        description: what the model reads.
        parameters: JSON schema of an object; in strict form if `strict` is True.
        strict: True and False are the word of the tool's author; None leaves it to the client, and is not sent.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    strict: bool | None = None

    @cached_property
    def strict_form(self) -> ToolDefinition:
        """The definition for a server that wants strict tools: with `strict` False where there is no strict form."""
        if self.strict is not None:
            return self
        try:
            return replace(self, parameters=strict_schema(self.parameters), strict=True)
        except NotStrictError:
            return replace(self, strict=False)


class FunctionTool:
    """A function that a model may call. Calling the object calls the function, unchanged.

    The `@tool` methods of an object are a group: their `tool_id`, in events and tables, is `Menu.specials`, the class
    and the method. The model calls them by `name`, for which services allow no dot: the method's name, or
    `Menu-specials` where another tool of the agent has that name. Of two objects of one class the second is `Menu_2`;
    `in_group` gives it a better name. A model that calls a method by its id is understood.

    Args:
        function: sync or async; a sync one runs in a thread of its own with the caller's context variables.
        name: what the model calls it; the function's name by default.
        description: what the model reads; the docstring without its sections by default.
        approval: `"always"` asks a person before each call, a function of the arguments decides for each call.
        timeout: seconds for one call. The work of a sync function cannot be killed: its late result is dropped.
        strict: True sends the schema in strict form (OpenAI's structured outputs), which the model cannot leave: every
            parameter is required, an optional one may be null, which means its default. False never does. None leaves
            it to the client: strict where its server wants that and the schema allows it.
        concurrency: calls at once, across runs, threads and loops, of all objects of a class together; the rest wait in
            order. Waiting does not count into `timeout`, a call that was given up does not count any more, and a call
            from within a call (through a sub-agent) does not wait for itself.

    Raises:
        ConfigurationError: a name that services refuse, or something that cannot be called.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        approval: Approval = "never",
        timeout: float | None = None,
        strict: bool | None = None,
        concurrency: int | None = None,
    ) -> None:
        _check_settings(function, name, description, approval, timeout, strict, concurrency)
        self.function = function
        self.function_name = name or safe_name(callables.name_of(function), fallback="tool")
        self.name = self.function_name
        self.group: str | None = None
        self.owner: object = None
        self.approval = approval
        self.timeout = timeout
        self.strict = strict
        self.concurrency = concurrency
        self._limit = None if concurrency is None else ConcurrencyLimit(concurrency)
        self._description = description
        self._names = callables.local_names(function, callables.caller(callables.depth_of_caller() - 1))
        self.__name__ = self.__qualname__ = self.function_name  # for what has none: partials, callable objects
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool:
        if instance is None:
            return self
        return self._changed(function=self.function.__get__(instance, owner)).of(instance)

    def __repr__(self) -> str:
        return f"<tool {self.tool_id}>"

    def __copy__(self) -> FunctionTool:
        return _restored(type(self), self.__dict__)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Go by name where that leads here, as functions do: the function itself stands behind the tool."""
        state = {name: value for name, value in self.__dict__.items() if name not in ("schema", "definition")}
        if isinstance(getattr(type(self.owner), self.__name__, None), FunctionTool):
            state = {name: value for name, value in state.items() if name not in ("function", "__wrapped__")}
            return _method_of, (self.owner, self.__name__, state)
        found: Any = None if self.__module__ == "__main__" else sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is self:
            return str(self.__qualname__)
        return _restored, (type(self), state)

    @property
    def tool_id(self) -> str:
        """What events and tables call it: its name, or `Group.function`."""
        return f"{self.group}.{self.function_name}" if self.group else self.name

    def of(self, owner: object) -> FunctionTool:
        """Return the tool as one of the group of `owner`."""
        return self._changed(owner=owner, group=type(owner).__name__)

    def in_group(self, group: str) -> FunctionTool:
        """Return the tool as one of a group of this name, instead of that of its class."""
        return self._changed(group=group)

    def named(self, name: str) -> FunctionTool:
        """Return the tool under another name for the model; its id stays if it is in a group."""
        return self._changed(name=name)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it was made with, by the names of the arguments."""
        return {
            "name": self.function_name,
            "description": self._description,
            "approval": self.approval,
            "timeout": self.timeout,
            "strict": self.strict,
            "concurrency": self.concurrency,
        }

    def with_settings(self, **settings: Any) -> FunctionTool:
        """Return the tool with other settings; those that are not given stay."""
        made = FunctionTool(self.function, **{**self.settings, **settings})
        if "concurrency" not in settings:
            made._limit = self._limit
        return self._changed(**{**vars(made), "group": self.group, "owner": self.owner, "_names": self._names})

    def _changed(self, **changes: Any) -> FunctionTool:
        made = copy(self)
        made.__dict__.pop("definition", None)
        if "function" in changes:
            made.__dict__.pop("schema", None)
        made.__dict__.update(changes)
        return made

    @cached_property
    def schema(self) -> FunctionSchema:
        """The schema of its parameters."""
        from nbagents.core.schema import FunctionSchema

        return FunctionSchema(self.function, injected=ToolContext, names=self._names)

    @cached_property
    def definition(self) -> ToolDefinition:
        """What a chat client sends of it.

        Raises:
            ConfigurationError: `strict=True`, and the parameters have no strict form.
        """
        parameters = self.schema.parameters
        if self.strict:
            try:
                parameters = strict_schema(parameters)
            except NotStrictError as error:
                raise ConfigurationError(
                    f"The tool {self.name!r} cannot be strict: {error}.",
                    hint="Give each parameter a type with fixed fields, or leave strict out.",
                ) from error
        return ToolDefinition(self.name, self._description or self.schema.description, parameters, self.strict)

    @property
    def origin(self) -> tuple[str, str]:
        """Where the function was defined: the same place means the same tool, also when its cell is run again."""
        return callables.origin_of(self.function)

    def needs_approval(self, arguments: dict[str, Any]) -> bool:
        """Whether a person must allow a call with these arguments."""
        if callable(self.approval):
            return bool(self.approval(arguments))
        return self.approval == "always"

    async def invoke(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Check `arguments`, run the function and return what it returned.

        Raises:
            ArgumentsError: the arguments do not fit.
            TimeoutError: it took longer than `timeout`.
        """
        args, kwargs = self.schema.bind(arguments, context)
        call = functools.partial(self.function, *args, **kwargs)
        if self._limit is None:
            return await self._result_of(call)
        async with place_in(self._limit):
            return await self._result_of(call)

    async def _result_of(self, call: Callable[[], Any]) -> Any:
        async with asyncio.timeout(self.timeout):
            result = call() if callables.is_async(self.function) or stays_here() else await run_in_thread(call)
            if inspect.isawaitable(result) and not hasattr(type(result), "__aiter__"):
                result = await result
            if hasattr(type(result), "__aiter__"):
                result = await collected(result)
            if isinstance(result, Iterator):
                drain = functools.partial(drained, result)
                result = drain() if stays_here() else await run_in_thread(drain)
            return result


@overload
def tool(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    approval: Approval | None = None,
    timeout: float | None = None,
    strict: bool | None = None,
    concurrency: int | None = None,
) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    approval: Approval | None = None,
    timeout: float | None = None,
    strict: bool | None = None,
    concurrency: int | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
@exact_arguments()
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    approval: Approval | None = None,
    timeout: float | None = None,
    strict: bool | None = None,
    concurrency: int | None = None,
) -> Any:
    """Make a function a tool, or give a tool other settings: `@tool`, `@tool(...)` or `tool(function, ...)`.

    The settings are those of `FunctionTool`. What is not given, or None, is its default; of a tool it stays as it is.

    Args:
        function: a function, or a tool; without one, a decorator is returned.
        name: what the model calls it; the function's name by default.
        description: what the model reads; the docstring without its sections by default.
        approval: `"never"` (the default), `"always"`, or a function of the arguments that decides for each call.
        timeout: seconds for one call; no limit by default.
        strict: whether the schema is sent in strict form; by default where server and schema allow it.
        concurrency: calls at once; no limit by default.

    Raises:
        ConfigurationError: a setting that does not fit or does not exist, or something that cannot be called.

    Example:
        >>> @tool
        ... def add(a: int, b: int) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> add(1, 2), add.name
        (3, 'add')
        >>> tool(add, approval="always").approval
        'always'
    """
    given: dict[str, Any] = {"name": name, "description": description, "approval": approval}
    given |= {"timeout": timeout, "strict": strict, "concurrency": concurrency}
    settings = {setting: value for setting, value in given.items() if value is not None}
    return _with_settings(settings) if function is None else _with_settings(settings)(function)


def _with_settings(settings: Mapping[str, Any]) -> Callable[[Callable[..., Any]], FunctionTool]:
    def decorate(function: Callable[..., Any]) -> FunctionTool:
        if not isinstance(function, FunctionTool):
            return FunctionTool(function, **settings)
        return function.with_settings(**settings) if settings else function

    return decorate


def _restored(kind: type[FunctionTool], state: Mapping[str, Any]) -> FunctionTool:
    made = kind.__new__(kind)
    made.__dict__.update(state)
    return made


def _method_of(owner: object, method: str, state: Mapping[str, Any]) -> FunctionTool:
    bound: FunctionTool = getattr(owner, method)
    return bound._changed(**state)


def _check_settings(
    function: Any, name: Any, description: Any, approval: Any, timeout: Any, strict: Any, concurrency: Any
) -> None:
    """Raise ConfigurationError for the first setting of a tool that does not fit."""
    if not callable(function):
        hint = "Put @tool below @classmethod." if isinstance(function, classmethod) else None
        raise ConfigurationError(f"A tool is a function, not {type(function).__name__}.", hint=hint)
    if name is not None and not (isinstance(name, str) and VALID_NAME.match(name)):
        raise ConfigurationError(
            f"The tool name {name!r} is refused by services.",
            hint="Use up to 64 letters, digits, `_` or `-`.",
        )
    if description is not None and not isinstance(description, str):
        raise ConfigurationError(f"description is a text, not {type(description).__name__}.")
    if not (approval in ("never", "always") if isinstance(approval, str) else callable(approval)):
        raise ConfigurationError(f"approval is 'never', 'always' or a function, not {approval!r}.")
    if callables.is_async(approval):
        raise ConfigurationError("The function for approval must be a plain one, not async.")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0):
        raise ConfigurationError(f"timeout is a number of seconds above 0, not {timeout!r}.")
    if strict not in (None, True, False):
        raise ConfigurationError(f"strict is True, False or None, not {strict!r}.")
    if concurrency is not None and (
        isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1
    ):
        raise ConfigurationError(f"concurrency is a whole number from 1, not {concurrency!r}.")
