"""Runs of the log or a store as spans with their original times."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Unpack

from nbagents.analysis.facts import RunFacts
from nbagents.analysis.otel.settings import captures, check_can, check_packages
from nbagents.analysis.progress import progress
from nbagents.analysis.queries import RunQuery, RunSource
from nbagents.analysis.selection import Filters, Selection, chosen_runs
from nbagents.analysis.stores import stored_records
from nbagents.core.arguments import exact_arguments

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import TracerProvider

_CLOCK_SECONDS = 0.001
"""Two events at the end of a run may have one time."""


@exact_arguments(Filters)
def export_otel(
    selection: Selection = None,
    /,
    *,
    exporter: SpanExporter | None = None,
    tracer_provider: TracerProvider | None = None,
    capture_content: bool | None = None,
    **filters: Unpack[Filters],
) -> int:
    """Send runs that are over to OpenTelemetry, as the spans that `enable_otel` makes, with their original times.

    The ids of traces and spans follow from those of runs, so the same run exported again is the same trace, unless the
    provider was given an id generator of its own. The runs that tools of a chosen run began come along. A run without
    an end is told as far as it came. There are no metrics: these have no times but now.

    Args:
        selection: a response, a session, an id, a store or a list of these; None is all runs, `[]` none.
        exporter: where spans go, such as an `OTLPSpanExporter`; it is flushed, and stays open.
        tracer_provider: the provider that they go to instead; by default the global one. Its sampler decides.
        capture_content: put prompts, answers, arguments, results and error messages into them, secrets masked.
            By default what `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says, and no without it.
        filters: those of `runs_df`.

    Returns:
        How many runs were sent.

    Raises:
        ConfigurationError: OpenTelemetry is missing, there is no provider, or a filter is none.
        StoreError: the exporter could not send them.

    Example:
        >>> from nbagents import Agent, ScriptedChatClient
        >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        >>> response = Agent(ScriptedChatClient(["Hello."]), name="helper").run_sync("Hi")
        >>> exporter = InMemorySpanExporter()
        >>> export_otel(response, exporter=exporter)
        1
        >>> [span.name for span in exporter.get_finished_spans()]
        ['chat scripted', 'invoke_agent helper']
    """
    check_packages()
    check_can("exporter", exporter, "export", "ConsoleSpanExporter() or OTLPSpanExporter(endpoint=...)")
    check_can("tracer_provider", tracer_provider, "get_tracer", "TracerProvider() of opentelemetry.sdk.trace")
    from nbagents.analysis.otel.sending import Sender

    runs = chosen_runs(selection, filters)
    source = selection if isinstance(selection, RunSource) else None
    are_all = (selection is None or source is not None) and not any(value is not None for value in filters.values())
    sender = Sender(source, exporter, tracer_provider, capture=captures(capture_content))
    count = 0
    for run in progress(runs if are_all else _with_children(runs, source), "Exporting"):
        sender.send(run)
        count += 1
    sender.flush()
    return count


def _with_children(runs: Iterator[RunFacts], source: RunSource | None) -> Iterator[RunFacts]:
    """Yield the runs, and those that their tools began, each once."""
    seen: set[str] = set()
    for run in runs:
        waiting = deque([run])
        while waiting:
            one = waiting.popleft()
            if one.run_id in seen:
                continue
            seen.add(one.run_id)
            yield one
            if any(event.name == "tool.called" for event in one.events):
                waiting += _children(one, source)


def _children(run: RunFacts, source: RunSource | None) -> list[RunFacts]:
    """The runs that began while `run` was going on, and say that they are part of it."""
    until = None if run.ended_at is None else run.ended_at + _CLOCK_SECONDS
    records = stored_records(RunQuery(since=run.started_at, until=until), source)
    return [RunFacts(record) for record in records if record.events[0].payload["parent_run_id"] == run.run_id]
