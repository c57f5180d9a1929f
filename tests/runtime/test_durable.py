"""Durable runs: whatever step a process is killed at, another one ends the run as if nothing had happened."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from nbagents import Agent, FileHistoryProvider, ScriptedChatClient, SummarizationReducer, run_log, tool, tool_call
from nbagents.core.errors import ConfigurationError, StoreError
from nbagents.runtime import RunRequest, RunResult, Runtime
from nbagents.runtime.journals import JournalFile
from tests.runtime.durable import asked_of, durable_runtime, journal_of, notes, said
from tests.runtime.runs import asking
from tests.support.tools import check

CHUNKS = 21
POINTS = ["asked:1", "asked:2", "asked:3", "tool:Rome", "tool:Oslo", *(f"chunk:{n}" for n in range(1, CHUNKS + 1))]


@pytest.fixture(scope="module", params=["memory", "file"])
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The kind of history, and a folder with what a killed process has left, for each point."""
    folder = tmp_path_factory.mktemp(request.param)
    check("-m", "tests.runtime.durable", folder, request.param, *POINTS)
    return request.param, folder


async def whole(folder: Path, history: str) -> tuple[RunResult, Any]:
    """A run that nothing interrupts, and what its session holds then."""
    run_log().clear()
    runtime = durable_runtime(folder, history)
    result = await runtime.run_detailed(request=asked_of())
    return result, said(await stored(runtime))


async def stored(runtime: Runtime) -> list[Any]:
    (agent,) = runtime.list_agents()
    return await agent.thread(runtime._sessions.of("s1")).get_messages()


async def test_the_uninterrupted_run_has_as_many_chunks_as_there_are_places_to_kill_it(tmp_path: Path) -> None:
    run_log().clear()
    runtime = durable_runtime(tmp_path, "memory")
    assert len([chunk async for chunk in runtime.run_stream(request=asked_of())]) == CHUNKS


@pytest.mark.parametrize("point", POINTS)
async def test_a_killed_run_ends_elsewhere_as_if_nothing_had_happened(
    killed: tuple[str, Path], point: str, tmp_path: Path
) -> None:
    history, folder = killed[0], killed[1] / point.replace(":", "-")
    expected, expected_session = await whole(tmp_path / "whole", history)
    run_log().clear()
    lines = [json.loads(line) for line in journal_of(folder).split("\n")[1:-1]]
    answered = [number for number, _ in enumerate([line for line in lines if "response" in line], 1)]
    finished = [line["result"]["result"] for line in lines if "result" in line]
    before = len(notes(folder, "asked")), len(notes(folder, "finished"))

    runtime = durable_runtime(folder, history)
    result = await runtime.resume(run_id="r1")

    assert [int(number) for number in notes(folder, "asked")[before[0] :]] == [
        number for number in (1, 2, 3) if number not in answered
    ]
    anew = notes(folder, "finished")[before[1] :]
    assert len(anew) == 4 - len(finished)
    assert not [name for name in anew if any(name in text for text in finished)]
    assert said(result.messages) == said(expected.messages)
    assert said(await stored(runtime)) == expected_session
    same = {"messages": (), "usage": None}
    assert result.model_copy(update=same) == expected.model_copy(update=same)
    assert result.usage == expected.usage
    assert (await durable_runtime(folder, history).resume(run_id="r1")).final_output == expected.final_output


async def test_the_log_of_a_resumed_run_is_that_of_a_whole_one(killed: tuple[str, Path], tmp_path: Path) -> None:
    history, folder = killed
    await whole(tmp_path / "whole", history)
    expected = [event.name for event in run_log().get("r1").events]
    run_log().clear()
    runtime = durable_runtime(folder / "asked-3", history)
    (path,) = (folder / "asked-3" / "runs").glob("*.jsonl")
    cut = [line for line in path.read_text().splitlines(keepends=True) if "ended" not in json.loads(line)]
    path.write_text("".join(cut))
    chunks = [chunk async for chunk in runtime.resume_stream(run_id="r1")]
    assert [chunk.sequence for chunk in chunks] == list(range(1, len(chunks) + 1))
    assert [chunk.kind.value for chunk in chunks][-1] == "run.finished"
    assert sorted(event.name for event in run_log().get("r1").events) == sorted(expected)


