"""The calls of one reply: run at once, answered one by one, whatever happens to a single one."""

from __future__ import annotations

import asyncio
import contextvars
import difflib
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeGuard

from nbagents.core.content import FunctionCall, FunctionResult
from nbagents.core.deadlines import in_time
from nbagents.core.errors import BudgetExceededError, ToolError
from nbagents.core.events import RunEvent
from nbagents.core.journal import EarlierRun, KeptResult
from nbagents.core.messages import own_values
from nbagents.core.middleware import FunctionContext, StopRun, call_through
from nbagents.core.plaincalls import run_in_thread, stays_here
from nbagents.core.results import cut, error_text, function_result
from nbagents.core.run import RunContext, current_call, current_run
from nbagents.core.secrets import redact
from nbagents.core.telling import Telling, Told
from nbagents.core.tools import ApprovalNeeded, ArgumentsError, FunctionTool, ToolContext
from nbagents.core.toolset import find_tool
from nbagents.core.turns import current_turn, held_turns

RAW_ARGUMENTS_SHOWN = 500


@dataclass(slots=True, eq=False)
class _Done:
    """A call that has been answered."""

    call: FunctionCall
    result: FunctionResult
    duration_s: float
    status: str
    error: BaseException | None = None

    def kept(self) -> KeptResult:
        """What is kept of it on disk."""
        error_type = None if self.error is None else type(self.error).__name__
        return KeptResult(self.result, self.status, self.duration_s, error_type)


@dataclass(slots=True, eq=False)
class _Emitted:
    """Something that a tool tells while it runs."""

    call: FunctionCall
    told: Told


async def run_calls(run: RunContext, calls: Sequence[FunctionCall]) -> AsyncGenerator[RunEvent, None]:
    """Run `calls` concurrently and yield their events as they come; leaves the answers in `run.results`.

    Raises:
        BudgetExceededError: more calls than the budget allows, or too many errors in a row.
        RunTimeoutError: the duration of the budget is used up.
    """
    _count_calls(run, calls)
    reports: asyncio.Queue[_Done | _Emitted] = asyncio.Queue()
    for call in calls:
        yield run.event("tool.called", {**run.call_facts(call), "params": call.arguments})
    context = _context_of_tools(run)
    kept = _kept_results(run, calls)
    for call, found in kept:
        for artifact in found.artifacts:
            yield run.event("artifact.emitted", {**run.call_facts(call), **artifact})
        event = _finished(run, _taken_up(run, call, found))
        event.payload.update({"error_type": found.error_type} if found.error_type else {})
        yield event
    answered = {call.id for call, _ in kept}
    tasks = [
        asyncio.create_task(
            _answer(run, call, reports), context=_context_of(call, run, context), name=f"tool {call.name}"
        )
        for call in calls
        if call.id not in answered
    ]
    left = len(tasks)
    try:
        while left:
            report = await in_time(run.deadline, reports.get())
            if isinstance(report, _Emitted):
                yield run.event(report.told.name, {**run.call_facts(report.call), **report.told.take()})
                continue
            left -= 1
            if report.status == "held":
                continue
            run.results[report.call.id] = report.result
            try:
                event = _finished(run, report)
            finally:  # also where that was one error too many
                if run.journal is not None and not _ends_the_run(report.error):
                    await run.journal.keep_result(run, report.call, report.kept())
            yield event
            if _ends_the_run(report.error):
                raise report.error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _kept_results(run: RunContext, calls: Sequence[FunctionCall]) -> list[tuple[FunctionCall, KeptResult]]:
    """The calls that had been answered when the run was interrupted."""
    if run.journal is None:
        return []
    return [(call, found) for call in calls if (found := run.journal.result_of(call)) is not None]


def _taken_up(run: RunContext, call: FunctionCall, kept: KeptResult) -> _Done:
    run.results[call.id] = kept.result
    run.children += [EarlierRun(kept.spent)] if kept.spent else []
    return _Done(call, kept.result, kept.duration_s or 0.0, kept.status)


def unanswered(call: FunctionCall, text: str) -> FunctionResult:
    """The answer to a call that was not run to its end."""
    return FunctionResult(call.call_id, call.name, text, call.id, error=text, interrupted=True)


def _count_calls(run: RunContext, calls: Sequence[FunctionCall]) -> None:
    for one in run.and_parents():
        one.tool_calls += len(calls)
        check_calls(one)


def check_calls(run: RunContext) -> None:
    """Raise BudgetExceededError if the run has asked for more calls than its budget allows."""
    limit = run.budget.max_tool_calls
    if limit is not None and run.tool_calls > limit:
        raise BudgetExceededError(
            f"The run of {run.agent.name!r} asked for {run.tool_calls} tool calls; its budget is {limit}.",
            hint="Raise RunBudget.max_tool_calls.",
        )


def _context_of_tools(run: RunContext) -> contextvars.Context:
    """The caller's context, in which the session counts as held and new runs as children of this one."""
    context = contextvars.copy_context()
    context.run(held_turns.set, held_turns.get() | {current_turn(run.thread.turn_key)})
    context.run(current_run.set, run)
    return context


def _context_of(call: FunctionCall, run: RunContext, context: contextvars.Context) -> contextvars.Context:
    """A copy of `context` for one call: what begins there belongs to it."""
    own = context.copy()
    own.run(current_call.set, call.id)
    if run.record.observer is not None:
        own.run(run.record.observer.enter, call.id)
    return own


