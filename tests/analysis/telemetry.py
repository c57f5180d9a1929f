"""Telemetry that ends in memory, and spans as trees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nbagents.analysis import enable_otel, export_otel

Tree = tuple[str, tuple[Any, ...]]


@dataclass
class Telemetry:
    """Where the spans and metrics of a test end."""

    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)

    def __post_init__(self) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)

    def enable(self, **settings: Any) -> None:
        """Send live runs here."""
        enable_otel(tracer_provider=self.provider, meter_provider=self.meters, **settings)

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended."""
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        """Those of this name, in the order in which they began."""
        return sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        """The only one of this name."""
        (span,) = self.named(name)
        return span

    def points(self, metric: str) -> list[Any]:
        """The points of a metric."""
        read = self.reader.get_metrics_data()
        metrics = [m for r in read.resource_metrics for s in r.scope_metrics for m in s.metrics] if read else []
        return [point for found in metrics if found.name == metric for point in found.data.data_points]


def exported(selection: Any = None, **settings: Any) -> list[ReadableSpan]:
    """The spans that `export_otel` makes."""
    exporter = InMemorySpanExporter()
    export_otel(selection, exporter=exporter, **settings)
    return list(exporter.get_finished_spans())


def trees(spans: Iterable[ReadableSpan]) -> list[Tree]:
    """The names of spans as trees: children in the order in which they began, those of the same time by name."""
    spans = sorted(spans, key=lambda span: (span.start_time or 0, span.name))
    known = {span.context.span_id for span in spans}

    def tree(span: ReadableSpan) -> Tree:
        children = [one for one in spans if one.parent is not None and one.parent.span_id == span.context.span_id]
        return span.name, tuple(tree(child) for child in children)

    return [tree(span) for span in spans if span.parent is None or span.parent.span_id not in known]


def facts(spans: Iterable[ReadableSpan]) -> list[tuple[Any, ...]]:
    """All that two accounts of the same runs must agree on."""
    return sorted(
        (
            span.context.trace_id,
            span.context.span_id,
            span.parent.span_id if span.parent else 0,
            span.name,
            span.kind.name,
            span.start_time,
            span.end_time,
            span.status.status_code.name,
            span.status.description or "",
            sorted((name, str(value)) for name, value in (span.attributes or {}).items()),
        )
        for span in spans
    )
