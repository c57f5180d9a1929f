"""Who talks to the endpoint: one client of the provider's package per event loop, closed inside its loop."""

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
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from nbagents.core.errors import ConfigurationError
from nbagents.core.plaincalls import run_in_thread
from nbagents.core.secrets import register_header_secrets, register_secret, register_url_secrets


@dataclass(frozen=True, slots=True, eq=False)
class Package:
    """The package of a provider, which has the keys, the pool and the timeouts. Its clients are all of one make.

    Attributes:
        name: what is imported.
        client: its class of async clients, which `client=` may be.
        error: the base of its errors.
        keys: attributes of a client that are secrets.
        variable: the environment variable that holds the key.
        api: what `base_url` must lead to, for texts.
        address: what such an address looks like, for texts.
        extra: the extra of nbagents that installs it; None where nbagents needs it anyway.
    """

    name: str
    client: str
    error: str
    keys: tuple[str, ...]
    variable: str
    api: str
    address: str
    extra: str | None = None

    def require(self) -> None:
        """Raise ConfigurationError where it is not installed; to import it takes long, and can wait."""
        if find_spec(self.name) is None:
            raise ConfigurationError(
                f"This client needs the package {self.name}.",
                hint=f"Run: pip install {self.name} (the extra `{self.extra}`)" if self.extra else None,
            )

    def load(self) -> Any:
        """Import it."""
        self.require()
        return import_module(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A client of `package` for one event loop.

    Attributes:
        package: the provider's package.
        client: what sends.
        owned: we made its connections and close them.
        shared: its connections may also be used on other loops, by the user or by us.
        host: host and port of the endpoint.
    """

    package: Package
    client: Any
    owned: bool = False
    shared: bool = False
    host: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", host_of(str(self.client.base_url)))

    def register_keys(self) -> None:
        """Mask from now on its keys, which a function may have renewed, and what is secret of headers and address."""
        for name in self.package.keys:
            register_secret(getattr(self.client, name))
        register_header_secrets(self.client.default_headers)
        register_url_secrets(str(self.client.base_url))


@lru_cache(maxsize=64)
def host_of(url: str) -> str:
    """Return host and port of `url`, without what may be secret in it.

    Example:
        >>> host_of("http://user:secret@localhost:8000/v1?key=1")
        'localhost:8000'
    """
    return urlsplit(url).netloc.rpartition("@")[2]


class LoopClients:
    """One client for each event loop: a pooled connection cannot change loops.

    Each is held by an async generator of its loop. `asyncio.run` closes such generators before it closes the loop; when
    this object goes, a finalizer has its loops close theirs. The finalizer also keeps them from being collected in one
    sweep with their connections, which would then be dropped open.

    Args:
        package: the provider's package.
        open_client: makes the client for the running loop.
    """

    def __init__(self, package: Package, open_client: Callable[[], Opened]) -> None:
        self._package = package
        self._open_client = open_client
        self._held: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Held] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    async def current(self) -> Opened:
        """Return the client of the running loop.

        Raises:
            ConfigurationError: a client that was passed in is closed, a factory gave something else, or the package is
                not installed.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            held = self._held.get(loop)
        if held is not None and not held.opened.client.is_closed():
            return held.opened
        if self._package.name not in sys.modules:  # a second of work: elsewhere, so that the loop goes on meanwhile
            await run_in_thread(self._package.load)
        opened = self._open_client()
        if opened.client.is_closed():
            raise ConfigurationError(
                f"The {self._package.client} passed as client= is closed.",
                hint="Pass an open one, or a function that makes one.",
            )
        opened.register_keys()
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


def clients_of(package: Package, settings: Callable[[], dict[str, Any]], *, kind: str | None = None) -> LoopClients:
    """Clients of the package's class `kind`, by default its usual one, made from `settings`."""

    def open_client() -> Opened:
        module = package.load()
        # Not the client's own HTTP client: that one tries to close itself when it is collected, on whatever loop runs.
        made = getattr(module, kind or package.client)(**settings(), http_client=module.DefaultAsyncHttpxClient())
        return Opened(package, made, owned=True)

    return LoopClients(package, open_client)


def borrowed_clients(package: Package, client: Any) -> LoopClients:
    """Clients with the settings of the user's `client`, which is never closed.

    Where it has the HTTP client that the package makes by default, each loop gets connections of its own, and `client`
    itself is never used: it may have pooled connections of another loop. An HTTP client of the user's may have
    proxies, certificates or a transport that cannot be copied, so it is used as it is.
    """

    def open_client() -> Opened:
        if _has_default_http_client(client):
            own = client.with_options(http_client=package.load().DefaultAsyncHttpxClient())
            return Opened(package, own, owned=True)
        return Opened(package, client, shared=True)

    return LoopClients(package, open_client)


def factory_clients(package: Package, factory: Callable[[], Any]) -> LoopClients:
    """Clients that the user's `factory` makes, one for each loop; they are the user's to close."""

    def open_client() -> Opened:
        client = factory()
        if not isinstance(client, getattr(package.load(), package.client)):
            raise ConfigurationError(
                f"The function passed as client= must return an {package.client}, not {type(client).__name__}."
            )
        return Opened(package, client)

    return LoopClients(package, open_client)


def _has_default_http_client(client: Any) -> bool:
    """Whether the package made the HTTP client itself; there is no public way to ask. In doubt it is the user's."""
    http_client = getattr(client, "_client", None)
    return type(http_client).__name__ == "AsyncHttpxClientWrapper"
