"""A durable runtime whose model and tools write down what they do, and a program that is killed while it runs.

`python -m tests.runtime.durable FOLDER HISTORY POINT...` runs it once for each point, each time in a process of its own
that kills itself there: `asked:2` when the model is asked for the second time, `tool:Oslo` in the middle of that call,
`chunk:5` when the fifth chunk has arrived.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbagents import Agent, FileHistoryProvider, ScriptedChatClient, ToolContext, tool, tool_call
from nbagents.core.clients import ChatRequest
from nbagents.core.messages import Message
from nbagents.runtime import RunRequest, Runtime

PLACES = ("Rome", "Oslo")
Hook = Callable[[str], None]


def nothing(point: str) -> None:
    """Go on."""


def durable_runtime(folder: Path, history: str, at: Hook = nothing) -> Runtime:
    """Return the runtime; `asked` and `finished` in the folder say what was done."""
    folder.mkdir(exist_ok=True)

    def note(name: str, text: str) -> None:
        with (folder / name).open("a") as file:
            file.write(f"{text}\n")

    @tool
    async def measure(place: str, context: ToolContext) -> str:
        """Measure the temperature."""
        if place == "Oslo":  # the slower one
            while '"Rome: 21 degrees"' not in journal_of(folder):
                await asyncio.sleep(0.005)
        at(f"tool:{place}")
        context.emit_artifact("photo", {"place": place})
        note("finished", place)
        return f"{place}: 21 degrees"

    @tool
    def broken() -> str:
        """Fail."""
        note("finished", "broken")
        raise ValueError("no battery")

    @tool
    def total(numbers: list[int]) -> int:
        """Add."""
        note("finished", "total")
        return sum(numbers)

    def reply(request: ChatRequest) -> Any:
        since = [message for message in request.messages if message.run_id == "r1"]
        number = len([message for message in since if message.role == "assistant"]) + 1
        note("asked", str(number))
        at(f"asked:{number}")
        return [
            ["Let me see.", *(tool_call("measure", place=place) for place in PLACES), tool_call("broken")],
            [tool_call("total", numbers=[21, 21])],
            "It is 42, all together.",
        ][number - 1]

    agent = Agent(
        ScriptedChatClient([reply] * 3),
        name="assistant",
        tools=[measure, broken, total],
        history=FileHistoryProvider(folder / "sessions") if history == "file" else None,
    )
    return Runtime(agents=[agent], durable=folder / "runs")


def asked_of() -> RunRequest:
    """What the run is asked."""
    return RunRequest(
        agent_id="assistant", session_id="s1", run_id="r1", input_text="How warm?", metadata={"ticket": 7}
    )


def journal_of(folder: Path, run_id: str = "r1") -> str:
    """What is on disk of the run."""
    path = folder / "runs" / f"{run_id}.jsonl"
    return path.read_text() if path.exists() else ""


def notes(folder: Path, name: str) -> list[str]:
    """What was asked, or what has finished."""
    path = folder / name
    return path.read_text().split() if path.exists() else []


def said(messages: Any) -> list[tuple[Any, ...]]:
    """What messages say, without their times and ids."""
    return [_said(message) for message in messages]


def _said(message: Message) -> tuple[Any, ...]:
    calls = [(call.name, call.arguments) for call in message.calls]
    results = [(result.name, result.result, result.error, result.interrupted) for result in message.results]
    return message.role, message.text, calls, results, message.author_name, message.run_id


def _die(folder: Path, history: str, point: str) -> None:
    def at(place: str) -> None:
        if place == point:
            os.kill(os.getpid(), signal.SIGKILL)

    async def run() -> None:
        async for chunk in durable_runtime(folder, history, at).run_stream(request=asked_of()):
            at(f"chunk:{chunk.sequence}")

    asyncio.run(run())


if __name__ == "__main__":
    for point in sys.argv[3:]:
        child = os.fork()
        if child == 0:
            _die(Path(sys.argv[1]) / point.replace(":", "-"), sys.argv[2], point)
            os._exit(7)  # it was not killed
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), (point, status)
        assert os.WTERMSIG(status) == signal.SIGKILL, (point, status)
