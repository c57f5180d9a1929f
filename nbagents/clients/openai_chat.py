"""`OpenAIChatClient`: Chat Completions at OpenAI, Azure OpenAI and any compatible server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nbagents.clients.chat_replies import ReplyReader
from nbagents.clients.chat_wire import wire_messages, wire_options, wire_tools
from nbagents.clients.connections import Opened
from nbagents.clients.endpoints import ApiKey, Secret, find_endpoint
from nbagents.clients.openai_errors import CallFacts, invalid_reply, model_error, reported_error
from nbagents.clients.server_events import EventReader
from nbagents.core import BaseChatClient, ChatRequest, ChatResponseUpdate
from nbagents.core.arguments import exact_arguments
from nbagents.core.concurrency import ConcurrencyLimit
from nbagents.core.errors import (
    ConfigurationError,
    ConnectionFailedError,
    InvalidReplyError,
    ModelTimeoutError,
    NBAgentsError,
)
from nbagents.core.secrets import register_header_secrets, register_secret

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

_PATH = "/chat/completions"
_REQUEST_SETTINGS = {"extra_headers": "headers", "extra_query": "params", "timeout": "timeout"}
_DRAIN_SECONDS = 0.5
_STALE_CONNECTIONS = 20
"""How often a connection that a client of the user's has pooled for another loop may be met in one call."""


