"""Runs of the log and of stores as spans: the tree that the live run made, with its times and ids, again and again."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision as SamplingDecision
from opentelemetry.sdk.trace.sampling import ParentBased, StaticSampler
from opentelemetry.trace import StatusCode

from nbagents import Agent, RunBudget, ScriptedChatClient, load_runs, run_log, save_runs, tool_call, use_store
from nbagents.analysis import disable_otel, enable_otel, export_otel
from nbagents.core.errors import ConfigurationError, NBAgentsError, StoreError
from nbagents.core.origins import RunOrigin, originating
from nbagents.core.runlog import RunRecord
from tests.analysis.runs import add, agent, run_over_budget, run_that_fails, run_that_is_cancelled
from tests.analysis.telemetry import Telemetry, exported, facts, trees

CHAT = ("chat scripted", ())
KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    telemetry.enable(capture_content=True)
    yield telemetry
    disable_otel()


def nested_agent() -> Agent:
    inner = Agent(
        ScriptedChatClient([[tool_call("add", a=1, b=2)], "3"]), name="inner", description="Adds.", tools=[add]
    )
    return Agent(ScriptedChatClient([[tool_call("inner", messages="1+2")], "It is 3."]), name="outer", tools=[inner])


NESTED_TREE = (
    "invoke_agent outer",
    (CHAT, ("execute_tool inner", (("invoke_agent inner", (CHAT, ("execute_tool add", ()), CHAT)),)), CHAT),
)


async def _runs_of_all_kinds() -> None:
    await nested_agent().run("1+2")
    await agent([tool_call("add", a=1, b=2), tool_call("fail", reason="no")], "Sorry.").run("1+2", stream=True).aclose()
    await agent([tool_call("add", a=1, b=2), tool_call("fail", reason="no")], "Sorry.").run("1+2")
    asked = await agent([tool_call("remove", path="x")]).run("Remove x")
    assert asked.approvals
    await run_that_fails()
    await run_that_is_cancelled()
    await run_over_budget()
    await agent([tool_call("add", a=1, b=2)], "3").run("1+2", budget=RunBudget(max_steps=1))


async def test_the_export_is_what_the_live_runs_were(telemetry: Telemetry) -> None:
    """Names, ids, times, kinds, status and attributes."""
    await _runs_of_all_kinds()
    assert len(telemetry.spans) > 20
    assert facts(exported(capture_content=True)) == facts(telemetry.spans)


async def test_from_a_store_and_from_files_it_is_the_same(telemetry: Telemetry, tmp_path: Path) -> None:
    with use_store(f"sqlite:///{tmp_path}/runs.db") as store:
        await _runs_of_all_kinds()
        store.flush()
        run_log().clear()
        assert facts(exported(store, capture_content=True)) == facts(telemetry.spans)
        assert facts(exported(capture_content=True)) == facts(telemetry.spans)
        save_runs(tmp_path / "runs.jsonl")
    assert facts(exported(load_runs(tmp_path / "runs.jsonl"), capture_content=True)) == facts(telemetry.spans)


async def test_runs_kept_without_words_have_the_same_tree(telemetry: Telemetry, tmp_path: Path) -> None:
    with use_store(f"sqlite:///{tmp_path}/runs.db", capture="metadata") as store:
        await nested_agent().run("1+2")
        store.flush()
        run_log().clear()
        assert trees(exported(store, capture_content=True)) == [NESTED_TREE]
        assert facts(exported(store, capture_content=False)) != facts(telemetry.spans)


async def test_exported_twice_it_is_one_trace() -> None:
    response = await nested_agent().run("1+2")
    first, second = exported(response), exported(response.run_id)
    assert facts(first) == facts(second)
    assert trees(first) == [NESTED_TREE]
    assert len({span.context.trace_id for span in first}) == 1
    assert len({span.context.span_id for span in first}) == len(first)


async def test_one_run_of_a_store_brings_those_of_its_sub_agents(tmp_path: Path) -> None:
    with use_store(f"sqlite:///{tmp_path}/runs.db") as store:
        await nested_agent().run("1+2")
        response = await nested_agent().run("1+2")
        store.flush()
        run_log().clear()
        assert trees(exported(response)) == [NESTED_TREE]
        assert trees(exported(agent="outer")) == [NESTED_TREE, NESTED_TREE]
        assert len(exported(store, agent="inner")) == 8


async def test_a_part_of_a_trace_belongs_to_it() -> None:
    """A sub-agent's run alone has the trace of the run above it, and its parent there."""
    await nested_agent().run("1+2")
    whole = exported()
    part = exported(agent="inner")
    assert len(part) == 4
    assert set(map(str, facts(part))) < set(map(str, facts(whole)))


async def test_a_run_that_belongs_to_another_but_to_no_call_is_inside_its_span(telemetry: Telemetry) -> None:
    team = await agent("Go.", name="team").run("Hi")
    with originating(RunOrigin("run_member", team.run_id)):
        run = agent("I do.", name="member").run("You")
    await run
    assert trees(exported()) == [("invoke_agent team", (CHAT, ("invoke_agent member", (CHAT,))))]
    assert facts(exported(capture_content=True)) == facts(telemetry.spans)


async def test_a_selection_is_that_of_the_tables() -> None:
    helper = agent("One.", "Two.", "Three.")
    first = await helper.run("1")
    await helper.run("2", session=first.session)
    await helper.run("3")
    assert export_otel([], exporter=InMemorySpanExporter()) == 0
    assert export_otel(first, exporter=InMemorySpanExporter()) == 1
    assert export_otel(first.session, exporter=InMemorySpanExporter()) == 2
    assert export_otel(exporter=InMemorySpanExporter()) == 3
    assert export_otel(exporter=InMemorySpanExporter(), status="error") == 0
    with pytest.raises(ConfigurationError, match="Did you mean 'agent'"):
        export_otel(exporter=InMemorySpanExporter(), agnt="helper")  # type: ignore[call-arg]