async def _answer(run: RunContext, call: FunctionCall, reports: asyncio.Queue[_Done | _Emitted]) -> None:
    """Run one call; whatever it does, a report of its end is put into `reports`."""
    loop, here = asyncio.get_running_loop(), threading.get_ident()
    started = time.perf_counter()

    def send(told: Told) -> None:
        emitted = _Emitted(call, told)
        if threading.get_ident() == here:
            reports.put_nowait(emitted)
        else:
            loop.call_soon_threadsafe(reports.put_nowait, emitted)

    def done(result: FunctionResult, status: str, error: BaseException | None = None) -> None:
        reports.put_nowait(_Done(call, result, time.perf_counter() - started, status, error))

    if (refusal := _refusal(run, call)) is not None:
        done(_failure(call, refusal), "invalid")
        return
    tool = find_tool(run.tools, call.name)
    assert tool is not None
    try:
        emit = Telling(send).emit
        value = await _invoke(run, tool, call, ToolContext(run, call.id, emit, run.resumed.get(call.id), run.answers))
        done(await _told(call, value), "ok")
    except ArgumentsError as error:
        done(_failure(call, f"The call does not fit the tool {call.name!r}: {error}."), "invalid", error)
    except TimeoutError as error:
        limit = f" within its limit of {tool.timeout:g} s" if tool.timeout else ""
        done(
            _failure(call, f"The tool {call.name!r} did not finish{limit}: {error_text(error)}."),
            "timeout",
            error,
        )
    except ApprovalNeeded as needed:
        run.needed[call.id] = needed
        done(unanswered(call, "Waiting for approval."), "held")
    except StopRun as error:
        done(unanswered(call, "Not finished: the run was ended."), "cancelled", error)
    except ToolError as error:
        done(_failure(call, str(error)), "error", error)
    except asyncio.CancelledError as error:
        done(_failure(call, f"The tool {call.name!r} was cancelled by itself."), "error", error)
    except Exception as error:  # noqa: BLE001  whatever a tool raises is an answer to the model
        done(_failure(call, f"The tool {call.name!r} failed: {error_text(error)}"), "error", error)
    except BaseException as error:  # noqa: BLE001  run_calls raises it, outside the task
        done(unanswered(call, f"Interrupted: {type(error).__name__}."), "cancelled", error)


async def _told(call: FunctionCall, value: Any) -> FunctionResult:
    """What the model is told of `value`; anything but the simplest is converted where it can hold up nobody."""
    if value is None or isinstance(value, (str, int, float)) or stays_here():
        return function_result(call, value)
    told: FunctionResult = await run_in_thread(partial(function_result, call, value))
    return told


async def _invoke(run: RunContext, tool: FunctionTool, call: FunctionCall, context: ToolContext) -> Any:
    """Call the tool, with the function middleware around it."""
    assert isinstance(call.arguments, dict)
    arguments = own_values(call.arguments)
    if not run.middleware.function:
        return await tool.invoke(arguments, context)
    around = FunctionContext(run, tool, call, arguments)

    async def invoke() -> None:
        around.result = await tool.invoke(around.arguments, context)

    await call_through(run.middleware.function, around, invoke)
    return around.result


def _ends_the_run(error: BaseException | None) -> TypeGuard[BaseException]:
    """KeyboardInterrupt and SystemExit are meant for the whole program, StopRun for the run."""
    if error is None or isinstance(error, asyncio.CancelledError):
        return False
    return isinstance(error, StopRun) or not isinstance(error, Exception)


def _refusal(run: RunContext, call: FunctionCall) -> str | None:
    """Why this call cannot be run at all, for the model; None if it can."""
    if find_tool(run.tools, call.name) is None:
        if call.name in run.tools:
            return f"{call.name!r} is a tool that the service runs itself; it cannot be called as a function."
        functions = [name for name, one in run.tools.items() if isinstance(one, FunctionTool)]
        near = difflib.get_close_matches(call.name, functions, n=1)
        known = f"did you mean {near[0]!r}?" if near else f"known tools: {', '.join(functions) or 'none'}."
        return f"There is no tool {call.name!r}; {known}"
    if call.invalid or not isinstance(call.arguments, dict):
        text = str(call.arguments)
        shown = text if len(text) <= RAW_ARGUMENTS_SHOWN else f"{text[:RAW_ARGUMENTS_SHOWN]}… [{len(text)} characters]"
        return f"The arguments for {call.name!r} are no JSON object, so it was not run. They were: {redact(shown)}"
    return None


def _failure(call: FunctionCall, text: str) -> FunctionResult:
    told = cut(redact(text))
    return FunctionResult(call.call_id, call.name, told, call.id, error=told)


def _finished(run: RunContext, report: _Done) -> RunEvent:
    if report.status == "ok":
        run.consecutive_errors = 0
        return run.tool_succeeded(report.call, report.result, report.duration_s)
    run.consecutive_errors += 1
    event = run.tool_failed(
        report.call, report.result, status=report.status, cause=report.error, duration_s=report.duration_s
    )
    limit = run.budget.max_consecutive_errors
    if limit is not None and run.consecutive_errors > limit:
        raise BudgetExceededError(f"{run.consecutive_errors} tool calls failed in a row; the budget allows {limit}.")
    return event
