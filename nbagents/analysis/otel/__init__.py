"""Telemetry: runs as OpenTelemetry spans and metrics, as they happen and from the log. Its packages are an extra."""

from nbagents.analysis.otel.export import export_otel
from nbagents.analysis.otel.live import disable_otel, enable_otel

__all__ = ["disable_otel", "enable_otel", "export_otel"]
