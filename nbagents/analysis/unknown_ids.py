"""Ids that no run and no session has: an empty table would say nothing, so it is said what was probably meant."""

from __future__ import annotations

import warnings
from collections.abc import Set as AbstractSet
from itertools import islice
from pathlib import Path

from nbagents.analysis.queries import RunQuery, RunSource
from nbagents.analysis.stores import current_store, stored_records
from nbagents.analysis.usage import GROUPINGS, TAG
from nbagents.core.callables import depth_of_caller
from nbagents.core.run import STATUS_OF_STOP_REASON
from nbagents.core.runlog import MAX_RUNS, run_log

_FILES = (".jsonl", ".json", ".db", ".sqlite", ".csv", ".parquet")


def warn_of_unknown_ids(asked: AbstractSet[str], source: RunSource | None) -> None:
    """Say which of the ids no run and no session has, at the line that asked for them.

    Args:
        asked: ids that none of the runs that were read has; another filter may have kept them out.
        source: where the runs come from, as for `stored_records`.
    """
    known = {
        one
        for run in stored_records(RunQuery(ids=asked), source)
        for one in (run.run_id, run.events[0].payload["session_id"])
    }
    unknown = sorted(asked - known)
    if not unknown:
        return
    first, more = unknown[0], f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
    said = f"No run and no session has the id {first!r:.100}{more}. {_hint(first, source)}"
    warnings.warn(said, stacklevel=depth_of_caller())


def _hint(name: str, source: RunSource | None) -> str:
    """What was probably meant by `name`."""
    if name in GROUPINGS or name.startswith(TAG):
        return f"To sum by it: usage_df(by={name!r})."
    if name in STATUS_OF_STOP_REASON.values():
        return f"For the runs that ended so: status={name!r}."
    if name.endswith(_FILES) or "/" in name or "\\" in name:
        return f"A database is read by use_store(url), a file by load_runs({Path(name).name!r:.60})."
    if any(islice(stored_records(RunQuery(agents=[name]), source), 1)):
        return f"For the runs of this agent: agent={name!r:.100}."
    if any(run.events and run.events[0].payload["model"] == name for run in run_log().runs()):
        return f"For the runs that asked for this model: model={name!r:.100}."
    if source is not None or current_store() is not None:
        return "Runs that were not kept, or are kept somewhere else, are not there."
    if len(run_log().runs()) >= MAX_RUNS:
        return f"The log has the last {MAX_RUNS:,} runs; use_store() keeps more."
    return "The log has the runs of this process; load_runs() and use_store() give those of others."
