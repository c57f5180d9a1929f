"""Chunks as text for the wire, and the way back into a stream."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from nbagents import run_log, tool_call
from nbagents.core.errors import ConfigurationError, NBAgentsError
from nbagents.runtime import RunStreamChunk, to_jsonl, to_sse
from tests.runtime.runs import all_chunks, asking, checked_end, every_kind, measure, scripted


async def test_lines_of_json_read_back_as_the_same_chunks() -> None:
    runtime, request = every_kind()
    lines = [line async for line in to_jsonl(runtime.run_stream(request=request))]
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in lines)
    read = [RunStreamChunk.model_validate_json(line) for line in lines]
    assert checked_end(read).stop_reason == "approval_required"
    assert [chunk.model_dump_json() + "\n" for chunk in read] == lines


async def test_server_sent_events_have_id_kind_and_json() -> None:
    runtime = scripted("two\nlines\r\n\r\nand more")
    events = [event async for event in to_sse(runtime.run_stream(request=asking()))]
    for number, event in enumerate(events, 1):
        head, kind, data = event.removesuffix("\n\n").split("\n")
        assert head == f"id: {number}"
        chunk = RunStreamChunk.model_validate_json(data.removeprefix("data: "))
        assert kind == f"event: {chunk.kind.value}"
        assert "\r" not in event
    assert chunk.result.final_output == "two\nlines\r\n\r\nand more"


@pytest.mark.parametrize("write", [to_sse, to_jsonl])
async def test_leaving_a_transport_ends_the_run(write: Any) -> None:
    runtime = scripted(["a"] * 100)
    texts = write(runtime.run_stream(request=asking(run_id="r1")))
    await anext(texts)
    await texts.aclose()
    assert run_log().get("r1").events[-1].payload["stop_reason"] == "cancelled"


def test_transports_take_streams_that_are_not_awaited_too() -> None:
    runtime = scripted("Hello.", "Hello.")
    lines = list(to_jsonl(runtime.stream_sync(request=asking())))
    assert checked_end([RunStreamChunk.model_validate_json(line) for line in lines]).final_output == "Hello."
    assert next(to_sse(runtime.stream_sync(request=asking()))).startswith("id: 1\nevent: run.started\n")


async def test_a_consumer_that_lost_its_place_goes_on_from_there() -> None:
    runtime = scripted(["a", "b", "c"])
    chunks = aiter(runtime.run_stream(request=asking(run_id="r1")))
    seen = [await anext(chunks) for _ in range(2)]
    resumed = asyncio.create_task(all_of(runtime.resume_stream(run_id="r1", after=1)))
    whole = asyncio.create_task(all_of(runtime.resume_stream(run_id="r1")))
    await asyncio.sleep(0)
    seen += [chunk async for chunk in chunks]
    assert await resumed == seen[1:]
    assert await whole == seen
    assert await all_of(runtime.resume_stream(run_id="r1", after=4)) == seen[4:]
    assert await all_of(runtime.resume_stream(run_id="r1", after=len(seen))) == []
    assert (await runtime.resume_stream(run_id="r1").get_final_response()).final_output == "abc"


async def all_of(stream: Any) -> list[RunStreamChunk]:
    return [chunk async for chunk in stream]


async def test_following_a_run_neither_slows_nor_ends_it() -> None:
    runtime = scripted(["a"] * 20)
    chunks = aiter(runtime.run_stream(request=asking(run_id="r1")))
    seen = [await anext(chunks)]
    follower = aiter(runtime.resume_stream(run_id="r1"))
    assert await anext(follower) == seen[0]
    waiting = asyncio.create_task(anext(follower))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    assert runtime._recent["r1"]._waiting == []
    seen += [chunk async for chunk in chunks]
    assert checked_end(seen).final_output == "a" * 20
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_what_a_consumer_does_to_its_chunk_is_its_own_business() -> None:
    runtime = scripted([tool_call("measure", place="Rome")], "Hello.", tools=[measure])
    async for chunk in runtime.run_stream(request=asking(run_id="r1")):
        chunk.payload["mine"] = True
        if chunk.kind == "tool.started":
            chunk.payload["params"]["place"] = "mine"
    assert all("mine" not in str(chunk.payload) for chunk in await all_of(runtime.resume_stream(run_id="r1")))


async def test_a_run_on_another_thread_can_be_followed() -> None:
    runtime = scripted(["a"] * 200)
    started, go_on = threading.Event(), threading.Event()
    seen: list[RunStreamChunk] = []

    def read() -> None:
        for chunk in runtime.stream_sync(request=asking(run_id="r1")):
            seen.append(chunk)
            started.set()
            go_on.wait(5)

    thread = threading.Thread(target=read)
    thread.start()
    await asyncio.to_thread(started.wait, 5)
    following = asyncio.create_task(all_of(runtime.resume_stream(run_id="r1")))
    await asyncio.sleep(0)
    go_on.set()
    async with asyncio.timeout(10):
        followed = await following
    await asyncio.to_thread(thread.join, 5)
    assert checked_end(followed).final_output == "a" * 200
    assert followed == seen


async def test_what_is_kept_is_bounded_and_what_is_lost_is_said() -> None:
    runtime = scripted(["a"] * 1_500, *["Hello."] * 40)
    seen = await all_chunks(runtime, asking(run_id="long"))
    assert len(await all_of(runtime.resume_stream(run_id="long", after=len(seen) - 1_000))) == 1_000
    with pytest.raises(NBAgentsError, match="not kept any more") as error:
        runtime.resume_stream(run_id="long", after=3)
    assert error.value.code == "chunks_lost"
    for number in range(40):
        await runtime.run(request=asking(run_id=f"r{number}"))
    with pytest.raises(ConfigurationError, match="No chunks"):
        runtime.resume_stream(run_id="long")
    with pytest.raises(ConfigurationError, match="No chunks"):
        runtime.resume_stream(run_id="r7")
    assert len(await all_of(runtime.resume_stream(run_id="r8"))) == 4
    assert len(runtime._recent) == 32


async def test_a_follower_that_falls_too_far_behind_is_told() -> None:
    runtime = scripted(["a"] * 1_500)
    chunks = aiter(runtime.run_stream(request=asking(run_id="r1")))
    await anext(chunks)
    follower = aiter(runtime.resume_stream(run_id="r1"))
    await anext(follower)
    async for _ in chunks:
        pass
    with pytest.raises(NBAgentsError, match="not kept any more"):
        await anext(follower)


@pytest.mark.parametrize("after", [-1, True, "3", 1.0])
async def test_a_place_is_a_number(after: Any) -> None:
    runtime = scripted("Hello.")
    await runtime.run(request=asking(run_id="r1"))
    with pytest.raises(ConfigurationError, match="after"):
        runtime.resume_stream(run_id="r1", after=after)
