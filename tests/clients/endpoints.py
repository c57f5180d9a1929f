"""What a client under the contract is: what it should say, how it is asked for that, and what it cannot do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest

from nbagents import Agent, AgentSession, Message
from tests.clients.asking import Mode

Ability = Literal[
    "words",  # says what the test wants it to
    "several calls",  # calls several tools in one reply
    "reasoning",
    "refusal",
    "finish reasons",  # names another end than `stop` and `tool_calls` where the script wants it
    "usage",  # reports tokens; else it must say that it knows nothing
    "images",  # takes an image from the user
    "request",  # shows what it was asked, as far as it got
    "status",  # fails as an HTTP server does
    "page",  # answers with a web page
    "break",  # breaks off in the middle of a text
    "long talk",  # answers hundreds of times in good time
    "slow stream",  # stops in the middle of a stream and goes on much later
    "slow reply",  # takes long for a plain reply
]
LONG = "one two three four five six seven eight nine ten"
"""What is said where somebody stops listening."""


@dataclass(frozen=True)
class Say:
    """One reply."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    reasoning: str = ""
    refusal: str = ""
    finish_reason: str | None = None
    slow: bool = False

    @property
    def ending(self) -> str:
        return self.finish_reason or ("tool_calls" if self.calls else "stop")


@dataclass(frozen=True)
class Fail:
    """One reply that is none: a status, a page, or a text that breaks off."""

    status: int | None = None
    page: str = ""
    text: str = ""


Turn = Say | Fail


class Endpoint:
    """One client under the contract.

    Attributes:
        cannot: what it is unable to do, each with the reason.
        options: what each run asks for.
        call_options: what makes it call a tool.
        modes: the order in which the modes are tried.
    """

    cannot: ClassVar[Mapping[Ability, str]] = {}
    options: ClassVar[Mapping[str, Any]] = {}
    call_options: ClassVar[Mapping[str, Any]] = {}
    modes: tuple[Mode, ...] = ("plain", "streamed")

    def __init__(self, request: pytest.FixtureRequest) -> None:
        """Start what the client needs, through the fixtures of `request`."""

    def client(self, *script: Turn, **settings: Any) -> Any:
        """Return a client that answers its requests with `script`, in order."""
        raise NotImplementedError

    def agent(self, *script: Turn, client: Mapping[str, Any] | None = None, **settings: Any) -> Agent:
        return Agent(self.client(*script, **(client or {})), name="tester", **settings)

    async def stored(self, agent: Agent, session: AgentSession) -> list[Message]:
        """What has become part of the conversation."""
        return await agent.thread(session).get_messages()

    def can(self, ability: Ability) -> bool:
        return ability not in self.cannot

    def asked(self) -> dict[str, Any]:
        """The newest request: its messages and its options by their names."""
        raise NotImplementedError

    def replies_under_way(self) -> int:
        """How many replies the client is still listening to."""
        raise NotImplementedError

    def close(self) -> None:
        """Free what the test has used, and say what is wrong with it."""


def words_of(text: str) -> list[str]:
    """The pieces in which `text` is streamed."""
    words = text.split(" ")
    return [*(f"{word} " for word in words[:-1]), *words[-1:]] if text else []