async def test_what_a_crash_has_cut_off_is_asked_again(tmp_path: Path) -> None:
    expected, _ = await whole(tmp_path, "memory")
    (path,) = (tmp_path / "runs").glob("*.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-2]) + lines[-2][:100])
    run_log().clear()
    result = await durable_runtime(tmp_path, "memory").resume(run_id="r1")
    assert notes(tmp_path, "asked") == ["1", "2", "3", "3"]
    assert said(result.messages) == said(expected.messages)
    assert (await durable_runtime(tmp_path, "memory").resume(run_id="r1")).stop_reason == "completed"


async def test_an_unknown_run_is_one_clear_error(tmp_path: Path) -> None:
    runtime = durable_runtime(tmp_path, "memory")
    with pytest.raises(ConfigurationError, match="There is no durable run 'nothing' in") as error:
        await runtime.resume(run_id="nothing")
    assert error.value.code == "unknown_run"
    with pytest.raises(ConfigurationError, match="Make it with Runtime\\(durable="):
        await Runtime(agents=runtime.list_agents()).resume(run_id="nothing")


async def test_a_run_that_still_goes_on_is_not_resumed_beside_itself(tmp_path: Path) -> None:
    run_log().clear()
    runtime = durable_runtime(tmp_path, "memory")
    chunks = aiter(runtime.run_stream(request=asked_of()))
    for _ in range(3):
        await anext(chunks)
    for other in (runtime, durable_runtime(tmp_path, "memory")):  # the second as another process
        with pytest.raises(ConfigurationError, match="still goes on") as error:
            await other.resume(run_id="r1")
        assert error.value.code == "still_going"
    await chunks.aclose()
    assert (await durable_runtime(tmp_path, "memory").resume(run_id="r1")).stop_reason == "cancelled"
    assert notes(tmp_path, "asked") == ["1"]


async def test_an_id_that_is_on_disk_is_not_given_to_another_run(tmp_path: Path) -> None:
    await whole(tmp_path, "memory")
    run_log().clear()
    result = await durable_runtime(tmp_path, "memory").run(request=asked_of())
    assert result.error is not None
    assert result.error.code == "duplicate_run_id"
    assert "runtime.resume(" in (result.error.hint or "")


def approving(folder: Path, *replies: Any) -> tuple[Runtime, list[str]]:
    sent: list[str] = []

    @tool(approval="always")
    def send(text: str) -> str:
        """Send."""
        sent.append(text)
        return "sent"

    agent = Agent(ScriptedChatClient(list(replies)), name="assistant", tools=[send])
    return Runtime(agents=[agent], durable=folder), sent


async def test_a_person_answers_in_another_process(tmp_path: Path) -> None:
    asked, _ = approving(tmp_path, [tool_call("send", text="Hi")])
    waiting = await asked.run(request=asking("Send it.", session_id="s1", run_id="r1"))
    assert waiting.stop_reason == "approval_required"
    later, sent = approving(tmp_path, "Done.")
    same = await later.resume(run_id="r1")
    assert (same.stop_reason, said(same.messages)) == ("approval_required", said(waiting.messages))
    assert sent == []
    (request,) = same.messages[-1].contents
    answer = RunRequest(agent_id="assistant", session_id="s1", run_id="r2", messages=[request.approve()])
    assert (await later.run(request=answer)).final_output == "Done."
    assert sent == ["Hi"]


async def test_a_killed_run_that_a_person_had_allowed_finds_its_calls_again(tmp_path: Path) -> None:
    first, sent = approving(tmp_path, [tool_call("send", text="Hi")], "Done.")
    waiting = await first.run(request=asking("Send it.", session_id="s1", run_id="r1"))
    (request,) = waiting.messages[-1].contents
    answer = RunRequest(agent_id="assistant", session_id="s1", run_id="r2", messages=[request.approve()])
    whole_run = await first.run(request=answer)
    as_if_killed(tmp_path / "r2.jsonl", 2)
    run_log().clear()
    later, sent_later = approving(tmp_path, "Done.")
    result = await later.resume(run_id="r2")
    assert (result.final_output, sent, sent_later) == ("Done.", ["Hi"], [])
    assert said(result.messages) == said(whole_run.messages)


def as_if_killed(path: Path, lines: int) -> None:
    """Leave the first lines of the file."""
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))


class Answer(BaseModel):
    """What is asked for."""

    number: int


