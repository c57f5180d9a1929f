"""Where in which trace a run belongs, by what the log says of the runs above it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from nbagents.analysis.otel.ids import span_id_of, trace_id_of

Facts = Mapping[str, Any]
"""What the beginning of a run says."""


class Ancestry:
    """Places runs.

    Args:
        find: gives the facts of a run, if it is kept.

    Attributes:
        dropped: runs that a sampler left out: those below them are left out too.
    """

    def __init__(self, find: Callable[[str], Facts | None]) -> None:
        self._find = find
        self.dropped: set[str] = set()

    def place(self, run_id: str, facts: Facts, context: Context) -> tuple[str, Context]:
        """Return the run at the root of the trace, and the context in which this run begins.

        Args:
            run_id: the run.
            facts: what its beginning says.
            context: the context of its caller; a span in it is its parent, whatever the log says.
        """
        parent_id = facts["parent_run_id"]
        if parent_id is None or trace.get_current_span(context).get_span_context().is_valid:
            return run_id, context
        root = self._root_of(parent_id)
        flags = TraceFlags(TraceFlags.DEFAULT if parent_id in self.dropped else TraceFlags.SAMPLED)
        span_id = span_id_of(parent_id, facts.get("parent_call_id") or "")
        parent = SpanContext(trace_id_of(root), span_id, is_remote=False, trace_flags=flags)
        return root, trace.set_span_in_context(NonRecordingSpan(parent), context)

    def _root_of(self, run_id: str) -> str:
        """The topmost run that this one is part of, as far as it is known."""
        seen: set[str] = set()
        while run_id not in seen:
            seen.add(run_id)
            facts = self._find(run_id)
            run_id = (facts["parent_run_id"] if facts is not None else None) or run_id
        return run_id
