"""Live telemetry: the same tree however a run is asked for, whatever happens to it, and at no risk for it."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from nbagents import (
    Agent,
    OpenAIChatClient,
    RecordedChatClient,
    RunBudget,
    ScriptedChatClient,
    run_log,
    tool,
    tool_call,
)
from nbagents.analysis import disable_otel, enable_otel
from nbagents.analysis.otel import content
from nbagents.core import retries
from nbagents.core.errors import ConfigurationError, NBAgentsError
from nbagents.core.runlog import RunRecord
from tests.analysis.runs import Gate, add, agent, reported, run_that_fails, run_that_is_cancelled
from tests.analysis.telemetry import Telemetry, exported, facts, trees
from tests.support.servers import LLMock


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry()
    telemetry.enable()
    yield telemetry
    disable_otel()


def sum_agent() -> Agent:
    return agent([tool_call("add", a=1, b=2), tool_call("add", a=3, b=4)], "3 and 7")


SUM_TREE = (
    "invoke_agent helper",
    (("chat scripted", ()), ("execute_tool add", ()), ("execute_tool add", ()), ("chat scripted", ())),
)


async def _awaited() -> None:
    await sum_agent().run("Sums")


async def _streamed() -> None:
    await sum_agent().run("Sums", stream=True).get_final_response()


async def _in_thread() -> None:
    sum_agent().run_sync("Sums")


async def _stream_sync() -> None:
    for _ in sum_agent().stream_sync("Sums"):
        pass


async def _started() -> None:
    await sum_agent().start("Sums")


@pytest.mark.parametrize("ask", [_awaited, _streamed, _in_thread, _stream_sync, _started])
async def test_the_tree_is_the_same_however_a_run_is_asked_for(telemetry: Telemetry, ask: Any) -> None:
    with telemetry.provider.get_tracer("caller").start_as_current_span("request") as caller:
        await ask()
    assert trees(telemetry.spans) == [("request", (SUM_TREE,))]
    assert {span.context.trace_id for span in telemetry.spans} == {caller.get_span_context().trace_id}


async def test_spans_say_what_the_conventions_ask_for(telemetry: Telemetry) -> None:
    counted = ["Hi", reported(cached_input_tokens=3, reasoning_tokens=1)]
    options = {"temperature": 0.5, "max_tokens": 100, "seed": 7, "stop": "END", "top_p": 1}
    response = await agent(counted, options=options).run("Hello", stream=True).get_final_response()
    chat, run = telemetry.one("chat scripted"), telemetry.one("invoke_agent helper")
    assert dict(chat.attributes or {}) | {"gen_ai.response.time_to_first_chunk": 0} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "scripted",
        "gen_ai.response.model": "scripted",
        "gen_ai.conversation.id": response.session.session_id,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.max_tokens": 100,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stop_sequences": ("END",),
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.time_to_first_chunk": 0,
        "gen_ai.usage.input_tokens": 1,
        "gen_ai.usage.output_tokens": 1,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.reasoning.output_tokens": 1,
        "nbagents.step": 1,
        "nbagents.attempt": 1,
        "nbagents.status": "ok",
    }
    said = run.attributes or {}
    assert (said["gen_ai.operation.name"], said["gen_ai.agent.name"]) == ("invoke_agent", "helper")
    assert (said["gen_ai.usage.input_tokens"], said["nbagents.run.id"]) == (1, response.run_id)
    assert (run.kind, chat.kind) == (SpanKind.INTERNAL, SpanKind.INTERNAL)  # a scripted model is in this process
    assert run.instrumentation_scope is not None
    assert run.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.41.0"


async def test_a_tool_says_its_name_and_the_id_of_the_call(telemetry: Telemetry) -> None:
    response = await agent([tool_call("add", a=1, b=2)], "3").run("1+2")
    said = telemetry.one("execute_tool add").attributes or {}
    assert said["gen_ai.tool.name"] == "add"
    assert said["gen_ai.tool.call.id"] == response.messages[0].calls[0].call_id
    assert said["gen_ai.tool.type"] == "function"


async def test_words_are_told_only_when_that_is_asked_for(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def words() -> str:
        return "".join(str(dict(span.attributes or {})) + str(span.status.description) for span in telemetry.spans)

    async def run() -> None:
        telemetry.exporter.clear()
        answers = [[tool_call("add", a=987654, b=1), tool_call("fail", reason="blunder")], "It is fortytwo."]
        await agent(*answers).run("What is fortyone plus one?")

    await run()
    assert not any(word in words() for word in ("fortyone", "fortytwo", "987654", "blunder"))
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
    telemetry.enable()
    await run()
    assert all(word in words() for word in ("fortyone", "fortytwo", "987654", "blunder"))
    telemetry.enable(capture_content=False)  # the argument counts for more
    await run()
    assert "fortytwo" not in words()


async def test_words_have_the_form_of_the_conventions(telemetry: Telemetry) -> None:
    telemetry.enable(capture_content=True)
    await agent([tool_call("add", a=1, b=2)], "It is 3.").run("1+2")
    first, second = telemetry.named("chat scripted")
    said = {name: json.loads(str(value)) for name, value in (second.attributes or {}).items() if "messages" in name}
    asked, called, answered = said["gen_ai.input.messages"]
    assert asked == {"role": "user", "parts": [{"type": "text", "content": "1+2"}]}
    (call,) = called["parts"]
    assert (call["type"], call["name"], call["arguments"]) == ("tool_call", "add", {"a": 1, "b": 2})
    assert answered == {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": call["id"], "response": "3"}],
    }
    text = {"type": "text", "content": "It is 3."}
    assert said["gen_ai.output.messages"] == [{"role": "assistant", "parts": [text], "finish_reason": "stop"}]
    (made,) = json.loads(str((first.attributes or {})["gen_ai.output.messages"]))
    assert (made["finish_reason"], made["parts"][0]["type"]) == ("tool_call", "tool_call")
    tool_span = telemetry.one("execute_tool add").attributes or {}
    assert (tool_span["gen_ai.tool.call.arguments"], tool_span["gen_ai.tool.call.result"]) == ('{"a":1,"b":2}', "3")


async def test_words_show_no_secrets(telemetry: Telemetry) -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
    telemetry.enable(capture_content=True)
    await agent([tool_call("fail", reason=key), tool_call(key)], f"Keep {key}.").run(f"My key is {key}")
    assert "[redacted]" in str(telemetry.one("invoke_agent helper").attributes)
    assert all(key not in span.to_json() for span in telemetry.spans)


async def test_a_user_s_spans_are_inside_ours(telemetry: Telemetry) -> None:
    tracer = telemetry.provider.get_tracer("user")

    @tool
    def look_up(word: str) -> str:
        """Look up a word."""
        with tracer.start_as_current_span("query"):
            return word

    @tool
    async def fetch(word: str) -> str:
        """Fetch a word."""
        with tracer.start_as_current_span("request"):
            await asyncio.sleep(0)
            return word

    class Instrumented(ScriptedChatClient):
        async def generate(self, request: Any) -> Any:
            with tracer.start_as_current_span("POST"):
                pass
            async for update in super().generate(request):
                yield update

    client = Instrumented([[tool_call("look_up", word="a"), tool_call("fetch", word="b")], "done"])
    async for _ in Agent(client, name="helper", tools=[look_up, fetch]).run("Go", stream=True):
        tracer.start_span("consumer").end()
    assert trace.get_current_span() is trace.INVALID_SPAN
    consumer, *_, run = sorted(set(trees(telemetry.spans)))
    chat = ("chat scripted", (("POST", ()),))
    assert consumer == ("consumer", ())  # what the consumer does between two updates is its own business
    assert run[1][0] == run[1][3] == chat
    assert sorted(run[1][1:3]) == [
        ("execute_tool fetch", (("request", ()),)),
        ("execute_tool look_up", (("query", ()),)),
    ]


async def test_the_run_of_a_sub_agent_is_inside_the_call(telemetry: Telemetry) -> None:
    inner = Agent(
        ScriptedChatClient([[tool_call("add", a=1, b=2)], "3"]), name="inner", description="Adds.", tools=[add]
    )
    outer = Agent(ScriptedChatClient([[tool_call("inner", messages="1+2")], "It is 3."]), name="outer", tools=[inner])
    await outer.run("1+2")
    chat = ("chat scripted", ())
    inside = ("invoke_agent inner", (chat, ("execute_tool add", ()), chat))
    assert trees(telemetry.spans) == [("invoke_agent outer", (chat, ("execute_tool inner", (inside,)), chat))]
    assert len({span.context.trace_id for span in telemetry.spans}) == 1


async def test_what_went_wrong_is_the_type_of_the_error(telemetry: Telemetry) -> None:
    await agent([tool_call("fail", reason="no"), tool_call("add", a="x"), tool_call("gone")], "Sorry.").run("Go")
    ends = {name: telemetry.one(f"execute_tool {name}") for name in ("fail", "add", "gone")}
    assert {name: (s.attributes or {})["error.type"] for name, s in ends.items()} == {
        "fail": "ValueError",
        "add": "ArgumentsError",
        "gone": "invalid",
    }
    assert {span.status.status_code for span in ends.values()} == {StatusCode.ERROR}
    assert telemetry.one("invoke_agent helper").status.status_code is StatusCode.UNSET  # the run went on
    telemetry.exporter.clear()
    await run_that_fails()
    for name in ("chat scripted", "invoke_agent helper"):
        span = telemetry.one(name)
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description is None  # a message may have words in it
        assert "error.type" in (span.attributes or {})


async def test_a_limit_is_an_error_where_the_run_raises_one(telemetry: Telemetry) -> None:
    with pytest.raises(NBAgentsError):
        await agent([tool_call("add", a=1, b=2)]).run("1+2", budget=RunBudget(max_tool_calls=0))
    span = telemetry.one("invoke_agent helper")
    assert (span.attributes or {})["error.type"] == "BudgetExceededError"
    assert (span.attributes or {})["nbagents.status"] == "limit"


async def test_a_cancelled_run_is_told_to_its_end_and_is_no_error(telemetry: Telemetry) -> None:
    await run_that_is_cancelled()
    assert trees(telemetry.spans) == [("invoke_agent helper", (("chat scripted", ()),))]
    assert {span.status.status_code for span in telemetry.spans} == {StatusCode.UNSET}
    assert {(span.attributes or {})["nbagents.status"] for span in telemetry.spans} == {"cancelled"}


async def test_a_run_cancelled_in_a_tool_leaves_no_span_open(telemetry: Telemetry) -> None:
    gate = Gate()
    task = asyncio.create_task(_run(Agent(ScriptedChatClient([[tool_call("wait")]]), name="helper", tools=[gate])))
    await gate.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert trees(telemetry.spans) == [("invoke_agent helper", (("chat scripted", ()), ("execute_tool Gate.wait", ())))]
    assert (telemetry.one("execute_tool Gate.wait").attributes or {})["nbagents.status"] == "cancelled"


async def _run(one: Agent) -> Any:
    return await one.run("Go")


async def test_a_call_that_waits_for_a_person_is_told_in_the_run_that_makes_it(telemetry: Telemetry) -> None:
    helper = agent([tool_call("remove", path="x")], "Gone.")
    first = await helper.run("Remove x")
    await helper.run([request.approve() for request in first.approvals], session=first.session)
    chat = ("chat scripted", ())
    assert trees(telemetry.spans) == [
        ("invoke_agent helper", (chat,)),
        ("invoke_agent helper", (("execute_tool remove", ()), chat)),
    ]
    asked, answered = telemetry.named("invoke_agent helper")
    assert (asked.attributes or {})["nbagents.status"] == "approval"
    assert (asked.attributes or {})["gen_ai.conversation.id"] == (answered.attributes or {})["gen_ai.conversation.id"]


async def test_a_sub_agent_that_waits_for_a_person_leaves_no_span_open(telemetry: Telemetry) -> None:
    inner = agent([tool_call("remove", path="x")], "Gone.", name="inner", description="Removes.")
    outer = Agent(ScriptedChatClient([[tool_call("inner", messages="x")], "Done."]), name="outer", tools=[inner])
    first = await outer.run("Remove x")
    await outer.run([request.approve() for request in first.approvals], session=first.session)
    chat = ("chat scripted", ())
    assert trees(telemetry.spans) == [
        ("invoke_agent outer", (chat, ("execute_tool inner", (("invoke_agent inner", (chat,)),)))),
        (
            "invoke_agent outer",
            (("execute_tool inner", (("invoke_agent inner", (("execute_tool remove", ()), chat)),)), chat),
        ),
    ]
    assert facts(telemetry.spans) == facts(exported())


@pytest.mark.parametrize("stream", [False, True])
async def test_each_retry_is_a_span_with_its_error(
    telemetry: Telemetry, llmock: LLMock, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr(retries, "_FIRST_BACKOFF_SECONDS", 0.001)
    llmock.scenario([{"type": "fail", "status": 500}, {"type": "fail", "status": 429}, {"type": "reply", "text": "Hi"}])
    client = OpenAIChatClient("gpt-x", base_url=llmock.base_url, api_key="test-key", max_retries=2)
    reply: Any = Agent(client, name="helper").run("Hello", stream=stream)  # type: ignore[call-overload]
    await (reply.get_final_response() if stream else reply)
    chats = telemetry.named("chat gpt-x")
    assert [(span.attributes or {}).get("error.type") for span in chats] == ["ServerError", "RateLimitError", None]
    assert [(span.attributes or {})["nbagents.attempt"] for span in chats] == [1, 2, 3]
    assert {span.kind for span in chats} == {SpanKind.CLIENT}
    assert {(span.attributes or {})["server.address"] for span in chats} == {"127.0.0.1"}
    assert all(isinstance((span.attributes or {})["server.port"], int) for span in chats)
    assert {(span.attributes or {})["gen_ai.provider.name"] for span in chats} == {"openai"}
    assert facts(telemetry.spans) == facts(exported())


async def test_a_hundred_runs_at_once_do_not_mix(telemetry: Telemetry) -> None:
    async def one(number: int) -> str:
        helper = Agent(
            ScriptedChatClient([[tool_call("add", a=number, b=0)], "done"], delay=0.0005),
            name=f"helper{number}",
            tools=[add],
        )
        return str((await helper.run("Go")).run_id)

    run_ids = await asyncio.gather(*map(one, range(100)))
    chat = ("chat scripted", ())
    assert sorted(trees(telemetry.spans)) == sorted(
        (f"invoke_agent helper{n}", (chat, ("execute_tool add", ()), chat)) for n in range(100)
    )
    assert len({span.context.trace_id for span in telemetry.spans}) == len(set(run_ids)) == 100


async def test_metrics_count_time_and_tokens(telemetry: Telemetry) -> None:
    usage = (await agent([tool_call("add", a=1, b=2)], "It is three.").run("What is one plus two?")).usage
    await run_that_fails()
    tokens = {(p.attributes["gen_ai.token.type"]): p for p in telemetry.points("gen_ai.client.token.usage")}
    assert usage is not None
    assert (tokens["input"].sum, tokens["output"].sum, tokens["input"].count) == (
        usage.input_tokens,
        usage.output_tokens,
        2,
    )
    assert tokens["input"].explicit_bounds[:4] == (1, 4, 16, 64)
    durations = telemetry.points("gen_ai.client.operation.duration")
    assert {p.attributes["gen_ai.operation.name"] for p in durations} == {"chat", "execute_tool", "invoke_agent"}
    (chats,) = (
        p for p in durations if p.attributes["gen_ai.operation.name"] == "chat" and "error.type" not in p.attributes
    )
    assert (chats.count, chats.attributes["gen_ai.request.model"]) == (2, "scripted")
    assert chats.explicit_bounds[:2] == (0.01, 0.02)
    assert any("error.type" in p.attributes for p in durations)
    assert not any("gen_ai.conversation.id" in p.attributes for p in durations)  # one series for each would be too many


async def test_a_tool_that_a_model_makes_up_is_no_dimension(telemetry: Telemetry) -> None:
    """A series for each name would be without bound."""
    await agent([tool_call("no_such_tool"), tool_call("add", a=1, b=2)], "Sorry.").run("Go")
    durations = telemetry.points("gen_ai.client.operation.duration")
    assert {p.attributes.get("gen_ai.tool.name") for p in durations} == {None, "add"}
    assert telemetry.one("execute_tool no_such_tool").attributes["gen_ai.tool.name"] == "no_such_tool"


@pytest.mark.parametrize(
    "options",
    [{"seed": float("nan")}, {"max_tokens": float("inf")}, {"temperature": 10**400}, {"seed": 2**63}, {"stop": 5}],
)
async def test_options_that_no_span_can_hold_are_left_out(telemetry: Telemetry, options: Any) -> None:
    """OTLP holds 64 bits: one number that is too long loses the whole batch."""
    response = await agent("Hi").run("Hello", options=options)
    spans = [*telemetry.spans, *exported(response)]
    assert [span.name for span in spans] == ["chat scripted", "invoke_agent helper"] * 2
    assert {str(key) for span in spans for key in span.attributes if ".request." in key} <= {
        "gen_ai.request.model",
        "gen_ai.request.stop_sequences",
    }


async def test_counts_that_no_span_can_hold_are_left_out(telemetry: Telemetry) -> None:
    await agent(["Hi", reported(cached_input_tokens=10**30, reasoning_tokens=3)]).run("Hello")
    attributes = telemetry.one("chat scripted").attributes
    assert "gen_ai.usage.cache_read.input_tokens" not in attributes
    assert attributes["gen_ai.usage.reasoning.output_tokens"] == 3


async def test_words_of_a_long_run_are_written_once(telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request tells all that was said before it: masking that again takes the square of the time."""
    telemetry.enable(capture_content=True)
    written: list[Any] = []
    json_text = content.json_text
    monkeypatch.setattr(content, "json_text", lambda value: written.append(value) or json_text(value))
    await agent(*[[tool_call("add", a=1, b=2)]] * 10, "done").run("Go", budget=RunBudget(max_steps=20))
    assert "tool_call_response" in str(written)
    assert str(written).count("tool_call_response") == 10
    last = max(telemetry.named("chat scripted"), key=lambda span: span.start_time or 0)
    assert len(json.loads(last.attributes["gen_ai.input.messages"])) == 21


