"""What an embedding client is: texts in, vectors out, and the one method that it writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from nbagents.core.errors import ConfigurationError, InvalidReplyError
from nbagents.core.options import check_names
from nbagents.core.usage import Usage, total_usage

EMBEDDING_OPTIONS = frozenset({"model", "dimensions", "user"})


@dataclass(frozen=True, slots=True, repr=False)
class Embeddings:
    """Vectors of texts, in the order of these: `numpy.array(embeddings)` has shape (texts, dimensions).

    Attributes:
        vectors: one for each text.
        model: the model that made them.
        usage: tokens as reported; None if nothing was.
    """

    vectors: Sequence[Sequence[float]]
    model: str | None = None
    usage: Usage | None = None

    def __repr__(self) -> str:
        size = f" of {len(self.vectors[0])}" if self.vectors else ""
        return f"Embeddings({len(self.vectors)} vectors{size}, model={self.model!r})"

    def __len__(self) -> int:
        return len(self.vectors)

    def __iter__(self) -> Iterator[Sequence[float]]:
        return iter(self.vectors)

    def __getitem__(self, place: int) -> Sequence[float]:
        return self.vectors[place]


class BaseEmbeddingClient(ABC):
    """Speaks to one embedding model. To write one, implement `embed`.

    Attributes:
        model: the model's name; the option `model` overrides it.
        provider: a word for the tables.
        max_batch: the most texts that one request takes.
    """

    model: str | None = None
    provider: str = "custom"
    max_batch: int = 2048

    @abstractmethod
    async def embed(self, texts: Sequence[str], options: Mapping[str, Any]) -> Embeddings:
        """Return the vectors of `texts`, at least one and at most `max_batch`, from one request.

        Raises:
            ModelError: the call failed.
        """

    async def get_embeddings(
        self, values: str | Sequence[str], *, options: Mapping[str, Any] | None = None
    ) -> Embeddings:
        """Return one vector for each of `values`, in their order.

        Args:
            values: a text or several; more than `max_batch` go in several requests, one after the other.
            options: `model`, `dimensions` (the length of the vectors, where the model lets one choose) and `user`.

        Raises:
            ConfigurationError: something else than texts, or an unknown option.
            ModelError: a call failed.
        """
        texts = _as_texts(values)
        chosen = check_names(options, EMBEDDING_OPTIONS)
        parts = [
            await self._part(texts[start : start + self.max_batch], chosen)
            for start in range(0, len(texts), self.max_batch)
        ]
        return Embeddings(
            [vector for part in parts for vector in part],
            next((part.model for part in parts if part.model), chosen.get("model") or self.model),
            total_usage(part.usage for part in parts),
        )

    async def _part(self, texts: Sequence[str], options: Mapping[str, Any]) -> Embeddings:
        part = await self.embed(texts, options)
        if len(part) != len(texts):
            raise InvalidReplyError(f"{len(texts)} texts were sent and {len(part)} vectors came back.")
        return part


def _as_texts(values: str | Sequence[str]) -> list[str]:
    if isinstance(values, str):
        return [values]
    unordered = isinstance(values, bytes | Mapping | AbstractSet)
    texts: list[str] = list(values) if isinstance(values, Iterable) and not unordered else [values]  # type: ignore[list-item]
    for text in texts:
        if not isinstance(text, str):
            raise ConfigurationError(
                f"values are texts, not {type(text).__name__}.", hint="Pass a string or a list of strings."
            )
    return texts
