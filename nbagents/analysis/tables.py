"""The run log as joined, typed tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nbagents.analysis.columns import EVENTS, MESSAGES, REQUESTS, RUNS, TOOL_CALLS
from nbagents.analysis.facts import EventFacts, logged_runs, placed_messages, settled_calls
from nbagents.analysis.frames import build_frame, lists_columns
from nbagents.analysis.selection import Ids, Selection, select_runs
from nbagents.analysis.usage import SUMS, usage_columns, usage_groups

if TYPE_CHECKING:
    import pandas as pd


@lists_columns(RUNS)
def runs_df(selection: Selection = None, /, *, run_id: Ids = None, session_id: Ids = None) -> pd.DataFrame:
    """Return one row for each run, oldest first: also failed, cancelled and still going ones.

    Args:
        selection: a response, a session, an id of a run or session, or a list of these; None is all, `[]` none.
        run_id: only runs with this id, or one of these.
        session_id: only runs of this conversation, or one of these.

    Returns:
        A frame with always the same columns and dtypes. Totals sum what was reported; what is unknown is missing.

    Raises:
        ConfigurationError: a filter that is none.

    Example:
        >>> runs_df([]).shape[0]
        0
    """
    return build_frame(RUNS, select_runs(logged_runs(), selection, run_id=run_id, session_id=session_id))


@lists_columns(REQUESTS)
def requests_df(selection: Selection = None, /, *, run_id: Ids = None, session_id: Ids = None) -> pd.DataFrame:
    """Return one row for each request to a model, oldest run first; each retry has its own.

    Args:
        selection: a response, a session, an id of a run or session, or a list of these; None is all, `[]` none.
        run_id: only requests of this run, or one of these.
        session_id: only requests of this conversation, or one of these.

    Raises:
        ConfigurationError: a filter that is none.

    Example:
        >>> list(requests_df([]))[:3]
        ['request_id', 'run_id', 'step']
    """
    chosen = select_runs(logged_runs(), selection, run_id=run_id, session_id=session_id)
    return build_frame(REQUESTS, [request for run in chosen for request in run.requests])


@lists_columns(MESSAGES)
def messages_df(selection: Selection = None, /, *, run_id: Ids = None, session_id: Ids = None) -> pd.DataFrame:
    """Return one row for each message that a run took up or added, oldest run first, in the order of the conversation.

    Args:
        selection: a response, a session, an id of a run or session, or a list of these; None is all, `[]` none.
        run_id: only messages of this run, or one of these.
        session_id: only messages of this conversation, or one of these.

    Raises:
        ConfigurationError: a filter that is none.

    Example:
        >>> messages_df([]).role.cat.categories.tolist()
        ['system', 'user', 'assistant', 'tool']
    """
    runs = logged_runs()
    chosen = set(select_runs(runs, selection, run_id=run_id, session_id=session_id))
    return build_frame(MESSAGES, [row for row in placed_messages(runs) if row.run in chosen])


@lists_columns(TOOL_CALLS)
def tool_calls_df(selection: Selection = None, /, *, run_id: Ids = None, session_id: Ids = None) -> pd.DataFrame:
    """Return one row for each call that a model made, oldest run first: also failed, refused and waiting ones.

    A call that waited for approval belongs to the run in which the model made it.

    Args:
        selection: a response, a session, an id of a run or session, or a list of these; None is all, `[]` none.
        run_id: only calls of this run, or one of these.
        session_id: only calls of this conversation, or one of these.

    Raises:
        ConfigurationError: a filter that is none.

    Example:
        >>> str(tool_calls_df([]).dtypes["duration_s"])
        'Float64'
    """
    runs = logged_runs()
    chosen = set(select_runs(runs, selection, run_id=run_id, session_id=session_id))
    return build_frame(TOOL_CALLS, [call for call in settled_calls(runs) if call.run in chosen])


@lists_columns(EVENTS)
def events_df(selection: Selection = None, /, *, run_id: Ids = None, session_id: Ids = None) -> pd.DataFrame:
    """Return one row for each event of the log, oldest run first. What is only streamed (deltas) is not kept.

    Args:
        selection: a response, a session, an id of a run or session, or a list of these; None is all, `[]` none.
        run_id: only events of this run, or one of these.
        session_id: only events of this conversation, or one of these.

    Raises:
        ConfigurationError: a filter that is none.

    Example:
        >>> events_df([]).attrs["schema_version"]
        1
    """
    chosen = select_runs(logged_runs(), selection, run_id=run_id, session_id=session_id)
    return build_frame(EVENTS, [EventFacts(run, event) for run in chosen for event in run.events])


@lists_columns(SUMS)
def usage_df(
    selection: Selection = None,
    /,
    *,
    by: Sequence[str] | str = ("agent", "model"),
    run_id: Ids = None,
    session_id: Ids = None,
) -> pd.DataFrame:
    """Return the usage of the runs summed by some of their columns, one row for each group, in order of appearance.

    Args:
        selection: a response, a session, an id of a run or session, or a list of these; None is all, `[]` none.
        by: run_id, parent_run_id, session_id, agent, team, model (the one that answered), provider, stop_reason or
            status, one or several; an empty list gives one row for everything.
        run_id: only this run, or one of these.
        session_id: only this conversation, or one of these.

    Returns:
        The columns of `by`, then the sums of what was reported; what is unknown is missing, never 0.

    Raises:
        ConfigurationError: a filter that is none, or something that usage cannot be summed by.

    Example:
        >>> list(usage_df([], by="model"))[:3]
        ['model', 'n_runs', 'n_requests']
    """
    columns = usage_columns(by)
    chosen = select_runs(logged_runs(), selection, run_id=run_id, session_id=session_id)
    return build_frame(columns, usage_groups(chosen, by))