def test_threads_that_enable_it_at_once_leave_one_watcher() -> None:
    before, interval = list(run_log().watchers), sys.getswitchinterval()
    start = threading.Barrier(8)

    def enable() -> None:
        start.wait()
        for _ in range(100):
            enable_otel(tracer_provider=TracerProvider(shutdown_on_exit=False))

    threads = [threading.Thread(target=enable) for _ in range(8)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(run_log().watchers) == len(before) + 1
    disable_otel()
    assert run_log().watchers == before


async def test_enabled_twice_each_run_is_told_once_and_disabled_not_at_all(telemetry: Telemetry) -> None:
    telemetry.enable()
    await agent("Hi").run("Hello")
    assert len(telemetry.spans) == 2
    disable_otel()
    disable_otel()
    await agent("Hi").run("Hello")
    assert len(telemetry.spans) == 2


class Broken(SpanProcessor, SpanExporter):
    """A processor and an exporter that fail."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise RuntimeError("sk-proj-abcdefghijklmnopqrstuvwxyz0123456789 is broken")

    def export(self, spans: Any) -> Any:
        raise RuntimeError("no collector")


@pytest.mark.parametrize("processor", [Broken(), SimpleSpanProcessor(Broken())])
async def test_telemetry_that_fails_does_not_hurt_the_run(
    processor: SpanProcessor, caplog: pytest.LogCaptureFixture
) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    enable_otel(tracer_provider=provider)
    try:
        response = await sum_agent().run("Sums")
    finally:
        disable_otel()
    assert response.text == "3 and 7"
    assert caplog.records  # it is told, without the key
    assert "sk-proj" not in caplog.text


async def test_a_provider_that_fails_does_not_hurt_the_run(caplog: pytest.LogCaptureFixture) -> None:
    class NoTracers(TracerProvider):
        def get_tracer(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("no tracer")

    enable_otel(tracer_provider=NoTracers(shutdown_on_exit=False))
    try:
        assert (await agent("Hi").run("Hello")).text == "Hi"
    finally:
        disable_otel()
    assert "has no telemetry" in caplog.text


async def test_a_sampler_may_leave_out_everything() -> None:
    telemetry = Telemetry()
    telemetry.provider.sampler = ALWAYS_OFF
    telemetry.enable()
    try:
        await sum_agent().run("Sums")
    finally:
        disable_otel()
    assert telemetry.spans == []


async def test_an_id_generator_of_the_user_s_is_kept() -> None:
    class Counting(IdGenerator):
        last = 0

        def generate_span_id(self) -> int:
            self.last += 1
            return self.last

        generate_trace_id = generate_span_id

    telemetry = Telemetry()
    telemetry.provider.id_generator = Counting()
    telemetry.enable()
    try:
        await agent("Hi").run("Hello")
    finally:
        disable_otel()
    assert {span.context.trace_id for span in telemetry.spans} == {1}


async def test_the_global_provider_may_be_set_later(monkeypatch: pytest.MonkeyPatch) -> None:
    telemetry = Telemetry()
    enable_otel()
    try:
        await agent("Hi").run("Hello")
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: telemetry.provider)
        await agent("Hi").run("Hello")
    finally:
        disable_otel()
    assert trees(telemetry.spans) == [("invoke_agent helper", (("chat scripted", ()),))]


async def test_a_replay_is_told_and_its_tokens_do_not_count_again(telemetry: Telemetry, tmp_path: Path) -> None:
    tape = tmp_path / "tape.jsonl"
    await Agent(RecordedChatClient(tape, ScriptedChatClient(["Hi"])), name="helper").run("Hello")
    before = {p.attributes["gen_ai.token.type"]: p.count for p in telemetry.points("gen_ai.client.token.usage")}
    await Agent(RecordedChatClient(tape, mode="replay"), name="helper").run("Hello")
    recorded, replayed = (s for s in telemetry.spans if s.name.startswith("chat"))
    assert "nbagents.replayed" not in (recorded.attributes or {})
    assert (replayed.attributes or {})["nbagents.replayed"] is True
    after = {p.attributes["gen_ai.token.type"]: p.count for p in telemetry.points("gen_ai.client.token.usage")}
    assert before == after == {"input": 1, "output": 1}


async def test_what_followed_a_run_is_let_go_when_it_ends(telemetry: Telemetry) -> None:
    response = await agent("Hi").run("Hello")
    record = run_log().get(str(response.run_id))
    assert record is not None
    assert record.observer is None


async def test_without_telemetry_nobody_follows_a_run() -> None:
    followed: list[Any] = []

    def watch(record: RunRecord) -> None:
        followed.append(record.observer)

    run_log().watchers.append(watch)
    try:
        await agent("Hi").run("Hello")
    finally:
        run_log().watchers.remove(watch)
    assert followed == [None]


def test_without_its_packages_telemetry_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setattr("nbagents.analysis.otel.settings.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="pip install opentelemetry-sdk"):
        enable_otel()


def test_capture_content_is_yes_or_no() -> None:
    with pytest.raises(ConfigurationError, match="capture_content"):
        enable_otel(capture_content="yes")  # type: ignore[arg-type]
