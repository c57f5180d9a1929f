"""The event bus: what runs and the runtime do, for those who look on. Nothing here drives a stream."""

from __future__ import annotations

import asyncio
import difflib
import inspect
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nbagents import loop as loops
from nbagents.core.errors import ConfigurationError
from nbagents.core.events import EVENT_TO_CHUNK_KIND, LIVE_EVENTS, OTHER_EVENTS
from nbagents.core.results import error_text
from nbagents.loop.hosts import running_loop

EVERY_EVENT = "*"
LIFECYCLE_EVENTS = frozenset({"config.reloaded", "agent.reloaded", "session.closed", "handler.failed"})
"""Events of the runtime itself.

`config.reloaded`: the file or dict of the runtime was read again. `agent.reloaded`: runs that begin from now on have
another agent of this id. `session.closed`: a session was forgotten. `handler.failed`: a handler of this bus raised an
error, or could not keep up.
"""
EVENT_NAMES = frozenset(EVENT_TO_CHUNK_KIND) | LIVE_EVENTS | OTHER_EVENTS | LIFECYCLE_EVENTS
HISTORY = 1_000
MAX_WAITING = 10_000
"""Events that wait for one async handler; then the oldest of them are dropped."""


@dataclass(frozen=True, slots=True)
class RuntimeEvent:
    """Something that happened in a runtime.

    Attributes:
        name: an event of the run log, or a lifecycle event.
        timestamp: unix seconds, UTC.
        payload: what happened; not to be changed.
        run_id: the run that it is about, if any.
        session_id: its session.
        agent_id: its agent.
    """

    name: str
    timestamp: float
    payload: Mapping[str, Any]
    run_id: str | None = None
    session_id: str | None = None
    agent_id: str | None = None


Handler = Callable[[RuntimeEvent], Any]


class EventBus:
    """Hands events to handlers, each handler its events in order; a handler that fails disturbs nobody.

    A plain handler is called at once, where the event happens, and should be quick. An async one is awaited beside the
    runs, on the loop that it was subscribed on (the loop thread, if there was none), and may be slow.
    """

    def __init__(self) -> None:
        self._history: deque[RuntimeEvent] = deque(maxlen=HISTORY)
        self._subscriptions: list[_Subscription] = []
        self._lock = threading.Lock()
        self.wanted: frozenset[str] = frozenset()
        """The names that somebody has subscribed to."""

    def subscribe(self, name: str, handler: Handler) -> Callable[[], None]:
        """Call `handler(event)` for each event of this name, `"*"` for all.

        Returns:
            A function that ends the subscription; idempotent.

        Raises:
            ConfigurationError: there is no such event, or the handler cannot be called.
        """
        if name != EVERY_EVENT and name not in EVENT_NAMES:
            near = difflib.get_close_matches(str(name), EVENT_NAMES, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(sorted(EVENT_NAMES))}, and '*'."
            raise ConfigurationError(f"There is no event {name!r}.", hint=hint)
        if not callable(handler):
            raise ConfigurationError(f"A handler is a function of the event, not {type(handler).__name__}.")
        subscription = _Subscription(self, name, handler)
        with self._lock:
            self._changed([*self._subscriptions, subscription])

        def unsubscribe() -> None:
            subscription.ended = True
            with self._lock:
                self._changed([one for one in self._subscriptions if one is not subscription])

        return unsubscribe

    def history(self, name: str = EVERY_EVENT) -> list[RuntimeEvent]:
        """The last events, oldest first, at most 1,000; deltas are not kept."""
        return [event for event in list(self._history) if name in (EVERY_EVENT, event.name)]

    def publish(self, event: RuntimeEvent) -> None:
        """Keep `event`, unless it is one that is only streamed, and hand it out."""
        if event.name not in LIVE_EVENTS:
            self._history.append(event)
        if event.name in self.wanted or EVERY_EVENT in self.wanted:
            for subscription in self._subscriptions:
                if subscription.name in (EVERY_EVENT, event.name):
                    subscription.take(event)

    def close(self) -> None:
        """End all subscriptions; what waits for an async handler is still handed to it."""
        with self._lock:
            self._changed([])

    def report(self, handler: Handler, event: RuntimeEvent, what: str) -> None:
        """Tell of a handler that failed: on the bus, but not to that handler again, and as a warning."""
        name = getattr(handler, "__qualname__", type(handler).__name__)
        if event.name != "handler.failed":
            facts = {"handler": name, "event": event.name, "error": what}
            failed = RuntimeEvent("handler.failed", time.time(), facts, event.run_id, event.session_id, event.agent_id)
            self._history.append(failed)
            for subscription in self._subscriptions:
                if subscription.name in (EVERY_EVENT, failed.name) and subscription.handler is not handler:
                    subscription.take(failed)
        warnings.warn(f"The handler {name} of {event.name!r} failed: {what}", RuntimeWarning, stacklevel=2)

    def _changed(self, subscriptions: list[_Subscription]) -> None:
        self._subscriptions = subscriptions
        self.wanted = frozenset(one.name for one in subscriptions)


class _Subscription:
    def __init__(self, bus: EventBus, name: str, handler: Handler) -> None:
        self.bus = bus
        self.name = name
        self.handler = handler
        self.ended = False
        self._is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004  an object whose call is async
        )
        self._loop = running_loop() if self._is_async else None
        self._waiting: deque[RuntimeEvent] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._called = False
        self._dropped = 0
        self._lock = threading.Lock()

    def take(self, event: RuntimeEvent) -> None:
        """Handle `event` now, or see to it that it is; nothing once the subscription has ended."""
        if self.ended:
            return  # by a handler that came before
        if self._is_async:
            self._queue(event)
            return
        try:
            self.handler(event)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  a handler disturbs nobody
            self.bus.report(self.handler, event, error_text(error))

    def _queue(self, event: RuntimeEvent) -> None:
        with self._lock:
            self._waiting.append(event)
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popleft()
                self._dropped += 1
            if self._called:
                return
            self._called = True
        loop = self._loop or loops.loop_thread().loop
        try:
            loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            self.ended = True
            with self._lock:
                self._waiting.clear()
            self.bus.report(self.handler, event, "its event loop is closed; it gets nothing more")

    def _begin(self) -> None:
        self._pump = asyncio.get_running_loop().create_task(self._hand_out(), name="nbagents handler")

    async def _hand_out(self) -> None:
        """Await the handler for what waits, and end: between events there is no task."""
        while True:
            with self._lock:
                if not self._waiting or self.ended:
                    self._waiting.clear()
                    self._called = False
                    self._pump = None
                    return
                event = self._waiting.popleft()
                dropped, self._dropped = self._dropped, 0
            if dropped:
                self.bus.report(self.handler, event, f"it was too slow: {dropped} events were dropped")
            await self._handle(event)

    async def _handle(self, event: RuntimeEvent) -> None:
        try:
            await self.handler(event)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self.bus.report(self.handler, event, error_text(error))
        except Exception as error:  # noqa: BLE001  a handler disturbs nobody
            self.bus.report(self.handler, event, error_text(error))