class OpenAIChatClient(BaseChatClient):
    """Speaks Chat Completions: to OpenAI, to Azure OpenAI, and to any server that is compatible.

    Args:
        model: the model's name; at Azure the deployment's.
        api_key: the key, or an async function that returns one; `OPENAI_API_KEY` (Azure: `AZURE_OPENAI_API_KEY`) by
            default. A server other than OpenAI's needs none.
        base_url: where the server is, usually ending in `/v1`; `OPENAI_BASE_URL` or OpenAI by default.
        client: an `AsyncOpenAI` of yours, instead of key and address, or a function without arguments that makes one
            for each event loop. Neither is ever closed. Of a client with openai's default HTTP client the settings are
            taken and each loop gets connections of its own. One with an HTTP client of yours is used as it is, without
            keeping connections, since they cannot change loops; give a function where you need both.
        azure_endpoint: the address of an Azure OpenAI resource.
        api_version: of Azure OpenAI; `OPENAI_API_VERSION` by default.
        max_retries: how often a request that failed before anything was shown is sent again.
        timeout: seconds without a byte after which a request fails; 600 by default, 5 for the connection.
        max_concurrency: requests at once, across tasks, threads and loops; the rest wait in order.
        streaming: True or False for a server that can do only one of the two.
        stores_by_default: the service keeps the conversation itself.
        replay_reasoning: send reasoning back with the calls of the same turn; by default if the server's replies have
            `reasoning_content` (DeepSeek and others refuse the results of the calls without it).

    Raises:
        ConfigurationError: no key, or arguments that do not fit.

    Example:
        >>> OpenAIChatClient("llama", base_url="http://localhost:8000/v1")
        OpenAIChatClient('llama', host='localhost:8000')
    """

    provider = "openai"
    host: str | None = None

    @exact_arguments()
    def __init__(
        self,
        model: str,
        *,
        api_key: ApiKey | None = None,
        base_url: str | None = None,
        client: AsyncOpenAI | Callable[[], AsyncOpenAI] | None = None,
        azure_endpoint: str | None = None,
        api_version: str | None = None,
        max_retries: int = 2,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        streaming: bool | None = None,
        stores_by_default: bool = False,
        replay_reasoning: bool | None = None,
    ) -> None:
        key = Secret(api_key)
        del api_key  # a traceback with variables must not show it
        if not isinstance(model, str) or not model:
            raise ConfigurationError(f"model is the name of a model, not {model!r}.")
        _check_number("max_retries", max_retries, least=0)
        _check_number("max_concurrency", max_concurrency, least=1)
        if timeout is not None and timeout <= 0:
            raise ConfigurationError(f"timeout is a number of seconds above 0, not {timeout!r}.")
        self.model: str = model
        self.max_retries = max_retries
        self.timeout = timeout
        self.streaming = streaming
        self.stores_by_default = stores_by_default
        self.replay_reasoning = replay_reasoning
        self._limit = nullcontext() if max_concurrency is None else ConcurrencyLimit(max_concurrency)
        self._reports_usage = True
        self._reasoning_models: set[str] = set()
        self._settings = {
            "base_url": base_url,
            "client": client,
            "azure_endpoint": azure_endpoint,
            "api_version": api_version,
            "max_concurrency": max_concurrency,
        }
        endpoint = find_endpoint(
            key, base_url=base_url, client=client, azure_endpoint=azure_endpoint, api_version=api_version
        )
        self.host = endpoint.host
        self.provider = endpoint.provider
        self._clients = endpoint.clients

    def __repr__(self) -> str:
        return f"OpenAIChatClient({self.model!r}, host={self.host!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the key: where it is read again, the key is in the environment there."""
        if self._settings["client"] is not None and not callable(self._settings["client"]):
            raise ConfigurationError(
                "A client that was passed in cannot be pickled.", hint="Pass a function that makes it as client=."
            )
        names = ("model", "max_retries", "timeout", "streaming", "stores_by_default", "replay_reasoning")
        return _unpickled, ({**self._settings, **{name: getattr(self, name) for name in names}},)

    def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield the reply, streamed or whole as `request.stream` says."""
        return self._stream_reply(request) if request.stream else self._plain_reply(request)

    async def _plain_reply(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        async with self._call(request) as call:
            update = call.read_whole(await call.send(stream=False))
            self._learn(call)
            yield update

    async def _stream_reply(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        async with self._call(request) as call, await self._open_stream(call) as stream:
            events = EventReader()
            kind = stream.response.headers.get("content-type", "")
            if "json" in kind or "html" in kind:  # no stream: a server that cannot, or no such server
                body = await stream.response.aread()
                if not body.startswith(b"data:"):
                    yield call.read_whole(stream.response.text)
                    return
            async with aclosing(_body(stream)) as pieces:
                async for piece in pieces:
                    for update in call.read(events.feed(piece)):
                        yield update
                    if events.done:
                        if (end := call.reader.read_end()) is not None:
                            yield end
                        await _drain(pieces)
                        break
                for update in call.read(events.end()):
                    yield update
            if not call.reader.seen:
                yield call.read_stray(events.stray)
            self._learn(call)

    @asynccontextmanager
    async def _call(self, request: ChatRequest) -> AsyncIterator[_Call]:
        """One call: a place within the limit, the client of this loop, and whatever fails as an error of ours."""
        async with self._limit:
            opened = await self._clients.current()
            facts = CallFacts(request.options.get("model") or self.model, opened.host)
            call = _Call(opened, self._body(request, facts), self._request_settings(request, opened), facts)
            try:
                yield call
            except NBAgentsError:
                raise
            except Exception as error:
                register_secret(opened.client.api_key)  # a function may have renewed it
                failure = model_error(error, call.facts_now())
                broke = isinstance(failure, ConnectionFailedError | ModelTimeoutError | InvalidReplyError)
                if broke and call.reader.finish_reason is not None:
                    return  # the model had finished: the reply is whole, only its usage may be missing
                raise failure from error

    async def _open_stream(self, call: _Call) -> AsyncStream[object]:
        """Send the request for a stream, without asking for usage if the server does not know how."""
        import openai

        try:
            stream: AsyncStream[object] = await call.send(stream=True)
        except openai.BadRequestError as error:
            if "stream_options" not in call.body or "stream_options" not in error.response.text:
                raise
            self._reports_usage = False
            del call.body["stream_options"]
            stream = await call.send(stream=True)
        return stream

    def _learn(self, call: _Call) -> None:
        """Remember that this model's reasoning comes in the field that its provider wants back."""
        if call.reader.reasons:
            self._reasoning_models.add(call.facts.model)

    def _body(self, request: ChatRequest, facts: CallFacts) -> dict[str, Any]:
        model, given = facts.model, request.client_kwargs
        replays = model in self._reasoning_models if self.replay_reasoning is None else self.replay_reasoning
        return {
            **wire_options(request.options, model=model, host=facts.host),
            "model": model,
            "messages": wire_messages(request.messages, replay_reasoning=replays),
            **({"tools": wire_tools(request.tools)} if request.tools else {}),
            **({"stream": True} if request.stream else {}),
            **({"stream_options": {"include_usage": True}} if request.stream and self._reports_usage else {}),
            **{name: value for name, value in given.items() if name not in (*_REQUEST_SETTINGS, "extra_body")},
            **(given.get("extra_body") or {}),
        }

    def _request_settings(self, request: ChatRequest, opened: Opened) -> dict[str, Any]:
        settings: dict[str, Any] = {"timeout": self.timeout} if self.timeout is not None else {}
        given = {
            setting: request.client_kwargs[name]
            for name, setting in _REQUEST_SETTINGS.items()
            if request.client_kwargs.get(name) is not None
        }
        register_header_secrets(given.get("headers"))
        settings |= given | {"max_retries": 0, "security": {"bearer_auth": True}}
        if opened.shared:  # a connection left in the user's pool would break the next call on another loop
            settings["headers"] = {"connection": "close", **(settings.get("headers") or {})}
        return settings