async def test_by_default_there_are_no_words() -> None:
    await agent("Fortytwo.").run("Fortyone plus one?")
    assert all("orty" not in span.to_json() for span in exported())
    assert any("orty" in span.to_json() for span in exported(capture_content=True))


async def test_a_run_without_an_end_is_told_as_far_as_it_came() -> None:
    response = await agent([tool_call("add", a=1, b=2)], "3").run("1+2")
    whole = run_log().get(str(response.run_id))
    assert whole is not None
    for length in range(1, len(whole.events)):
        log = Kept([RunRecord(whole.run_id, whole.events[:length])])
        spans = exported(log, capture_content=True)
        assert len(trees(spans)) == 1
        assert all(span.end_time is not None and span.end_time >= (span.start_time or 0) for span in spans)
        assert "nbagents.status" not in (spans[-1].attributes or {})


class Kept:
    """Runs that somebody else keeps."""

    def __init__(self, records: list[RunRecord]) -> None:
        self._records = records

    def records(self, query: Any = None) -> Iterator[RunRecord]:
        """Yield them."""
        return (one for one in self._records if query is None or query.matches(one))


async def test_a_clock_that_was_set_back_makes_no_negative_time() -> None:
    response = await agent("Hi").run("Hello")
    record = run_log().get(str(response.run_id))
    assert record is not None
    for number, event in enumerate(record.events):
        event.timestamp = 1_000.0 - number
    assert all((span.end_time or 0) >= (span.start_time or 0) for span in exported(response))


@settings(max_examples=30, deadline=None)
@given(st.text(), st.text(), st.one_of(st.none(), st.text()))
def test_what_a_model_names_makes_no_span_fail(tool_name: str, text: str, provider: str | None) -> None:
    """The names are those of a hostile model: any text at all."""
    client = ScriptedChatClient([[tool_call(tool_name, value=text)], text or "-"])
    client.provider = provider  # type: ignore[assignment]
    response = Agent(client, name="helper").run_sync(text)
    spans = exported(response, capture_content=True)
    assert len(spans) == 4
    assert all(span.to_json() and len(span.name) < 250 for span in spans)


async def test_spans_go_to_the_provider_that_was_given() -> None:
    await nested_agent().run("1+2")
    telemetry = Telemetry()
    assert export_otel(tracer_provider=telemetry.provider) == 2
    assert facts(telemetry.spans) == facts(exported())


class Queue(SpanProcessor):
    """As a `BatchSpanProcessor` whose thread gets no time: what its queue has no room for is lost."""

    def __init__(self) -> None:
        self.waiting = self.sent = 0

    def on_end(self, span: ReadableSpan) -> None:
        self.waiting = min(self.waiting + 1, 550)

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        self.sent, self.waiting = self.sent + self.waiting, 0
        return True


async def test_no_span_is_lost_in_the_queue_of_a_processor() -> None:
    queue, provider = Queue(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(queue)
    for _ in range(200):
        await agent("Hi").run("Hello")
    calls = [tool_call("add", a=1, b=number) for number in range(1_000)]
    await agent(calls, "Done.").run("Add", budget=RunBudget(max_tool_calls=1_000))
    assert export_otel(tracer_provider=provider) == 201
    assert queue.sent == 2 * 200 + 1_003


async def test_a_trace_that_a_sampler_drops_is_dropped_as_a_whole() -> None:
    telemetry = Telemetry()
    telemetry.provider.sampler = ParentBased(StaticSampler(SamplingDecision.DROP))
    await nested_agent().run("1+2")
    export_otel(tracer_provider=telemetry.provider)
    assert telemetry.spans == []


async def test_an_export_that_fails_says_so() -> None:
    class Failing(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.FAILURE

    await agent("Hi").run("Hello")
    with pytest.raises(StoreError, match="could not be sent"):
        export_otel(exporter=Failing())


async def test_an_exporter_that_raises_says_so_without_secrets() -> None:
    class Raising(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            raise RuntimeError(f"401 for {KEY}")

    await agent("Hi").run("Hello")
    with pytest.raises(StoreError, match="could not be sent: RuntimeError: 401 for") as caught:
        export_otel(exporter=Raising())
    assert KEY not in "".join(traceback.format_exception(caught.value))


async def test_without_a_place_to_go_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    with pytest.raises(ConfigurationError, match="no tracer provider"):
        export_otel()
    with pytest.raises(ConfigurationError, match="one place"):
        export_otel(exporter=InMemorySpanExporter(), tracer_provider=TracerProvider(shutdown_on_exit=False))


async def test_errors_have_their_status_in_the_export() -> None:
    with pytest.raises(NBAgentsError):
        await agent(ConnectionError("gone")).run("Hello")

    def status(span: ReadableSpan) -> StatusCode:
        return span.status.status_code

    assert list(map(status, exported())) == [StatusCode.ERROR, StatusCode.ERROR]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: export_otel(exporter="http://localhost:4318"), "exporter has a method export"),
        (lambda: export_otel(exporter=InMemorySpanExporter), "the class InMemorySpanExporter is none"),
        (lambda: export_otel(tracer_provider="otlp"), "tracer_provider has a method get_tracer"),
        (lambda: enable_otel(tracer_provider="otlp"), "tracer_provider has a method get_tracer"),
        (lambda: enable_otel(meter_provider="otlp"), "meter_provider has a method get_meter"),
    ],
)
def test_what_is_no_provider_or_exporter_is_named_at_once(call, says):
    with pytest.raises(ConfigurationError, match=says):
        call()
