"""Middleware: functions around a run, a model request or a tool call, composed from the outside in.

A middleware is `async def name(context, call_next)` or an object with such a `__call__`; the type of its first
parameter says what it goes around. What it awaits in `call_next()` streams through: no task, no queue between.
"""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from nbagents.core.clients import ChatRequest
from nbagents.core.content import FunctionCall
from nbagents.core.errors import ConfigurationError
from nbagents.core.responses import ChatResponse
from nbagents.core.tools import FunctionTool
from nbagents.core.updates import ChatResponseUpdate

if TYPE_CHECKING:
    from nbagents.core.run import RunContext

T = TypeVar("T")
CallNext = Callable[[], Awaitable[None]]
Middleware = Callable[[Any, CallNext], Coroutine[Any, Any, None]]


class StopRun(Exception):
    """Raise it in middleware or a tool: the run ends here, completed, with `reply` as its answer."""

    def __init__(self, reply: str = "") -> None:
        super().__init__(reply)
        self.reply = reply


@dataclass(slots=True)
class ChatContext:
    """One model request, for middleware around it.

    Attributes:
        run: the run.
        request: what the client gets; put another one here before `call_next()`.
        response: the reply, after `call_next()`; put one here to replace it, or instead of calling.
        on_update: called with each update as it passes; return it, another one, or None to drop it.
    """

    run: RunContext
    request: ChatRequest
    response: ChatResponse | None = None
    on_update: Callable[[ChatResponseUpdate], ChatResponseUpdate | None] | None = None


@dataclass(slots=True)
class FunctionContext:
    """One tool call, for middleware around it.

    Attributes:
        run: the run.
        tool: the tool that is called.
        call: the call as the model made it.
        arguments: what the tool gets; change it before `call_next()`.
        result: what the tool returned, after `call_next()`; put a value here to replace it, or instead of calling.
    """

    run: RunContext
    tool: FunctionTool
    call: FunctionCall
    arguments: dict[str, Any]
    result: Any = None


@dataclass(frozen=True, slots=True)
class MiddlewareChain:
    """The middleware of a run by what it goes around, the outermost first."""

    run: Sequence[Middleware] = ()
    chat: Sequence[Middleware] = ()
    function: Sequence[Middleware] = ()

    @classmethod
    def of(cls, *lists: Iterable[Middleware] | None) -> MiddlewareChain:
        """Sort middleware by the type of its first parameter; earlier lists go around later ones.

        Raises:
            ConfigurationError: something that is no middleware, or does not say what it goes around.
        """
        levels: dict[str, list[Middleware]] = {"run": [], "chat": [], "function": []}
        for middleware in (one for many in lists for one in many or ()):
            levels[_level_of(middleware)].append(middleware)
        return cls(**levels)

    def inside(self, inner: MiddlewareChain) -> MiddlewareChain:
        """Return this chain with `inner` inside it."""
        return MiddlewareChain([*self.run, *inner.run], [*self.chat, *inner.chat], [*self.function, *inner.function])


def stream_through(
    middleware: Sequence[Middleware], context: Any, source: Callable[[], AsyncGenerator[T, None]]
) -> AsyncGenerator[T, None]:
    """Yield what `source()` yields, with `middleware` around it."""
    for one in reversed(middleware):
        source = partial(_stream_through_one, one, context, source)
    return source()


async def call_through(
    middleware: Sequence[Middleware], context: FunctionContext, call: Callable[[], Awaitable[None]]
) -> None:
    """Await `call()` with `middleware` around it."""
    for one in reversed(middleware):
        call = partial(one, context, call)
    await call()


async def _stream_through_one(
    middleware: Middleware, context: Any, source: Callable[[], AsyncGenerator[T, None]]
) -> AsyncGenerator[T, None]:
    work = middleware(context, _pass_on)
    error: BaseException | None = None
    passed = False
    try:
        while await _until_it_passes_on(work, error):
            if passed:
                raise ConfigurationError(f"The middleware {_name_of(middleware)!r} awaited call_next() twice.")
            passed, error = True, None
            try:
                async with aclosing(source()) as items:
                    async for item in items:
                        yield item
            except GeneratorExit:  # the consumer has left: to the middleware that is a cancellation
                with suppress(asyncio.CancelledError):
                    await _until_it_passes_on(work, asyncio.CancelledError())
                raise
            except BaseException as raised:  # noqa: BLE001  call_next() raises it inside the middleware
                error = raised
    finally:
        work.close()


_PASS = object()


class _Pass:
    def __await__(self) -> Generator[Any, None, None]:
        yield _PASS


async def _pass_on() -> None:
    """`call_next` of a streaming level: hands control to the generator that drives the middleware."""
    await _Pass()


@types.coroutine
def _until_it_passes_on(work: Coroutine[Any, Any, None], error: BaseException | None) -> Generator[Any, Any, bool]:
    """Run `work` until it awaits `call_next()` (True) or returns (False); what else it awaits, the event loop sees."""
    try:
        waited = work.send(None) if error is None else work.throw(error)
        while waited is not _PASS:
            try:
                sent = yield waited
            except BaseException as raised:  # noqa: BLE001  a cancellation from the loop goes into the middleware
                waited = work.throw(raised)
            else:
                waited = work.send(sent)
    except StopIteration:
        return False
    return True


_LEVELS = {"RunContext": "run", "ChatContext": "chat", "FunctionContext": "function"}


def _level_of(middleware: Any) -> str:
    target = middleware if inspect.isroutine(middleware) else getattr(type(middleware), "__call__", None)  # noqa: B004
    if isinstance(middleware, type) or target is None or not inspect.iscoroutinefunction(target):
        raise ConfigurationError(
            f"{middleware!r} is no middleware.", hint="Write `async def name(context: RunContext, call_next): ...`."
        )
    names = list(inspect.signature(middleware).parameters)
    hint = getattr(target, "__annotations__", {}).get(names[0]) if names else None
    level = _LEVELS.get(hint.rpartition(".")[2] if isinstance(hint, str) else getattr(hint, "__name__", ""))
    if level is None:
        raise ConfigurationError(
            f"The middleware {_name_of(middleware)!r} does not say what it goes around.",
            hint="Annotate its first parameter with RunContext, ChatContext or FunctionContext.",
        )
    return level


def _name_of(middleware: Any) -> str:
    return getattr(middleware, "__name__", None) or type(middleware).__name__
