"""Who talks to the endpoint: one AsyncOpenAI per event loop, closed inside its loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from nbagents.core.errors import ConfigurationError
from nbagents.core.plaincalls import run_in_thread
from nbagents.core.secrets import register_secret

if TYPE_CHECKING:
    from openai import AsyncOpenAI


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """An AsyncOpenAI for one event loop.

    Attributes:
        client: what sends.
        owned: we made its connections and close them.
        shared: its connections may also be used on other loops, by the user or by us.
        host: host and port of the endpoint.
    """

    client: AsyncOpenAI
    owned: bool = False
    shared: bool = False
    host: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", host_of(str(self.client.base_url)))


@lru_cache(maxsize=64)
def host_of(url: str) -> str:
    """Return host and port of `url`, without what may be secret in it.

    Example:
        >>> host_of("http://user:secret@localhost:8000/v1?key=1")
        'localhost:8000'
    """
    return urlsplit(url).netloc.rpartition("@")[2]


class LoopClients:
    """One AsyncOpenAI for each event loop: a pooled connection cannot change loops.

    Each is held by an async generator of its loop. `asyncio.run` closes such generators before it closes the loop; when
    this object goes, a finalizer has its loops close theirs. The finalizer also keeps them from being collected in one
    sweep with their connections, which would then be dropped open.

    Args:
        open_client: makes the client for the running loop.
    """

    def __init__(self, open_client: Callable[[], Opened]) -> None:
        self._open_client = open_client
        self._held: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Held] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    async def current(self) -> Opened:
        """Return the client of the running loop.

        Raises:
            ConfigurationError: a client that was passed in is closed, or a factory gave something else.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            held = self._held.get(loop)
        if held is not None and not held.opened.client.is_closed():
            return held.opened
        if "openai" not in sys.modules:  # a second of work: elsewhere, so that the loop goes on meanwhile
            await run_in_thread(lambda: import_module("openai"))
        opened = self._open_client()
        if opened.client.is_closed():
            raise ConfigurationError(
                "The AsyncOpenAI passed as client= is closed.", hint="Pass an open one, or a function that makes one."
            )
        register_secret(opened.client.api_key)
        holder = _hold(opened, weakref.ref(self))
        await anext(holder)
        finalizer = weakref.finalize(self, _close_in_loop, weakref.ref(loop), holder)
        finalizer.atexit = False
        with self._lock:
            self._held[loop] = _Held(opened, finalizer)
            for closed in [other for other in self._held if other.is_closed()]:  # without closing its generators
                self._held.pop(closed).finalizer.detach()
        return opened

    def _forget(self, loop: asyncio.AbstractEventLoop, opened: Opened) -> None:
        with self._lock:
            held = self._held.get(loop)
            if held is not None and held.opened is opened:
                held.finalizer.detach()
                del self._held[loop]


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    opened: Opened
    finalizer: weakref.finalize[..., Any]


async def _hold(opened: Opened, owner: weakref.ref[LoopClients]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        if (clients := owner()) is not None:  # weak: dropping the owner must be enough to end this generator
            clients._forget(asyncio.get_running_loop(), opened)
        if opened.owned:
            await opened.client.close()


class _Closing(asyncio.Task[None]):
    """Closes connections to the end: `asyncio.run` cancels all tasks, and half of a pool would stay open."""

    def cancel(self, msg: Any = None) -> bool:
        return False


_closing: set[_Closing] = set()  # a loop holds its tasks weakly


def _close_in_loop(loop_ref: weakref.ref[asyncio.AbstractEventLoop], holder: AsyncGenerator[None, None]) -> None:
    loop = loop_ref()
    if loop is None or loop.is_closed():
        return

    def close() -> None:
        task = _Closing(holder.aclose(), loop=loop)
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    with suppress(RuntimeError):  # it is being closed at this moment, and closes its generators itself
        loop.call_soon_threadsafe(close)


def clients_of(settings: Callable[[], dict[str, Any]]) -> LoopClients:
    """Clients made from `settings` of AsyncOpenAI, or with `azure_endpoint` of AsyncAzureOpenAI."""

    def open_client() -> Opened:
        import openai

        # Not the client's own HTTP client: that one tries to close itself when it is collected, on whatever loop runs.
        made = {**settings(), "http_client": openai.DefaultAsyncHttpxClient()}
        azure = "azure_endpoint" in made
        return Opened(openai.AsyncAzureOpenAI(**made) if azure else openai.AsyncOpenAI(**made), owned=True)

    return LoopClients(open_client)


def borrowed_clients(client: AsyncOpenAI) -> LoopClients:
    """Clients with the settings of the user's `client`, which is never closed.

    Where it has the HTTP client that openai makes by default, each loop gets connections of its own, and `client`
    itself is never used: it may have pooled connections of another loop. An HTTP client of the user's may have
    proxies, certificates or a transport that cannot be copied, so it is used as it is.
    """

    def open_client() -> Opened:
        import openai

        if _has_default_http_client(client):
            return Opened(client.with_options(http_client=openai.DefaultAsyncHttpxClient()), owned=True)
        return Opened(client, shared=True)

    return LoopClients(open_client)


def factory_clients(factory: Callable[[], AsyncOpenAI]) -> LoopClients:
    """Clients that the user's `factory` makes, one for each loop; they are the user's to close."""

    def open_client() -> Opened:
        import openai

        client = factory()
        if not isinstance(client, openai.AsyncOpenAI):
            raise ConfigurationError(
                f"The function passed as client= must return an AsyncOpenAI, not {type(client).__name__}."
            )
        return Opened(client)

    return LoopClients(open_client)


def _has_default_http_client(client: AsyncOpenAI) -> bool:
    """Whether openai made the HTTP client itself; there is no public way to ask. In doubt it is the user's."""
    http_client = getattr(client, "_client", None)
    return type(http_client).__name__ == "AsyncHttpxClientWrapper"
