"""`OpenAIResponsesClient`: the Responses API at OpenAI, Azure OpenAI and any compatible server."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nbagents.clients.call_errors import CallFacts
from nbagents.clients.calls import Call
from nbagents.clients.endpoints import ApiKey, Secret, TokenProvider
from nbagents.clients.openai_base import OpenAIModelClient
from nbagents.clients.openai_threads import (
    CONVERSATION_PREFIX,
    OpenAIConversationThread,
    OpenAIResponseThread,
    OpenAIThread,
    create_conversation,
)
from nbagents.clients.responses_replies import ResponseReader
from nbagents.clients.responses_tools import HostedTools, included
from nbagents.clients.responses_wire import wire_input, wire_options, wire_tools, without_lost_answers
from nbagents.clients.service import check_switches
from nbagents.core import AgentSession, ChatRequest, ChatResponseUpdate
from nbagents.core.arguments import exact_arguments
from nbagents.core.errors import ConfigurationError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_ENCRYPTED_REASONING = "reasoning.encrypted_content"
_NOT_ENCRYPTED = re.compile("encrypted content is not supported", re.I)
_MERGED = ("text", "reasoning")
_SUMMARIES = ("auto", "concise", "detailed")


class OpenAIResponsesClient(HostedTools, OpenAIModelClient[ResponseReader]):
    """Speaks Responses: to OpenAI, to Azure OpenAI, and to any server that is compatible.

    The service keeps the conversation: a turn, and the results of its calls, bring only what is new and the id of the
    response before, or with `conversations=True` that of the conversation. With `stores_by_default=False`, or the
    option `store` False for one run, it keeps nothing: each request brings every message once, and reasoning goes back
    encrypted.

    Options have their Chat Completions names. `stop`, `seed`, `logit_bias` and the penalties are unknown to Responses:
    they are an error at OpenAI and Azure, and other servers get them as they are. Functions are sent strict where their
    schema allows it.

    Args:
        model: the model's name; at Azure the deployment's.
        api_key: the key, or an async function that returns one; `OPENAI_API_KEY` (Azure: `AZURE_OPENAI_API_KEY`) by
            default. A server other than OpenAI's needs none.
        base_url: where the server is, usually ending in `/v1`; `OPENAI_BASE_URL` or OpenAI by default.
        client: an `AsyncOpenAI` of yours, or a function that makes one, as for `OpenAIChatClient`.
        azure_endpoint: the address of an Azure OpenAI resource, `https://NAME.openai.azure.com`.
        api_version: of Azure OpenAI; `OPENAI_API_VERSION` by default. An `azure_endpoint` that ends in `/openai/v1`
            needs none.
        azure_ad_token_provider: a function, sync or async, that returns a token of Microsoft Entra ID, instead of a key
            for Azure; it is asked before each request.
        max_retries: how often a request that failed before anything was shown is sent again.
        retry_streams: send it again also after that; what was shown is taken back (`retracts` of an update).
        timeout: seconds without a byte after which a request fails; 600 by default, 5 for the connection.
        max_concurrency: requests at once, across tasks, threads and loops; the rest wait in order.
        requests_per_minute: requests that begin within any 60 seconds, shared in the same way.
        tokens_per_minute: tokens of input and output within any 60 seconds, shared in the same way.
        streaming: True or False for a server that can do only one of the two.
        stores_by_default: the service keeps the conversation, as it does unless it is told otherwise.
        conversations: it keeps it as a conversation of its Conversations API, which can be added to and deleted as a
            whole, instead of a chain of responses; a session without one gets one with its first request.
        reasoning_summary: ask for summaries of the model's reasoning: `"auto"`, `"concise"` or `"detailed"`.

    Raises:
        ConfigurationError: no key, or arguments that do not fit.

    Example:
        >>> OpenAIResponsesClient("gpt-5-mini", api_key="a-key")
        OpenAIResponsesClient('gpt-5-mini', host='api.openai.com')
    """

    path = "/responses"
    reply_is = "a response"
    kept = (
        *OpenAIModelClient.kept,
        "retry_streams",
        "streaming",
        "stores_by_default",
        "conversations",
        "reasoning_summary",
    )
    supports_service_sessions = True

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
        azure_ad_token_provider: TokenProvider | None = None,
        max_retries: int = 2,
        retry_streams: bool = False,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        streaming: bool | None = None,
        stores_by_default: bool = True,
        conversations: bool = False,
        reasoning_summary: str | None = None,
    ) -> None:
        key = Secret(api_key)
        del api_key  # a traceback with variables must not show it
        super().__init__(
            key,
            model=model,
            base_url=base_url,
            client=client,
            azure_endpoint=azure_endpoint,
            api_version=api_version,
            azure_ad_token_provider=azure_ad_token_provider,
            max_retries=max_retries,
            timeout=timeout,
            max_concurrency=max_concurrency,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
        )
        check_switches(
            retry_streams=retry_streams,
            streaming=streaming,
            stores_by_default=stores_by_default,
            conversations=conversations,
        )
        if conversations and not stores_by_default:
            raise ConfigurationError(
                "conversations=True keeps them at the service, and stores_by_default=False keeps nothing there.",
                hint="Pass one of them. For one run that leaves nothing: options={'store': False}.",
            )
        self.retry_streams = retry_streams
        self.streaming = streaming
        self.stores_by_default = stores_by_default
        self.conversations = conversations
        if reasoning_summary not in (None, *_SUMMARIES):
            raise ConfigurationError(
                f"reasoning_summary is one of {', '.join(map(repr, _SUMMARIES))}, not {reasoning_summary!r}."
            )
        self.reasoning_summary = reasoning_summary
        self._unencrypted: set[str] = set()

    def service_thread(self, session: AgentSession) -> OpenAIThread:
        """Return the door to the messages of `session` at the service: a conversation, or a chain of responses.

        A client that has nothing stored goes on with either.
        """
        named = (session.service_session_id or "").startswith(CONVERSATION_PREFIX)
        in_conversation = self.conversations or (named and not self.stores_by_default)
        return (OpenAIConversationThread if in_conversation else OpenAIResponseThread)(session, self)

    def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield the reply; where the service is to keep it in a conversation and there is none yet, make that first."""
        begins = self.conversations and request.conversation_id is None and self._stores(request)
        return self._in_new_conversation(request) if begins else super().generate(request)

    async def _in_new_conversation(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        request = replace(request, conversation_id=await create_conversation(self))
        async with aclosing(super().generate(request)) as updates:
            async for update in updates:
                yield update

    async def _send(self, call: Call[ResponseReader], *, stream: bool) -> Any:
        """Send the request, without asking for encrypted reasoning if the model has none: some services refuse that."""
        import openai

        try:
            return await super()._send(call, stream=stream)
        except openai.BadRequestError as error:
            asked = call.body.get("include") or ()
            if _ENCRYPTED_REASONING not in asked or not _NOT_ENCRYPTED.search(error.response.text):
                raise
            self._unencrypted.add(call.facts.model)
            call.body["include"] = [name for name in asked if name != _ENCRYPTED_REASONING]
            return await super()._send(call, stream=stream)

    def _reader(self, request: ChatRequest) -> ResponseReader:
        conversation = request.conversation_id
        in_conversation = conversation is not None and conversation.startswith(CONVERSATION_PREFIX)
        return ResponseReader(conversation_id=conversation if in_conversation else None, stored=self._stores(request))

    def _stores(self, request: ChatRequest) -> bool:
        """Whether the service is to keep the response: where a conversation goes on, it has to."""
        by_default = self.stores_by_default or request.conversation_id is not None
        return bool(request.options.get("store", by_default))

    def _body(self, request: ChatRequest, facts: CallFacts) -> dict[str, Any]:
        items = wire_input(request.messages)
        if request.conversation_id is None:
            items = without_lost_answers(items)
        body: dict[str, Any] = {
            **wire_options(request.options, host=facts.host, reasoning_summary=self.reasoning_summary),
            "model": facts.model,
        }
        if items and items[0].get("role") == "system" and (len(items) > 1 or request.conversation_id):
            body["instructions"] = items[0]["content"]
            del items[0]
        body["input"] = items
        if request.tools:
            body["tools"] = wire_tools(request.tools)
        if request.conversation_id is not None:
            named = request.conversation_id.startswith(CONVERSATION_PREFIX)
            body["conversation" if named else "previous_response_id"] = request.conversation_id
        include = included(request.tools)
        if not self._stores(request):
            body["store"] = False
            include += [] if facts.model in self._unencrypted else [_ENCRYPTED_REASONING]
        elif "store" in request.options:
            body["store"] = True
        if include:
            body["include"] = include
        if request.stream:
            body["stream"] = True
        return body

    def _with_kwargs(self, body: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Add what a run has for the provider: settings of text and reasoning, and what to include, beside ours."""
        sent = super()._with_kwargs(body, given)
        for name in _MERGED:
            if isinstance(body.get(name), Mapping) and isinstance(sent[name], Mapping):
                sent[name] = {**body[name], **sent[name]}
        if isinstance(sent.get("include"), list) and "include" in body:
            sent["include"] = list(dict.fromkeys([*body["include"], *sent["include"]]))
        return sent
