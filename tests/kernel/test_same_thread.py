"""The opt-in mode for tools that must run on the kernel's main thread."""

from __future__ import annotations

from tests.support.kernels import Kernel

SETUP = """
%load_ext nbagents
import asyncio, threading, time
from nbagents import Agent, ScriptedChatClient, runs_df, tool, tool_call
@tool
def draw() -> str:
    assert threading.current_thread() is threading.main_thread()
    return "drawn on the main thread"
@tool
async def wait() -> str:
    print("begun", flush=True)
    await asyncio.sleep(20)
agent = Agent(ScriptedChatClient([lambda r: [tool_call(r.messages[-1].text)] if r.messages[-1].role == "user"
                                  else r.messages[-1].results[0].result] * 9), tools=[draw, wait])
session = agent.create_session()
%nbagents config loop=same-thread
"""


def test_tools_run_on_the_main_thread_in_queued_cells_and_an_interrupt_leaves_nothing(kernel: Kernel) -> None:
    assert kernel.run(SETUP).ok
    queued = [kernel.submit("agent.run_sync('draw', session=session).text") for _ in range(2)]
    assert [kernel.wait(cell).text for cell in queued] == ["'drawn on the main thread'"] * 2

    waiting = kernel.submit("agent.run_sync('wait', session=session)")
    kernel.wait_output(waiting, "begun")
    kernel.interrupt()
    stopped = kernel.wait(waiting)
    assert stopped.error is not None
    assert stopped.error.name == "KeyboardInterrupt"
    ours = "{'RunHandle._work', '_answer'}"
    left = kernel.run(f"[t for t in asyncio.all_tasks() if t.get_coro().__qualname__ in {ours}]")
    assert left.text == "[]"
    after = kernel.run("agent.run_sync('draw', session=session).text, list(runs_df().status)")
    assert after.text == "('drawn on the main thread', ['ok', 'ok', 'cancelled', 'ok'])"
