"""When the consumer is gone or the runtime is closed: the end stands in the log, and nothing stays."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nbagents import (
    Agent,
    BaseChatClient,
    ChatResponseUpdate,
    OpenAIChatClient,
    ScriptedChatClient,
    run_log,
    runs_df,
    tool,
    tool_call,
    use_store,
)
from nbagents.core.content import TextContent
from nbagents.runtime import RunResult, RunStream, Runtime
from tests.runtime.runs import all_chunks, asking, checked_end, scripted
from tests.support.chunks import delta
from tests.support.leaks import assert_no_leaks
from tests.support.raw_server import RawServer

SOON = 0.2  # seconds in which everything is back to where it was


class Endless(BaseChatClient):
    """Talks until it is closed."""

    provider = "test"
    model = "endless"

    def __init__(self) -> None:
        self.closed = 0

    async def generate(self, request: Any) -> AsyncGenerator[ChatResponseUpdate, None]:
        try:
            while True:
                yield ChatResponseUpdate([TextContent("on ")], "assistant")
                await asyncio.sleep(0.001)
        finally:
            self.closed += 1


async def cancel(stream: RunStream) -> None:
    async def read() -> None:
        async for _ in stream:
            pass

    task = asyncio.create_task(read())
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def cancel_result(stream: RunStream) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(stream.get_final_response(), 0.02)


async def aclose(stream: RunStream) -> None:
    chunks = aiter(stream)
    for _ in range(3):
        await anext(chunks)
    await stream.aclose()


async def plain_break(stream: RunStream) -> None:
    async for chunk in stream:
        if chunk.sequence == 3:
            break


async def time_out(stream: RunStream) -> None:
    async def read() -> None:
        async for _ in stream:
            pass

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(read(), 0.02)


async def forget(stream: RunStream) -> None:
    chunks = aiter(stream)
    for _ in range(3):
        await anext(chunks)
    del stream, chunks
    gc.collect()


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("leave", [cancel, cancel_result, aclose, plain_break, time_out, forget])
async def test_who_leaves_ends_the_run_as_cancelled(
    leave: Callable[[RunStream], Awaitable[None]], tmp_path: Path
) -> None:
    client = Endless()
    runtime = Runtime(agents=[Agent(client, name="assistant")])
    store = use_store(f"sqlite:///{tmp_path}/runs.db")
    try:
        async with assert_no_leaks(within=SOON):
            await leave(runtime.run_stream(request=asking(run_id="r1", session_id="s1")))
            await until(lambda: client.closed, SOON)
        record = run_log().get("r1")
        await until(lambda: record.ended, SOON)
        assert record.events[-1].payload["stop_reason"] == "cancelled"
        (seen,) = [event for event in runtime.events.history("run.ended") if event.run_id == "r1"]
        assert seen.payload["stop_reason"] == "cancelled"
        result = await runtime.resume_stream(run_id="r1", after=2).get_final_response()
        assert (result.stop_reason, result.error) == ("cancelled", None)
        await runtime.close()
        assert list(runs_df(store).status) == ["cancelled"]
    finally:
        use_store(None)


async def test_a_stream_that_is_left_closes_its_connection(raw_server: RawServer) -> None:
    raw_server.reply(delta("Hel"), end="stall")
    client = OpenAIChatClient("test", base_url=raw_server.base_url, api_key="test")
    async for chunk in Runtime(agents=[Agent(client, name="assistant")]).run_stream(request=asking()):
        if chunk.kind == "llm.delta":
            break
    await until(lambda: raw_server.hang_ups == 1)
    await until(lambda: raw_server.open_connections == 0)


async def test_the_session_of_a_run_that_was_left_can_be_used_again() -> None:
    client = ScriptedChatClient([["Hel", "lo ", "there."], "Again."])
    runtime = Runtime(agents=[Agent(client, name="assistant")])
    async for chunk in runtime.run_stream(request=asking(session_id="s1")):
        if chunk.kind == "llm.delta":
            break
    result = await runtime.run(request=asking("And?", session_id="s1"))
    assert result.final_output == "Again."
    assert [message.text for message in client.requests[-1].messages] == ["Hi", "Hel", "And?"]


class Strange(BaseChatClient):
    """Raises CancelledError although nobody was cancelled."""

    provider = "test"
    model = "strange"

    async def generate(self, request: Any) -> AsyncGenerator[ChatResponseUpdate, None]:
        yield ChatResponseUpdate([TextContent("Hel")], "assistant")
        raise asyncio.CancelledError


async def test_a_client_that_raises_cancelled_error_ends_the_run_and_not_its_consumer() -> None:
    runtime = Runtime(agents=[Agent(Strange(), name="assistant")])
    assert checked_end(await all_chunks(runtime, asking())).stop_reason == "cancelled"
    assert asyncio.current_task().cancelling() == 0


class Stubborn(Endless):
    """Swallows cancellation."""

    model = "stubborn"

    async def generate(self, request: Any) -> AsyncGenerator[ChatResponseUpdate, None]:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
            yield ChatResponseUpdate([TextContent("on ")], "assistant")


async def test_close_ends_a_run_whose_client_swallows_cancellation() -> None:
    runtime = Runtime(agents=[Agent(Stubborn(), name="assistant")])
    reading = asyncio.create_task(all_chunks(runtime, asking()))
    await until(lambda: runtime.events.history("llm.requested"))
    await asyncio.wait_for(runtime.close(), 5)
    assert checked_end(await reading).stop_reason == "cancelled"
    assert reading.cancelling() == 0


@tool
async def wait() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return ""


async def test_close_ends_runs_that_go_on_and_their_readers_get_the_last_chunk() -> None:
    async with assert_no_leaks(within=SOON):
        runtime = Runtime(
            agents=[
                Agent(ScriptedChatClient([[tool_call("wait")]]), name="assistant", tools=[wait]),
                Agent(Endless(), name="endless"),
            ]
        )
        reading = asyncio.create_task(all_chunks(runtime, asking()))
        between = runtime.run_stream(request=asking(agent_id="endless"))
        chunks = aiter(between)
        seen = [await anext(chunks)]
        await until(lambda: runtime.events.history("tool.called"))
        await runtime.close()
        assert checked_end(await reading).stop_reason == "cancelled"
        assert run_log().get(seen[0].run_id).ended
        seen += [chunk async for chunk in chunks]
        assert checked_end(seen).stop_reason == "cancelled"
        assert reading.cancelling() == 0
    refused = checked_end(await all_chunks(runtime, asking()))
    assert (refused.stop_reason, refused.error.code) == ("failed", "closed")
    await runtime.close()


async def test_async_with_closes_the_runtime() -> None:
    async with scripted("Hello.") as runtime:
        assert (await runtime.run(request=asking())).final_output == "Hello."
    assert (await runtime.run(request=asking())).error.code == "closed"


async def test_close_ends_runs_on_the_loop_thread() -> None:
    runtime = Runtime(agents=[Agent(Endless(), name="assistant")])
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(runtime.run_sync(request=asking())))
    thread.start()
    await until(lambda: runtime.events.history("run.started"))
    await runtime.close()
    await asyncio.to_thread(thread.join, 5)
    assert [result.stop_reason for result in results] == ["cancelled"]


async def test_a_tool_may_close_the_runtime_that_calls_it() -> None:
    @tool
    async def hang_up() -> str:
        """Close."""
        await runtime.close()
        return "closed"

    runtime = scripted([tool_call("hang_up")], "Never.", tools=[hang_up])
    assert checked_end(await all_chunks(runtime, asking())).stop_reason == "cancelled"


@pytest.mark.parametrize("reply", ["Hello.", ValueError("odd"), [tool_call("nothing")]], ids=["ok", "failed", "tool"])
async def test_nothing_is_left_after_any_end(reply: Any) -> None:
    runtime = scripted(reply, "Done.")
    unsubscribe = runtime.subscribe("*", lambda event: None)
    async with assert_no_leaks(within=SOON):
        checked_end(await all_chunks(runtime, asking()))
    unsubscribe()
    assert not runtime._live
    assert not runtime.events.wanted


async def test_two_may_close_a_runtime_at_once() -> None:
    runtime = scripted([tool_call("wait")], tools=[wait])
    reading = asyncio.create_task(all_chunks(runtime, asking()))
    await until(lambda: runtime.events.history("tool.called"))
    await asyncio.wait_for(asyncio.gather(runtime.close(), runtime.close()), 5)
    assert checked_end(await reading).stop_reason == "cancelled"
    assert reading.cancelling() == 0


async def test_a_stream_that_is_read_after_close_does_not_begin() -> None:
    runtime = scripted("Hello.")
    stream, unread = runtime.run_stream(request=asking()), runtime.run_stream(request=asking())
    await runtime.close()
    result = checked_end([chunk async for chunk in stream])
    assert (result.stop_reason, result.error.code) == ("failed", "closed")
    await unread.aclose()
    assert (await unread.get_final_response()).error.code == "closed"


def test_a_stream_that_outlives_its_loop_leaves_no_run() -> None:
    runtime = scripted(["a"] * 100)
    held: list[Any] = []

    async def leave() -> None:
        chunks = aiter(runtime.run_stream(request=asking(run_id="outlived", session_id="s1")))
        held.extend([chunks, await anext(chunks)])
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    asyncio.run(leave())
    assert run_log().get("outlived").events[-1].payload["stop_reason"] == "cancelled"

    async def follow() -> RunResult:
        return await asyncio.wait_for(runtime.resume_stream(run_id="outlived").get_final_response(), 5)

    resumed = asyncio.run(follow())
    assert (resumed.stop_reason, resumed.session_id) == ("cancelled", "s1")
