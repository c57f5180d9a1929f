"""An agent as a tool of another: the child's run is nested, its approvals surface, its usage counts once."""

from __future__ import annotations

from contextlib import aclosing
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, get_args

from nbagents.core.errors import ConfigurationError, ToolError
from nbagents.core.messages import Message
from nbagents.core.names import safe_name
from nbagents.core.sessions import PENDING_KEY, AgentSession
from nbagents.core.tools import ApprovalNeeded, FunctionTool, ToolContext
from nbagents.core.turns import end_turn, take_turn
from nbagents.core.updates import BEGINS_AGAIN

if TYPE_CHECKING:
    from nbagents.core.agent import Agent

ChildSession = Literal["fresh", "shared", "transcript"]
SHARED_SESSIONS_KEY = "nbagents.subagents"
"""Where a session keeps those of its sub-agents, by agent id, when they are shared."""
MAX_NESTING = 32
"""Agents that are tools of each other could go on for ever, and a chain of hundreds cannot even be cancelled."""


class AgentTool(FunctionTool):
    """The tool that runs an agent.

    Args:
        agent: the agent.
        name: what the model calls it.
        description: what it is for.
        session: which session its runs have.
        instructions: the caller may give instructions in the place of the agent's.

    Raises:
        ConfigurationError: nothing says what the agent is for, or an argument that does not fit.
    """

    def __init__(
        self, agent: Agent, name: str | None, description: str | None, session: ChildSession, instructions: bool
    ) -> None:
        if session not in get_args(ChildSession):
            raise ConfigurationError(f"session is one of {', '.join(get_args(ChildSession))}, not {session!r}.")
        summary = description or agent.description or next(iter((agent.instructions or "").strip().splitlines()), "")
        if not summary:
            raise ConfigurationError(
                f"The agent {agent.name!r} has neither description nor instructions.",
                hint="Give it a description: no model would know what it is for.",
            )
        self.agent = agent

        async def ask(messages: str | list[str], context: ToolContext) -> str:
            return await _ask(agent, messages, context, session)

        async def instruct(messages: str | list[str], context: ToolContext, instructions: str | None = None) -> str:
            return await _ask(_instructed(agent, instructions), messages, context, session)

        call = instruct if instructions else ask
        call.__qualname__ = f"agent {agent.id}"
        super().__init__(call, name=name or safe_name(agent.name, fallback="agent"), description=summary)


def _instructed(agent: Agent, instructions: str | None) -> Agent:
    """Return an agent with other instructions: as they are, since what a model writes is no template."""
    if not instructions:
        return agent
    other = copy(agent)
    other.instructions, other.template, other._warned_of_template = instructions, None, True
    return other


async def _ask(agent: Agent, messages: str | list[str], context: ToolContext, kind: ChildSession) -> str:
    if sum(1 for _ in context.run.and_parents()) > MAX_NESTING:
        raise ToolError(f"Not run: agents have called each other {MAX_NESTING} deep.")
    inputs: list[Any] = [messages] if isinstance(messages, str) else list(messages)
    if kind == "transcript":
        inputs = [*_spoken(context), *inputs]
    if kind == "shared":
        return await _ask_shared(agent, inputs, context)
    child = AgentSession() if context.resumed is None else AgentSession.from_dict(context.resumed)
    return await _answer(agent, child, inputs, context)


async def _ask_shared(agent: Agent, inputs: list[Any], context: ToolContext) -> str:
    turn = (id(context.session.state), SHARED_SESSIONS_KEY, agent.id)
    await take_turn(turn)  # calls of one reply run at once, and each goes on where the one before has ended
    try:
        stored = context.session.state.get(SHARED_SESSIONS_KEY, {}).get(agent.id)
        child = _going_on(stored, context.resumed)
        try:
            answer = await _answer(agent, child, inputs, context)
        except ApprovalNeeded:
            if child.service_session_id is None:  # a service takes nothing more before it has the results
                _keep(child, agent, context)
            raise
        _keep(child, agent, context)
        return answer
    finally:
        end_turn(turn)


async def _answer(agent: Agent, child: AgentSession, inputs: list[Any], context: ToolContext) -> str:
    inputs = inputs if context.resumed is None else list(context.answers)
    stream = agent.run(inputs, stream=True, session=child)
    async with aclosing(stream.events()) as events:
        async for event in events:
            if event.name == "llm.delta":
                context.emit_delta(event.payload["text"])
            elif event.name == "llm.retried" and event.payload["retracts"]:
                context.emit_delta(BEGINS_AGAIN)
    response = await stream.get_final_response()
    if response.approvals:
        raise ApprovalNeeded(response.approvals, child.to_dict())
    return response.text


def _going_on(stored: dict[str, Any] | None, held: dict[str, Any] | None) -> AgentSession:
    """Return the shared session as it is by now, with the turn that was held: others may have gone on meanwhile."""
    if held is None:
        return AgentSession() if stored is None else AgentSession.from_dict(stored)
    if stored is None or held["service_session_id"] is not None:
        return AgentSession.from_dict(held)
    waits = {key: value for key, value in held["state"].items() if key == PENDING_KEY}  # a service asks without it
    return AgentSession.from_dict({**stored, "state": {**stored["state"], **waits}})


def _keep(child: AgentSession, agent: Agent, context: ToolContext) -> None:
    """Put the shared session where the next call finds it, without a turn that is held: only its answers take it up."""
    record = child.to_dict()
    record["state"].pop(PENDING_KEY, None)
    context.session.state.setdefault(SHARED_SESSIONS_KEY, {})[agent.id] = record


def _spoken(context: ToolContext) -> list[Any]:
    """What was said so far in the conversation that calls, without its tool calls."""
    return [Message(m.role, m.text, m.author_name) for m in context.run.transcript if m.text and m.role != "tool"]
