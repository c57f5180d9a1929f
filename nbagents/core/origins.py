"""What somebody above an agent settles about the run that it begins: its id, its parent, what its tools get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbagents.core.journal import RunJournal
    from nbagents.core.run import RunContext


@dataclass(slots=True, eq=False)
class RunOrigin:
    """The side of a run that is not the business of who calls `agent.run`.

    Attributes:
        run_id: the id of the run.
        parent_run_id: the run that this one is part of, where no tool of that one begins it.
        metadata: what the run has in its `metadata` and its log says.
        deps: what its tools find as `ToolContext.deps`.
        plain: ask the endpoint for plain replies, although the events of the run are read as they come.
        journal: what keeps the steps of the run on disk.
        run: the run, once it is prepared.
    """

    run_id: str
    parent_run_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    deps: Any = None
    plain: bool = False
    journal: RunJournal | None = None
    run: RunContext | None = None


_origin: ContextVar[RunOrigin | None] = ContextVar("origin", default=None)


@contextmanager
def originating(origin: RunOrigin) -> Iterator[None]:
    """Let the next run that is asked for in the block, by calling `agent.run`, have this origin; those after it not."""
    token = _origin.set(origin)
    try:
        yield
    finally:
        _origin.reset(token)


def with_origin(run: RunContext) -> RunContext:
    """Return `run`, just prepared, with what its origin settles; the tools of a sub-agent get the caller's `deps`."""
    origin = _origin.get()
    if origin is None or origin.run is not None:
        if run.parent is not None:
            run.deps = run.parent.deps
        return run
    origin.run = run
    run.run_id, run.parent_run_id, run.deps = origin.run_id, origin.parent_run_id, origin.deps
    run.metadata.update(origin.metadata)
    run.journal = origin.journal
    run.stream = run.stream and not origin.plain
    return run
