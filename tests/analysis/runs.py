"""Agents whose runs end in every way, for the tables to show."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nbagents import Agent, RunBudget, ScriptedChatClient, tool, tool_call
from nbagents.core.content import FunctionCall, UsageContent
from nbagents.core.errors import NBAgentsError
from nbagents.core.usage import Usage


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def fail(reason: str) -> None:
    """Fail."""
    raise ValueError(reason)


@tool(approval="always")
def remove(path: str) -> str:
    """Remove a file."""
    return f"removed {path}"


def agent(*replies: Any, name: str = "helper", **settings: Any) -> Agent:
    """An agent that answers with `replies`, one for each model request."""
    return Agent(ScriptedChatClient(replies), name=name, tools=[add, fail, remove], **settings)


def call_with_id(call_id: str, name: str, **arguments: Any) -> FunctionCall:
    """A call with an id that the provider made."""
    return FunctionCall(call_id, name, arguments)


def reported(**counts: int) -> UsageContent:
    """Counts as a model reports them."""
    return UsageContent(Usage(**counts))


async def run_that_fails(**settings: Any) -> None:
    """A run that ends with an error."""
    with pytest.raises(NBAgentsError):
        await agent(["Half ", ConnectionError("gone")]).run("Hello", stream=True, **settings).get_final_response()


async def run_that_is_cancelled(**settings: Any) -> None:
    """A run that is cancelled after its first word."""
    stream = agent("One two three").run("Count", stream=True, **settings)
    async with stream:
        async for _ in stream:
            break


async def run_over_budget(**settings: Any) -> None:
    """A run that may call no tool and does."""
    with pytest.raises(NBAgentsError):
        await agent([tool_call("add", a=1, b=2)]).run("1+2", budget=RunBudget(max_tool_calls=0), **settings)


class Gate:
    """A tool that tells that it has begun, and waits until it is opened."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.opened = asyncio.Event()

    @tool
    async def wait(self) -> str:
        """Wait."""
        self.begun.set()
        await self.opened.wait()
        return "open"
