"""Whether a request that failed is made again, and how long that waits: the one place where this is decided."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from nbagents.core.errors import ModelError

T = TypeVar("T")

MAX_WAIT_SECONDS = 120.0
"""Who asks to wait longer is not asked again: to come sooner is no use, and a run should not seem to hang."""
_FIRST_BACKOFF_SECONDS = 0.5
_MAX_BACKOFF_SECONDS = 8.0
_JITTER = 0.25


def wait_before_retry(error: ModelError, *, attempt: int, retries: int, shown: bool = False) -> float | None:
    """Return the seconds to wait before the next attempt; None if there is none, and `error` is to be raised.

    A server's `x-should-retry` goes before what the status says. The wait is what the server asks for
    (`retry-after-ms`, or `retry-after` as seconds or as a date), and up to a quarter more at random; else, and where
    coming at once did not help, it doubles from half a second up to eight, less up to a quarter. So those that failed
    together do not come back together.

    Args:
        error: what the attempt ended with; it gets the number of attempts that were made.
        attempt: how many attempts were made, from 1.
        retries: how often a request is made again at most.
        shown: something of the reply was shown that cannot be taken back.
    """
    error.attempts = attempt
    wanted = _lowered(error.headers).get("x-should-retry", "").strip().lower()
    retryable = wanted == "true" or (error.retryable and wanted != "false")
    if not retryable or shown or attempt > retries:
        return None
    asked = asked_wait(error.headers)
    if asked is None or (not asked and attempt > 1):  # all attempts at once would be over in a moment
        longest = min(_FIRST_BACKOFF_SECONDS * 2.0 ** min(attempt - 1, 9), _MAX_BACKOFF_SECONDS)
        return longest * (1 - _JITTER * random.random())
    if asked > MAX_WAIT_SECONDS:
        error.hint = f"The server asks to wait {asked:,.0f} s, longer than is waited here: run again after that."
        return None
    return asked * (1 + _JITTER * random.random())


async def with_retries(call: Callable[[], Awaitable[T]], *, retries: int) -> T:
    """Await `call()`, and again where that can help.

    Raises:
        ModelError: of the last attempt.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            return await call()
        except ModelError as error:
            wait = wait_before_retry(error, attempt=attempt, retries=retries)
            if wait is None:
                raise
        await asyncio.sleep(wait)


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait; None if it does not, or in no known way.

    Example:
        >>> asked_wait({"Retry-After": "1.5"})
        1.5
        >>> asked_wait({"date": "Wed, 21 Oct 2015 07:28:00 GMT", "retry-after": "Wed, 21 Oct 2015 07:28:30 GMT"})
        30.0
    """
    given = _lowered(headers)
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        asked = given.get(name, "").strip()
        if asked.isascii() and asked.replace(".", "", 1).isdigit():
            return float(asked) * unit
    until = _moment(given.get("retry-after", ""))
    if until is None:
        return None
    now = _moment(given.get("date", ""))  # the server's own clock, where it shows it: ours may differ
    return max(until - (time.time() if now is None else now), 0.0)


def _moment(date: str) -> float | None:
    """Unix seconds of an HTTP date; in all three forms that it may have, it is in UTC."""
    from datetime import UTC  # here, since few ever need them
    from email.utils import parsedate_to_datetime

    try:
        parsed = parsedate_to_datetime(date)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
