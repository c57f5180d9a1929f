"""Functions that a model may call: `@tool`, what a tool is, and how one call of it runs."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, overload

from nbagents import loop as loops
from nbagents.core.content import ApprovalRequest, ApprovalResponse
from nbagents.core.errors import ConfigurationError
from nbagents.core.names import VALID_NAME, safe_name

if TYPE_CHECKING:
    from nbagents.core.run import RunContext
    from nbagents.core.schema import FunctionSchema
    from nbagents.core.sessions import AgentSession

MAX_ITEMS = 10_000
"""Items that are taken of a generator which a tool returns."""

Approval = Literal["never", "always"] | Callable[[dict[str, Any]], bool]


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """What a chat client sends of a tool."""

    name: str
    description: str
    parameters: dict[str, Any]


class FunctionTool:
    """A function that a model may call. Calling the object calls the function, unchanged.

    Args:
        function: sync or async; a sync one runs in a thread of its own with the caller's context variables.
        name: what the model calls it; the function's name by default.
        description: what the model reads; the docstring without its sections by default.
        approval: `"always"` asks a person before each call, a function of the arguments decides for each call.
        timeout: seconds for one call. The work of a sync function cannot be killed: its late result is dropped.

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
    ) -> None:
        if not callable(function):
            raise ConfigurationError(f"A tool is a function, not {type(function).__name__}.")
        if name is not None and not VALID_NAME.match(name):
            raise ConfigurationError(
                f"The tool name {name!r} is refused by services.",
                hint="Use up to 64 letters, digits, `_` or `-`.",
            )
        if not (approval in ("never", "always") or callable(approval)):
            raise ConfigurationError(f"approval is 'never', 'always' or a function, not {approval!r}.")
        if timeout is not None and timeout <= 0:
            raise ConfigurationError(f"timeout is a number of seconds above 0, not {timeout!r}.")
        self.function = function
        self.name = name or safe_name(_function_name(function), fallback="tool")
        self.approval = approval
        self.timeout = timeout
        self._description = description
        self._names = _local_names(function)
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> FunctionTool:
        if instance is None:
            return self
        return FunctionTool(
            self.function.__get__(instance, owner),
            name=self.name,
            description=self._description,
            approval=self.approval,
            timeout=self.timeout,
        )

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    @cached_property
    def schema(self) -> FunctionSchema:
        """The schema of its parameters."""
        from nbagents.core.schema import FunctionSchema

        return FunctionSchema(self.function, injected=ToolContext, names=self._names)

    @cached_property
    def definition(self) -> ToolDefinition:
        """What a chat client sends of it."""
        return ToolDefinition(self.name, self._description or self.schema.description, self.schema.parameters)

    @property
    def origin(self) -> tuple[str, str]:
        """Where the function was defined: the same place means the same tool, also when its cell is run again."""
        target = getattr(self.function, "func", self.function)
        target = getattr(target, "__func__", target)
        name = getattr(target, "__qualname__", type(target).__qualname__)
        return getattr(target, "__module__", ""), name if name != "<lambda>" else f"<lambda {id(target)}>"

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
        args, kwargs = self.schema.bind(arguments)
        if self.schema.injected:
            kwargs[self.schema.injected] = context
        call = functools.partial(self.function, *args, **kwargs)
        async with asyncio.timeout(self.timeout):
            result = call() if _is_async(self.function) or stays_here() else await run_in_thread(call)
            if inspect.isawaitable(result):
                result = await result
            if hasattr(result, "__aiter__"):
                result = [item async for item in result]
            if isinstance(result, Iterator):
                result = await run_in_thread(functools.partial(_drained, result))
            return result


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    approval: Approval = "never",
    timeout: float | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Make a function a tool; the arguments are those of `FunctionTool`.

    Example:
        >>> @tool
        ... def add(a: int, b: int) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> add(1, 2), add.name
        (3, 'add')
    """
    if function is not None:
        return FunctionTool(function)
    return lambda decorated: FunctionTool(decorated, **settings)


def collect_tools(tools: Iterable[Any] | Any | None) -> list[FunctionTool]:
    """Return `tools` as a list of tools: functions are wrapped, objects give their `@tool` methods.

    A tool of the same name from the same place replaces the earlier one.

    Raises:
        ConfigurationError: something that is no tool, or two different tools of one name.
    """
    if tools is None:
        return []
    if isinstance(tools, FunctionTool) or not isinstance(tools, Iterable):
        tools = [tools]
    named: dict[str, FunctionTool] = {}
    for item in tools:
        for one in _tools_of(item):
            known = named.get(one.name)
            if known is not None and known.origin != one.origin:
                raise ConfigurationError(
                    f"Two tools are called {one.name!r}: {'.'.join(known.origin)} and {'.'.join(one.origin)}.",
                    hint="Rename one with @tool(name=...).",
                )
            named[one.name] = one
    return list(named.values())


def _tools_of(item: Any) -> list[FunctionTool]:
    if isinstance(item, FunctionTool):
        return [item]
    if callable(getattr(item, "as_tool", None)):
        return [item.as_tool()]
    if inspect.isroutine(item) or isinstance(item, functools.partial):
        return [FunctionTool(item)]
    methods = [name for name in dir(type(item)) if isinstance(getattr(type(item), name, None), FunctionTool)]
    if methods:
        return [getattr(item, name) for name in methods]
    if callable(item) and not isinstance(item, type):
        return [FunctionTool(item)]
    raise ConfigurationError(
        f"{item!r} is no tool.",
        hint="Pass a function, a @tool, an agent, or an object that has @tool methods.",
    )


async def run_in_thread(call: Callable[[], Any]) -> Any:
    """Run `call` in a daemon thread with the caller's context variables and return what it returned.

    A thread of its own, not one of the loop's pool: neither the end of the loop nor that of the interpreter waits for
    a call that was given up.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            outcome, error = context.run(call), None
        except BaseException as raised:  # noqa: BLE001  whatever it is, the awaiting side raises it
            outcome, error = None, raised
        try:
            loop.call_soon_threadsafe(_settle, future, outcome, error)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    threading.Thread(target=work, name="nbagents-tool", daemon=True).start()
    return await future


