"""`PendingResponse`: what `agent.run` returns, and how it says that somebody forgot to await it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

R_co = TypeVar("R_co", covariant=True)

_ADVICE = "use `await agent.run(...)` or `agent.run_sync(...)`"


class PendingResponse(Coroutine[Any, Any, R_co]):
    """A response that there is once this has been awaited; until then nothing has happened.

    It is a coroutine for asyncio too: `asyncio.run` and `create_task` take nothing less.

    Args:
        answer: makes the coroutine that gives the response.
    """

    __slots__ = ("__weakref__", "_answer", "_work")

    def __init__(self, answer: Callable[[], Coroutine[Any, Any, R_co]]) -> None:
        self._answer = answer
        self._work: Coroutine[Any, Any, R_co] | None = None

    def __repr__(self) -> str:
        state = f"not awaited yet: {_ADVICE}" if self._work is None else "awaited"
        return f"<agent.run(...): {state}>"

    def __await__(self) -> Generator[Any, Any, R_co]:
        return self._begun().__await__()

    def send(self, value: Any) -> Any:
        """Go on with `value`, as a coroutine does."""
        return (self._work or self._begun()).send(value)

    def throw(self, *error: Any) -> Any:
        """Raise `error` where it waits, as a coroutine does."""
        return self._begun().throw(*error)

    def close(self) -> None:
        """End it, or see to it that it never begins; then nobody is told that it was not awaited."""
        self._begun().close()

    def __getattr__(self, name: str) -> Any:
        if self._work is not None and (name.startswith("cr_") or name in ("__name__", "__qualname__")):
            return getattr(self._work, name)  # where a task stands: asyncio shows it
        reason = (
            f"this run was not awaited yet: {_ADVICE}" if self._work is None else "the response is what `await` gave"
        )
        raise AttributeError(f"There is no {name!r} here, {reason}.", name=name, obj=self)

    def __reduce__(self) -> str:
        raise TypeError(f"A run cannot be copied or pickled before it has answered: {_ADVICE}.")

    def __del__(self) -> None:
        if self._work is None:
            warnings.warn(f"agent.run(...) was never awaited, and so did nothing: {_ADVICE}.", RuntimeWarning, 2)

    def _begun(self) -> Coroutine[Any, Any, R_co]:
        if self._work is None:
            self._work = self._answer()
        return self._work
