"""The run loop: model request, tool calls, model request, until the model has answered. The only one there is."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from nbagents import loop as loops
from nbagents.core.approvals import ask_for_service, has_held_calls, hold_calls, needs_approval, take_up_held_calls
from nbagents.core.balance import balanced
from nbagents.core.content import FunctionCall, RefusalContent
from nbagents.core.deadlines import in_time
from nbagents.core.errors import (
    BudgetExceededError,
    NBAgentsError,
    OutputValidationError,
    RunError,
    RunTimeoutError,
)
from nbagents.core.events import RunEvent
from nbagents.core.folding import UpdateFolder
from nbagents.core.ids import new_id
from nbagents.core.messages import Message, result_message
from nbagents.core.middleware import StopRun, run_through
from nbagents.core.modelcalls import Reply, request_reply
from nbagents.core.outputs import UnfitReply, check_whole
from nbagents.core.reducers.view import RunReduction
from nbagents.core.results import error_text
from nbagents.core.run import RunContext
from nbagents.core.secrets import redact_exception
from nbagents.core.service_history import keep_unsent, note_reply
from nbagents.core.toolcalls import check_calls, run_calls, unanswered
from nbagents.core.turns import end_turn, take_turn
from nbagents.core.uninterrupted import uninterrupted


async def run_events(run: RunContext) -> AsyncGenerator[RunEvent, None]:
    """Yield the events of `run`, from `run.started` to `run.ended`.

    However it ends, also when the consumer leaves or is cancelled, the log has its end, the session is balanced and
    can be used again, and nothing is left running.

    Raises:
        NBAgentsError: the run ended early; `response` has what there is.
    """
    turn_key = run.thread.turn_key
    heartbeat = loops.heartbeat()
    heartbeat.acquire()  # in a kernel: lets an interrupt land while this waits
    try:
        await take_turn(turn_key)
    except BaseException as error:
        heartbeat.release()
        never_began = [run.begin(), run.end(_stop_reason_of(error), error)]
        if not isinstance(error, Exception):
            raise
        run.error = _with_response(error, run)
        for event in never_began:
            yield event
        raise run.error from run.error.__cause__
    try:
        try:
            if run.journal is None:
                yield run.begin()
                await _read_history(run)
            else:
                async with aclosing(_begin_durable(run)) as events:
                    async for event in events:
                        yield event
            for provider in run.agent.context_providers:
                await in_time(run.deadline, provider.before_run(run))
                run.entered.append(provider)
            events = run_through(run.middleware.run, run, lambda: _conversation(run))
            async with aclosing(events):
                async for event in events:
                    yield event
            for event in await _finish(run):
                yield event
        except BaseException as error:
            remains: list[RunEvent] = []
            try:
                await uninterrupted(_store_remains(run, error, remains))
            finally:
                ended = run.end(_stop_reason_of(error), error)
            if not isinstance(error, Exception):
                raise  # cancelled, interrupted or left by the consumer: nobody is there to read another event
            failure = None if isinstance(error, StopRun) else _with_response(error, run)
            run.error = failure
            for event in [*remains, ended]:
                yield event
            if failure is None:
                return
            raise failure from failure.__cause__
        yield run.end(run.stop_reason)
    finally:
        end_turn(turn_key)
        heartbeat.release()


async def _begin_durable(run: RunContext) -> AsyncGenerator[RunEvent, None]:
    """Open the log and read what was said before: the run is on disk before anybody hears of it."""
    started = run.begin()
    try:
        await _read_history(run)
    except Exception:
        yield started
        raise
    yield started


async def _read_history(run: RunContext) -> None:
    before = await in_time(run.deadline, run.thread.begin_turn())
    if run.journal is not None:
        before = await run.journal.begin(run, before)
    run.transcript = balanced(before) if run.thread.stores_locally else before
    run.history = len(run.transcript)


async def _conversation(run: RunContext) -> AsyncGenerator[RunEvent, None]:
    """Go back and forth between model and tools until there is an answer, or a reason to stop."""
    if has_held_calls(run):
        allowed, held, refused = take_up_held_calls(run)
        for event in refused:
            yield event
        async with aclosing(_answer_calls(run, allowed, held)) as events:
            async for event in events:
                yield event
        if run.stop_reason == "approval_required":
            return
    elif run.answers:
        run.warnings.append("No call waits for these approvals; they were ignored.")
        if not run.inputs:
            return
    for event in _take_inputs(run):
        yield event
    if not run.transcript and not run.system and (run.thread.stores_locally or run.thread.id is None):
        run.warnings.append("The model was not asked: there are no messages, no history and no instructions.")
        return
    while True:
        if run.journal is not None:
            run.journal.before_reply(run)
        if run.reduction is not None:
            for event in await _reduced(run, run.reduction):
                yield event
        _check_spent(run)
        limit = run.budget.max_steps
        closing = limit is not None and run.step >= limit
        run.step += 1
        async with aclosing(request_reply(run, offer_tools=not closing)) as events:
            async for event in events:
                yield event
        assert run.reply is not None
        reply, run.reply = run.reply, None
        calls = reply.calls
        for message in reply.messages:
            taken = run.take(message)
            run.open_calls += message.calls  # from here on they are answered, however the run ends
            yield taken
        for event in note_reply(run):
            yield event
        if calls:
            await run.settle()  # what is not followed by anything may be the answer, which middleware may replace
        if closing:
            run.stop_reason = "max_steps"
        if not calls or closing or _cut(reply) or (limit is not None and run.step >= limit):
            for event in _answer_unrun(run, reply):
                yield event
            if calls and not closing and not _cut(reply):
                await run.commit()
                await run.settle()
                continue
            if asked := ask_for_service(run, reply.messages):
                for event in asked:
                    yield event
                return
            if retry := _settle_output(run, reply):
                for event in retry:
                    yield event
                continue
            return
        held = [call for call in calls if needs_approval(run, call)]
        allowed = [call for call in calls if call not in held]
        async with aclosing(_answer_calls(run, allowed, held)) as events:
            async for event in events:
                yield event
        for event in ask_for_service(run, reply.messages):
            yield event
        if run.stop_reason == "approval_required":
            return


async def _reduced(run: RunContext, reduction: RunReduction) -> list[RunEvent]:
    """Choose what the next request brings of the conversation."""
    events = await in_time(run.deadline, reduction.reduce(run))
    if run.journal is not None:
        await run.journal.keep_reduction(run)
    return events


async def _finish(run: RunContext) -> list[RunEvent]:
    """Store the last turn, with the reply that middleware has put in the place of the model's."""
    events = _replace_answer(run, run.reply_instead) if run.reply_instead is not None else []
    await run.commit()
    await run.settle()
    keep_unsent(run)
    await _tell_providers(run)
    return events