async def test_a_resumed_run_tries_again_where_the_reply_did_not_fit(tmp_path: Path) -> None:
    def runtime(*replies: Any) -> Runtime:
        return Runtime(agents=[Agent(ScriptedChatClient(list(replies)), name="assistant")], durable=tmp_path)

    run_log().clear()
    request = asking("How many?", run_id="r1", output_type=Answer)
    first = await runtime("Many.", '{"number": 3}').run(request=request)
    assert first.final_output == Answer(number=3)
    as_if_killed(tmp_path / "r1.jsonl", 2)
    run_log().clear()
    with pytest.raises(ConfigurationError, match="was asked for the type 'Answer'"):
        await runtime().resume(run_id="r1")
    result = await runtime('{"number": 3}').resume(run_id="r1", output_type=Answer)
    assert (result.final_output, said(result.messages)) == (first.final_output, said(first.messages))
    assert (await runtime().resume(run_id="r1", output_type=Answer)).final_output == Answer(number=3)
    assert (await runtime().resume(run_id="r1")).final_output == {"number": 3}


async def test_what_sub_agents_used_before_the_crash_still_counts(tmp_path: Path) -> None:
    def runtime(cities: list[Any], *replies: Any) -> Runtime:
        expert = Agent(ScriptedChatClient(cities), name="expert", description="Knows cities.")
        agent = Agent(ScriptedChatClient(list(replies)), name="assistant", tools=[expert])
        return Runtime(agents=[agent], durable=tmp_path)

    def asked(city: str) -> list[Any]:
        return [tool_call("expert", messages=city)]

    run_log().clear()
    first = await runtime(["Rome.", "Oslo."], asked("Italy?"), asked("Norway?"), "Done.").run(
        request=asking(run_id="r1")
    )
    assert [message.results[0].result for message in first.messages if message.results] == ["Rome.", "Oslo."]
    as_if_killed(tmp_path / "r1.jsonl", 4)  # the second call is still to be answered
    run_log().clear()
    result = await runtime(["Oslo."], "Done.").resume(run_id="r1")
    assert (result.usage, said(result.messages)) == (first.usage, said(first.messages))


async def test_a_summary_that_was_made_before_the_crash_is_not_made_again(tmp_path: Path) -> None:
    def runtime(summaries: list[Any], *replies: Any) -> tuple[Runtime, ScriptedChatClient, ScriptedChatClient]:
        reducer = SummarizationReducer(max_messages=4, client=(summarizer := ScriptedChatClient(summaries)))
        client = ScriptedChatClient(list(replies))
        agent = Agent(client, name="assistant", tools=[look], reducer=reducer)
        return Runtime(agents=[agent], durable=tmp_path), client, summarizer

    @tool
    def look(n: int) -> str:
        """Look."""
        return f"seen {n}"

    run_log().clear()
    replies = [*([tool_call("look", n=n)] for n in range(5)), "Done."]
    first, asked, summarized = runtime([f"Summary {n}." for n in range(9)], *replies)
    whole_run = await first.run(request=asking("Look around.", run_id="r1"))
    assert whole_run.final_output == "Done."
    assert summarized.requests
    as_if_killed(tmp_path / "r1.jsonl", -2)  # the last reply is missing
    run_log().clear()
    later, asked_later, summarized_later = runtime([], "Done.")
    result = await later.resume(run_id="r1")
    assert said(result.messages) == said(whole_run.messages)
    assert [len(asked_later.requests), len(summarized_later.requests)] == [1, 0]
    assert said(asked_later.requests[0].messages) == said(asked.requests[-1].messages)
    assert result.usage == whole_run.usage


async def test_a_conversation_in_memory_is_put_together_from_its_runs(tmp_path: Path) -> None:
    """Each message is written a bounded number of times, however long the conversation is."""

    def runtime(*replies: Any) -> Runtime:
        return Runtime(agents=[Agent(ScriptedChatClient(list(replies)), name="assistant")], durable=tmp_path)

    run_log().clear()
    first = runtime(*(f"Reply {n}." for n in range(40)))
    for n in range(40):
        await first.run(request=asking(f"Question {n}?", session_id="s1", run_id=f"r{n}"))
    sizes = [(tmp_path / f"r{n}.jsonl").stat().st_size for n in range(40)]
    assert max(sizes[1:]) - min(sizes[1:]) < 100
    run_log().clear()
    later = runtime("The last.")
    await later.resume(run_id="r39")
    assert (await later.run(request=asking("And?", session_id="s1", run_id="r40"))).final_output == "The last."
    assert len(await stored(later)) == 82


