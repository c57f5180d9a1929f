"""Calls that wait for a person: held back with their turn in `session.state`, taken up by the next run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nbagents.core.content import ApprovalRequest, ApprovalResponse, FunctionCall, FunctionResult
from nbagents.core.errors import SessionError
from nbagents.core.events import RunEvent
from nbagents.core.ids import new_id
from nbagents.core.messages import Message
from nbagents.core.results import error_text
from nbagents.core.run import RunContext
from nbagents.core.service_history import count_up_to_calls
from nbagents.core.sessions import PENDING_KEY
from nbagents.core.tools import ArgumentsError
from nbagents.core.toolset import find_tool
from nbagents.core.updates import AgentResponseUpdate


def needs_approval(run: RunContext, call: FunctionCall) -> bool:
    """Whether a person must allow this call; a call that cannot run at all is simply answered."""
    tool = find_tool(run.tools, call.name)
    if tool is None or call.invalid or not isinstance(call.arguments, dict):
        return False
    try:
        tool.schema.bind(call.arguments)
        return tool.needs_approval(call.arguments)
    except ArgumentsError:
        return False  # it is not going to run: the model is told what does not fit
    except Exception as error:  # noqa: BLE001  a rule that fails allows nothing
        run.warnings.append(f"The approval rule of {call.name!r} failed, so a person is asked: {error_text(error)}")
        return True


def hold_calls(run: RunContext, held: list[FunctionCall]) -> list[RunEvent]:
    """Keep the unfinished turn for the next run and ask for the calls in `held`; the run ends with that."""
    left = run.resumed | {call_id: needed.state for call_id, needed in run.needed.items()}
    pending = {"agent_id": run.agent.id, "messages": run.unstored, "resumed": left}
    if not run.asked and run.inputs:
        pending["inputs"] = run.inputs  # said while older calls still waited: it comes after their results
    run.session.state[PENDING_KEY] = pending
    run.unstored = []
    run.stop_reason = "approval_required"
    requests = [request for call in held for request in _requests(run, call)]
    message = run.signed(Message("assistant", requests, run.agent.name, new_id("msg")))
    run.added.append(message)
    return [_requested(run, request, run.update(message, [request])) for request in requests]


def ask_for_service(run: RunContext, messages: Sequence[Message]) -> list[RunEvent]:
    """Ask a person what the service asks in `messages`, if it does; the run ends with that, the next one answers."""
    requests = [c for message in messages for c in message.contents if isinstance(c, ApprovalRequest)]
    if requests:
        run.stop_reason = "approval_required"
    return [_requested(run, request) for request in requests]


def _requested(run: RunContext, request: ApprovalRequest, update: AgentResponseUpdate | None = None) -> RunEvent:
    call = request.call
    facts = {"tool_id": run.tool_id_of(call), "call_id": call.call_id, "id": request.id, "arguments": call.arguments}
    return run.event("approval.requested", facts, update)


def _requests(run: RunContext, call: FunctionCall) -> list[ApprovalRequest]:
    """What to ask a person: for the call itself, or what its tool needs to go on."""
    needed = run.needed.get(call.id)
    return needed.requests if needed else [ApprovalRequest(call.id, call)]


def has_held_calls(run: RunContext) -> bool:
    """Whether a turn waits in the session."""
    return PENDING_KEY in run.session.state


def take_up_held_calls(run: RunContext) -> tuple[list[FunctionCall], list[FunctionCall], list[RunEvent]]:
    """Take the turn that waits in the session; return the calls to run, those that go on waiting, and what is refused.

    Answers count only for a call that waits, with the very arguments that were asked for; a denial counts more than an
    approval. A call without an answer goes on waiting if the run brings nothing but answers; if the conversation goes
    on instead, it is refused.

    Raises:
        SessionError: the answers are for calls of another agent; they go on waiting.
    """
    answers = {answer.id: answer for answer in sorted(run.answers, key=lambda answer: not answer.approved)}
    pending = run.session.state[PENDING_KEY]
    asked_by = pending.get("agent_id", run.agent.id)
    if asked_by != run.agent.id and answers:
        raise SessionError(
            f"The calls that wait in this session are those of the agent {asked_by!r}, not of {run.agent.id!r}.",
            hint=f"Run the answers with {asked_by!r}.",
        )
    del run.session.state[PENDING_KEY]
    messages: list[Message] = pending["messages"]
    to_service = _for_service(messages, answers)
    run.inputs = [*pending.get("inputs", ()), *run.inputs]
    goes_on = any(not isinstance(content, ApprovalResponse) for m in run.inputs for content in m.contents)
    run.resumed = dict(pending.get("resumed", {}))
    answered = {result.id for message in messages for result in message.results}
    waiting = [c for message in messages for c in message.calls if c.id not in answered]
    run.transcript.extend(messages)
    run.unstored.extend(messages)
    count_up_to_calls(run)
    run.open_calls = waiting
    allowed: list[FunctionCall] = []
    held: list[FunctionCall] = []
    refused: list[RunEvent] = []
    for call in waiting:
        answer = _matching(answers.get(call.id), call)
        if (answer is not None and answer.approved) or (call.id in run.resumed and (answers or not goes_on)):
            allowed.append(call)
        elif answer is None and not goes_on:
            held.append(call)
        else:
            refused.append(_refuse(run, call, answer))
    run.inputs = [*to_service, *run.inputs]
    return allowed, held, refused


def _for_service(messages: Sequence[Message], answers: Mapping[str, ApprovalResponse]) -> list[Message]:
    """The answers to what the service asked beside the calls: they are said to it, after the results of those."""
    asked = [c.id for message in messages for c in message.contents if isinstance(c, ApprovalRequest)]
    found = [answers[id] for id in asked if id in answers]
    return [Message("user", found, message_id=new_id("msg"))] if found else []


def _matching(answer: ApprovalResponse | None, call: FunctionCall) -> ApprovalResponse | None:
    if answer is None or (answer.call.name, answer.call.arguments) != (call.name, call.arguments):
        return None
    return answer


def _refuse(run: RunContext, call: FunctionCall, answer: ApprovalResponse | None) -> RunEvent:
    if answer is None:
        text = "Not run: nobody approved this call."
    else:
        text = f"Not run: the user denied this call{f': {answer.reason}' if answer.reason else '.'}"
    result = FunctionResult(call.call_id, call.name, text, call.id, error=text, denied=True)
    run.results[call.id] = result
    return run.tool_failed(call, result, status="denied")
