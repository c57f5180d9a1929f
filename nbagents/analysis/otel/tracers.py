"""The tracer of this package at a provider."""

from __future__ import annotations

from opentelemetry.trace import Tracer, TracerProvider

from nbagents.analysis.otel.attributes import SCHEMA_URL
from nbagents.analysis.otel.ids import follow_run_ids


def version() -> str:
    """The version of this package, as telemetry names it."""
    from nbagents import __version__

    return __version__


def tracer_of(provider: TracerProvider) -> Tracer:
    """Return the tracer whose spans have ids that follow from runs."""
    tracer = provider.get_tracer("nbagents", version(), SCHEMA_URL)
    follow_run_ids(tracer)
    return tracer
