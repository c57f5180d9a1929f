"""Many runs on one runtime: nothing mixes, nobody waits for a slow consumer, what waits is bounded."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from typing import Any

import pytest

from nbagents import Agent, ChatRequest, ScriptedChatClient, ToolContext, run_log, tool, tool_call
from nbagents.runtime import RunResult, RunStreamChunk, Runtime
from tests.runtime.runs import asking, checked_end, scripted

pytestmark = pytest.mark.usefixtures("no_leaks")
RUNS = 50


def echoing() -> Runtime:
    """An agent that calls a tool with the words of the user and then says them, each word a piece."""

    @tool
    async def repeat(words: str, context: ToolContext) -> str:
        """Say it."""
        context.emit_delta(words)
        await asyncio.sleep(0)
        context.emit_artifact(words, context.deps)
        return words

    def reply(request: ChatRequest) -> Any:
        words = next(message.text for message in reversed(request.messages) if message.role == "user")
        if request.messages[-1].role == "tool":
            return [f"{words} " for _ in range(20)]
        return [tool_call("repeat", words=words)]

    client = ScriptedChatClient([reply] * (2 * RUNS), delay=0.0005)
    return Runtime(agents=[Agent(client, name="assistant", tools=[repeat])])


def texts_of(chunk: RunStreamChunk) -> list[str]:
    payload = chunk.payload
    return [str(payload[name]).strip() for name in ("text", "result", "name") if name in payload]


async def test_fifty_runs_at_once_mix_nothing() -> None:
    runtime = echoing()

    async def one(number: int) -> list[RunStreamChunk]:
        request = asking(f"words-{number}", session_id=f"s{number}", run_id=f"r{number}", deps=number)
        return [chunk async for chunk in runtime.run_stream(request=request)]

    for number, chunks in enumerate(await asyncio.gather(*map(one, range(RUNS)))):
        result = checked_end(chunks)
        assert {chunk.run_id for chunk in chunks} == {f"r{number}"}
        assert {chunk.session_id for chunk in chunks} == {f"s{number}"}
        assert {text for chunk in chunks for text in texts_of(chunk)} == {f"words-{number}"}
        assert [made.payload for made in result.artifacts] == [number]
        assert result.final_output == f"words-{number} " * 20
        record = run_log().get(f"r{number}")
        assert {event.run_id for event in record.events} == {f"r{number}"}


async def test_runs_of_one_session_take_turns() -> None:
    client = ScriptedChatClient([["a", "b", "c"]] * 10, delay=0.001)
    runtime = Runtime(agents=[Agent(client, name="assistant")])
    await asyncio.gather(*(runtime.run_detailed(request=asking(str(n), session_id="s1")) for n in range(10)))
    assert [len(request.messages) for request in client.requests] == list(range(1, 21, 2))


async def test_a_slow_consumer_slows_its_own_run_only_and_nothing_is_made_ahead_of_it() -> None:
    slow, quick = ScriptedChatClient([["x"] * 10_000]), ScriptedChatClient([["y"] * 100])
    runtime = Runtime(agents=[Agent(slow, name="slow"), Agent(quick, name="assistant")])
    made: list[str] = []
    runtime.subscribe("llm.delta", lambda event: made.append(event.agent_id))
    chunks = aiter(runtime.run_stream(request=asking(agent_id="slow")))
    for _ in range(5):
        await anext(chunks)
    result = await runtime.run_detailed(request=asking())
    assert result.final_output == "y" * 100
    assert made.count("slow") == 4
    await chunks.aclose()


@pytest.mark.parametrize("in_thread", [False, True], ids=["async", "sync"])
async def test_what_a_tool_tells_to_a_slow_consumer_is_bounded(in_thread: bool) -> None:
    told = threading.Event()

    def tell(context: ToolContext) -> str:
        context.emit_delta("begin ")
        for _ in range(20_000):
            context.emit_delta("x" * 100)
        context.emit_delta(" end")
        told.set()
        return "done"

    @tool
    def chatty(context: ToolContext) -> str:
        """Tell much."""
        return tell(context)

    @tool(name="chatty")
    async def chatty_async(context: ToolContext) -> str:
        """Tell much."""
        return tell(context)

    runtime = scripted([tool_call("chatty")], "Done.", tools=[chatty if in_thread else chatty_async])
    texts: list[str] = []
    async for chunk in runtime.run_stream(request=asking()):
        if chunk.kind == "tool.delta":
            texts.append(chunk.payload["text"])
            while not told.is_set():
                await asyncio.sleep(0.01)
    whole = "".join(texts)
    assert whole.startswith("begin ")
    assert whole.endswith(" end")
    assert len(whole) < 200_000
    assert "left out" in whole


async def test_a_consumer_that_keeps_up_loses_nothing_of_what_a_tool_tells() -> None:
    @tool
    async def chatty(context: ToolContext) -> str:
        """Tell much."""
        for _ in range(2_000):
            context.emit_delta("x" * 100)
            await asyncio.sleep(0)
        return "done"

    runtime = scripted([tool_call("chatty")], "Done.", tools=[chatty])
    texts = [c.payload["text"] async for c in runtime.run_stream(request=asking()) if c.kind == "tool.delta"]
    assert "".join(texts) == "x" * 200_000


def test_runs_of_many_threads_end_at_once_and_disturb_no_other() -> None:
    runtime = scripted(*["Hello."] * 800)
    results: list[RunResult] = []

    async def two_hundred() -> None:
        for _ in range(10):
            results.extend(await asyncio.gather(*(runtime.run(request=asking()) for _ in range(20))))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda: asyncio.run(two_hundred())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert Counter(result.stop_reason for result in results) == {"completed": 800}
