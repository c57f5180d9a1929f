"""Usage summed by agent, model or whatever else tells runs apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nbagents.analysis.columns import COMPLETE, COST, COST_COMPLETE, RUNS, TOKENS
from nbagents.analysis.facts import RequestFacts, RunFacts
from nbagents.analysis.frames import INTEGER, TEXT, Column
from nbagents.analysis.jsontext import json_text
from nbagents.analysis.sums import RequestSums
from nbagents.core.errors import ConfigurationError

GROUPINGS = {
    column.name: column
    for column in RUNS
    if column.name
    in {"run_id", "parent_run_id", "session_id", "agent", "team", "model", "provider", "stop_reason", "status"}
}
"""The columns by which usage can be summed. `model` is the one that answered, request by request."""
TAG = "tags."
"""Begins the name of a grouping by a tag."""

SUMS = [
    Column("n_runs", INTEGER, lambda group: len(group.runs), "runs"),
    Column("n_requests", INTEGER, lambda group: len(group.requests), "requests to the model, retries included"),
    *TOKENS,
    COMPLETE,
    COST,
    COST_COMPLETE,
]


class UsageGroup(RequestSums):
    """The runs and requests that have the same `key`."""

    def __init__(
        self, key: tuple[Any, ...], runs: Iterable[RunFacts] = (), requests: Iterable[RequestFacts] = ()
    ) -> None:
        self.key = key
        self.runs = list(runs)
        self._requests = list(requests)

    @property
    def requests(self) -> list[RequestFacts]:
        """The requests, retries included."""
        return self._requests


def usage_columns(by: Sequence[str] | str) -> list[Column]:
    """Return the columns of a table of usage by `by`.

    Raises:
        ConfigurationError: something that usage cannot be summed by.
    """
    names = _names(by)
    unknown = [name for name in names if not _is_grouping(name)]
    if unknown or len(set(names)) < len(names):
        raise ConfigurationError(
            f"Usage cannot be summed by {', '.join(map(repr, unknown or names))}.",
            hint=f"by takes different ones of: {', '.join(GROUPINGS)}, and tags.NAME.",
        )
    return [_key_column(name, place) for place, name in enumerate(names)] + SUMS


def usage_groups(runs: Iterable[RunFacts], by: Sequence[str] | str) -> list[UsageGroup]:
    """Return the groups, in the order in which they first occur. A run without a request counts as a run."""
    readers = [_reader(name) for name in _names(by)]
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


def _names(by: Sequence[str] | str) -> list[str]:
    return list(by) if isinstance(by, Iterable) and not isinstance(by, str) else [by]


def _is_grouping(name: object) -> bool:
    return isinstance(name, str) and (name in GROUPINGS or (name.startswith(TAG) and name != TAG))


def _key_column(name: str, place: int) -> Column:
    if name.startswith(TAG):
        return Column(name, TEXT, lambda group: group.key[place], f"the tag {name.removeprefix(TAG)}")
    column = GROUPINGS[name]
    return Column(name, column.dtype, lambda group: group.key[place], column.doc)


def _reader(name: str) -> Callable[[RunFacts, RequestFacts | None], Any]:
    if name == "model":
        return lambda run, request: request.model if request is not None else run.model
    if name.startswith(TAG):
        return lambda run, request: _tag_text(run, name.removeprefix(TAG))
    read = GROUPINGS[name].read
    return lambda run, request: read(run)


def _tag_text(run: RunFacts, tag: str) -> str | None:
    value = run.facts["tags"].get(tag)
    return value if value is None or isinstance(value, str) else json_text(value)
