"""The run log as joined, typed tables."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from nbagents.analysis.blocks import blocks_of
from nbagents.analysis.columns import ARTIFACTS, EVENTS, MESSAGES, REQUESTS, RUNS, TOOL_CALLS
from nbagents.analysis.conversations import called_tools, placed_messages
from nbagents.analysis.facts import EventFacts, RunFacts
from nbagents.analysis.frames import Column, build_frame, read_block
from nbagents.analysis.jsontext import clean_text
from nbagents.analysis.progress import progress
from nbagents.analysis.selection import Filters, Selection, chosen_runs, whole_sessions
from nbagents.analysis.stored_events import stored_payloads
from nbagents.analysis.usage import SUMS, usage_columns, usage_groups
from nbagents.core.events import RunEvent

if TYPE_CHECKING:
    import pandas as pd

F = TypeVar("F", bound=Callable[..., Any])


def _documented(columns: Sequence[Column]) -> Callable[[F], F]:
    """Give a function that returns a table what all of them have: the filters and the columns in its docstring.

    Its signature names the filters too, so that an editor offers them.
    """

    def documented(function: F) -> F:
        listed = "\n".join(f"        {column.name} ({column.dtype_name}): {column.doc}" for column in columns)
        filters = inspect.getdoc(Filters) or ""
        described = filters.partition("Attributes:\n")[2].rstrip().replace("\n    ", "\n        ")
        text = (function.__doc__ or "").replace("{filters}", described.strip())
        function.__doc__ = f"{text.rstrip()}\n\n    Columns:\n{listed}\n    "
        signature = inspect.signature(function)
        named = [kept for kept in signature.parameters.values() if kept.kind is not kept.VAR_KEYWORD]
        named += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=hint.__forward_arg__)
            for name, hint in Filters.__annotations__.items()
        ]
        function.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
        return function

    return documented


@_documented(RUNS)
def runs_df(selection: Selection = None, /, **filters: Unpack[Filters]) -> pd.DataFrame:
    """Return one row for each run, oldest first: also failed, cancelled and still going ones.

    Every table joins on `run_id`; `parent_run_id` is the `run_id` of the run in whose tool it began, and runs of one
    conversation have the same `session_id`.

    Args:
        selection: a response, a session, an id of a run or session, what has `run_ids`, or a list of these; or a store,
            as `use_store` and `load_runs` return it. None is all, `[]` none.
        {filters}

    Returns:
        A frame with always the same columns and dtypes. Totals sum what was reported; what is unknown is missing.

    Raises:
        ConfigurationError: a filter that there is not, or a value that it cannot have.

    Example:
        >>> runs_df([]).shape[0]
        0
    """
    runs = progress(chosen_runs(selection, filters), "Reading")
    return build_frame(RUNS, (block for _, block in blocks_of("runs_df", runs, lambda run: [run])))


@_documented(REQUESTS)
def requests_df(selection: Selection = None, /, **filters: Unpack[Filters]) -> pd.DataFrame:
    """Return one row for each request to a model, oldest run first; each retry has its own.

    It joins on `run_id`, and on `run_id` and `step` to the calls that came of it.

    Args:
        selection: which runs, as for `runs_df`. All filters choose runs; every request of these has its row.
        {filters}

    Raises:
        ConfigurationError: a filter that there is not, or a value that it cannot have.

    Example:
        >>> list(requests_df([]))[:3]
        ['request_id', 'run_id', 'step']
    """
    runs = progress(chosen_runs(selection, filters), "Reading")
    return build_frame(REQUESTS, (block for _, block in blocks_of("requests_df", runs, lambda run: run.requests)))


@_documented(MESSAGES)
def messages_df(selection: Selection = None, /, **filters: Unpack[Filters]) -> pd.DataFrame:
    """Return one row for each message that a run took up or added, oldest run first, in the order of the conversation.

    It joins on `run_id` and `session_id`, and the answer of a tool on `tool_call_id` to `tool_calls_df`.

    Args:
        selection: which runs, as for `runs_df`. All filters choose runs; every message of these has its row.
        {filters}

    Raises:
        ConfigurationError: a filter that there is not, or a value that it cannot have.

    Example:
        >>> messages_df([]).role.cat.categories.tolist()
        ['system', 'user', 'assistant', 'tool']
    """
    runs, chosen = whole_sessions(selection, filters)
    placed = placed_messages(progress(runs, "Reading"))
    return build_frame(MESSAGES, (block for run_id, block in placed if chosen is None or run_id in chosen))


@_documented(TOOL_CALLS)
def tool_calls_df(selection: Selection = None, /, **filters: Unpack[Filters]) -> pd.DataFrame:
    """Return one row for each call that a model made, oldest run first: also failed, refused and waiting ones.

    A call that waited for approval belongs to the run in which the model made it.
    It joins on `run_id`, on `run_id` and `step` to `requests_df`, and on `tool_call_id` to messages and artifacts.

    Args:
        selection: which runs, as for `runs_df`. All filters choose runs; every call of these has its row.
        {filters}

    Raises:
        ConfigurationError: a filter that there is not, or a value that it cannot have.

    Example:
        >>> str(tool_calls_df([]).dtypes["duration_s"])
        'Float64'
    """
    runs, chosen = whole_sessions(selection, filters)
    called = called_tools(progress(runs, "Reading"))
    return build_frame(TOOL_CALLS, (block for run_id, block in called if chosen is None or run_id in chosen))


@_documented(EVENTS)
def events_df(selection: Selection = None, /, **filters: Unpack[Filters]) -> pd.DataFrame:
    """Return one row for each event of the log, oldest run first. What is only streamed (deltas) is not kept.

    It joins on `run_id`, and on `event_id` to the `artifact_id` of `artifacts_df`.

    Args:
        selection: which runs, as for `runs_df`. All filters choose runs; every event of these has its row.
        {filters}

    Raises:
        ConfigurationError: a filter that there is not, or a value that it cannot have.

    Example:
        >>> events_df([]).attrs["schema_version"]
        1
    """
    runs = progress(chosen_runs(selection, filters), "Reading")
    return build_frame(EVENTS, (block for _, block in blocks_of("events_df", runs, _written_events)))


@_documented(ARTIFACTS)
def artifacts_df(selection: Selection = None, /, **filters: Unpack[Filters]) -> pd.DataFrame:
    """Return one row for each thing that a tool handed out beside its result, oldest run first.

    It joins on `run_id`, on `tool_call_id` to `tool_calls_df`, and on `artifact_id` to the `event_id` of `events_df`.

    Args:
        selection: which runs, as for `runs_df`. All filters choose runs; every artifact of these has its row.
        {filters}

    Raises:
        ConfigurationError: a filter that there is not, or a value that it cannot have.

    Example:
        >>> len(artifacts_df([]))
        0
    """
    runs = progress(chosen_runs(selection, filters), "Reading")
    return build_frame(ARTIFACTS, (block for _, block in blocks_of("artifacts_df", runs, _artifacts)))


@_documented(SUMS)
def usage_df(
    selection: Selection = None, /, *, by: Sequence[str] | str = ("agent", "model"), **filters: Unpack[Filters]
) -> pd.DataFrame:
    """Return the usage of the runs summed by some of their columns, one row for each group, in order of appearance.

    Runs of sub-agents are runs of their own: `by=["parent_run_id"]` tells them apart, and nothing is counted twice.

    Args:
        selection: which runs, as for `runs_df`.
        by: run_id, parent_run_id, session_id, agent, team, model (the one that answered), provider, stop_reason, status
            or tags.NAME, one or several; an empty list gives one row for everything.
        {filters}

    Returns:
        The columns of `by`, then the sums of what was reported; what is unknown is missing, never 0.

    Raises:
        ConfigurationError: a filter that there is not, a value that it cannot have, or something that usage cannot be
            summed by.

    Example:
        >>> list(usage_df([], by="model"))[:3]
        ['model', 'n_runs', 'n_requests']
    """
    columns = usage_columns(by)
    return build_frame(
        columns, [read_block(columns, usage_groups(progress(chosen_runs(selection, filters), "Reading"), by))]
    )


def _artifacts(run: RunFacts) -> list[EventFacts]:
    return _events(run, [event for event in run.events if event.name == "artifact.emitted"], repeat(None))


def _written_events(run: RunFacts) -> list[EventFacts]:
    return _events(run, run.events, stored_payloads(run.events, "full"))


def _events(run: RunFacts, events: Sequence[RunEvent], texts: Iterable[str | None]) -> list[EventFacts]:
    run_id, started_at = clean_text(run.run_id), run.started_at
    return [
        EventFacts(f"{run_id}:{event.sequence}", run_id, event, event.timestamp - started_at, text)
        for event, text in zip(events, texts, strict=False)
    ]
