"""What a chat client is: the request that it gets and the one async generator that it writes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, overload, runtime_checkable

from nbagents.core.arguments import exact_arguments
from nbagents.core.content import FunctionCall, RefusalContent
from nbagents.core.errors import IncompleteStreamError, ModelError, OutputValidationError
from nbagents.core.folding import UpdateFolder
from nbagents.core.hosted import HostedTool
from nbagents.core.ids import new_id
from nbagents.core.messages import AgentRunInputs, Message, normalize_messages
from nbagents.core.options import check_options
from nbagents.core.outputs import OutputFormat, UnfitReply, check_whole, output_format
from nbagents.core.rates import RateLimits, limited_reply
from nbagents.core.responses import ChatResponse
from nbagents.core.retries import wait_before_retry
from nbagents.core.sessions import AgentSession
from nbagents.core.streams import ResponseStream
from nbagents.core.threads import ServiceThread, Thread
from nbagents.core.tools import ToolDefinition
from nbagents.core.updates import ChatResponseUpdate

if TYPE_CHECKING:
    from nbagents.core.agent import Agent


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to a model.

    Attributes:
        messages: the conversation, the system message first if there is one.
        options: set options by their Chat Completions names.
        tools: functions that the model may call, and tools that the service runs itself.
        stream: ask the endpoint for a stream; else for a plain reply.
        client_kwargs: what reaches the provider untouched.
        conversation_id: the conversation at the service that this goes on with, of which it is to store the rest too.
    """

    messages: Sequence[Message]
    options: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[ToolDefinition | HostedTool] = ()
    stream: bool = True
    client_kwargs: Mapping[str, Any] = field(default_factory=dict, repr=False)  # there may be keys in headers
    conversation_id: str | None = None

    @property
    def functions(self) -> list[ToolDefinition]:
        """The tools that are functions."""
        return [tool for tool in self.tools if isinstance(tool, ToolDefinition)]


@runtime_checkable
class SupportsChatGetResponse(Protocol):
    """Anything that answers messages."""

    def get_response(
        self, messages: AgentRunInputs, *, stream: bool = False, options: Mapping[str, Any] | None = None
    ) -> Any:
        """Return an awaitable `ChatResponse`, or with `stream=True` a `ResponseStream`."""
        ...


class BaseChatClient(ABC):
    """Speaks to one model endpoint. To write one, implement `generate`.

    Attributes:
        model: the model's name; the option `model` overrides it.
        provider: a word for the tables (`openai`, `local`, ...).
        streaming: True or False where the endpoint can do only one of the two; None for both.
        stores_by_default: the service keeps the conversation itself, unless the option `store` says otherwise.
        supports_service_sessions: the service can keep the conversation: requests have a `conversation_id` once a
            reply had one, and bring only what is new. (What `store` means to Chat Completions is no such thing.)
        supports_tools: the model can call functions.
        max_retries: how often a request that failed is made again, where that can help and nothing of the reply has
            been shown yet. Bare calls, runs and embeddings wait by the same rule: what the server asks for, up to two
            minutes, else longer each time.
        retry_streams: make it again also after something has been shown: an update whose `retracts` names the messages
            takes it back, and the reply begins anew. Tools run when a reply is complete, so none runs twice.
        limits: how much may be asked of it at once and in a minute; None for no limit. Who waits is served in order.
    """

    model: str | None = None
    provider: str = "custom"
    streaming: bool | None = None
    stores_by_default: bool = False
    supports_service_sessions: bool = False
    supports_tools: bool = True
    max_retries: int = 0
    retry_streams: bool = False
    limits: RateLimits | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # it holds connections, locks or a script, and no conversation: copies of an agent share it

    @abstractmethod
    def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield the reply: piece by piece, or as one update where `request.stream` is False.

        The last update has a `finish_reason`. What the generator opens, it closes on every way out.

        Raises:
            ModelError: the call failed.
        """

    def service_thread(self, session: AgentSession) -> Thread:
        """Return the door to the messages of `session` at the service. A client whose service gives them out has more.

        Args:
            session: a session that the service stores, or will store.
        """
        return ServiceThread(session)

    @overload
    def get_response(
        self,
        messages: AgentRunInputs,
        *,
        stream: Literal[False] = False,
        options: Mapping[str, Any] | None = None,
    ) -> Awaitable[ChatResponse]: ...
    @overload
    def get_response(
        self, messages: AgentRunInputs, *, stream: Literal[True], options: Mapping[str, Any] | None = None
    ) -> ResponseStream[ChatResponseUpdate, ChatResponse]: ...
    @exact_arguments()
    def get_response(
        self, messages: AgentRunInputs, *, stream: bool = False, options: Mapping[str, Any] | None = None
    ) -> Awaitable[ChatResponse] | ResponseStream[ChatResponseUpdate, ChatResponse]:
        """Ask the model once.

        Args:
            messages: the conversation.
            stream: return a stream of updates instead of an awaitable response.
            options: options by their Chat Completions names; what `response_format` asks for is in `response.value`.

        Raises:
            ConfigurationError: an unknown option.
            ModelError: the call failed.
            OutputValidationError: the reply does not fit `response_format`; only an agent asks again for that.
        """
        chosen = check_options(options)
        output = output_format(chosen.get("response_format"))
        if output is not None:
            chosen["response_format"] = output.to_option()
        asked = stream if self.streaming is None else self.streaming
        request = ChatRequest(normalize_messages(messages), chosen, stream=asked)
        reply = self._stream_of(request, output, may_retract=self.retry_streams or not stream)
        return reply if stream else reply.get_final_response()

    def _stream_of(
        self, request: ChatRequest, output: OutputFormat | None, *, may_retract: bool
    ) -> ResponseStream[ChatResponseUpdate, ChatResponse]:
        folder = UpdateFolder()
        failure: Exception | None = None

        async def updates() -> AsyncGenerator[ChatResponseUpdate, None]:
            nonlocal failure
            try:
                async with aclosing(self._attempts(request, folder, may_retract=may_retract)) as source:
                    async for update in source:
                        yield update
            except Exception as error:
                failure = error
                raise

        def finish() -> ChatResponse:
            if failure is not None:
                raise failure
            response = ChatResponse.from_folder(folder)
            if output is not None and not _has_no_answer(response):
                response.value = _value_of(response, output)
            return response

        return ResponseStream(updates, finish)

    async def _attempts(
        self, request: ChatRequest, folder: UpdateFolder, *, may_retract: bool
    ) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield the reply, folded into `folder`; where it breaks off and may be taken back, it begins anew."""
        names_messages = may_retract and request.stream and self.max_retries > 0
        attempt = 0
        while True:
            attempt += 1
            own_id = new_id("msg")
            try:
                async with aclosing(reply_of(self, request)) as source:
                    async for update in source:
                        if names_messages and update.message_id is None:
                            own_id = new_id("msg") if update.starts_message else own_id
                            update = replace(update, message_id=own_id)
                        folder.add(update)
                        yield update
                check_complete(folder)
                return
            except ModelError as error:
                shown = bool(folder.messages())
                wait = wait_before_retry(
                    error, attempt=attempt, retries=self.max_retries, shown=shown and not may_retract
                )
                error.partial_text = error.partial_text or folder.text
                if wait is None:
                    raise
            if shown:
                again = ChatResponseUpdate(retracts=tuple(folder.message_ids))
                folder.add(again)
                yield again
            await asyncio.sleep(wait)

    def as_agent(self, instructions: str | None = None, **settings: Any) -> Agent:
        """Return `Agent(client=self, ...)`."""
        from nbagents.core.agent import Agent

        return Agent(self, instructions, **settings)


