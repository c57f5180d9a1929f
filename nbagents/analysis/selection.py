"""Which runs a table or plot is about: the filters that all of them share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Protocol, TypedDict, runtime_checkable

from nbagents.analysis.facts import RunFacts
from nbagents.analysis.queries import RunQuery, RunSource
from nbagents.analysis.stores import stored_records
from nbagents.analysis.unknown_ids import warn_of_unknown_ids
from nbagents.core.errors import ConfigurationError
from nbagents.core.notes import HasRunId
from nbagents.core.run import STATUS_OF_STOP_REASON
from nbagents.core.sessions import AgentSession
from nbagents.core.tagging import TagValue, is_tag_value


@runtime_checkable
class HasRunIds(Protocol):
    """What consists of several runs: the result of a team or an experiment."""

    @property
    def run_ids(self) -> Iterable[str]:
        """The runs."""
        ...


Selected = str | HasRunId | AgentSession | HasRunIds
Selection = Selected | RunSource | Iterable[Selected] | None
"""A run or session id, what has a `run_id` or `run_ids`, a session, or several of them; or a store. None is all."""
Ids = str | Iterable[str] | None
"""One name or several; None is all, an empty list is none."""
STATUSES = tuple(dict.fromkeys(STATUS_OF_STOP_REASON.values()))


class Filters(TypedDict, total=False):
    """The keyword arguments of every table and plot. A run counts if it passes all of them; None lets all pass.

    Attributes:
        run_id: only this run, or one of these.
        session_id: only runs of this conversation, or one of these.
        agent: only runs of the agent with this name, or one of these.
        model: only runs that asked for this model or were answered by it, or one of these.
        status: only runs that ended so, or in one of these ways: ok, error, cancelled, limit or approval.
        tag: only runs with all these tags, as `{"experiment": "a"}`; a list as value: one of these.
        since: only runs that started at this time or later, a datetime with a time zone.
        until: only runs that started before this time.
    """

    run_id: Ids
    session_id: Ids
    agent: Ids
    model: Ids
    status: Ids
    tag: Mapping[str, TagValue | Collection[TagValue]] | None
    since: datetime | None
    until: datetime | None


FILTERS = tuple(Filters.__annotations__)


def chosen_runs(selection: Selection, filters: Filters) -> Iterator[RunFacts]:
    """Yield the runs that `selection` and all `filters` let through, oldest first.

    Raises:
        ConfigurationError: a filter that there is not, or a value that it cannot have.
    """
    return _read(_request(selection, filters))


def whole_sessions(selection: Selection, filters: Filters) -> tuple[Iterator[RunFacts], Collection[str] | None]:
    """Yield all runs of the sessions of the chosen runs, oldest first, and tell the ids of those; None is all.

    What a message is the first of, and what became of a call, only the other runs of the session know.

    Raises:
        ConfigurationError: a filter that there is not, or a value that it cannot have.
    """
    request = _request(selection, filters)
    if request == _Request(RunQuery(), request.source):
        return _read(request), None
    chosen = {run.run_id: run.session_id for run in _read(request)}
    return _read(_Request(RunQuery(session_ids=set(chosen.values())), request.source)), chosen.keys()


def check_filters(filters: Mapping[str, Any]) -> None:
    """Check the names of `filters`.

    Raises:
        ConfigurationError: one that there is not.
    """
    for name in filters:
        if name not in FILTERS:
            raise ConfigurationError(f"There is no filter {name!r}.", hint=_nearest(name, FILTERS))


@dataclass(frozen=True)
class _Request:
    """Which runs are wanted.

    Attributes:
        query: what can be asked of a store.
        source: which one.
        models: what is left to be checked: models.
        tags: and tags.
        asked: ids that somebody has named, so that they should be there.
    """

    query: RunQuery
    source: RunSource | None
    models: Collection[str] | None = None
    tags: Mapping[str, list[TagValue]] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()


def _read(request: _Request) -> Iterator[RunFacts]:
    missing = set(request.asked)
    for record in stored_records(request.query, request.source):
        run = RunFacts(record)
        if missing:
            missing -= {run.run_id, run.session_id}
        if (request.models is None or _has_model(run, request.models)) and _has_tags(run, request.tags):
            yield run
    if missing:
        warn_of_unknown_ids(missing, request.source)


def _request(selection: Selection, filters: Filters) -> _Request:
    check_filters(filters)
    source = selection if isinstance(selection, RunSource) else None
    query = RunQuery(
        run_ids=_names("run_id", filters.get("run_id")),
        session_ids=_names("session_id", filters.get("session_id")),
        agents=_names("agent", filters.get("agent")),
        statuses=_statuses(filters.get("status")),
        since=_moment("since", filters.get("since")),
        until=_moment("until", filters.get("until")),
    )
    asked = {*(query.run_ids or ()), *(query.session_ids or ())}
    if source is None and selection is not None:
        chosen: set[str] = set()
        for item in _items(selection):
            found = set(_ids(item))
            chosen |= found
            if not isinstance(item, AgentSession):  # which may have no run yet
                asked |= found
        query = replace(query, ids=chosen)
    models, tags = _names("model", filters.get("model")), _tags(filters.get("tag"))
    return _Request(query, source, models, tags, frozenset(asked))


def _items(selection: Any) -> Iterable[Any]:
    if isinstance(selection, Mapping | bytes) or _is_frame(selection):
        raise _not_a_selection(selection)
    if isinstance(selection, str | HasRunId | AgentSession | HasRunIds):
        return [selection]
    if not isinstance(selection, Iterable):
        raise _not_a_selection(selection)
    return selection


def _ids(item: object) -> Iterable[str]:
    """The runs and sessions that `item` stands for."""
    if isinstance(item, str):
        return [item]
    if isinstance(item, AgentSession):
        return [item.session_id]
    if isinstance(item, HasRunId) and isinstance(item.run_id, str):
        return [item.run_id]
    if isinstance(item, HasRunIds):
        return item.run_ids
    raise _not_a_selection(item)


def _names(filter_name: str, value: Any) -> set[str] | None:
    if value is None:
        return None
    names = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    wrong = [type(item).__name__ for item in names if not isinstance(item, str)]
    if wrong:
        what = "an id or a list of ids" if filter_name.endswith("_id") else "a name or a list of names"
        raise ConfigurationError(
            f"{filter_name} is {what}, not {wrong[0]}.", hint="Pass responses and sessions without a keyword."
        )
    return set(names)


def _statuses(value: Any) -> set[str] | None:
    statuses = _names("status", value)
    for status in sorted(statuses or ()):
        if status not in STATUSES:
            raise ConfigurationError(
                f"No run ends with the status {status!r}.",
                hint=f"{_nearest(status, STATUSES)} For rows that tell more, filter the frame by its own columns.",
            )
    return statuses


def _moment(filter_name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None or value != value:
        what = f"{value} has none" if isinstance(value, datetime) else f"not {type(value).__name__}"
        raise ConfigurationError(
            f"{filter_name} is a datetime with a time zone; {what}.",
            hint="Use datetime.now(UTC) - timedelta(days=1), pd.Timestamp(..., tz='UTC'), or .astimezone().",
        )
    return value.timestamp() - 5e-7  # tables round to microseconds: what they say of a start is that start


def _tags(value: Any) -> dict[str, list[TagValue]]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigurationError(
            f"tag is a dict of names and values, not {value!r:.100}.", hint='Pass tag={"experiment": "a"}.'
        )
    wanted: dict[str, list[TagValue]] = {}
    for name, values in value.items():
        wanted[name] = list(values) if isinstance(values, list | tuple | set | frozenset) else [values]
        for one in wanted[name]:
            if not is_tag_value(one):
                raise ConfigurationError(f"The tag {name!r} is a text, a number or a bool, not {one!r:.100}.")
    return wanted


def _has_model(run: RunFacts, models: Collection[str]) -> bool:
    return run.model in models or any(request.model in models for request in run.requests)


def _has_tags(run: RunFacts, wanted: Mapping[str, list[TagValue]]) -> bool:
    tags = run.facts["tags"]
    return all(
        name in tags
        and any(tags[name] == one and isinstance(tags[name], bool) == isinstance(one, bool) for one in some)
        for name, some in wanted.items()
    )


def _nearest(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}."


def _is_frame(value: object) -> bool:
    import pandas as pd

    return isinstance(value, pd.DataFrame)


def _not_a_selection(value: object) -> ConfigurationError:
    nowhere = isinstance(value, HasRunId) and value.run_id is None
    what = "a response without a run" if nowhere else type(value).__name__
    return ConfigurationError(
        f"A table is filtered by run or session ids, responses, sessions or a list of them, not {what}.",
        hint='Pass response, agent_session, "run_...", or frame["run_id"]; nothing at all gives every run.',
    )
