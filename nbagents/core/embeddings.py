"""What an embedding client is: texts in, vectors out, and the one method that it writes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

from nbagents import loop as loops
from nbagents.core.arguments import exact_arguments
from nbagents.core.baseagent import blocking
from nbagents.core.errors import ConfigurationError, InvalidReplyError, RunCancelledError
from nbagents.core.options import check_names
from nbagents.core.prices import request_cost
from nbagents.core.rates import RateLimits
from nbagents.core.retries import with_retries
from nbagents.core.tokens import estimate_tokens
from nbagents.core.usage import Usage, total_usage

EMBEDDING_OPTIONS = frozenset({"model", "dimensions", "user"})
_TOO_LONG = 1.25
"""How far an estimate must be over the limit of a text: below that, the service itself decides."""
_FULL = 2 / 3
"""How far a request is filled by estimates: a service refuses the whole of one that is too large."""
_MOST_TOKENS_OF_A_CHARACTER = 2
"""By the estimate."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Embeddings:
    """Vectors of texts, in the order of these: `numpy.array(embeddings)` has shape (texts, dimensions).

    Attributes:
        vectors: one for each text, a sequence of floats.
        model: the model that made them.
        usage: tokens as reported; None if nothing was.
        cost_usd: US dollars; None, never 0, if a price or count is unknown.
    """

    vectors: Sequence[Sequence[float]]
    model: str | None = None
    usage: Usage | None = None
    cost_usd: float | None = None

    def __repr__(self) -> str:
        size = f" of {len(self.vectors[0])}" if len(self.vectors) else ""
        return f"Embeddings({len(self.vectors)} vectors{size}, model={self.model!r})"

    def __len__(self) -> int:
        return len(self.vectors)

    def __iter__(self) -> Iterator[Sequence[float]]:
        return iter(self.vectors)

    def __getitem__(self, place: int) -> Sequence[float]:
        return self.vectors[place]


@runtime_checkable
class _Array(Protocol):
    """An array or a table: what comes out of it one by one is a text only where it has one axis."""

    ndim: int


@dataclass(slots=True)
class _Batch:
    """Texts that one request takes."""

    texts: list[str] = field(default_factory=list)
    tokens: int = 0


