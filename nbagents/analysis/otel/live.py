"""Live telemetry: a watcher of the run log that follows each run that begins."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from nbagents.analysis.jsontext import clean_text
from nbagents.analysis.otel.settings import captures, check_can, check_packages
from nbagents.core.arguments import exact_arguments
from nbagents.core.runlog import RunRecord, run_log

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Tracer, TracerProvider

_log = logging.getLogger(__name__)


@exact_arguments()
def enable_otel(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    capture_content: bool | None = None,
) -> None:
    """Send every run that begins from now on to OpenTelemetry, as spans and metrics. Called again, it changes settings.

    The spans are `invoke_agent` with `chat` for each request, retries too, and `execute_tool` for each call of a tool,
    in which the run of a sub-agent is the next `invoke_agent`. The first one begins in the caller's current span; what
    a tool or a client makes spans of is inside ours. Names are those of the semantic conventions for GenAI, v1.41.0.
    Metrics are `gen_ai.client.operation.duration` and `gen_ai.client.token.usage`.

    Nothing here makes an agent fail or wait, except what a span processor does itself: use a `BatchSpanProcessor`.

    Args:
        tracer_provider: where spans go; by default the global provider at the time of a run.
        meter_provider: where metrics go; the global one by default.
        capture_content: put prompts, answers, arguments, results and error messages into the spans, secrets masked.
            By default what `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, and no without it.

    Raises:
        ConfigurationError: OpenTelemetry is missing, with what to install, or an argument is no such provider.

    Example:
        >>> from opentelemetry.sdk.trace import TracerProvider
        >>> enable_otel(tracer_provider=TracerProvider())
        >>> disable_otel()
    """
    check_packages()
    check_can("tracer_provider", tracer_provider, "get_tracer", "TracerProvider() of opentelemetry.sdk.trace")
    check_can("meter_provider", meter_provider, "get_meter", "MeterProvider() of opentelemetry.sdk.metrics")
    _switch(_Telemetry(tracer_provider, meter_provider, capture=captures(capture_content)))


def disable_otel() -> None:
    """Send nothing more; runs that are under way are told to their end. Idempotent."""
    _switch(None)


def _switch(telemetry: _Telemetry | None) -> None:
    global _current
    watchers = run_log().watchers
    with _switching:
        if _current is not None and _current.watch in watchers:
            watchers.remove(_current.watch)
        if telemetry is not None:
            watchers.append(telemetry.watch)
        _current = telemetry


class _Telemetry:
    """The settings, and the watcher that the log tells of each run."""

    def __init__(
        self, tracer_provider: TracerProvider | None, meter_provider: MeterProvider | None, *, capture: bool
    ) -> None:
        from opentelemetry.metrics import get_meter

        from nbagents.analysis.otel.ancestry import Ancestry
        from nbagents.analysis.otel.attributes import SCHEMA_URL
        from nbagents.analysis.otel.metrics import RunMetrics
        from nbagents.analysis.otel.tracers import version

        self._given = tracer_provider
        self._capture = capture
        self._ancestry = Ancestry(_facts_of)
        self._tracer: tuple[TracerProvider, Tracer] | None = None
        self._metrics = RunMetrics(get_meter("nbagents", version(), meter_provider, SCHEMA_URL))

    def watch(self, record: RunRecord) -> None:
        """Follow a run, in the context of its caller."""
        from opentelemetry.context import get_current

        from nbagents.analysis.otel.spans import RunSpans

        try:
            record.observer = RunSpans(
                self._tracer_now(), get_current(), self._ancestry, capture=self._capture, metrics=self._metrics
            )
        except Exception as error:  # noqa: BLE001  a provider is other people's code
            _log.warning("The run %s has no telemetry: %s", record.run_id, clean_text(repr(error)))

    def _tracer_now(self) -> Tracer:
        from opentelemetry.trace import get_tracer_provider

        from nbagents.analysis.otel.tracers import tracer_of

        provider = self._given if self._given is not None else get_tracer_provider()
        if self._tracer is None or self._tracer[0] is not provider:
            self._tracer = (provider, tracer_of(provider))
        return self._tracer[1]


def _facts_of(run_id: str) -> dict[str, Any] | None:
    record = run_log().get(run_id)
    return record.events[0].payload if record is not None and record.events else None


_current: _Telemetry | None = None
_switching = threading.Lock()