def rounds(folder: Path, number: int) -> int:
    """Run a loop of so many calls, and return the bytes that it has written."""

    @tool
    def step(n: int) -> str:
        """Go on."""
        return "x" * 500

    run_log().clear()
    replies: list[Any] = [[tool_call("step", n=n)] for n in range(number)]
    agent = Agent(ScriptedChatClient([*replies, "Done."]), name="assistant", tools=[step])
    result = Runtime(agents=[agent], durable=folder).run_sync(
        request=asking(run_id=f"r{number}", budget={"max_steps": number + 1})
    )
    assert result.final_output == "Done."
    return (folder / f"r{number}.jsonl").stat().st_size


def test_what_is_written_grows_with_the_steps_and_not_with_their_square(tmp_path: Path) -> None:
    small, middle, large = (rounds(tmp_path, number) for number in (10, 100, 200))
    step = (middle - small) / 90
    assert abs((large - middle) / 100 - step) < 0.02 * step


@pytest.mark.parametrize("step", ["response", "result"])
async def test_a_run_that_is_cancelled_while_a_step_is_written_keeps_it_in_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    append, writing, go_on = JournalFile.append, threading.Event(), threading.Event()

    def slow(self: JournalFile, record: Any, *, sync: bool = True) -> None:
        if step in record:
            writing.set()
            assert go_on.wait(10)
        append(self, record, sync=sync)

    run_log().clear()
    monkeypatch.setattr(JournalFile, "append", slow)
    runtime = durable_runtime(tmp_path, "memory")
    run = asyncio.create_task(runtime.run(request=asked_of()))
    assert await asyncio.to_thread(writing.wait, 10)
    run.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    messages = await stored(runtime)
    assert messages[1].text == "Let me see."
    events = [event.name for event in run_log().get("r1").events]
    assert "llm.succeeded" in events
    assert ("tool.succeeded" in events or "tool.failed" in events) == (step == "result")
    assert (await durable_runtime(tmp_path, "memory").resume(run_id="r1")).stop_reason == "cancelled"


async def test_a_session_that_has_gone_on_is_not_mixed_with_an_old_run(tmp_path: Path) -> None:
    def runtime(*replies: Any, durable: Path | None) -> Runtime:
        history = FileHistoryProvider(tmp_path / "sessions")
        return Runtime(
            agents=[Agent(ScriptedChatClient(list(replies)), name="assistant", history=history)], durable=durable
        )

    run_log().clear()
    await runtime("One.", durable=tmp_path / "runs").run(request=asking(session_id="s1", run_id="r1"))
    as_if_killed(tmp_path / "runs" / "r1.jsonl", -1)
    await runtime("Two.", durable=None).run(request=asking(session_id="s1", run_id="r2"))
    run_log().clear()
    for _ in range(2):  # the run is as it was before
        result = await runtime(durable=tmp_path / "runs").resume(run_id="r1")
        assert result.error is not None
        assert result.error.code == "session_gone_on"
        run_log().clear()


async def test_a_file_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "r1.jsonl").write_text('{"a": 1}\n')
    runtime = Runtime(agents=[], durable=tmp_path)
    with pytest.raises(StoreError, match="holds no durable run"):
        await runtime.resume(run_id="r1")
    assert (tmp_path / "r1.jsonl").read_text() == '{"a": 1}\n'
    await whole(tmp_path / "whole", "memory")
    (path,) = (tmp_path / "whole" / "runs").glob("*.jsonl")
    path.write_text(path.read_text().replace('"facts"', '"fax"'))
    with pytest.raises(StoreError, match="line 2 is no step of a run"):
        await durable_runtime(tmp_path / "whole", "memory").resume(run_id="r1")
    with pytest.raises(ConfigurationError, match="is no folder"):
        Runtime(agents=[], durable=tmp_path / "r1.jsonl")


async def test_a_file_is_for_its_owner_only(tmp_path: Path) -> None:
    await whole(tmp_path, "memory")
    assert (tmp_path / "runs" / "r1.jsonl").stat().st_mode & 0o077 == 0