def _replace_answer(run: RunContext, messages: list[Message]) -> list[RunEvent]:
    """Put `messages` in the place of the model's last answer, if there is one; calls and their results stay."""
    if run.stop_reason == "approval_required":
        run.warnings.append("Calls wait for approval: there is no answer yet, and that of the middleware was ignored.")
        return []
    events = [] if run.asked else _take_inputs(run)
    dropped = {id(message) for message in run.added[run.settled :] if message.role == "assistant" and not message.calls}
    for kept in (run.added, run.unstored, run.transcript):
        kept[:] = [message for message in kept if id(message) not in dropped]
    events += _close_open_calls(run)
    return [*events, *(run.take(message, shown=False) for message in messages)]


def _take_inputs(run: RunContext) -> list[RunEvent]:
    run.asked = True
    return [run.take(message, is_input=True) for message in run.inputs]


async def _answer_calls(
    run: RunContext, allowed: list[FunctionCall], held: list[FunctionCall]
) -> AsyncGenerator[RunEvent, None]:
    """Run the calls in `allowed` and store the turn, or hold it back until a person has answered those in `held`."""
    async with aclosing(run_calls(run, allowed)) as events:
        async for event in events:
            yield event
    held = [call for call in run.open_calls if call in held or call.id in run.needed]
    answered = _take_results(run)
    if held:
        answered += hold_calls(run, held)
    else:
        await run.commit()
    await run.settle()
    for event in answered:
        yield event


def _take_results(run: RunContext) -> list[RunEvent]:
    """Add the results to the conversation, in the order of the calls."""
    events = [run.take(result_message(run.results[c.id])) for c in run.open_calls if c.id in run.results]
    run.open_calls, run.results = [], {}
    return events


def _answer_unrun(run: RunContext, reply: Reply) -> list[RunEvent]:
    """Answer calls that are not run: the reply was cut, or the steps are used up."""
    why = "the reply was cut by its length limit" if _cut(reply) else "the step limit of this run is reached"
    events = []
    for call in reply.calls:
        result = unanswered(call, f"Not run: {why}.")
        events += [run.tool_failed(call, result, status="limit"), run.take(result_message(result))]
    run.open_calls = []
    return events


def _settle_output(run: RunContext, reply: Reply) -> list[RunEvent]:
    """Read the value that was asked for; return the events of another try if the reply does not fit."""
    if any(isinstance(content, RefusalContent) for m in reply.messages for content in m.contents):
        run.stop_reason = "refused"
        return []
    if run.output is None:
        return []
    text = reply.messages[-1].text if reply.messages else ""
    attempts = run.validation_retries + 1
    check_whole(text, reply.finish_reason, attempts=attempts)
    try:
        run.value = run.output.parse(text)
    except UnfitReply as error:
        if run.stop_reason == "max_steps":  # the closing reply of a run that ends anyway
            run.warnings.append(f"The last reply does not fit response_format: {error}")
            return []
        if attempts > run.budget.max_validation_retries:
            raise OutputValidationError(
                f"No reply fitted response_format after {attempts} tries: {error}", attempts=attempts, raw_text=text
            ) from (error.__cause__ or error)
        run.validation_retries = attempts
        retry = run.event("validation.retry", {"attempt": attempts, "error": str(error)})
        correction = Message("user", run.output.correction(error), message_id=new_id("msg"))
        events = [retry, run.take(correction)]
        drafts = len(reply.messages) + 1
        del run.added[-drafts:], run.unstored[-drafts:]  # only the log keeps them: the next turn is not about JSON
        return events
    return []


