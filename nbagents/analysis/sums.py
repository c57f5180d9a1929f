"""What a number of model requests took together: the sums that runs and groups of runs share."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from nbagents.core.usage import Usage, total_usage, usage_complete

if TYPE_CHECKING:
    from nbagents.analysis.facts import RequestFacts


UNKNOWN = Usage()


class TokenCounts:
    """The counts of a `usage`, each None where nothing was reported."""

    __slots__ = ()
    usage: Usage | None

    @property
    def counts(self) -> Usage:
        """What was reported, or that nothing was."""
        return self.usage or UNKNOWN

    def count(self, name: str) -> int | None:
        """One of the counts, by its name in `Usage`."""
        value: int | None = getattr(self.counts, name)
        return value


class RequestSums(TokenCounts):
    """The sums of `requests`: of what was reported, and whether that was all."""

    @property
    def requests(self) -> list[RequestFacts]:
        """The requests, retries included."""
        raise NotImplementedError

    @cached_property
    def usage(self) -> Usage | None:  # type: ignore[override]  # nobody writes it
        """The sum of what was reported."""
        return total_usage(request.usage for request in self.requests)

    @property
    def usage_complete(self) -> bool:
        """Whether every request reported its tokens."""
        return usage_complete((request.usage for request in self.requests), self.usage)

    @cached_property
    def _costs(self) -> list[float | None]:
        return [request.cost for request in self.requests]

    @property
    def cost(self) -> float | None:
        """US dollars: the sum of what is known, None if nothing is."""
        known = [cost for cost in self._costs if cost is not None]
        return sum(known) if known else None

    @property
    def cost_complete(self) -> bool:
        """Whether the cost of every request is known."""
        return None not in self._costs