def _settle(future: asyncio.Future[Any], outcome: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(outcome)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError(f"the tool raised StopIteration: {error}"))
    else:
        future.set_exception(error)


def _drained(items: Iterator[Any]) -> list[Any]:
    """The items of a generator, as many as anybody would read."""
    return list(islice(items, MAX_ITEMS))


def stays_here() -> bool:
    """Whether a sync tool runs where the run is: the opt-in mode for what must be on the main thread."""
    return loops.mode() == "same-thread" and threading.current_thread() is threading.main_thread()


def _is_async(function: Any) -> bool:
    target = function
    while isinstance(target, functools.partial):
        target = target.func
    call = target if inspect.isroutine(target) else getattr(type(target), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call)


def _function_name(function: Any) -> str:
    target = function
    while isinstance(target, functools.partial):
        target = target.func
    name = getattr(target, "__name__", None) or type(target).__name__
    return name.strip("<>")


def _local_names(function: Any) -> dict[str, Any]:
    """Local names of the frames that are defining `function`, kept only where its hints are text."""
    target = getattr(function, "func", function)
    hints = getattr(target, "__annotations__", None) or {}
    if not any(isinstance(hint, str) for hint in hints.values()):
        return {}
    names: dict[str, Any] = {}
    frame = sys._getframe(2)
    wanted = {word for hint in hints.values() if isinstance(hint, str) for word in _words(hint)}
    while frame is not None:
        names = {k: v for k, v in frame.f_locals.items() if k in wanted} | names
        if wanted <= names.keys() or frame.f_code.co_name == "<module>":
            break
        frame = frame.f_back  # type: ignore[assignment]
    return names


def _words(hint: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in hint).split()
