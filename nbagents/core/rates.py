"""How many requests and tokens one client may use: a limit that all its runs share."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from nbagents.core.arguments import exact_arguments
from nbagents.core.concurrency import ConcurrencyLimit
from nbagents.core.content import UsageContent
from nbagents.core.errors import ConfigurationError, RateLimitError
from nbagents.core.retries import MAX_WAIT_SECONDS, asked_wait
from nbagents.core.tokens import TokenCounter
from nbagents.core.updates import ChatResponseUpdate
from nbagents.core.usage import Usage

if TYPE_CHECKING:
    from nbagents.core.clients import ChatRequest

MINUTE = 60.0
"""Seconds within which requests and tokens are counted."""
_LOOK_AGAIN_SECONDS = 0.5
"""Room may come sooner than was foreseen: a reply turns out to be shorter than it might have been."""
_counter = TokenCounter()


class RateLimits:
    """At most so many requests at once, requests in a minute and tokens in a minute.

    One object is one limit, across tasks, threads and event loops; who comes first goes first. A minute is any 60
    seconds, so a server that counts by the clock is not asked for more either. Once the service has refused more
    requests (429) and said how long to wait, nobody here asks it sooner. A copy in the same process is the same limit;
    one that was pickled counts anew.

    Args:
        max_concurrency: requests at once, from the first byte that is sent to the last that is read: a stream holds its
            place until it is read to its end, or left; what is asked between two pieces of it needs one more.
        requests_per_minute: requests that begin within any 60 seconds, failed ones included.
        tokens_per_minute: tokens of input and output within any 60 seconds. What a request will use is estimated before
            (`estimate_tokens` of what is sent, and `max_tokens` where that is set) and corrected by the usage that is
            reported. A request that is larger than the limit waits until nothing else counts, and is then made.

    Raises:
        ConfigurationError: a limit is no whole number from 1.
    """

    @exact_arguments()
    def __init__(
        self,
        *,
        max_concurrency: int | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
    ) -> None:
        self.max_concurrency = _checked("max_concurrency", max_concurrency)
        self.requests_per_minute = _checked("requests_per_minute", requests_per_minute)
        self.tokens_per_minute = _checked("tokens_per_minute", tokens_per_minute)
        self._places = ConcurrencyLimit(max_concurrency) if max_concurrency is not None else None
        self._requests = _Minute(requests_per_minute) if requests_per_minute is not None else None
        self._tokens = _Minute(tokens_per_minute) if tokens_per_minute is not None else None
        self._turn = ConcurrencyLimit(1)
        self._held_until = 0.0

    @classmethod
    def of(
        cls,
        *,
        max_concurrency: int | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
    ) -> Self | None:
        """Return the limits, or None where there is no limit."""
        if max_concurrency is None and requests_per_minute is None and tokens_per_minute is None:
            return None
        return cls(
            max_concurrency=max_concurrency,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
        )

    def __repr__(self) -> str:
        set_ones = (f"{name}={value}" for name, value in self._settings().items() if value is not None)
        return f"RateLimits({', '.join(set_ones)})"

    def __deepcopy__(self, memo: dict[int, Any]) -> RateLimits:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self._settings(),)

    def _settings(self) -> dict[str, int | None]:
        return {
            "max_concurrency": self.max_concurrency,
            "requests_per_minute": self.requests_per_minute,
            "tokens_per_minute": self.tokens_per_minute,
        }

    @asynccontextmanager
    async def place(self, tokens: int = 0) -> AsyncIterator[Place]:
        """Wait for room for one request, and hold it.

        Args:
            tokens: how many it will use, by an estimate; the place takes the true number once it is known.
        """
        async with self._places or nullcontext():
            place = await self._enter(tokens)
            try:
                yield place
            except RateLimitError as error:
                self._hold_off(error)
                raise

    def _hold_off(self, error: RateLimitError) -> None:
        """Let nobody begin before the moment for which the service has asked."""
        wait = asked_wait(error.headers)
        if wait is not None and wait <= MAX_WAIT_SECONDS and error.retryable:
            self._held_until = max(self._held_until, time.monotonic() + wait)

    async def _enter(self, tokens: int) -> Place:
        async with self._turn:  # one waits, the others behind it
            while True:
                wait = self._wait_for(tokens)
                if wait <= 0:
                    break
                await asyncio.sleep(min(wait, _LOOK_AGAIN_SECONDS))
            if self._requests is not None:
                self._requests.add(1)
            return Place(self._tokens.add(tokens) if self._tokens is not None else None)

    def _wait_for(self, tokens: int) -> float:
        """Seconds until there is room, as far as is known."""
        waits = [self._held_until - time.monotonic()]
        if self._requests is not None:
            waits.append(self._requests.wait_for(1))
        if self._tokens is not None:
            waits.append(self._tokens.wait_for(tokens))
        return max(waits)


class Place:
    """Room that one request has taken."""

    __slots__ = ("_share", "_usage")

    def __init__(self, share: _Share | None) -> None:
        self._share = share
        self._usage = Usage()

    def note(self, usage: Usage | None) -> None:
        """Count what was reported in the place of the estimate; reports of one request are running totals."""
        if self._share is None or usage is None:
            return
        self._usage = self._usage.updated(usage)
        if self._usage.total_tokens is not None:
            self._share.correct(self._usage.total_tokens)


@dataclass(slots=True, eq=False)
class _Share:
    """What one request takes of a minute."""

    minute: _Minute
    begun: float
    amount: int
    counts: bool = True

    def correct(self, amount: int) -> None:
        with self.minute.lock:
            if self.counts:
                self.minute.used += amount - self.amount
            self.amount = amount


class _Minute:
    """The sum of what began within the last 60 seconds."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.lock = threading.Lock()
        self._shares: deque[_Share] = deque()

    def wait_for(self, amount: int) -> float:
        """Seconds until `amount` more fit in; what is larger than the limit fits where nothing else is."""
        now = time.monotonic()
        with self.lock:
            while self._shares and self._shares[0].begun + MINUTE <= now:
                gone = self._shares.popleft()
                gone.counts = False
                self.used -= gone.amount
            free_at, used = now, self.used
            for share in self._shares:
                if used + amount <= self.limit:
                    break
                used -= share.amount
                free_at = share.begun + MINUTE
            return free_at - now

    def add(self, amount: int) -> _Share:
        share = _Share(self, time.monotonic(), amount)
        with self.lock:
            self._shares.append(share)
            self.used += amount
        return share


async def limited_reply(
    limits: RateLimits,
    request: ChatRequest,
    generate: Callable[[ChatRequest], AsyncGenerator[ChatResponseUpdate, None]],
) -> AsyncGenerator[ChatResponseUpdate, None]:
    """Yield what `generate(request)` gives, within `limits`."""
    counts = limits.tokens_per_minute is not None
    async with limits.place(_estimate(request) if counts else 0) as place, aclosing(generate(request)) as updates:
        async for update in updates:
            if counts:
                for content in update.contents:
                    if isinstance(content, UsageContent):
                        place.note(content.usage)
            yield update


def _estimate(request: ChatRequest) -> int:
    """The tokens of a request and of the reply that it allows."""
    allowed = request.options.get("max_tokens")
    sent = _counter.messages(request.messages) + _counter.tools(request.tools)
    return sent + (allowed if isinstance(allowed, int) else 0)


def _checked(name: str, value: int | None) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ConfigurationError(f"{name} is a whole number from 1, not {value!r}.")
    return value


def _unpickled(settings: Mapping[str, int | None]) -> RateLimits:
    return RateLimits(**settings)
