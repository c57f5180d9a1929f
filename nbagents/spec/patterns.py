"""The patterns that are built in: how an agent works towards its answer."""

from __future__ import annotations

from dataclasses import replace

from nbagents.core.agent import Agent
from nbagents.core.arguments import exact_arguments
from nbagents.core.budget import DEFAULT_BUDGET


@exact_arguments()
def react(agent: Agent, max_steps: int | None = None) -> Agent:
    """Model and tools take turns until the model answers: what every agent does.

    Args:
        agent: the agent.
        max_steps: model requests that may call tools, where the spec's budget does not say it.
    """
    if max_steps is not None and agent.budget is None:
        agent.budget = replace(DEFAULT_BUDGET, max_steps=max_steps)
    return agent
