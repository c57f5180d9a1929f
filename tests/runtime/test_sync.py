"""Runs for code that does not await: incremental, also inside a running loop, on the loop thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import uvloop

from nbagents import Agent, BaseChatClient, ChatResponseUpdate, run_log, tags, tool, tool_call
from nbagents.core.content import TextContent
from nbagents.core.errors import LoopError
from nbagents.runtime import RunStreamChunk, Runtime
from tests.runtime.runs import asking, checked_end, every_kind, measure, scripted

pytestmark = pytest.mark.usefixtures("no_leaks")


class Gated(BaseChatClient):
    """Makes the second piece only when the first has been seen."""

    provider = "test"
    model = "gated"

    def __init__(self) -> None:
        self.seen = threading.Event()
        self.threads: set[str] = set()

    async def generate(self, request: Any) -> AsyncGenerator[ChatResponseUpdate, None]:
        self.threads.add(threading.current_thread().name)
        yield ChatResponseUpdate([TextContent("one ")], "assistant")
        deadline = time.monotonic() + 5
        while not self.seen.is_set():
            assert time.monotonic() < deadline, "the first piece was held back"
            await asyncio.sleep(0.001)
        yield ChatResponseUpdate([TextContent("two")], "assistant", finish_reason="stop")


def read_incrementally() -> list[RunStreamChunk]:
    client = Gated()
    chunks = []
    for chunk in Runtime(agents=[Agent(client, name="assistant")]).stream_sync(request=asking()):
        chunks.append(chunk)
        if chunk.kind == "llm.delta":
            client.seen.set()
    assert client.threads == {"nbagents-loop"}
    return chunks


async def inside_a_loop() -> list[RunStreamChunk]:
    return read_incrementally()


@pytest.mark.parametrize(
    "where",
    [read_incrementally, lambda: asyncio.run(inside_a_loop()), lambda: uvloop.run(inside_a_loop())],
    ids=["script", "asyncio", "uvloop"],
)
def test_chunks_come_as_they_are_made(where: Any) -> None:
    assert checked_end(where()).final_output == "one two"


def test_a_sync_stream_has_every_chunk_and_its_result() -> None:
    runtime, request = every_kind()
    stream = runtime.stream_sync(request=request)
    chunks = list(stream)
    assert checked_end(chunks) == stream.get_final_response()


async def test_run_sync_works_inside_a_running_loop_and_keeps_tags() -> None:
    runtime = scripted([tool_call("measure", place="Rome")], "Warm.", tools=[measure])
    with tags(case="c1"):
        result = runtime.run_sync(request=asking(session_id="s1"))
    assert (result.final_output, result.error) == ("Warm.", None)
    assert run_log().get(result.run_id).events[0].payload["tags"] == {"case": "c1"}
    assert runtime.run_sync(request=asking(agent_id="nobody")).error.code == "unknown_agent"


def test_leaving_a_sync_stream_ends_the_run() -> None:
    runtime = scripted(["a"] * 5_000)
    with runtime.stream_sync(request=asking(run_id="r1")) as stream:
        for chunk in stream:
            if chunk.sequence == 3:
                break
    assert stream.get_final_response().stop_reason == "cancelled"
    assert run_log().get("r1").events[-1].payload["stop_reason"] == "cancelled"


def test_on_the_loop_thread_a_blocking_call_says_to_await() -> None:
    other = scripted("Hello.")

    @tool
    async def nested() -> str:
        """Call."""
        return str(other.run_sync(request=asking()))

    result = scripted([tool_call("nested")], "So.", tools=[nested]).run_sync(request=asking())
    assert result.final_output == "So."
    failed = run_log().get(result.run_id).first("tool.failed").payload
    assert LoopError.__name__ in failed["error_type"]
    assert "await" in failed["error"]


def test_one_runtime_serves_threads_and_loops_at_once() -> None:
    runtime = scripted(*["Hello."] * 20)
    results: list[Any] = []

    def blocking() -> None:
        results.extend(runtime.run_sync(request=asking(session_id="s1")) for _ in range(5))

    async def awaiting() -> None:
        for _ in range(5):
            results.append(await runtime.run(request=asking(session_id="s1")))

    threads = [threading.Thread(target=blocking), threading.Thread(target=lambda: asyncio.run(awaiting()))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [result.final_output for result in results] == ["Hello."] * 10