class BaseEmbeddingClient(ABC):
    """Speaks to one embedding model. To write one, implement `embed`.

    Attributes:
        model: the model's name; the option `model` overrides it.
        provider: a word for the tables and prices.
        max_batch: the most texts that one request takes.
        max_batch_tokens: the most tokens that one request takes; None for no limit.
        max_text_tokens: the most tokens that a text may have; None for no limit.
        exact_counts: `count_tokens` counts what the service does. If not, requests are filled to two thirds, and a text
            must be a quarter over the limit to be refused before it is sent.
        parallel_batches: requests at once for one call, where it needs several.
        max_retries: how often a request that failed is made again, where that can help.
        limits: how much may be asked at once and in a minute, by all calls together.
    """

    model: str | None = None
    provider: str = "custom"
    max_batch: int = 2048
    max_batch_tokens: int | None = None
    max_text_tokens: int | None = None
    exact_counts: bool = False
    parallel_batches: int = 1
    max_retries: int = 0
    limits: RateLimits | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # it holds connections and locks, and nothing of a conversation

    @abstractmethod
    async def embed(self, texts: Sequence[str], options: Mapping[str, Any]) -> Embeddings:
        """Return the vectors of `texts`, at least one and at most `max_batch`, from one request.

        Raises:
            ModelError: the call failed.
        """

    def count_tokens(self, text: str) -> int:
        """Return how many tokens `text` has: `estimate_tokens` of it, where a client has nothing better."""
        return estimate_tokens(text)

    @exact_arguments()
    async def get_embeddings(
        self, values: str | Sequence[str], *, options: Mapping[str, Any] | None = None
    ) -> Embeddings:
        """Return one vector for each of `values`, in their order; no values make no request.

        Args:
            values: a text or several; what is too much for one request goes in several.
            options: `model`, `dimensions` (the length of the vectors, where the model lets one choose) and `user`.

        Raises:
            ConfigurationError: something else than texts, a text that is empty or too long, or an unknown option.
            ModelError: a call failed, also when made again.
        """
        chosen = _checked_options(options)
        batches = self._batches(_as_texts(values))
        parts = await self._parts(batches, chosen)
        vectors = [vector for part in parts for vector in part]
        _check_lengths(vectors, chosen.get("dimensions"))
        asked = chosen.get("model") or self.model
        costs = [self._cost(part, asked or "") for part in parts]
        return Embeddings(
            vectors,
            next((part.model for part in parts if part.model), asked),
            total_usage(part.usage for part in parts),
            sum(cost for cost in costs if cost is not None) if costs and None not in costs else None,
        )

    def get_embeddings_sync(
        self, values: str | Sequence[str], *, options: Mapping[str, Any] | None = None
    ) -> Embeddings:
        """Return what `get_embeddings` does and wait for it: in a script, in a cell, inside a running loop.

        Raises:
            LoopError: called on the loop thread itself, e.g. in an async tool: use `await` there.
        """
        return blocking(
            lambda: loops.run_sync(
                lambda: self.get_embeddings(values, options=options),
                on_cancelled=lambda: RunCancelledError("The call was stopped."),
            )
        )

    def _batches(self, texts: Sequence[str]) -> list[_Batch]:
        """Put texts together up to what one request takes.

        Raises:
            ConfigurationError: a text is empty or too long.
        """
        too_long = _scaled(self.max_text_tokens, 1 if self.exact_counts else _TOO_LONG)
        most = _scaled(self.max_batch_tokens, 1 if self.exact_counts else _FULL)
        counts = self._must_count(texts, too_long, most)
        batches: list[_Batch] = []
        for place, text in enumerate(texts):
            if not text:
                raise ConfigurationError(
                    f"values[{place}] is empty: there is nothing to embed.", hint="Leave empty texts out."
                )
            tokens = self.count_tokens(text) if counts else 0
            if too_long is not None and tokens > too_long:
                raise ConfigurationError(
                    f"values[{place}] has {'' if self.exact_counts else 'about '}{tokens:,} tokens; a text may have"
                    f" {self.max_text_tokens:,}.",
                    hint="Cut it in pieces.",
                )
            full = not batches or len(batches[-1].texts) >= self.max_batch
            if full or (most is not None and batches[-1].tokens + tokens > most):
                batches.append(_Batch())
            batches[-1].texts.append(text)
            batches[-1].tokens += tokens
        return batches

    def _must_count(self, texts: Sequence[str], too_long: float | None, most: float | None) -> bool:
        """Whether the tokens matter; few texts that are short can be too large for nothing."""
        if self.exact_counts or (self.limits is not None and self.limits.tokens_per_minute is not None):
            return True
        longest, whole = max(map(len, texts), default=0), sum(map(len, texts))
        return (too_long is not None and longest * _MOST_TOKENS_OF_A_CHARACTER > too_long) or (
            most is not None and whole * _MOST_TOKENS_OF_A_CHARACTER > most
        )

    async def _parts(self, batches: Sequence[_Batch], options: Mapping[str, Any]) -> list[Embeddings]:
        """The vectors of each batch, a few at once; the first that fails ends the others."""
        if len(batches) < 2 or self.parallel_batches < 2:
            return [await self._part(batch, options) for batch in batches]
        free = asyncio.Semaphore(self.parallel_batches)

        async def part(batch: _Batch) -> Embeddings:
            async with free:
                return await self._part(batch, options)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(part(batch)) for batch in batches]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed.exceptions[0].__cause__
        return [task.result() for task in tasks]

    async def _part(self, batch: _Batch, options: Mapping[str, Any]) -> Embeddings:
        async def embed() -> Embeddings:
            if self.limits is None:
                return await self.embed(batch.texts, options)
            async with self.limits.place(batch.tokens) as place:
                made = await self.embed(batch.texts, options)
                place.note(made.usage)
                return made

        part = await with_retries(embed, retries=self.max_retries)
        if len(part) != len(batch.texts):
            raise InvalidReplyError(f"{len(batch.texts)} texts were sent and {len(part)} vectors came back.")
        return part

    def _cost(self, part: Embeddings, asked: str) -> float | None:
        """US dollars of one request; the price table knows most embedding models only together with a provider."""
        model = part.model or asked
        cost = request_cost(model, part.usage, asked=asked)
        return request_cost(f"{self.provider}/{model}", part.usage) if cost is None else cost


def _scaled(limit: int | None, share: float) -> float | None:
    return None if limit is None else limit * share


def _checked_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    chosen = check_names(options, EMBEDDING_OPTIONS)
    dimensions = chosen.get("dimensions")
    if dimensions is not None and (not isinstance(dimensions, int) or isinstance(dimensions, bool) or dimensions < 1):
        raise ConfigurationError(f"dimensions is a whole number from 1, not {dimensions!r}.")
    return chosen


def _check_lengths(vectors: Sequence[Sequence[float]], wanted: int | None) -> None:
    """Check that the vectors can stand in one table.

    Raises:
        InvalidReplyError: they are of several lengths, or not of the one that was asked for.
    """
    lengths = {len(vector) for vector in vectors}
    if len(lengths) > 1:
        raise InvalidReplyError(f"Vectors of different lengths came back: {sorted(lengths)}.")
    if wanted is not None and lengths - {wanted}:
        raise InvalidReplyError(
            f"Vectors of {min(lengths)} dimensions came back, and {wanted} were asked for.",
            hint="This model or server has no choice: leave the option dimensions out.",
        )


def _as_texts(values: str | Sequence[str]) -> list[str]:
    if isinstance(values, str):
        return [values]
    no_row = isinstance(values, bytes | Mapping | AbstractSet) or (isinstance(values, _Array) and values.ndim != 1)
    if no_row or not isinstance(values, Iterable):
        raise ConfigurationError(
            f"values are texts, not {type(values).__name__}.",
            hint='Pass a string, a list of strings or one column of a table, such as df["text"].',
        )
    texts = list(values)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise ConfigurationError(
                f"values are texts, and values[{place}] is of type {type(text).__name__}.",
                hint='A column with missing values has texts only after df["text"].dropna().',
            )
    return texts