def check_complete(reply: UpdateFolder) -> None:
    """Check that the model has said that it has finished.

    Raises:
        IncompleteStreamError: it has not.
    """
    if reply.finish_reason is None:
        raise IncompleteStreamError(
            "The reply ended before the model said that it had finished.",
            hint="The connection or the server broke off; run again.",
            partial_text=reply.text,
        )


def _has_no_answer(response: ChatResponse) -> bool:
    """Whether the model refused, called a tool, or was not listened to until it had finished."""
    contents = [content for message in response.messages for content in message.contents]
    return response.finish_reason is None or any(isinstance(c, RefusalContent | FunctionCall) for c in contents)


def _value_of(response: ChatResponse, output: OutputFormat) -> Any:
    text, usage = response.text, response.usage
    check_whole(text, response.finish_reason, attempts=1, usage=usage)
    try:
        return output.parse(text)
    except UnfitReply as error:
        raise OutputValidationError(
            f"The reply does not fit response_format: {error}",
            attempts=1,
            raw_text=text,
            usage=usage,
            hint="An agent asks again: client.as_agent().run(..., options={'response_format': ...}).",
        ) from (error.__cause__ or error)


StandIn = Callable[[BaseChatClient | SupportsChatGetResponse, ChatRequest], AsyncGenerator[ChatResponseUpdate, None]]

stand_in: ContextVar[StandIn | None] = ContextVar("stand_in", default=None)
"""What answers in the place of every client here, such as a recording."""


def reply_of(
    client: BaseChatClient | SupportsChatGetResponse, request: ChatRequest
) -> AsyncGenerator[ChatResponseUpdate, None]:
    """Yield the reply of `client`, or of what stands in for it."""
    return (stand_in.get() or direct_reply)(client, request)


def direct_reply(
    client: BaseChatClient | SupportsChatGetResponse, request: ChatRequest
) -> AsyncGenerator[ChatResponseUpdate, None]:
    """Yield the reply of `client` itself, within its limits."""
    if not isinstance(client, BaseChatClient):
        return _generate_from(client, request)
    return client.generate(request) if client.limits is None else limited_reply(client.limits, request, client.generate)


async def _generate_from(
    client: SupportsChatGetResponse, request: ChatRequest
) -> AsyncGenerator[ChatResponseUpdate, None]:
    """Yield the reply of a client that only has `get_response`; options bring it `tools` and `conversation_id`."""
    options: dict[str, Any] = {**request.options}
    if request.tools:
        options["tools"] = list(request.tools)
    if request.conversation_id is not None:
        options["conversation_id"] = request.conversation_id
    if not request.stream:
        response: ChatResponse = await client.get_response(request.messages, stream=False, options=options)
        for update in response.to_updates():
            yield update
        return
    stream = client.get_response(request.messages, stream=True, options=options)
    async with aclosing(aiter(stream)) as updates:
        async for update in updates:
            yield update
