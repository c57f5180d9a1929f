"""The event bus: handlers look on, in order, and disturb nobody."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from nbagents import Agent, ScriptedChatClient, run_log, tool_call
from nbagents.core.errors import ConfigurationError
from nbagents.runtime import RuntimeEvent
from nbagents.runtime import events as bus_module
from tests.runtime.runs import all_chunks, asking, checked_end, every_kind, measure, scripted


async def test_all_events_of_the_log_come_in_order_and_deltas_where_they_belong() -> None:
    runtime, request = every_kind()
    seen: list[RuntimeEvent] = []
    unsubscribe = runtime.subscribe("*", seen.append)
    result = checked_end(await all_chunks(runtime, request))
    record = run_log().get(result.run_id)
    kept = [
        event for event in seen if event.name not in ("llm.delta", "llm.reasoning_delta", "llm.update", "tool.delta")
    ]
    assert [event.name for event in kept] == [event.name for event in record.events]
    assert runtime.events.history() == kept
    names = [event.name for event in seen]
    assert names.index("llm.requested") < names.index("llm.delta") < names.index("llm.succeeded")
    assert {(event.run_id, event.session_id, event.agent_id) for event in seen} == {(result.run_id, "s1", "assistant")}
    unsubscribe()
    unsubscribe()
    await runtime.run(request=request.model_copy(update={"session_id": "s2"}))
    assert len(seen) == len(names)


async def test_a_handler_is_told_of_its_event_only_and_cannot_change_the_log() -> None:
    runtime = scripted([tool_call("measure", place="Rome")], "Done.", tools=[measure])
    seen: list[str] = []

    def meddle(event: RuntimeEvent) -> None:
        seen.append(event.name)
        event.payload.clear()  # type: ignore[attr-defined]

    runtime.subscribe("tool.called", meddle)
    result = await runtime.run(request=asking())
    assert seen == ["tool.called"]
    assert run_log().get(result.run_id).first("tool.called").payload["params"] == {"place": "Rome"}


@pytest.mark.parametrize("error", [ValueError("odd"), asyncio.CancelledError()], ids=["error", "cancelled"])
async def test_a_handler_that_fails_is_reported_and_disturbs_nobody(error: BaseException) -> None:
    runtime = scripted("Hello.")
    reports: list[RuntimeEvent] = []
    seen: list[str] = []

    def fail(event: RuntimeEvent) -> None:
        raise error

    runtime.subscribe("run.started", fail)
    runtime.subscribe("run.started", lambda event: seen.append(event.name))
    runtime.subscribe("handler.failed", reports.append)
    with pytest.warns(RuntimeWarning, match="fail of 'run.started' failed"):
        result = await runtime.run(request=asking())
    assert result.final_output == "Hello."
    assert seen == ["run.started"]
    assert [report.payload["event"] for report in reports] == ["run.started"]
    assert type(error).__name__ in reports[0].payload["error"]


async def test_handlers_of_failures_that_fail_do_not_call_each_other_for_ever() -> None:
    runtime = scripted("Hello.")
    calls: list[str] = []

    def fail(event: RuntimeEvent) -> None:
        calls.append(event.name)
        raise ValueError(event.name)

    def fail_too(event: RuntimeEvent) -> None:
        fail(event)

    runtime.subscribe("run.started", fail)
    runtime.subscribe("handler.failed", fail_too)
    runtime.subscribe("handler.failed", fail)
    with pytest.warns(RuntimeWarning, match="failed"):
        assert (await runtime.run(request=asking())).final_output == "Hello."
    assert calls == ["run.started", "handler.failed"]
    assert len(runtime.events.history("handler.failed")) == 1


async def test_async_handlers_get_their_events_in_order_beside_the_run_and_leave_no_task() -> None:
    runtime = scripted(["a"] * 20)
    go_on = asyncio.Event()
    seen: list[str] = []
    ended = asyncio.Event()

    async def slow(event: RuntimeEvent) -> None:
        await go_on.wait()
        seen.append(event.payload.get("text", event.name))
        if event.name == "run.ended":
            ended.set()

    runtime.subscribe("*", slow)
    chunks = await all_chunks(runtime, asking())
    assert checked_end(chunks).stop_reason == "completed"
    assert seen == []
    go_on.set()
    async with asyncio.timeout(5):
        await ended.wait()
    assert seen.count("a") == 20
    assert (seen[0], seen[-1]) == ("run.started", "run.ended")
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if "handler" in task.get_name()] == []


async def test_after_unsubscribing_nothing_comes_any_more_though_it_waits_already() -> None:
    runtime = scripted("Hello.")
    seen: list[str] = []

    async def note(event: RuntimeEvent) -> None:
        seen.append(event.name)
        unsubscribe()

    unsubscribe = runtime.subscribe("*", note)
    await runtime.run(request=asking())
    for _ in range(5):
        await asyncio.sleep(0)
    assert seen == ["run.started"]


async def test_an_async_handler_that_fails_is_reported_and_goes_on() -> None:
    runtime = scripted("Hello.")
    seen: list[str] = []
    reported = asyncio.Event()
    runtime.subscribe("handler.failed", lambda event: reported.set())

    async def fail(event: RuntimeEvent) -> None:
        seen.append(event.name)
        raise ValueError("odd")

    runtime.subscribe("*", fail)

    async def until_all_is_seen() -> None:
        await runtime.run(request=asking())
        await reported.wait()
        while "run.ended" not in seen:
            await asyncio.sleep(0)

    with pytest.warns(RuntimeWarning, match="failed"):
        await asyncio.wait_for(until_all_is_seen(), 5)


async def test_an_async_handler_that_cannot_keep_up_loses_the_oldest_events_and_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bus_module, "MAX_WAITING", 10)
    runtime = scripted(["a"] * 100)
    go_on, ended = asyncio.Event(), asyncio.Event()
    seen: list[str] = []

    async def slow(event: RuntimeEvent) -> None:
        await go_on.wait()
        seen.append(event.name)
        if event.name == "run.ended":
            ended.set()

    runtime.subscribe("*", slow)
    await all_chunks(runtime, asking())
    go_on.set()
    with pytest.warns(RuntimeWarning, match="too slow"):
        await asyncio.wait_for(ended.wait(), 5)
    assert len(seen) <= 12


def test_an_async_handler_without_a_loop_is_called_on_the_loop_thread() -> None:
    runtime = scripted("Hello.")
    threads: list[str] = []
    called = threading.Event()

    async def note(event: RuntimeEvent) -> None:
        threads.append(threading.current_thread().name)
        called.set()

    runtime.subscribe("run.ended", note)
    assert runtime.run_sync(request=asking()).final_output == "Hello."
    assert called.wait(5)
    assert threads == ["nbagents-loop"]


def test_an_async_handler_whose_loop_is_closed_is_reported_once() -> None:
    runtime = scripted("One.", "Two.")

    async def note(event: RuntimeEvent) -> None:
        raise AssertionError

    async def subscribe() -> None:
        runtime.subscribe("run.ended", note)

    asyncio.run(subscribe())
    with pytest.warns(RuntimeWarning, match="loop is closed"):
        runtime.run_sync(request=asking())
    assert runtime.run_sync(request=asking()).final_output == "Two."
    assert len(runtime.events.history("handler.failed")) == 1


async def test_the_history_is_bounded_and_has_no_deltas() -> None:
    runtime = scripted(*["Hello."] * 300)
    for _ in range(300):
        await runtime.run_detailed(request=asking())
    history = runtime.events.history()
    assert len(history) == 1_000
    assert history[-1].name == "run.ended"
    assert runtime.events.history("llm.delta") == []


@pytest.mark.parametrize(
    ("name", "handler", "told"),
    [("tool.caled", print, "'tool.called'"), ("anything", print, "There are:"), ("*", 3, "not int")],
)
def test_a_subscription_that_does_not_fit_is_refused(name: str, handler: Any, told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        scripted().subscribe(name, handler)
    assert told in str(error.value)


async def test_reload_changes_agents_for_the_runs_to_come() -> None:
    def agent(name: str, text: str) -> Agent:
        return Agent(ScriptedChatClient([text, text]), name=name)

    kept, old = agent("kept", "Kept."), agent("assistant", "Old.")
    runtime = scripted()
    await runtime.reload(agents=[old, kept])
    changes: list[tuple[Any, Any]] = []
    runtime.subscribe("agent.reloaded", lambda event: changes.append((event.agent_id, event.payload["change"])))
    stream = aiter(runtime.run_stream(request=asking()))
    first = await anext(stream)
    await runtime.reload(agents=[agent("assistant", "New."), kept, agent("more", "More.")])
    assert changes == [("assistant", "replaced"), ("more", "added")]
    assert checked_end([first, *[chunk async for chunk in stream]]).final_output == "Old."
    assert (await runtime.run(request=asking())).final_output == "New."
    with pytest.raises(ConfigurationError, match="Two agents"):
        await runtime.reload(agents=[old, old])
    assert [one.id for one in runtime.list_agents()] == ["assistant", "kept", "more"]
    await runtime.reload(agents=[kept])
    assert changes[2:] == [("assistant", "removed"), ("more", "removed")]


async def test_what_a_handler_ends_or_begins_is_so_from_then_on() -> None:
    runtime = scripted("Hello.")
    seen: list[str] = []

    def first(event: RuntimeEvent) -> None:
        end_second()
        runtime.subscribe(event.name, lambda _: seen.append("third"))

    runtime.subscribe("run.started", first)
    end_second = runtime.subscribe("run.started", lambda _: seen.append("second"))
    await runtime.run(request=asking())
    assert seen == []
    runtime.events.publish(runtime.events.history("run.started")[0])
    assert seen == ["third"]
