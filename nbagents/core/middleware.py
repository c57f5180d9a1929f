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
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from nbagents.core.clients import ChatRequest
from nbagents.core.content import FunctionCall, UsageContent
from nbagents.core.deadlines import in_time
from nbagents.core.errors import ConfigurationError
from nbagents.core.folding import UpdateFolder
from nbagents.core.options import UNSET
from nbagents.core.responses import ChatResponse
from nbagents.core.streamhooks import outcome
from nbagents.core.tools import ApprovalNeeded, FunctionTool
from nbagents.core.updates import ChatResponseUpdate

if TYPE_CHECKING:
    from nbagents.core.run import RunContext

T = TypeVar("T")
CallNext = Callable[[], Awaitable[None]]
Middleware = Callable[[Any, CallNext], Coroutine[Any, Any, None]]
OnUpdate = Callable[[ChatResponseUpdate], ChatResponseUpdate | Awaitable[ChatResponseUpdate | None] | None]


class StopRun(Exception):
    """Raise it in middleware or a tool: the run ends here, completed, with `reply` as its answer."""

    def __init__(self, reply: str = "") -> None:
        super().__init__(reply)
        self.reply = reply


@dataclass(slots=True, eq=False)
class ChatContext:
    """One model request, for middleware around it.

    Attributes:
        run: the run.
        request: what the client gets; put another one here before `call_next()`.
        response: the reply, after `call_next()`; put one here to replace it, or instead of calling.
        on_update: set it before `call_next()`. It is called with each update as it passes and returns it, another one,
            or None to drop what it says; it may be async. Each middleware has its own, the innermost is called first.
    """

    run: RunContext
    request: ChatRequest
    response: ChatResponse | None = None
    on_update: OnUpdate | None = None


@dataclass(slots=True, eq=False)
class FunctionContext:
    """One tool call, for middleware around it.

    Attributes:
        run: the run.
        tool: the tool that is called.
        call: the call as the model made it.
        arguments: what the tool gets; change it before `call_next()`.
        result: what the tool returned, after `call_next()`; put a value here to replace it, or instead of calling.
            `UNSET` until there is one.
    """

    run: RunContext
    tool: FunctionTool
    call: FunctionCall
    arguments: dict[str, Any]
    result: Any = UNSET


@dataclass(frozen=True, slots=True, eq=False)
class MiddlewareChain:
    """The middleware of a run by what it goes around, the outermost first."""

    run: Sequence[Middleware] = ()
    chat: Sequence[Middleware] = ()
    function: Sequence[Middleware] = ()

    @classmethod
    def of(cls, *lists: Middleware | Iterable[Middleware] | None) -> MiddlewareChain:
        """Sort middleware by the type of its first parameter; earlier lists go around later ones.

        Raises:
            ConfigurationError: something that is no middleware, or does not say what it goes around.
        """
        levels: dict[str, list[Middleware]] = {"run": [], "chat": [], "function": []}
        for middleware in (one for many in lists for one in listed(many)):
            levels[_level_of(middleware)].append(middleware)
        return cls(**levels)

    def inside(self, inner: MiddlewareChain) -> MiddlewareChain:
        """Return this chain with `inner` inside it."""
        return MiddlewareChain([*self.run, *inner.run], [*self.chat, *inner.chat], [*self.function, *inner.function])


def listed(many: Middleware | Iterable[Middleware] | None) -> list[Middleware]:
    """Return one middleware, or several, as a list."""
    if many is None:
        return []
    return [many] if callable(many) or not isinstance(many, Iterable) else list(many)


def run_through(
    middleware: Sequence[Middleware], context: RunContext, source: Callable[[], AsyncGenerator[T, None]]
) -> AsyncGenerator[T, None]:
    """Yield the events that `source()` yields, with `middleware` around it."""
    for one in reversed(middleware):
        source = partial(
            _stream_through_one, one, context, source, lambda: context.reply_instead is not None, context.deadline
        )
    return source()