def _cut(reply: Reply) -> bool:
    return reply.finish_reason == "length"


def _check_spent(run: RunContext) -> None:
    """Stop before a request that the budget does not allow, or that of a run which this one is part of."""
    for one in run.and_parents():
        budget, name = one.budget, one.agent.name
        if budget.max_tokens is not None and (spent := one.tokens()) >= budget.max_tokens:
            raise BudgetExceededError(
                f"The run of {name!r} used {spent} tokens; its budget is {budget.max_tokens}.",
                hint="Raise RunBudget.max_tokens, or go on with a new run on the same session.",
            )
        if budget.max_cost_usd is not None and (cost := one.cost()) >= budget.max_cost_usd:
            raise BudgetExceededError(
                f"The run of {name!r} cost ${cost:.4f}; its budget is ${budget.max_cost_usd:.4f}.",
                hint="Raise RunBudget.max_cost_usd, or go on with a new run on the same session.",
            )
        check_calls(one)


def _close_open_calls(run: RunContext) -> list[RunEvent]:
    """Answer the calls that were under way when something ended them."""
    events = []
    for call in run.open_calls:
        if call.id not in run.results:
            result = unanswered(call, "Interrupted: the run ended before this call had finished.")
            events.append(run.tool_failed(call, result, status="cancelled"))
            run.results[call.id] = result
    return [*events, *_take_results(run)]


def _take_partial(run: RunContext, partial: UpdateFolder) -> list[RunEvent]:
    """Take what had arrived of a reply: its calls too where the service has stored it, and waits for their results."""
    events: list[RunEvent] = []
    if run.confirmed and partial.finish_reason is not None:
        for message in partial.messages():
            events.append(run.take(message))
            run.open_calls += message.calls
        return [*events, *note_reply(run), *_close_open_calls(run)]
    for message in partial.messages():
        texts = [content for content in message.contents if content not in message.calls]
        if texts:
            events.append(run.take(replace(message, contents=tuple(texts), interrupted=True)))
    return events


async def _store_remains(run: RunContext, error: BaseException, events: list[RunEvent]) -> None:
    """Balance and store what a run that ended early has; without any model output the session stays as it was.

    `events` gets what there is to tell of it.
    """
    events += _close_open_calls(run)
    if run.partial is not None:
        events += _take_partial(run, run.partial)
    if isinstance(error, StopRun):
        reply = Message("assistant", error.reply, run.agent.name, new_id("msg"))
        events.append(run.take(reply, shown=False))
    run.error, run.stop_reason = error, _stop_reason_of(error)
    try:
        if any(message.role == "assistant" for message in run.unstored):
            await run.commit()
    except Exception as failure:  # noqa: BLE001  what ended the run is the error to tell
        run.note_failure("The history", failure)
    try:
        await run.settle()
    except Exception as failure:  # noqa: BLE001  as above
        run.note_failure("on_message", failure)
    keep_unsent(run)
    try:
        await _tell_providers(run)
    except Exception as failure:  # noqa: BLE001  as above
        run.note_failure("A context provider", failure)


async def _tell_providers(run: RunContext) -> None:
    """Tell each that was asked, in reverse order, once, whatever the others do; the first failure comes out."""
    failed: Exception | None = None
    while run.entered:
        provider = run.entered.pop()
        try:
            await provider.after_run(run)
        except Exception as error:  # noqa: BLE001  the others are told first
            if failed is None:
                failed = error
            else:
                run.note_failure(provider.name, error)
    if failed is not None:
        raise failed


def _stop_reason_of(error: BaseException) -> str:
    if isinstance(error, StopRun):
        return "completed"
    if isinstance(error, RunTimeoutError):
        return "timeout"
    if isinstance(error, BudgetExceededError):
        return "budget_exhausted"
    return "failed" if isinstance(error, Exception) else "cancelled"


def _with_response(error: Exception, run: RunContext) -> NBAgentsError:
    """Return `error` as one of our tree, with what there is of the response; its causes show no keys."""
    redact_exception(error)
    if not isinstance(error, NBAgentsError):
        wrapped = RunError(f"The run failed: {error_text(error)}")
        wrapped.__cause__ = error
        error = wrapped
    error.response = run.response
    return error
