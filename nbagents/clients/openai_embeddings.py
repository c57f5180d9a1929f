"""`OpenAIEmbeddingClient`: vectors of texts from OpenAI, Azure OpenAI and any compatible server."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nbagents.clients.call_errors import CallFacts, invalid_reply, reported_error
from nbagents.clients.chat_replies import read_usage
from nbagents.clients.endpoints import ApiKey, Secret, TokenProvider
from nbagents.clients.openai_base import OpenAIClient
from nbagents.clients.wire_text import clean_text
from nbagents.core.arguments import exact_arguments
from nbagents.core.embeddings import BaseEmbeddingClient, Embeddings
from nbagents.core.errors import BadRequestError, ConfigurationError, InvalidReplyError
from nbagents.core.tokens import Counter, TokenCounter
from nbagents.core.usage import Usage

if TYPE_CHECKING:
    import numpy as np
    from openai import AsyncOpenAI

PATH = "/embeddings"
PARALLEL_BATCHES = 4
"""Requests at once for one call that needs several; `max_concurrency` is for all calls together."""


class OpenAIEmbeddingClient(OpenAIClient, BaseEmbeddingClient):
    """Turns texts into vectors, at OpenAI, at Azure OpenAI and at any compatible server.

    Many texts go in several requests, four at once; a request that fails on the way is made again. Vectors come in the
    order of the texts, as numpy arrays of `float32`. A recording does not cover them: they are asked for each time.

    Args:
        model: the model's name; at Azure the deployment's.
        api_key: as of `OpenAIChatClient`, like all that says where the endpoint is.
        base_url: where the server is, usually ending in `/v1`.
        client: an `AsyncOpenAI` of yours, or a function that makes one for each event loop.
        azure_endpoint: the address of an Azure OpenAI resource.
        api_version: of Azure OpenAI.
        azure_ad_token_provider: what returns tokens for Azure OpenAI.
        max_retries: how often a request that failed is sent again.
        timeout: seconds without a byte after which a request fails.
        max_concurrency: requests at once, across calls, tasks, threads and loops.
        requests_per_minute: requests that begin within any 60 seconds, shared in the same way.
        tokens_per_minute: tokens within any 60 seconds, shared in the same way.
        max_batch: the most texts in one request; 2,048 at OpenAI.
        max_batch_tokens: the most tokens in one request; 300,000 at OpenAI.
        max_text_tokens: the most tokens of one text; 8,192 at OpenAI. One that has more is an error before any request.
        count_tokens: counts the tokens of a text, such as `tiktoken.get_encoding("cl100k_base").encode_ordinary`.
            Without it they are estimated, and so with a margin: requests are filled to two thirds, and a text must be a
            quarter over its limit to be refused here.

    Raises:
        ConfigurationError: no key, or arguments that do not fit.

    Example:
        >>> OpenAIEmbeddingClient("bge-m3", base_url="http://localhost:8000/v1", max_batch=32)
        OpenAIEmbeddingClient('bge-m3', host='localhost:8000')
    """

    model: str
    provider: str = "openai"
    kept = (*OpenAIClient.kept, "max_batch", "max_batch_tokens", "max_text_tokens")
    parallel_batches = PARALLEL_BATCHES

    @exact_arguments()
    def __init__(
        self,
        model: str = "text-embedding-3-small",
        *,
        api_key: ApiKey | None = None,
        base_url: str | None = None,
        client: AsyncOpenAI | Callable[[], AsyncOpenAI] | None = None,
        azure_endpoint: str | None = None,
        api_version: str | None = None,
        azure_ad_token_provider: TokenProvider | None = None,
        max_retries: int = 2,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        max_batch: int = 2_048,
        max_batch_tokens: int | None = 300_000,
        max_text_tokens: int | None = 8_192,
        count_tokens: Counter | None = None,
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
        self.max_batch = _checked("max_batch", max_batch)
        self.max_batch_tokens = None if max_batch_tokens is None else _checked("max_batch_tokens", max_batch_tokens)
        self.max_text_tokens = None if max_text_tokens is None else _checked("max_text_tokens", max_text_tokens)
        self._counter = TokenCounter(count_tokens)
        self.exact_counts = self._counter.exact
        self._takes_base64 = True
        self._settings["count_tokens"] = count_tokens

    def count_tokens(self, text: str) -> int:
        """Return how many tokens `text` has, by the function that was given or by `estimate_tokens`."""
        return self._counter.text(text)

    async def embed(self, texts: Sequence[str], options: Mapping[str, Any]) -> Embeddings:
        """Return the vectors of `texts` from one request."""
        body = {"model": self.model, **options, "input": [clean_text(text) for text in texts]}
        answer = await self._asked(body)
        opened = await self._clients.current()
        facts = CallFacts(body["model"], opened.host, opened.package, expected="embeddings")
        if not isinstance(answer, dict) or not isinstance(answer.get("data"), list):
            if isinstance(answer, dict) and answer.get("error"):
                raise reported_error(answer["error"], facts)
            raise invalid_reply("JSON without embeddings", json.dumps(answer), facts)
        vectors = _in_order(answer["data"], len(texts), opened.host)
        model = answer.get("model")
        return Embeddings(vectors, model if isinstance(model, str) and model else None, _usage_of(answer.get("usage")))

    async def _asked(self, body: dict[str, Any]) -> Any:
        """Send one request, for vectors in a form that is a quarter as long, unless the server does not know it."""
        if self._takes_base64:
            try:
                return await self.ask("POST", PATH, body={**body, "encoding_format": "base64"})
            except BadRequestError as error:
                if "encoding_format" not in (error.body_text or ""):
                    raise
                self._takes_base64 = False
        return await self.ask("POST", PATH, body=body)


def _in_order(entries: Sequence[Any], number: int, host: str) -> list[Any]:
    """Return the vectors by their `index`; of a server that numbers none, as they come.

    Raises:
        InvalidReplyError: there are not as many as texts, or one is no vector.
    """
    if len(entries) != number:
        raise _odd(f"{len(entries)} vectors for {number} texts", host)
    vectors = [_vector_of(entry, host) for entry in entries]
    places = [entry.get("index") for entry in entries]
    if all(place is None for place in places):
        return vectors
    if sorted(place for place in places if type(place) is int) != list(range(number)):
        raise _odd(f"vectors that are not numbered from 0 to {number - 1}", host)
    found = dict(zip(places, vectors, strict=True))
    return [found[place] for place in range(number)]


def _vector_of(entry: Any, host: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    import numpy as np

    given = entry.get("embedding") if isinstance(entry, dict) else None
    try:
        if isinstance(given, str):
            vector = np.frombuffer(b64decode(given, validate=True), dtype="<f4").astype(np.float32, copy=False)
        else:
            with np.errstate(over="ignore"):  # it is told below
                vector = np.asarray(given, dtype=np.float32)
    except (ValueError, TypeError, OverflowError) as error:
        raise _odd("something that is no vector", host) from error
    if vector.ndim != 1 or not vector.size:
        raise _odd("something that is no vector", host)
    if not np.isfinite(vector).all():
        raise _odd("a vector with values that are no finite numbers", host)
    return vector


def _odd(what: str, host: str) -> InvalidReplyError:
    return InvalidReplyError(
        f"{host} answered with {what}.", hint="The fault is the server's: does it run this model?", status=200
    )


def _checked(name: str, value: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{name} is a whole number from 1, not {value!r}.")
    return value


def _usage_of(reported: Any) -> Usage | None:
    """The tokens of a request; there is no output that could be unknown."""
    counts = read_usage(reported)
    sent = None if counts is None else counts.total_tokens if counts.input_tokens is None else counts.input_tokens
    return None if sent is None else Usage(input_tokens=sent, output_tokens=0)
