"""What clients share that reach a service through its provider's package: how requests get there and back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Any, ClassVar, Generic

from nbagents.clients.call_errors import CallFacts, invalid_reply, model_error
from nbagents.clients.calls import Call, R, drain, is_stream, pieces_of, send
from nbagents.clients.connections import Opened
from nbagents.clients.endpoints import Endpoint
from nbagents.clients.server_events import EventReader
from nbagents.core import BaseChatClient, ChatRequest, ChatResponseUpdate
from nbagents.core.errors import (
    ConfigurationError,
    ConnectionFailedError,
    InvalidReplyError,
    ModelTimeoutError,
    NBAgentsError,
)
from nbagents.core.rates import RateLimits
from nbagents.core.secrets import register_header_secrets

REQUEST_SETTINGS = {"extra_headers": "headers", "extra_query": "params", "timeout": "timeout"}
"""What of `client_kwargs` says how to send, by the packages' names for the same."""


def check_switches(**switches: bool | None) -> None:
    """Raise ConfigurationError for an argument that is not True, False or None: a text such as "no" would be true."""
    for name, value in switches.items():
        if value is not None and not isinstance(value, bool):
            raise ConfigurationError(f"{name} is True or False, not {value!r}.")


class ServiceClient:
    """An endpoint, whatever it is asked for.

    Args:
        endpoint: where it is, and who sends.
        address: the arguments that say where it is, as they were given.
        model: the model's name.
        max_retries: how often a request is sent again.
        timeout: seconds without a byte after which a request fails.
        max_concurrency: requests at once.
        requests_per_minute: requests that begin within any 60 seconds.
        tokens_per_minute: tokens of input and output within any 60 seconds.

    Raises:
        ConfigurationError: arguments that do not fit.
    """

    model: str
    provider: str
    host: str | None = None
    kept: ClassVar[tuple[str, ...]] = ("model", "max_retries", "timeout")
    """The attributes that are arguments of the constructor: what a pickle has of a client besides its address."""
    package_settings: ClassVar[Mapping[str, Any]] = {}
    """What the package wants to be told with each request."""

    def __init__(
        self,
        endpoint: Endpoint,
        address: Mapping[str, Any],
        *,
        model: str,
        max_retries: int,
        timeout: float | None,
        max_concurrency: int | None,
        requests_per_minute: int | None,
        tokens_per_minute: int | None,
    ) -> None:
        if not isinstance(model, str) or not model:
            raise ConfigurationError(f"model is the name of a model, not {model!r}.")
        if not isinstance(max_retries, int) or isinstance(max_retries, bool) or max_retries < 0:
            raise ConfigurationError(f"max_retries is a whole number from 0, not {max_retries!r}.")
        if timeout is not None and (not isinstance(timeout, int | float) or not timeout > 0):
            raise ConfigurationError(f"timeout is a number of seconds above 0, not {timeout!r}.")
        self.model = model
        self.max_retries = max_retries
        self.timeout = timeout
        rates = {
            "max_concurrency": max_concurrency,
            "requests_per_minute": requests_per_minute,
            "tokens_per_minute": tokens_per_minute,
        }
        self.limits = RateLimits.of(**rates)
        self._settings = {**address, **rates}
        self.host = endpoint.host
        self.provider = endpoint.provider
        self._clients = endpoint.clients

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, host={self.host!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the key: where it is read again, the key is in the environment there."""
        if self._settings["client"] is not None and not callable(self._settings["client"]):
            raise ConfigurationError(
                "A client that was passed in cannot be pickled.", hint="Pass a function that makes it as client=."
            )
        kept = {name: getattr(self, name) for name in self.kept}
        return _unpickled, (type(self), {**self._settings, **kept})

    async def ask(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        client_kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send one request that asks for JSON, and return that; nothing is tried again here.

        Args:
            method: `GET`, `POST` or `DELETE`.
            path: below the endpoint's address, such as `/embeddings`; ids in it are quoted.
            body: what is sent, as JSON.
            query: what stands behind the `?`.
            client_kwargs: `extra_headers`, `extra_query`, `extra_body` and `timeout`, as in the packages.

        Raises:
            ModelError: the call failed; it has status, headers and body of the answer.
        """
        given = client_kwargs or {}
        opened = await self._clients.current()
        settings = self._request_settings(given, opened)
        if query:
            settings["params"] = {**query, **settings.get("params", {})}
        form: dict[str, Any] = {"cast_to": object, "options": settings}
        if body is not None:
            form["body"] = {**body, **(given.get("extra_body") or {})}
        facts = CallFacts(str((body or {}).get("model") or ""), opened.host, opened.package, expected="JSON")
        with _as_ours(opened, lambda: facts):
            answer = await send(opened, method, path, **form)
        if isinstance(answer, str) and (answer or method != "DELETE"):  # what is gone has nothing to tell
            raise invalid_reply("something that is no JSON" if answer else "nothing", answer, facts)
        return answer

    def _request_settings(self, given: Mapping[str, Any], opened: Opened) -> dict[str, Any]:
        settings: dict[str, Any] = {"timeout": self.timeout} if self.timeout is not None else {}
        chosen = {setting: given[name] for name, setting in REQUEST_SETTINGS.items() if given.get(name) is not None}
        register_header_secrets(chosen.get("headers"))
        settings |= chosen | {"max_retries": 0, **self.package_settings}
        if opened.shared:  # a connection left in the user's pool would break the next call on another loop
            settings["headers"] = {"connection": "close", **(settings.get("headers") or {})}
        return settings


class ModelClient(ServiceClient, BaseChatClient, Generic[R]):
    """A chat client on an endpoint. A kind of endpoint is a path, the body of a request and a reader."""

    model: str
    path: ClassVar[str]
    reply_is: ClassVar[str]
    """What comes back, for texts: `a chat completion`."""

    @abstractmethod
    def _reader(self, request: ChatRequest) -> R:
        """Return what reads the reply to `request`."""

    @abstractmethod
    def _body(self, request: ChatRequest, facts: CallFacts) -> dict[str, Any]:
        """Return what is sent, without `client_kwargs`."""

    def _learn(self, call: Call[R]) -> None:
        """Take note of what a reply has shown of the endpoint."""

    def _with_kwargs(self, body: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Return `body` with what a run has for the provider in `client_kwargs`."""
        return {
            **body,
            **{name: value for name, value in given.items() if name not in (*REQUEST_SETTINGS, "extra_body")},
            **(given.get("extra_body") or {}),
        }

    def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield the reply, streamed or whole as `request.stream` says."""
        return self._stream_reply(request) if request.stream else self._plain_reply(request)

    async def _plain_reply(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        async with self._call(request) as call:
            for update in call.read_whole(await self._send(call, stream=False)):
                yield update
            self._learn(call)

    async def _stream_reply(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        async with self._call(request) as call, await self._open_stream(call) as stream:
            events = EventReader()
            kind = stream.response.headers.get("content-type", "")
            # No stream: a server that cannot, or no such server.
            if ("json" in kind or "html" in kind) and not is_stream(await stream.response.aread()):
                for update in call.read_whole(stream.response.text):
                    yield update
                self._learn(call)
                return
            async with aclosing(pieces_of(stream)) as pieces:
                async for piece in pieces:
                    for update in call.read(events.feed(piece)):
                        yield update
                    if events.done or call.reader.ended:
                        for update in call.read_rest():
                            yield update
                        await drain(pieces)
                        break
                for update in call.read(events.end()):
                    yield update
                if call.reader.ended:
                    for update in call.read_rest():
                        yield update
            if not call.reader.seen:
                for update in call.read_stray(events.stray):
                    yield update
            self._learn(call)

    async def _open_stream(self, call: Call[R]) -> Any:
        return await self._send(call, stream=True)

    async def _send(self, call: Call[R], *, stream: bool) -> Any:
        return await call.send(stream=stream)

    @asynccontextmanager
    async def _call(self, request: ChatRequest) -> AsyncIterator[Call[R]]:
        """One call: the client of this loop, and whatever fails as an error of ours."""
        opened = await self._clients.current()
        model = request.options.get("model") or self.model
        facts = CallFacts(model, opened.host, opened.package, expected=self.reply_is)
        given = request.client_kwargs
        body = self._with_kwargs(self._body(request, facts), given)
        settings = self._request_settings(given, opened)
        call = Call(opened, self.path, body, settings, facts, self._reader(request))
        try:
            with _as_ours(opened, call.facts_now):
                yield call
        except (ConnectionFailedError, ModelTimeoutError, InvalidReplyError):
            if call.reader.finish_reason is None:
                raise
            # Else the model had finished: the reply is whole, only its usage may be missing.


@contextmanager
def _as_ours(opened: Opened, facts: Callable[[], CallFacts]) -> Iterator[None]:
    """Turn whatever fails inside into an error of our tree that shows no key."""
    try:
        yield
    except NBAgentsError:
        raise
    except Exception as error:
        opened.register_keys()
        raise model_error(error, facts()) from error


def _unpickled(kind: type[Any], settings: Mapping[str, Any]) -> Any:
    return kind(**settings)
