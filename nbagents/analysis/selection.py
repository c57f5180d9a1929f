"""Which runs a table is about: the filters that all tables share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nbagents.analysis.facts import RunFacts
from nbagents.core.errors import ConfigurationError
from nbagents.core.responses import AgentResponse
from nbagents.core.sessions import AgentSession

Selection = str | AgentResponse[Any] | AgentSession | Iterable[str | AgentResponse[Any] | AgentSession] | None
"""A run or session id, a response, a session, or several of them; None is all, an empty list is none."""


@dataclass(slots=True)
class _Chosen:
    """Ids of runs and sessions; a run is chosen if either has it."""

    runs: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)

    def add(self, item: object) -> None:
        if isinstance(item, str):
            self.runs.add(item)
            self.sessions.add(item)
        elif isinstance(item, AgentSession):
            self.sessions.add(item.session_id)
        elif isinstance(item, AgentResponse) and item.run_id is not None:
            self.runs.add(item.run_id)
        else:
            raise _not_a_selection(item)

    def __contains__(self, run: RunFacts) -> bool:
        return run.run_id in self.runs or run.session_id in self.sessions


def select_runs(
    runs: Iterable[RunFacts], selection: Selection, *, run_id: Ids = None, session_id: Ids = None
) -> list[RunFacts]:
    """Return those of `runs` that all three filters let through, in order.

    Raises:
        ConfigurationError: a filter that is none.
    """
    kept = list(runs)
    if selection is not None:
        chosen = _Chosen()
        for item in _items(selection):
            chosen.add(item)
        kept = [run for run in kept if run in chosen]
    if run_id is not None:
        run_ids = _ids("run_id", run_id)
        kept = [run for run in kept if run.run_id in run_ids]
    if session_id is not None:
        session_ids = _ids("session_id", session_id)
        kept = [run for run in kept if run.session_id in session_ids]
    return kept


Ids = str | Iterable[str] | None
"""One id or several; None is all."""


def _items(selection: Any) -> Iterable[Any]:
    if isinstance(selection, str | AgentResponse | AgentSession):
        return [selection]
    if isinstance(selection, Mapping | bytes) or not isinstance(selection, Iterable) or _is_frame(selection):
        raise _not_a_selection(selection)
    return selection


def _ids(name: str, value: Any) -> set[str]:
    ids = {value} if isinstance(value, str) else set(value) if isinstance(value, Iterable) else {value}
    wrong = [type(item).__name__ for item in ids if not isinstance(item, str)]
    if wrong:
        raise ConfigurationError(
            f"{name} is an id or a list of ids, not {wrong[0]}.",
            hint="Pass responses and sessions without a keyword.",
        )
    return ids


def _is_frame(value: object) -> bool:
    import pandas as pd

    return isinstance(value, pd.DataFrame)


def _not_a_selection(value: object) -> ConfigurationError:
    what = "a response without a run" if isinstance(value, AgentResponse) else type(value).__name__
    return ConfigurationError(
        f"A table is filtered by run or session ids, responses, sessions or a list of them, not {what}.",
        hint='Pass response, agent_session, "run_...", or frame["run_id"]; nothing at all gives every run.',
    )
