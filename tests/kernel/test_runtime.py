"""The streaming runtime in a real kernel: awaited cells, blocking cells, interrupts, many runs at once."""

from __future__ import annotations

import pytest

from tests.support.kernels import Kernel

SETUP = """
import asyncio
from nbagents import Agent, ScriptedChatClient, run_log, tool, tool_call
from nbagents.runtime import RunRequest, Runtime
@tool
async def wait() -> str:
    "Wait."
    print("begun", flush=True)
    await asyncio.Event().wait()
def runtime(*replies, **settings):
    return Runtime(agents=[Agent(ScriptedChatClient(list(replies)), name="assistant", **settings)])
def ask(**fields):
    return RunRequest(agent_id="assistant", input_text="Hi", **fields)
def ended(run_id):
    return run_log().get(run_id).events[-1].payload["stop_reason"]
def left():
    from nbagents.loop import loop_thread
    loops = (asyncio.get_event_loop(), loop_thread().loop)
    tasks = [task for loop in loops for task in asyncio.all_tasks(loop)]
    return [task for task in tasks if "chunks" in repr(task) or "tool" in repr(task)]
async def kinds(stream):
    return [chunk.kind.value async for chunk in stream]
"""


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("async for chunk in waiting.run_stream(request=ask(run_id='{}')): pass", "CancelledError"),
        ("for chunk in waiting.stream_sync(request=ask(run_id='{}')): pass", "KeyboardInterrupt"),
        ("waiting.run_sync(request=ask(run_id='{}'))", "KeyboardInterrupt"),
    ],
    ids=["awaited", "streamed", "blocking"],
)
def test_an_interrupt_ends_the_run_and_the_log_says_so(kernel: Kernel, cell: str, error: str) -> None:
    """C10"""
    assert kernel.run(SETUP).ok
    assert kernel.run("waiting = runtime([tool_call('wait')], 'Again.', tools=[wait])").ok
    running = kernel.submit(cell.format("r1"))
    kernel.wait_output(running, "begun")
    kernel.interrupt()
    result = kernel.wait(running)
    assert result.error is not None
    assert result.error.name == error
    assert kernel.run("ended('r1'), left()").text == "('cancelled', [])"
    assert kernel.run("waiting.run_sync(request=ask()).final_output").text == "'Again.'"


def test_cells_that_leave_a_stream_end_its_run_and_runs_at_once_mix_nothing(kernel: Kernel) -> None:
    assert kernel.run(SETUP).ok
    leave = """
endless = runtime(["on "] * 5000)
async for chunk in endless.run_stream(request=ask(run_id="r1")):
    if chunk.sequence == 3:
        break
await asyncio.sleep(0.1)
ended("r1"), left()
"""
    assert kernel.run(leave).text == "('cancelled', [])"
    at_once = """
many = Runtime(agents=[Agent(ScriptedChatClient([[f"{n}"] * 20], delay=0.001), name=f"a{n}") for n in range(20)])
async def text(n):
    stream = many.run_stream(request=RunRequest(agent_id=f"a{n}", input_text="Hi"))
    return {chunk.payload["text"] async for chunk in stream if chunk.kind == "llm.delta"}
assert await asyncio.gather(*map(text, range(20))) == [{f"{n}"} for n in range(20)]
"""
    assert kernel.run(at_once).ok
    sync = """
one = runtime("Hello.", "Hello.")
listed = [chunk.kind.value for chunk in one.stream_sync(request=ask())]
listed == await kinds(one.run_stream(request=ask())), listed[-1], left()
"""
    assert kernel.run(sync).text == "(True, 'run.finished', [])"
