"""The tracer of this package at a provider."""

from __future__ import annotations

from importlib import import_module

from opentelemetry.trace import Tracer, TracerProvider

from nbagents.analysis.otel.attributes import SCHEMA_URL
from nbagents.analysis.otel.ids import follow_run_ids


def version() -> str:
    """The version of this package, as telemetry names it."""
    return str(import_module(__name__.partition(".")[0]).__version__)  # the top package stands above this room


def tracer_of(provider: TracerProvider) -> Tracer:
    """Return the tracer whose spans have ids that follow from runs."""
    tracer = provider.get_tracer("nbagents", version(), SCHEMA_URL)
    follow_run_ids(tracer)
    return tracer
