"""Token counts as reported by a model: `None` is unknown, never 0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from nbagents.core.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one model request, or the sum of several.

    Attributes:
        input_tokens: tokens of the prompt, cached ones included.
        output_tokens: tokens of the reply, reasoning included.
        total_tokens: as reported, else input plus output where both are known.
        cached_input_tokens: the part of the input that was read from the provider's cache.
        cache_write_tokens: the part of the input that was written to it.
        reasoning_tokens: the part of the output that was reasoning.
        audio_input_tokens: the part of the input that was sound.
        audio_output_tokens: the part of the output that was sound.
        partial: names of the fields that some of the summed requests did not report.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    audio_input_tokens: int | None = None
    audio_output_tokens: int | None = None
    partial: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.total_tokens is None and self.input_tokens is not None and self.output_tokens is not None:
            object.__setattr__(self, "total_tokens", self.input_tokens + self.output_tokens)

    def updated(self, later: Usage) -> Usage:
        """Return the state after a later report of the same request: the last known value of each field.

        Reports within one request are running totals, so they are never summed.
        """
        pairs = zip(COUNTS, _values(self), _values(later), strict=True)
        counts = {name: new if new is not None else old for name, old, new in pairs}
        if later.total_tokens is None and (later.input_tokens, later.output_tokens) != (None, None):
            counts["total_tokens"] = None  # the old one is out of date: it is added up again
        return Usage(**counts, partial=())

    def to_dict(self) -> dict[str, Any]:
        """Return the known fields."""
        known = {name: value for name, value in zip(COUNTS, _values(self), strict=True) if value is not None}
        return known | ({"partial": list(self.partial)} if self.partial else {})

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Usage:
        """Read what `to_dict` wrote.

        Raises:
            ConfigurationError: it is something else.
        """
        try:
            return cls(**{**record, "partial": tuple(record.get("partial", ()))})
        except (TypeError, AttributeError) as error:
            raise ConfigurationError(f"This is no usage: {str(record)[:100]!r}.") from error


_NOTHING = Usage()
COUNTS = tuple(f.name for f in fields(Usage) if f.name != "partial")


def total_usage(reports: Iterable[Usage | None]) -> Usage | None:
    """Sum the usage of several requests; None where nothing was reported.

    A field is the sum of what was reported, and named in `partial` where a request did not report it.
    """
    rows = [report or _NOTHING for report in reports]
    if all(row is _NOTHING or row == _NOTHING for row in rows):
        return None
    if len(rows) == 1:
        return rows[0]
    sums: dict[str, int] = {}
    partial = {name for row in rows for name in row.partial}
    for name, values in zip(COUNTS, zip(*map(_values, rows), strict=True), strict=True):
        known = [value for value in values if value is not None]
        if known:
            sums[name] = sum(known)
            if len(known) < len(rows):
                partial.add(name)
    return Usage(**sums, partial=tuple(name for name in COUNTS if name in partial))


def usage_complete(reports: Iterable[Usage | None], total: Usage | None = None) -> bool:
    """Whether the sum of `reports` is exact: each has input and output, and no count is there for some only.

    Args:
        reports: what the requests reported.
        total: the sum, where it is known already.
    """
    rows = list(reports)
    for row in rows:
        if row is None or row.input_tokens is None or row.output_tokens is None or row.partial:
            return False
    return len(rows) < 2 or not (total := total or total_usage(rows)) or not total.partial


def _values(usage: Usage) -> tuple[int | None, ...]:
    return (
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        usage.cached_input_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
        usage.audio_input_tokens,
        usage.audio_output_tokens,
    )
