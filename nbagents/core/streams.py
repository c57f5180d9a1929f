"""`ResponseStream`: updates as they come, and the response that they make."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from nbagents.core.errors import ConfigurationError, RunCancelledError
from nbagents.core.folding import UpdateFolder
from nbagents.core.messages import Message
from nbagents.core.streamhooks import OneByOne, StreamHooks, outcome
from nbagents.loop.hosts import running_loop

U_co = TypeVar("U_co", covariant=True)
R_co = TypeVar("R_co", covariant=True)
V = TypeVar("V")


class ResponseStream(Generic[U_co, R_co]):
    """Updates of a reply, pulled: the source makes the next one when it is asked for.

    Iterate it, or `await stream.get_final_response()`, or both in this order. Leaving it early (`break`, an error, the
    end of `async with`) ends the source, also where a variable still holds the stream; the response then has what there
    is. An update with `retracts` takes messages back that were shown (only from a client with `retry_streams`).

    Args:
        source: gives the updates.
        finish: gives the response once the source has ended, or raises what the source failed with.
        events: the raw events behind the updates, if there are any; called instead of iterating.
        messages: the whole messages behind the updates; folded from these by default.

    Example:
        >>> import asyncio
        >>> from nbagents import Agent, ScriptedChatClient
        >>> async def shout():
        ...     stream = Agent(ScriptedChatClient(["good day"])).run("Hi", stream=True)
        ...     return [text async for text in stream.map(lambda update: update.text.upper()) if text]
        >>> asyncio.run(shout())
        ['GOOD ', 'DAY']
    """

    def __init__(
        self,
        source: Callable[[], AsyncGenerator[U_co, None]],
        finish: Callable[[], R_co],
        *,
        events: Callable[[], AsyncGenerator[Any, None]] | None = None,
        messages: Callable[[], AsyncGenerator[Message, None]] | None = None,
    ) -> None:
        self._source = source
        self._finish = finish
        self._events = events
        self._messages = messages
        self._inner: ResponseStream[Any, R_co] | None = None
        self._hooks: StreamHooks | None = None
        self._iterator: AsyncGenerator[Any, None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Task[None] | None = None
        self._ending = OneByOne()
        self._consumers = 0
        self._taken: str | None = None
        self._response: R_co | None = None
        self._error: Exception | None = None
        self._ended = False

    @classmethod
    def from_awaitable(
        cls,
        awaitable: Awaitable[R_co | ResponseStream[U_co, R_co]],
        unfold: Callable[[R_co], list[U_co]] | None = None,
    ) -> ResponseStream[U_co, R_co]:
        """Make a stream of what is only there after an `await`: a whole response, or a stream.

        Args:
            awaitable: gives it; awaited when the first update is asked for.
            unfold: gives the updates of a response; its `to_updates()` by default.
        """
        replies: list[Any] = []

        async def source() -> AsyncGenerator[U_co, None]:
            reply: Any = await awaitable
            if isinstance(reply, ResponseStream):
                stream._inner = reply
                async with aclosing(aiter(reply)) as updates:
                    async for update in updates:
                        yield update
                return
            replies.append(reply)
            for update in unfold(reply) if unfold is not None else reply.to_updates():
                yield update

        def finish() -> R_co:
            if not replies:
                raise _closed_too_early()
            reply: R_co = replies[0]
            return reply

        stream = cls(source, finish)
        stream._hooks = StreamHooks()
        if isinstance(awaitable, Coroutine):
            stream._hooks.cleanup.append(awaitable.close)  # it may never have been awaited
        return stream

    def __repr__(self) -> str:
        state = "ended" if self._ended or _has_ended(self._iterator) else f"read as {self._taken}"
        return f"<ResponseStream: {'not read yet' if not self._ended and self._taken is None else state}>"

    def __aiter__(self) -> Consumer[U_co]:
        return Consumer(self, self._take("updates", self._source))

    if not TYPE_CHECKING:  # for people: a type checker says by itself that these do not exist

        def __iter__(self):
            raise _wrongly_read()

        def __await__(self):
            raise _wrongly_read()

    def events(self) -> Consumer[Any]:
        """Iterate the events of the run instead of its updates, deltas included. Transform hooks do not see them.

        Raises:
            ConfigurationError: it has none, or the updates are being iterated already.
        """
        if self._events is None:
            raise ConfigurationError("This stream has updates only, no events.")
        return Consumer(self, self._take("events", self._events))

    def messages(self) -> Consumer[Message]:
        """Iterate the whole messages of the response instead of its updates, each as soon as it is complete.

        They come in causal order, as `on_message` gets them: a call before its result, a result before what the model
        makes of it.
        """
        return Consumer(self, self._take("messages", self._messages or self._folded))

    def map(self, function: Callable[[U_co], V | Awaitable[V]]) -> ResponseStream[V, R_co]:
        """Return a stream of `function(update)` for each update; function may be async.

        Response, events and messages are those of this stream, and so are its hooks and its end: the new stream takes
        it over.
        """

        async def updates() -> AsyncGenerator[V, None]:
            async with aclosing(aiter(self)) as inner:
                async for update in inner:
                    yield await outcome(function(update))

        events = None if self._events is None else (lambda: _passed_on(self.events()))
        mapped = ResponseStream(updates, self.finished, events=events, messages=lambda: _passed_on(self.messages()))
        mapped._inner = self
        return mapped

    def with_transform_hook(self, hook: Callable[[U_co], U_co | Awaitable[U_co | None] | None]) -> Self:
        """Pass each update through `hook(update)`, which may be async: it returns an update, or None to drop this one.

        Hooks work one after the other, in the order in which they were added. They change what the consumer sees; the
        response, like log and session, keeps what the model said: see `with_result_hook` and middleware.

        Returns:
            This stream.

        Raises:
            ConfigurationError: no function, or the stream is being read already.
        """
        self._open_hooks(hook).transform.append(hook)
        return self

    def with_result_hook(self, hook: Callable[[R_co], R_co | Awaitable[R_co | None] | None]) -> Self:
        """Call `hook(response)`, which may be async, once there is a response: it returns another one, or None.

        There is one when the last update has been taken, and for `get_final_response()`.

        Returns:
            This stream.

        Raises:
            ConfigurationError: no function, or the stream is being read already.
        """
        self._open_hooks(hook).result.append(hook)
        return self

    def with_cleanup_hook(self, hook: Callable[[], Any]) -> Self:
        """Call `hook()`, which may be async, once, when the stream has ended, failed or been left.

        Returns:
            This stream.

        Raises:
            ConfigurationError: no function, or the stream is being read already.
        """
        self._open_hooks(hook).cleanup.append(hook)
        return self

    async def get_final_response(self) -> R_co:
        """Wait for the end and return the response; what is left of the updates is passed over.

        Asked again, also by several at once, it gives the same; a stream that failed raises its error again. What a
        failed run had said before is in `error.response`.

        Raises:
            ConfigurationError: another task is iterating this stream just now.
        """
        async with self._ending:
            if not self._ended:
                await self._drain()
            elif self._closing is not None:
                await asyncio.shield(self._closing)
            return await self._make_response()

    def finished(self) -> R_co:
        """Return the response of a stream that has ended."""
        if self._error is not None:
            raise self._error
        if self._response is None:
            self._response = self._finish() if self._inner is None else self._inner.finished()
        return self._response

    async def aclose(self) -> None:
        """End the source now; idempotent.

        Raises:
            ConfigurationError: another task is waiting for the next update: cancel that task.
        """
        if self._iterator is not None and not self._ended:
            _check_unread(self._iterator)
        self._ended = True
        async with self._ending:
            if self._closing is not None:
                await asyncio.shield(self._closing)
            elif self._iterator is not None:
                await self._iterator.aclose()
            if self._inner is not None:
                await self._inner.aclose()
            if self._hooks is not None:
                await self._hooks.clean_up()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _open_hooks(self, hook: Any) -> StreamHooks:
        if not callable(hook):
            raise ConfigurationError(f"A hook is a function, not {type(hook).__name__}.")
        if self._taken is not None or self._ended:
            raise ConfigurationError("This stream is being read already.", hint="Add hooks before you iterate it.")
        self._hooks = self._hooks or StreamHooks()
        return self._hooks

    def _take(self, what: str, source: Callable[[], AsyncGenerator[Any, None]]) -> AsyncGenerator[Any, None]:
        if self._taken not in (None, what):
            raise ConfigurationError(f"This stream is already read as {self._taken}.")
        if self._iterator is None:
            self._taken = what
            self._iterator = source() if self._hooks is None else self._hooked(source, self._hooks)
            self._loop = running_loop()
        return self._iterator

    async def _hooked(
        self, source: Callable[[], AsyncGenerator[Any, None]], hooks: StreamHooks
    ) -> AsyncGenerator[Any, None]:
        """What `source()` gives, and the hooks around it. Without hooks nothing stands between source and consumer."""
        transforms = self._taken == "updates" and bool(hooks.transform)
        try:
            async with aclosing(source()) as items:
                async for item in items:
                    passed = await hooks.transformed(item) if transforms else item
                    if passed is not None:
                        yield passed
            await self._make_response()
        except Exception as error:
            self._error = error
            raise
        finally:
            await hooks.clean_up()

    async def _folded(self) -> AsyncGenerator[Message, None]:
        folder = UpdateFolder()
        async with aclosing(self._source()) as updates:
            async for update in updates:
                folder.add(update)  # type: ignore[arg-type]  # a stream of other things has its own messages
                for message in folder.next_messages():
                    yield message
        for message in folder.next_messages(ended=True):
            yield message

    async def _drain(self) -> None:
        iterator = self._iterator
        if iterator is None and self._events is not None and not (self._hooks and self._hooks.transform):
            iterator = self._take("events", self._events)
        elif iterator is None:
            iterator = self._take("updates", self._source)
        _check_unread(iterator)
        try:
            async for _ in iterator:
                pass
        except Exception as error:
            self._error = error
            raise

    async def _make_response(self) -> R_co:
        if self._error is not None:
            raise self._error
        if self._response is None:
            try:
                response = self._finish() if self._inner is None else await self._inner.get_final_response()
                self._response = await self._hooks.resulting(response) if self._hooks is not None else response
            except Exception as error:
                self._error = error
                raise
        return self._response

    def _leave(self) -> None:
        """The consumer is gone, on whatever thread: end the source on its loop, unless it has ended."""
        loop = self._loop
        if self._ended or loop is None or loop.is_closed() or not _is_suspended(self._iterator):
            return
        if running_loop() is loop:
            self._close_behind()
        else:
            with suppress(RuntimeError):  # the loop was closed just now, and has closed its generators
                loop.call_soon_threadsafe(self._close_behind)

    def _close_behind(self) -> None:
        if not self._ended and self._iterator is not None and _is_suspended(self._iterator):
            self._ended = True
            # The bare `aclose()`, no coroutine around it: cancelled before its first step it still ends the source.
            closing: Any = self._iterator.aclose()
            self._closing = asyncio.get_running_loop().create_task(closing)
            self._closing.add_done_callback(self._closed_behind)

    def _closed_behind(self, closing: asyncio.Task[None]) -> None:
        """Go on where the consumer was dropped while its next update was under way, as by `anext(aiter(stream))`."""
        if getattr(self._iterator, "ag_running", False) and not closing.cancelled() and closing.exception():
            self._ended, self._closing = False, None


class Consumer(Generic[U_co]):
    """The updates or events of a stream, in the hand of the one who consumes them.

    A `for` loop drops it when it is left in whatever way, and that ends the stream. The stream alone would not do: a
    variable, or the traceback of an error, may hold it on, and with it a connection and the turn on the session.
    """

    __slots__ = ("_iterator", "_stream")

    def __init__(self, stream: ResponseStream[Any, Any], iterator: AsyncGenerator[U_co, None]) -> None:
        self._stream = stream
        self._iterator = iterator
        stream._consumers += 1

    def __aiter__(self) -> AsyncIterator[U_co]:
        return self

    def __anext__(self) -> Awaitable[U_co]:
        _check_unread(self._iterator)
        return self._iterator.__anext__()

    async def aclose(self) -> None:
        """End the stream now; idempotent."""
        await self._stream.aclose()

    def __del__(self) -> None:
        self._stream._consumers -= 1
        if not self._stream._consumers:
            self._stream._leave()


def _is_suspended(iterator: AsyncGenerator[Any, None] | None) -> bool:
    """Whether `iterator` has begun, has not ended and is not being run or closed just now."""
    return isinstance(iterator, AsyncGeneratorType) and iterator.ag_frame is not None and not iterator.ag_running


def _has_ended(iterator: AsyncGenerator[Any, None] | None) -> bool:
    return isinstance(iterator, AsyncGeneratorType) and iterator.ag_frame is None


def _wrongly_read() -> ConfigurationError:
    return ConfigurationError(
        "A ResponseStream is read with `async for`.",
        hint="Without `await` use agent.stream_sync(...); the whole response is `await stream.get_final_response()`.",
    )


def _check_unread(iterator: AsyncGenerator[Any, None]) -> None:
    if getattr(iterator, "ag_running", False):
        raise ConfigurationError(
            "Another task is reading this stream.",
            hint="Let one task read it; the others can wait for that task, or cancel it.",
        )


async def _passed_on(items: Consumer[V]) -> AsyncGenerator[V, None]:
    async with aclosing(items):
        async for item in items:
            yield item


def _closed_too_early() -> RunCancelledError:
    return RunCancelledError("The stream was closed before there was a reply.")
