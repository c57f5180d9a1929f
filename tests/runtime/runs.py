"""Runtimes and requests that several test modules use."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from nbagents import Agent, ScriptedChatClient, ToolContext, tool, tool_call
from nbagents.core.content import ReasoningContent
from nbagents.core.errors import RateLimitError
from nbagents.runtime import RunRequest, RunResult, RunStreamChunk, Runtime


class Weather(BaseModel):
    """What is asked for in the end."""

    degrees: int


@tool
async def measure(place: str, context: ToolContext) -> str:
    """Measure the temperature."""
    context.emit_delta("going there")
    context.emit_artifact("photo", {"place": place}, kind="image")
    return "21 degrees"


@tool
def fail() -> str:
    """Fail."""
    raise ValueError("the bridge is out")


@tool(approval="always")
def publish(text: str) -> str:
    """Publish."""
    return f"published {text}"


class Retrying(ScriptedChatClient):
    """Asks again, at once."""

    max_retries = 1


def busy() -> RateLimitError:
    return RateLimitError("Busy.", status=429, headers={"retry-after-ms": "0"})


def every_kind() -> tuple[Runtime, RunRequest]:
    """A run that has a chunk of every kind: the model is asked again twice, and the last call waits for a person."""
    replies: list[Any] = [
        busy(),
        [ReasoningContent("Where to?"), "Let me see.", tool_call("measure", place="Rome"), tool_call("fail")],
        "It is warm.",
        [tool_call("publish", text="21")],
    ]
    agent = Agent(Retrying(replies), name="assistant", tools=[measure, fail, publish])
    request = RunRequest(agent_id="assistant", session_id="s1", input_text="Weather?", output_type=Weather)
    return Runtime(agents=[agent]), request


def scripted(*replies: Any, name: str = "assistant", **settings: Any) -> Runtime:
    """A runtime with one agent that gives these replies."""
    return Runtime(agents=[Agent(ScriptedChatClient(list(replies)), name=name, **settings)])


def asking(text: str = "Hi", **fields: Any) -> RunRequest:
    """A request to `assistant`."""
    return RunRequest(**{"agent_id": "assistant", "input_text": text, **fields})


async def all_chunks(runtime: Runtime, request: RunRequest) -> list[RunStreamChunk]:
    return [chunk async for chunk in runtime.run_stream(request=request)]


def checked_end(chunks: list[RunStreamChunk]) -> RunResult:
    """The result of a whole stream, which has exactly one end, and numbers without gaps."""
    assert [chunk.sequence for chunk in chunks] == list(range(1, len(chunks) + 1))
    assert [chunk.kind == "run.finished" for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [chunk.result is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
    result = chunks[-1].result
    assert result is not None
    return result
