"""Ids of traces and spans that follow from the ids of runs: the same run gives the same, live and exported again."""

from __future__ import annotations

import threading
from hashlib import blake2b

from opentelemetry.sdk.trace import Tracer
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import Tracer as AnyTracer


def trace_id_of(run_id: str) -> int:
    """The id of the trace whose root is this run."""
    return _number(f"trace {run_id}", 16)


def span_id_of(run_id: str, part: str = "") -> int:
    """The id of the span of a run, or of a request or call in it."""
    return _number(f"span {run_id} {part}", 8)


def _number(key: str, n_bytes: int) -> int:
    return int.from_bytes(blake2b(key.encode("utf-8", "replace"), digest_size=n_bytes).digest()) or 1


class RunIds(IdGenerator):
    """Gives the next span of this thread the ids that were set for it; other spans get random ones."""

    def __init__(self) -> None:
        self._random = RandomIdGenerator()
        self._next = threading.local()

    def set_next(self, trace_id: int, span_id: int) -> None:
        """Set the ids of the span that this thread starts next; the trace's counts where the span has no parent."""
        self._next.ids = (trace_id, span_id)

    def clear_next(self) -> None:
        """Forget them."""
        self._next.ids = None

    def generate_trace_id(self) -> int:
        """Return the id of the trace."""
        ids = getattr(self._next, "ids", None)
        return self._random.generate_trace_id() if ids is None else int(ids[0])

    def generate_span_id(self) -> int:
        """Return the id of the span."""
        ids = getattr(self._next, "ids", None)
        return self._random.generate_span_id() if ids is None else int(ids[1])


run_ids = RunIds()


def follow_run_ids(tracer: AnyTracer) -> None:
    """Let spans of `tracer` have ids that follow from runs, unless its provider has a way of its own to make them.

    A tracer belongs to one scope: this one to the package, so nobody else's spans change.
    """
    if isinstance(tracer, Tracer) and type(tracer.id_generator) is RandomIdGenerator:
        tracer.id_generator = run_ids
