"""An agent as a tool of another: the child's run is nested, its approvals surface, its usage counts once."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, get_args

from nbagents.core.errors import ConfigurationError
from nbagents.core.messages import Message
from nbagents.core.names import safe_name
from nbagents.core.sessions import AgentSession
from nbagents.core.tools import ApprovalNeeded, FunctionTool, ToolContext

if TYPE_CHECKING:
    from nbagents.core.agent import Agent

ChildSession = Literal["fresh", "shared", "transcript"]
SHARED_SESSIONS_KEY = "nbagents.subagents"
"""Where a session keeps those of its sub-agents, by agent id, when they are shared."""


def agent_tool(agent: Agent, name: str | None, description: str | None, session: ChildSession) -> FunctionTool:
    """Return the tool that runs `agent`; see `Agent.as_tool`."""
    if session not in get_args(ChildSession):
        raise ConfigurationError(f"session is one of {', '.join(get_args(ChildSession))}, not {session!r}.")
    summary = description or agent.description or next(iter((agent.instructions or "").strip().splitlines()), "")
    if not summary:
        raise ConfigurationError(
            f"The agent {agent.name!r} has neither description nor instructions: no model would know what it is for.",
            hint="Give it a description.",
        )

    async def call(messages: str | list[str], context: ToolContext) -> str:
        return await _ask(agent, messages, context, session)

    call.__qualname__ = f"agent {agent.id}"
    return FunctionTool(call, name=name or safe_name(agent.name, fallback="agent"), description=summary)


async def _ask(agent: Agent, messages: str | list[str], context: ToolContext, kind: ChildSession) -> str:
    shared = context.session.state.get(SHARED_SESSIONS_KEY, {})
    inputs: list[Any]
    if context.resumed is not None:
        child, inputs = AgentSession.from_dict(context.resumed), list(context.answers)
    else:
        child = AgentSession.from_dict(shared[agent.id]) if kind == "shared" and agent.id in shared else AgentSession()
        inputs = [messages] if isinstance(messages, str) else list(messages)
        if kind == "transcript":
            inputs = [*_spoken(context), *inputs]
    stream = agent.run(inputs, stream=True, session=child)
    async with aclosing(stream.events()) as events:
        async for event in events:
            if event.name == "llm.delta":
                context.emit_delta(event.payload["text"])
    response = await stream.get_final_response()
    if response.approvals:
        raise ApprovalNeeded(response.approvals, child.to_dict())
    if kind == "shared":
        context.session.state[SHARED_SESSIONS_KEY] = {**shared, agent.id: child.to_dict()}
    return response.text


def _spoken(context: ToolContext) -> list[Any]:
    """What was said so far in the conversation that calls, without its tool calls."""
    return [Message(m.role, m.text, m.author_name) for m in context.run.transcript if m.text and m.role != "tool"]