@dataclass(slots=True)
class _Call:
    """One request and the reading of its reply."""

    opened: Opened
    body: dict[str, Any]
    settings: dict[str, Any]
    facts: CallFacts
    reader: ReplyReader = field(default_factory=ReplyReader)

    def facts_now(self) -> CallFacts:
        return replace(self.facts, begun=self.reader.seen > 0)

    async def send(self, *, stream: bool) -> Any:
        """Return the body of a plain reply, or the open stream.

        A pooled connection that the user's own calls left on another loop fails once and is then gone from the pool.
        """
        import openai

        form: dict[str, Any] = {"cast_to": object, "options": self.settings}
        if stream:
            form |= {"stream": True, "stream_cls": openai.AsyncStream[object]}
        client: Any = self.opened.client
        for left in reversed(range(_STALE_CONNECTIONS)):
            try:
                return await client.post(_PATH, body=self.body, **form)
            except RuntimeError as error:
                if not (left and self.opened.shared and _is_of_another_loop(error)):
                    raise
        raise AssertionError("unreachable")

    def read(self, chunks: Iterator[Any]) -> Iterator[ChatResponseUpdate]:
        """Yield the increments that `chunks` are.

        Raises:
            ModelError: one is no chunk of a chat completion, or the server reports an error in it.
        """
        read = self.reader.read_chunk
        for chunk in chunks:
            update = read(chunk)
            if update is not None:
                yield update
            if self.reader.error:
                raise reported_error(self.reader.error, self.facts_now())

    def read_whole(self, reply: Any) -> ChatResponseUpdate:
        """Return a plain reply as one update; `reply` is text where the server does not call it JSON.

        Raises:
            ModelError: it is no chat completion, or the server reports an error in it.
        """
        text = reply if isinstance(reply, str) else ""
        if text.startswith("data:"):
            error = invalid_reply("a stream", text, self.facts)
            error.hint = "Pass streaming=True to the client: this server can only stream."
            raise error
        if text or reply == "":
            try:
                reply = json.loads(text.removeprefix("\ufeff"))
            except ValueError as error:
                what = "something that is no JSON" if text else "nothing"
                raise invalid_reply(what, text, self.facts) from error
        update = self.reader.read_reply(reply)
        if self.reader.error:
            raise reported_error(self.reader.error, self.facts)
        if update is not None:
            return update
        raise invalid_reply("JSON without a choice", json.dumps(reply), self.facts)

    def read_stray(self, text: bytes) -> ChatResponseUpdate:
        """Return the plain reply that a stream without events turns out to be.

        Raises:
            ModelError: it is none.
        """
        if not text.strip():
            raise invalid_reply("an empty stream", "", self.facts)
        return self.read_whole(text.decode(errors="replace"))


def _body(stream: AsyncStream[object]) -> AsyncGenerator[bytes, None]:
    """Return the body of an open stream as the network brings it, decompressed.

    The events are read here and not by openai, which loses the one after a byte order mark and those that no blank line
    ends, and takes JSON that stands in no event for an empty stream.
    """
    pieces: Any = stream.response.aiter_bytes()  # declared as an iterator, made as a generator
    body: AsyncGenerator[bytes, None] = pieces
    return body


async def _drain(pieces: AsyncGenerator[bytes, None]) -> None:
    """Read to the end of the body, so that the connection can be used again, unless the server never ends it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in pieces:
                pass


def _check_number(name: str, value: int | None, *, least: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise ConfigurationError(f"{name} is a whole number from {least}, not {value!r}.")


def _is_of_another_loop(error: RuntimeError) -> bool:
    """Whether a pooled connection belongs to another loop, or to one that is closed; asyncio and uvloop say only so."""
    text = str(error)
    return any(
        words in text for words in ("different event loop", "different loop", "loop is closed", "handler is closed")
    )


def _unpickled(settings: Mapping[str, Any]) -> OpenAIChatClient:
    return OpenAIChatClient(**settings)
