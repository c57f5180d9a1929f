"""Usage summed by agent, model or whatever else tells runs apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

from nbagents.analysis.columns import COMPLETE, COST, COST_COMPLETE, RUNS, TOKENS
from nbagents.analysis.facts import RequestFacts, RunFacts, TokenCounts, known_cost
from nbagents.analysis.frames import INTEGER, Column
from nbagents.core.errors import ConfigurationError
from nbagents.core.usage import Usage, total_usage, usage_complete

GROUPINGS = {
    column.name: column
    for column in RUNS
    if column.name
    in {"run_id", "parent_run_id", "session_id", "agent", "team", "model", "provider", "stop_reason", "status"}
}
"""The columns by which usage can be summed. `model` is the one that answered, request by request."""

SUMS = [
    Column("n_runs", INTEGER, lambda group: len(group.runs), "runs"),
    Column("n_requests", INTEGER, lambda group: len(group.requests), "requests to the model, retries included"),
    *TOKENS,
    COMPLETE,
    COST,
    COST_COMPLETE,
]


@dataclass(eq=False)
class UsageGroup(TokenCounts):
    """The runs and requests that have the same `key`."""

    key: tuple[Any, ...]
    runs: list[RunFacts] = field(default_factory=list)
    requests: list[RequestFacts] = field(default_factory=list)

    @cached_property
    def usage(self) -> Usage | None:
        """The sum of what was reported."""
        return total_usage(request.usage for request in self.requests)

    @property
    def usage_complete(self) -> bool:
        """Whether every request reported its tokens."""
        return usage_complete(request.usage for request in self.requests)

    @property
    def cost(self) -> float | None:
        """US dollars: the sum of what is known."""
        return known_cost(self.requests)

    @property
    def cost_complete(self) -> bool:
        """Whether the cost of every request is known."""
        return all(request.cost is not None for request in self.requests)


def usage_columns(by: Sequence[str] | str) -> list[Column]:
    """Return the columns of a table of usage by `by`.

    Raises:
        ConfigurationError: something that usage cannot be summed by.
    """
    names = [by] if isinstance(by, str) else list(by)
    unknown = [name for name in names if name not in GROUPINGS]
    if unknown or len(set(names)) < len(names):
        raise ConfigurationError(
            f"Usage cannot be summed by {', '.join(map(repr, unknown or names))}.",
            hint=f"by takes different ones of: {', '.join(GROUPINGS)}.",
        )
    return [_key_column(name, place) for place, name in enumerate(names)] + SUMS


def usage_groups(runs: Iterable[RunFacts], by: Sequence[str] | str) -> list[UsageGroup]:
    """Return the groups, in the order in which they first occur. A run without a request counts as a run."""
    names = [by] if isinstance(by, str) else list(by)
    readers = [_reader(name) for name in names]
    groups: dict[tuple[Any, ...], UsageGroup] = {}
    for run in runs:
        requests: Sequence[RequestFacts | None] = run.requests or [None]
        for request in requests:
            key = tuple(read(run, request) for read in readers)
            group = groups.setdefault(key, UsageGroup(key))
            if not group.runs or group.runs[-1] is not run:
                group.runs.append(run)
            if request is not None:
                group.requests.append(request)
    return list(groups.values())


def _key_column(name: str, place: int) -> Column:
    column = GROUPINGS[name]
    return Column(name, column.dtype, lambda group: group.key[place], column.doc)


def _reader(name: str) -> Any:
    if name == "model":
        return lambda run, request: request.model if request is not None else run.model
    value = GROUPINGS[name].value
    read = attrgetter(value) if isinstance(value, str) else value
    return lambda run, request: read(run)
