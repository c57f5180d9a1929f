"""Hands the spans of stored runs to a provider or an exporter, in batches, and keeps each in its trace."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Protocol, runtime_checkable

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from nbagents.analysis.facts import RunFacts
from nbagents.analysis.otel.ancestry import Ancestry, Facts
from nbagents.analysis.otel.spans import RunSpans
from nbagents.analysis.otel.tracers import tracer_of
from nbagents.analysis.queries import RunQuery, RunSource
from nbagents.analysis.stores import stored_records
from nbagents.core.errors import ConfigurationError, StoreError
from nbagents.core.secrets import redact_exception

_BATCH = 500
"""So many spans go out together; the queue of a `BatchSpanProcessor` takes 2,048 and drops what is too much."""


@runtime_checkable
class _Flushes(Protocol):
    def force_flush(self, timeout_millis: int = 30000) -> bool: ...


class Sender:
    """Sends runs one by one.

    Args:
        source: where the runs come from; their parents are looked up there. None is the log and the store.
        exporter: takes the spans, or
        provider: takes them; neither is the global provider.
        capture: put words into the spans.

    Raises:
        ConfigurationError: both are given, or there is no provider.
    """

    def __init__(
        self,
        source: RunSource | None,
        exporter: SpanExporter | None,
        provider: trace.TracerProvider | None,
        *,
        capture: bool,
    ) -> None:
        self._provider = _provider_of(exporter, provider)
        self._tracer = tracer_of(self._provider)
        self._capture = capture
        self._ancestry = Ancestry(lru_cache(maxsize=10_000)(partial(_facts_of, source)))
        self._unflushed = 0

    def send(self, run: RunFacts) -> None:
        """Make the spans of a run."""
        spans = RunSpans(self._tracer, Context(), self._ancestry, capture=self._capture)
        for event in run.events:
            spans.take(event)
            self._unflushed += 1  # there are fewer spans
            if self._unflushed >= _BATCH:
                self.flush()
        spans.close(run.events[-1].timestamp)
        if not spans.sampled:
            self._ancestry.dropped.add(run.run_id)

    def flush(self) -> None:
        """Let what was made go out.

        Raises:
            StoreError: it could not be sent in time.
        """
        self._unflushed = 0
        if not isinstance(self._provider, _Flushes):
            return
        try:
            sent = self._provider.force_flush()
        except Exception as error:  # an exporter is other people's code
            redact_exception(error)
            raise _not_sent(f": {type(error).__name__}: {error}") from error
        if sent is False:
            raise _not_sent(".")


def _not_sent(reason: str) -> StoreError:
    hint = "Look at the log of the exporter, and export again."
    return StoreError(f"The spans could not be sent{reason}", hint=hint)


def _facts_of(source: RunSource | None, run_id: str) -> Facts | None:
    found = next(stored_records(RunQuery(run_ids={run_id}), source), None)
    return None if found is None else found.events[0].payload


def _provider_of(exporter: SpanExporter | None, provider: trace.TracerProvider | None) -> trace.TracerProvider:
    if exporter is not None and provider is not None:
        raise ConfigurationError("Spans go to one place.", hint="Pass exporter= or tracer_provider=.")
    if exporter is not None:
        own = TracerProvider(sampler=ALWAYS_ON, resource=Resource.create(), shutdown_on_exit=False)
        own.add_span_processor(_Batches(exporter))
        return own
    found = provider if provider is not None else trace.get_tracer_provider()
    if provider is None and isinstance(found, trace.ProxyTracerProvider):
        raise ConfigurationError(
            "There is no tracer provider that spans could go to.",
            hint="Pass exporter= or tracer_provider=, or set one with opentelemetry.trace.set_tracer_provider().",
        )
    return found


class _Batches(SpanProcessor):
    """Keeps the spans that have ended until they are flushed, and never drops one."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._ended: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        """Keep it."""
        self._ended.append(span)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Send what was kept; False where that failed."""
        spans, self._ended = self._ended, []
        if not spans:
            return True
        sent = self._exporter.export(spans) is SpanExportResult.SUCCESS
        flushed: bool | None = self._exporter.force_flush(timeout_millis)  # None where an exporter has nothing to say
        return sent and flushed is not False