def reply_through(
    middleware: Sequence[Middleware],
    context: ChatContext,
    source: Callable[[], AsyncGenerator[ChatResponseUpdate, None]],
) -> AsyncGenerator[ChatResponseUpdate, None]:
    """Yield the updates that `source()` yields, with `middleware` around it.

    A response that one puts in the place of the reply comes after what has been seen of that, and counts instead.
    """
    for one in reversed(middleware):
        source = partial(_reply_through_one, one, context, source)
    return source()


async def call_through(
    middleware: Sequence[Middleware], context: FunctionContext, call: Callable[[], Awaitable[None]]
) -> None:
    """Await `call()` with `middleware` around it.

    Raises:
        ApprovalNeeded: the call waits for a person, whatever middleware makes of that: it has no result yet.
        ConfigurationError: there is no result: the tool was not called, or failed unheard, and nothing was put there.
    """
    waiting: ApprovalNeeded | None = None

    async def innermost() -> None:
        nonlocal waiting
        try:
            await call()
        except ApprovalNeeded as needed:
            waiting = needed
            raise

    chain: Callable[[], Awaitable[None]] = innermost
    for one in reversed(middleware):
        chain = partial(one, context, chain)
    try:
        await chain()
    except Exception:
        if waiting is None:
            raise
    if waiting is not None:
        raise waiting
    if context.result is UNSET:
        raise ConfigurationError(
            "The middleware gave no result.", hint="Await call_next(), or set context.result, also to None."
        )


async def _reply_through_one(
    middleware: Middleware, context: ChatContext, source: Callable[[], AsyncGenerator[ChatResponseUpdate, None]]
) -> AsyncGenerator[ChatResponseUpdate, None]:
    inner: ChatResponse | None = None

    async def reply() -> AsyncGenerator[ChatResponseUpdate, None]:
        nonlocal inner
        hook, context.on_update = context.on_update, None
        folder, partial_reply = UpdateFolder(), context.run.partial
        async with aclosing(source()) as updates:
            async for update in updates:
                if context.run.partial is not partial_reply:  # replaced further inside
                    folder, partial_reply = UpdateFolder(), context.run.partial
                passed = update if hook is None else await _hooked(hook, update)
                folder.add(passed)
                yield passed
        context.response = inner = ChatResponse.from_folder(folder)

    answered = _stream_through_one(middleware, context, reply, lambda: context.response is not None)
    async with aclosing(answered) as updates:
        async for update in updates:
            yield update
    response = context.response
    if response is None or response is inner:
        return
    context.run.partial = UpdateFolder()
    for update in response.to_updates():
        update.finish_reason = response.finish_reason or "stop"
        yield update
    if response.usage is None and inner is not None and inner.usage is not None:
        yield ChatResponseUpdate((UsageContent(inner.usage),))  # what the model said counts no more; what it cost does


async def _hooked(hook: OnUpdate, update: ChatResponseUpdate) -> ChatResponseUpdate:
    """What `hook` makes of `update`; one that it drops still tells of usage and of the end."""
    passed = await outcome(hook(update))
    if isinstance(passed, ChatResponseUpdate):
        return passed
    return replace(update, contents=[content for content in update.contents if isinstance(content, UsageContent)])


async def _stream_through_one(
    middleware: Middleware,
    context: Any,
    source: Callable[[], AsyncGenerator[T, None]],
    answered: Callable[[], bool],
    deadline: float | None = None,
) -> AsyncGenerator[T, None]:
    work = middleware(context, _pass_on)
    error: BaseException | None = None
    passed = False
    try:
        # With an error it cleans up, and has the time that it takes.
        while await in_time(None if error else deadline, _until_it_passes_on(work, error)):
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
        if (error is not None or not passed) and not answered():
            raise error or ConfigurationError(
                f"The middleware {_name_of(middleware)!r} neither awaited call_next() nor gave an answer.",
                hint="Await call_next(); or call context.answer(...), around a model request set context.response.",
            )
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
    signature = inspect.signature(middleware)
    names = list(signature.parameters)
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise ConfigurationError(
            f"The middleware {_name_of(middleware)!r} takes {', '.join(names) or 'nothing'}: it is called with two "
            "arguments.",
            hint="Write `async def name(context: RunContext, call_next): ...`.",
        ) from error
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
