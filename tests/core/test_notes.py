"""Notes follow the end of a run, in its log and with whoever keeps it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

import nbagents
from nbagents import Agent, ScriptedChatClient, run_log, tool, tool_call
from nbagents.core.errors import ConfigurationError
from nbagents.core.events import RunEvent
from nbagents.core.runlog import RunLog


async def answered() -> nbagents.AgentResponse:
    return await Agent(ScriptedChatClient(["Hello."])).run("Hi")


async def test_notes_stand_behind_the_end() -> None:
    response = await answered()
    record = run_log().get(response.run_id)
    before = len(record.events)
    response.note("too short")
    nbagents.note(response, thumbs="down")
    nbagents.note(response.run_id, "really", thumbs="up")
    notes = record.events[before:]
    assert [event.payload for event in notes] == [
        {"text": "too short", "thumbs": None},
        {"text": None, "thumbs": "down"},
        {"text": "really", "thumbs": "up"},
    ]
    assert [event.sequence for event in record.events] == list(range(1, before + 4))
    assert record.ended
    assert record.end() is record.events[before - 1]


async def test_a_noted_run_still_leaves_a_full_log() -> None:
    log, response = RunLog(max_runs=1), await answered()
    kept = log.open(response.run_id)
    kept.events.extend(run_log().get(response.run_id).events)
    log.close(kept)
    log.note(response.run_id, {"text": "x" * 100, "thumbs": None})
    log.open("run_next")
    assert [record.run_id for record in log.runs()] == ["run_next"]
    assert log._bytes == 0


async def test_a_run_that_is_going_cannot_be_noted() -> None:
    begun, opened = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await opened.wait()
        return "open"

    task = asyncio.ensure_future(Agent(ScriptedChatClient([[tool_call("wait")], "Done."]), tools=[wait]).run("Go"))
    await begun.wait()
    run_id = run_log().runs()[-1].run_id
    with pytest.raises(ConfigurationError, match="still going"):
        nbagents.note(run_id, "early")
    opened.set()
    (await task).note("now")
    assert run_log().get(run_id).events[-1].payload["text"] == "now"


async def test_notes_from_many_threads_are_all_kept() -> None:
    response = await answered()
    before = run_log().get(response.run_id).events[-1].sequence
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: response.note(str(i)), range(200)))
    notes = [event for event in run_log().get(response.run_id).events if event.name == "run.noted"]
    assert sorted(int(event.payload["text"]) for event in notes) == list(range(200))
    assert [event.sequence for event in notes] == list(range(before + 1, before + 201))


async def test_a_run_that_only_a_keeper_has_can_be_noted() -> None:
    noted: list[RunEvent] = []

    def keep(event: RunEvent) -> bool:
        noted.append(event)
        return event.run_id == "run_old"

    run_log().keepers.append(keep)
    try:
        nbagents.note("run_old", thumbs="up")
        (await answered()).note("seen by both")
        with pytest.raises(ConfigurationError, match="There is no run 'run_gone'"):
            nbagents.note("run_gone", thumbs="up")
    finally:
        run_log().keepers.remove(keep)
    assert [event.sequence == 0 for event in noted] == [True, False, True]


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((3, "x"), {}, "int has no run_id"),
        ((), {"text": "x"}, "missing 1 required positional argument"),
        (("run_1",), {}, "says nothing"),
        (("run_1", "  "), {}, "says nothing"),
        (("run_1", 3), {}, "is a str, not int"),
        (("run_1",), {"thumbs": "sideways"}, "'up' or 'down', not 'sideways'"),
        (("run_1",), {"thumbs": ["up"]}, "'up' or 'down'"),
    ],
)
def test_a_wrong_note_is_one_clear_error(arguments, settings, message) -> None:
    with pytest.raises((ConfigurationError, TypeError), match=message):
        nbagents.note(*arguments, **settings)


def test_a_response_of_no_run_cannot_be_noted() -> None:
    with pytest.raises(ConfigurationError, match="has no run_id"):
        nbagents.AgentResponse().note("x")


async def test_a_keeper_is_told_before_the_record_has_the_note() -> None:
    """What the record holds a keeper writes by itself: told later, it would have the note twice."""
    response = await answered()
    record = run_log().get(response.run_id)
    seen: list[list[str]] = []

    def keep(event: RunEvent) -> bool:
        seen.append([kept.name for kept in record.events])
        return True

    run_log().keepers.append(keep)
    try:
        response.note("good")
    finally:
        run_log().keepers.remove(keep)
    assert seen[0][-1] == "run.ended"
    assert record.events[-1].name == "run.noted"
