"""`OpenAIChatClient`: Chat Completions at OpenAI, Azure OpenAI and any compatible server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nbagents.clients.call_errors import CallFacts
from nbagents.clients.calls import Call
from nbagents.clients.chat_replies import ReplyReader
from nbagents.clients.chat_wire import wire_messages, wire_options, wire_tools
from nbagents.clients.endpoints import ApiKey, Secret, TokenProvider
from nbagents.clients.openai_base import OpenAIModelClient
from nbagents.clients.service import check_switches
from nbagents.core import ChatRequest
from nbagents.core.arguments import exact_arguments

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIChatClient(OpenAIModelClient[ReplyReader]):
    """Speaks Chat Completions: to OpenAI, to Azure OpenAI, and to any server that is compatible.

    Args:
        model: the model's name; at Azure the deployment's.
        api_key: the key, or an async function that returns one; `OPENAI_API_KEY` (Azure: `AZURE_OPENAI_API_KEY`) by
            default. A server other than OpenAI's needs none.
        base_url: where the server is, usually ending in `/v1`; `OPENAI_BASE_URL` or OpenAI by default.
        client: an `AsyncOpenAI` of yours, instead of key and address, or a function without arguments that makes one
            for each event loop. Neither is ever closed. Of a client with openai's default HTTP client the settings are
            taken and each loop gets connections of its own. One with an HTTP client of yours is used as it is, without
            keeping connections, since they cannot change loops; give a function where you need both, and where you
            use it yourself on a loop that runs at the same time (uvloop crashes over a connection of another loop).
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
        stores_by_default: the service keeps the conversation itself.
        replay_reasoning: send reasoning back with the calls of the same turn; by default if the server's replies have
            `reasoning_content` (DeepSeek and others refuse the results of the calls without it).

    Raises:
        ConfigurationError: no key, or arguments that do not fit.

    Example:
        >>> OpenAIChatClient("llama", base_url="http://localhost:8000/v1")
        OpenAIChatClient('llama', host='localhost:8000')
    """

    path = "/chat/completions"
    reply_is = "a chat completion"
    kept = (*OpenAIModelClient.kept, "retry_streams", "streaming", "stores_by_default", "replay_reasoning")

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
        stores_by_default: bool = False,
        replay_reasoning: bool | None = None,
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
            replay_reasoning=replay_reasoning,
        )
        self.retry_streams = retry_streams
        self.streaming = streaming
        self.stores_by_default = stores_by_default
        self.replay_reasoning = replay_reasoning
        self._reports_usage = True
        self._reasoning_models: set[str] = set()

    def _reader(self, request: ChatRequest) -> ReplyReader:
        return ReplyReader()

    async def _open_stream(self, call: Call[ReplyReader]) -> Any:
        """Send the request for a stream, without asking for usage if the server does not know how."""
        import openai

        try:
            return await super()._open_stream(call)
        except openai.BadRequestError as error:
            if "stream_options" not in call.body or "stream_options" not in error.response.text:
                raise
            self._reports_usage = False
            del call.body["stream_options"]
            return await super()._open_stream(call)

    def _learn(self, call: Call[ReplyReader]) -> None:
        """Remember that this model's reasoning comes in the field that its provider wants back."""
        if call.reader.reasons:
            self._reasoning_models.add(call.facts.model)

    def _body(self, request: ChatRequest, facts: CallFacts) -> dict[str, Any]:
        model = facts.model
        replays = model in self._reasoning_models if self.replay_reasoning is None else self.replay_reasoning
        return {
            **wire_options(request.options, model=model, host=facts.host),
            "model": model,
            "messages": wire_messages(request.messages, replay_reasoning=replays),
            **({"tools": wire_tools(request.tools)} if request.tools else {}),
            **({"stream": True} if request.stream else {}),
            **({"stream_options": {"include_usage": True}} if request.stream and self._reports_usage else {}),
        }
