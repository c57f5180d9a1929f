"""What the magics remember between cells: the default agent and the sessions. It survives `%reset` and reloading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nbagents.core import Agent, AgentSession
from nbagents.core.errors import ConfigurationError


@dataclass(slots=True)
class NotebookState:
    """Agents and conversations of this kernel's magics.

    Attributes:
        default_agent: made at the first use without `-n`.
        notice: which client that agent got and how to change it, until it has been said.
        sessions: the conversations, by the name given with `-s`, or `agent NAME` without one.
    """

    default_agent: Agent | None = None
    notice: str | None = None
    sessions: dict[str, AgentSession] = field(default_factory=dict)

    def agent(self, name: str | None, namespace: Mapping[str, Any]) -> Agent:
        """Return the agent that the variable `name` holds, or that is named so, or without a name the default one.

        Raises:
            ConfigurationError: there is none, or more than one; the message lists the known ones.
        """
        if name is None:
            return self._default()
        held: object = namespace.get(name)
        if isinstance(held, Agent):
            return held
        agents = {
            variable: one
            for variable, one in namespace.items()
            if isinstance(one, Agent) and not variable.startswith("_")
        }
        named = {id(one): one for one in agents.values() if one.name == name}
        if len(named) == 1:
            return next(iter(named.values()))
        if named:
            raise ConfigurationError(f"{len(named)} agents are named {name!r}.", hint="Give the variable's name.")
        known = ", ".join(sorted(agents)) or "none"
        raise ConfigurationError(
            f"No variable holds an agent {name!r}, and none is named so.",
            hint=f"Make one first: {name} = Agent(...). Agents that are there: {known}.",
        )

    def session(self, agent: Agent, name: str | None, *, new: bool) -> AgentSession:
        """Return the conversation of that name, or of the agent; begin it if it is not there, or is to be new."""
        key = name or f"agent {agent.name}"
        if new:
            self.sessions[key] = agent.create_session()
        elif key not in self.sessions:
            self.sessions[key] = agent.create_session(name)
        return self.sessions[key]

    def take_notice(self) -> str | None:
        """Return `notice`, once."""
        notice, self.notice = self.notice, None
        return notice

    def _default(self) -> Agent:
        if self.default_agent is None:
            from nbagents.clients import choose_client

            choice = choose_client()
            self.default_agent, self.notice = Agent(choice.client, name="assistant"), choice.text
        return self.default_agent


_state = NotebookState()


def notebook_state() -> NotebookState:
    """The state of this process."""
    return _state
