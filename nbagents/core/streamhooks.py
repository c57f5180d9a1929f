"""What a `ResponseStream` calls besides its source."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from nbagents.core.errors import ConfigurationError


class StreamHooks:
    """Functions, sync or async, around a stream; those of a kind are called in the order in which they were added."""

    def __init__(self) -> None:
        self.transform: list[Callable[[Any], Any]] = []
        self.result: list[Callable[[Any], Any]] = []
        self.cleanup: list[Callable[[], Any]] = []

    async def transformed(self, update: Any) -> Any:
        """Return what the transform hooks make of `update`; None once one of them drops it."""
        for hook in self.transform:
            update = await outcome(hook(update))
            if update is None:
                return None
        return update

    async def resulting(self, response: Any) -> Any:
        """Return what the result hooks make of `response`; a hook that returns None leaves it as it is."""
        for hook in self.result:
            changed = await outcome(hook(response))
            response = response if changed is None else changed
        return response

    async def clean_up(self) -> None:
        """Call the clean-up hooks, all of them and once; the first error of theirs is raised after the last."""
        hooks, self.cleanup = self.cleanup, []
        failed: list[Exception] = []
        for hook in hooks:
            try:
                await outcome(hook())
            except Exception as error:  # noqa: BLE001  the other hooks have their own things to close
                failed.append(error)
        if failed:
            raise failed[0]


class OneByOne:
    """`async with` for those who wait for the end of a stream: one task at a time, and none for itself."""

    __slots__ = ("_owner", "_waiting")

    def __init__(self) -> None:
        self._owner: asyncio.Task[Any] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        while self._owner is not None:
            if self._owner is task:
                raise ConfigurationError(
                    "A hook cannot wait for the end of its own stream.", hint="Result hooks are given the response."
                )
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        self._owner = task

    async def __aexit__(self, *_: object) -> None:
        self._owner = None
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)


async def outcome(value: Any) -> Any:
    """Return `value`, awaited where it is awaitable; a stream is passed on to whoever iterates it."""
    return await value if inspect.isawaitable(value) and not hasattr(type(value), "__aiter__") else value
