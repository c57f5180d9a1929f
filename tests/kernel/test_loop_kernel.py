"""Interrupts, queued cells and the same-thread mode in real kernels."""

from __future__ import annotations

import time

import pytest

from tests.support.kernels import Kernel, Result

SETUP = """
import asyncio, logging, os, sys, threading, time
from nbagents.loop import heartbeat, loop_thread, run_sync, set_mode, start, stream_sync
log = []
async def tool():
    try:
        log.append("begun")
        print("begun", flush=True)
        await asyncio.sleep(20)
        open("late.txt", "w").close()
    finally:
        await asyncio.sleep(0)
        log.append("cleaned")
async def guarded():
    with heartbeat():
        await tool()
def main_thread_waits():
    return sys._current_frames()[threading.main_thread().ident].f_code.co_name == "wait"
async def source():
    yield 1
    while threading.current_thread() is not threading.main_thread() and not main_thread_waits():
        await asyncio.sleep(0.001)
    await tool()
async def answer():
    await asyncio.sleep(0)
    return "ok"
def left():
    tasks = asyncio.all_tasks(asyncio.get_event_loop())
    return [t for t in tasks if "RunHandle" in repr(t) or "tool" in repr(t)] + list(loop_thread().running)
"""


def run_and_interrupt(kernel: Kernel, cell: str) -> Result:
    """Run a cell and interrupt it once it has printed; the interrupt must end it soon."""
    running = kernel.submit(cell)

    def begun() -> bool:
        printed = (m for m in kernel.iopub if m["msg_type"] == "stream")
        return any(m["parent_header"].get("msg_id") == running.id for m in printed)

    kernel.wait_for(begun)
    pressed = time.monotonic()
    kernel.interrupt()
    result = kernel.wait(running)
    assert time.monotonic() - pressed < 5
    assert not result.ok
    return result


@pytest.mark.parametrize(
    ("cell", "error"),
    [
        ("await guarded()", "CancelledError"),
        ("run_sync(tool)", "KeyboardInterrupt"),
        ("for item in stream_sync(source): pass", "KeyboardInterrupt"),
        ("await answer(); run_sync(tool)", "KeyboardInterrupt"),
        ("await answer()\nfor item in stream_sync(source): pass", "KeyboardInterrupt"),
    ],
)
def test_an_interrupt_ends_the_cell_and_its_run(each_kernel: Kernel, cell: str, error: str) -> None:
    """C10"""
    kernel = each_kernel
    assert kernel.run(SETUP).ok
    for _ in range(2):
        result = run_and_interrupt(kernel, cell)
        assert result.error is not None
        assert result.error.name == error
        assert kernel.run("log, left()").text == "(['begun', 'cleaned'], [])"
        assert kernel.run("log.clear(); run_sync(answer), await start(answer)").text == "('ok', 'ok')"
    assert not (kernel.cwd / "late.txt").exists()


def test_an_interrupted_wait_for_a_handle_leaves_the_run_going(each_kernel: Kernel) -> None:
    kernel = each_kernel
    assert kernel.run(SETUP).ok
    assert run_and_interrupt(kernel, "handle = start(tool)\nawait handle").error.name == "CancelledError"  # type: ignore[union-attr]
    after = kernel.run("going = not handle.done(); handle.stop(); handle.wait(5); going, handle.cancelled(), log")
    assert after.text == "(True, True, ['begun', 'cleaned'])"


def test_the_heartbeat_beats_in_a_kernel_while_a_run_is_awaited_and_not_after(each_kernel: Kernel) -> None:
    kernel = each_kernel
    assert kernel.run(SETUP).ok
    count = """
async def count():
    timers = asyncio.get_running_loop()._scheduled
    return len([timer for timer in timers if "Heartbeat" in repr(timer) and not timer.cancelled()])
with heartbeat():
    held = await count()
held, await count()
"""
    counted = kernel.run(count)
    assert counted.text == "(1, 0)"


def test_a_started_run_goes_on_while_other_cells_run_and_block(each_kernel: Kernel) -> None:
    kernel = each_kernel
    assert kernel.run(SETUP).ok
    cells = [
        "gate = threading.Event()\nasync def gated():\n    while not gate.is_set(): await answer()\n    return 7",
        "handle = start(gated); handle.done()",
        "gate.set()\nwhile not handle.done(): time.sleep(0.01)\nhandle.result()",
    ]
    results = [kernel.wait(cell) for cell in [kernel.submit(cell) for cell in cells]]
    assert [result.text for result in results] == ["", "False", "7"]


def test_same_thread_mode_runs_queued_cells_on_the_main_thread(each_kernel: Kernel) -> None:
    """Run All with cells whose tools must be on the main thread, blocking and awaited; then an interrupt."""
    kernel = each_kernel
    assert kernel.run(SETUP + "set_mode('same-thread')").ok
    on_main = """
async def on_main():
    await asyncio.sleep(0.05)
    assert threading.current_thread() is threading.main_thread()
    print("printed")
    return "main"
async def items():
    yield await on_main()
"""
    cells = [
        on_main,
        "run_sync(on_main)",
        "list(stream_sync(items))",
        "await answer(); run_sync(on_main)",
        "run_sync(on_main)",
    ]
    results = [kernel.wait(cell) for cell in [kernel.submit(cell) for cell in cells]]
    assert [result.ok for result in results] == [True] * 5
    assert [result.text for result in results][1:] == ["printed\n'main'", "printed\n['main']"] + ["printed\n'main'"] * 2

    blocking = "async def computes():\n    print('begun', flush=True)\n    time.sleep(20)\nrun_sync(computes)"
    for cell in ("run_sync(tool)", "await answer(); run_sync(tool)", "list(stream_sync(source))", blocking):
        error = run_and_interrupt(kernel, cell).error
        assert error is not None
        assert error.name == "KeyboardInterrupt"
        after = kernel.run("(left(), log[1:], run_sync(on_main))")
        assert after.text == f"printed\n([], {['cleaned'] if cell != blocking else []}, 'main')"
        kernel.run("log.clear()")
    awaited = kernel.run("await asyncio.sleep(0.01); left()")
    assert awaited.text == "[]"
