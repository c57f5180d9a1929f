"""Conversations with a client under the contract, and what of them is the same in both modes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbagents import Agent, AgentResponse, AgentSession, Message
from tests.clients.asking import Mode, ask
from tests.clients.endpoints import Endpoint, Turn


class _AnyText(str):
    """Equal to every text that says something: for models whose words nobody chooses."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and bool(other)

    __hash__ = str.__hash__


def said(endpoint: Endpoint, text: str) -> str:
    """What is compared with the words of a reply that should be `text`."""
    return text if endpoint.can("words") else _AnyText()


@dataclass
class Talk:
    """One conversation in one mode."""

    endpoint: Endpoint
    mode: Mode
    agent: Agent
    session: AgentSession = field(default_factory=AgentSession)
    responses: list[AgentResponse] = field(default_factory=list)

    async def ask(self, prompt: Any, **options: Any) -> AgentResponse:
        options = {**self.endpoint.options, **options}
        self.responses.append(await ask(self.agent, prompt, self.mode, self.session, options=options))
        return self.responses[-1]

    async def transcript(self) -> list[dict[str, Any]]:
        """What is stored, without what must differ: our ids and the time."""
        stored = await self.endpoint.stored(self.agent, self.session)
        ids: dict[str, str] = {}
        shown = [_shown(message, ids, words=self.endpoint.can("words")) for message in stored]
        again = AgentSession.from_dict(json.loads(json.dumps(self.session.to_dict())))
        assert await self.endpoint.stored(self.agent, again) == stored
        return shown


def _shown(message: Message, ids: dict[str, str], *, words: bool) -> dict[str, Any]:
    def number(id: str | None) -> str:
        return ids.setdefault(str(id), f"id {len(ids)}")

    contents: list[Any] = []
    for content in message.contents:
        if content.type == "function_call":
            shown = (content.name, content.arguments if words else sorted(content.arguments), number(content.id))
        elif content.type == "function_result":
            shown = (content.name, content.result if words else "", bool(content.error), number(content.id))
        elif content.type in ("text", "reasoning", "refusal"):
            shown = content.text if words or message.role == "user" else ""
        else:
            shown = repr(content)
        contents.append((content.type, shown))
    return {
        "role": message.role,
        "author": message.author_name,
        "interrupted": message.interrupted,
        "contents": contents,
    }


async def both(
    endpoint: Endpoint, script: Sequence[Turn], *prompts: Any, tools: Sequence[Any] = (), **options: Any
) -> dict[Mode, list[AgentResponse]]:
    """Have the same talk in both modes and return the responses; what is stored must be the same."""
    talks: dict[Mode, Talk] = {}
    for mode in endpoint.modes:
        talk = talks[mode] = Talk(endpoint, mode, endpoint.agent(*script, tools=list(tools)))
        for prompt in prompts:
            await talk.ask(prompt, **options)
    assert await talks["plain"].transcript() == await talks["streamed"].transcript()
    return {mode: talk.responses for mode, talk in talks.items()}


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread or process brings about."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)
