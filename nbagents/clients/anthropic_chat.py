"""`AnthropicChatClient`: the Messages API of Anthropic, and of any server that speaks it (extra `anthropic`)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from nbagents.clients.anthropic_endpoint import find_endpoint
from nbagents.clients.anthropic_options import output_instruction, wire_options
from nbagents.clients.anthropic_replies import PAUSED, MessageReader
from nbagents.clients.anthropic_wire import mark_for_cache, wire_messages, wire_tools
from nbagents.clients.call_errors import CallFacts
from nbagents.clients.endpoints import Secret
from nbagents.clients.service import ModelClient, check_switches
from nbagents.core import ChatRequest, ChatResponseUpdate, HostedTool
from nbagents.core.arguments import exact_arguments
from nbagents.core.errors import ConfigurationError
from nbagents.core.folding import UpdateFolder

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

_MOST_PAUSES = 10
"""How often a reply that pauses is asked to go on."""


class AnthropicChatClient(ModelClient[MessageReader]):
    """Speaks the Messages API: to Anthropic, and to any server that is compatible.

    Options have their Chat Completions names and are translated. `response_format` is the service's structured output
    where its schema can be strict; else the model is told the schema. `reasoning_effort` makes the model think: by
    effort where it decides itself how much, else by a number of tokens. Thoughts, their signatures and what hosted
    tools gave go back with the conversation as they came. What only this API has goes into `client_kwargs`
    (`{"top_k": 5}`).

    Args:
        model: the model's name.
        api_key: the key; `ANTHROPIC_API_KEY` by default. A server other than Anthropic's needs none.
        base_url: where the server is, without `/v1/messages`; `ANTHROPIC_BASE_URL` or Anthropic by default.
        client: an `AsyncAnthropic` of yours, instead of key and address, or a function without arguments that makes one
            for each event loop. Neither is ever closed. Of a client with the package's default HTTP client the settings
            are taken and each loop gets connections of its own. One with an HTTP client of yours is used as it is,
            without keeping connections, since they cannot change loops.
        max_tokens: the most tokens of a reply, thoughts included, where the option `max_tokens` says nothing; by
            default 8,192 and what `reasoning_effort` allows for thoughts.
        thinking: how the model thinks, in the service's words, such as `{"type": "adaptive", "display": "summarized"}`;
            it goes before what `reasoning_effort` means.
        cache: True has the service keep tools, system prompt and conversation in its cache, for 5 minutes or as long as
            `5m` or `1h` says: reading them again is cheap, writing them costs more. (The price table knows what it
            costs to write for 5 minutes.)
        max_retries: how often a request that failed before anything was shown is sent again.
        retry_streams: send it again also after that; what was shown is taken back (`retracts` of an update).
        timeout: seconds without a byte after which a request fails; 600 by default, 5 for the connection.
        max_concurrency: requests at once, across tasks, threads and loops; the rest wait in order.
        requests_per_minute: requests that begin within any 60 seconds, shared in the same way.
        tokens_per_minute: tokens of input and output within any 60 seconds, shared in the same way; a request is
            estimated before and corrected by the usage that is reported.
        streaming: True or False for a server that can do only one of the two.

    Raises:
        ConfigurationError: no key, arguments that do not fit, or the package `anthropic` is not installed.

    Example:
        >>> AnthropicChatClient("claude-sonnet-5", api_key="k")
        AnthropicChatClient('claude-sonnet-5', host='api.anthropic.com')
    """

    path = "/v1/messages"
    reply_is = "a message"
    kept = (*ModelClient.kept, "max_tokens", "thinking", "cache", "retry_streams", "streaming")

    @exact_arguments()
    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: AsyncAnthropic | Callable[[], AsyncAnthropic] | None = None,
        max_tokens: int | None = None,
        thinking: Mapping[str, Any] | None = None,
        cache: bool | Literal["5m", "1h"] = False,
        max_retries: int = 2,
        retry_streams: bool = False,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        streaming: bool | None = None,
    ) -> None:
        key = Secret(api_key)
        del api_key  # a traceback with variables must not show it
        if max_tokens is not None and (
            not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 1
        ):
            raise ConfigurationError(f"max_tokens is a whole number from 1, not {max_tokens!r}.")
        if cache not in (True, False, "5m", "1h"):
            raise ConfigurationError(f"cache is True, False, '5m' or '1h', not {cache!r}.")
        if thinking is not None and not isinstance(thinking, Mapping):
            raise ConfigurationError(
                f"thinking is a mapping, not {thinking!r:.100}.",
                hint="Such as {'type': 'enabled', 'budget_tokens': 2_000}.",
            )
        address: dict[str, Any] = {"base_url": base_url, "client": client}
        super().__init__(
            find_endpoint(key, **address),
            address,
            model=model,
            max_retries=max_retries,
            timeout=timeout,
            max_concurrency=max_concurrency,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
        )
        self.max_tokens = max_tokens
        self.thinking = dict(thinking) if thinking is not None else None
        self.cache = cache
        check_switches(retry_streams=retry_streams, streaming=streaming)
        self.retry_streams = retry_streams
        self.streaming = streaming

    def get_web_search_tool(self, *, version: str = "20250305", **settings: Any) -> HostedTool:
        """Return the service's web search, for an agent's tools.

        Args:
            version: of the tool; newer ones need newer models.
            settings: such as `max_uses`, `allowed_domains`, `blocked_domains` and `user_location`.
        """
        return HostedTool(f"web_search_{version}", {"name": "web_search", **settings})

    def get_code_interpreter_tool(self, *, version: str = "20250825", **settings: Any) -> HostedTool:
        """Return the service's code execution, in a container there, for an agent's tools.

        Args:
            version: of the tool; newer ones need newer models.
            settings: in the service's words.
        """
        return HostedTool(f"code_execution_{version}", {"name": "code_execution", **settings})

    def generate(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield the reply, streamed or whole as `request.stream` says."""
        # What a run has for the provider alone may be tools too.
        may_pause = bool(request.client_kwargs) or any(isinstance(tool, HostedTool) for tool in request.tools)
        return self._with_pauses(request) if may_pause else super().generate(request)

    async def _with_pauses(self, request: ChatRequest) -> AsyncGenerator[ChatResponseUpdate, None]:
        """Yield a reply that may pause while the service runs tools, and goes on when it is sent back."""
        for left in reversed(range(_MOST_PAUSES + 1)):
            folder = UpdateFolder()
            async with aclosing(super().generate(request)) as updates:
                async for update in updates:
                    folder.add(update)
                    pauses = update.finish_reason == PAUSED and left > 0
                    yield replace(update, finish_reason=None) if pauses else update
            if folder.finish_reason != PAUSED:
                return
            request = replace(request, messages=[*request.messages, *folder.messages()])

    def _reader(self, request: ChatRequest) -> MessageReader:
        return MessageReader()

    def _body(self, request: ChatRequest, facts: CallFacts) -> dict[str, Any]:
        options = request.options
        defaults: dict[str, Any] = {"max_tokens": self.max_tokens, "thinking": self.thinking}
        sent = wire_options(options, model=facts.model, host=facts.host, **defaults)
        system, messages = wire_messages(request.messages)
        if instruction := output_instruction(options):
            system = [*system, {"type": "text", "text": instruction}]
        body: dict[str, Any] = {"model": facts.model, **sent}
        if request.tools:
            body["tools"] = wire_tools(request.tools)
        if system:
            body["system"] = system
        body["messages"] = messages
        if self.cache:
            mark_for_cache(body, self.cache if isinstance(self.cache, str) else None)
        return {**body, "stream": True} if request.stream else body
