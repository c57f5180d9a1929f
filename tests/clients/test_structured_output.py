"""Structured output on the wire: what servers of others and the local model make of it."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from nbagents import Agent, LocalChatClient, OpenAIChatClient, tool
from nbagents.clients.local import local_extra_installed
from nbagents.clients.weights import find_weights
from tests.clients.asking import Mode, agent_on, ask, both_modes
from tests.support import require
from tests.support.raw_server import RawServer
from tests.support.servers import AIMock, LLMock


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Part(BaseModel):
    name: str
    count: int = Field(ge=0)


class Order(BaseModel):
    """An order."""

    kind: Literal["order"]
    size: Size
    parts: list[Part]
    note: str | None = None


class Cancel(BaseModel):
    kind: Literal["cancel"]
    reason: str = "none"


ASKED = [Order, Order | Cancel, list[Part], Part | None, int, bool, Size, dict[str, int]]


def agent_at(server: Any) -> Agent:
    return Agent(OpenAIChatClient("gpt-4o-mini", base_url=server.base_url, api_key="k", max_retries=0))


@both_modes
@pytest.mark.parametrize("asked", ASKED, ids=str)
async def test_llmock_makes_a_reply_from_the_schema_that_fits_the_type(llmock: LLMock, mode: Mode, asked: Any) -> None:
    """C82"""
    response = await ask(agent_at(llmock), "Make one", mode, options={"response_format": asked})
    assert TypeAdapter(asked).validate_python(response.value) == response.value
    assert len(llmock.requests()) == 1
    assert llmock.verdict()["findings"] == []


@both_modes
async def test_aimock_knows_the_format_and_its_reply_is_read(aimock: AIMock, mode: Mode) -> None:
    response = await ask(agent_at(aimock), "list two numbers", mode, options={"response_format": list[int]})
    assert response.value == [1, 2]
    wanted = {"type": "json_object"}
    assert (await ask(agent_at(aimock), "any object", mode, options={"response_format": wanted})).value == {"a": 1}


@both_modes
async def test_a_server_that_knows_no_formats_is_asked_again_with_the_schema(raw_server: RawServer, mode: Mode) -> None:
    raw_server.reply_text("Gladly: seven.").reply_text('Sure:\n```json\n{"value": 7}\n```')
    response = await ask(agent_on(raw_server), "A number", mode, options={"response_format": int})
    assert response.value == 7
    asked_again = raw_server.requests[1]["messages"]
    assert [message["role"] for message in asked_again] == ["user", "assistant", "user"]
    assert '"type": "integer"' in asked_again[-1]["content"]


@both_modes
async def test_tools_and_format_go_in_one_request(raw_server: RawServer, mode: Mode) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    raw_server.strict = True
    raw_server.reply_calls(("c1", "add", {"a": 1, "b": 2})).reply_text('{"value": 3}').reply_text("Welcome")
    agent = agent_on(raw_server, [add])
    session = agent.create_session()
    assert (await ask(agent, "1 + 2", mode, session, options={"response_format": int})).value == 3
    assert all("tools" in body and "response_format" in body for body in raw_server.requests)
    assert (await ask(agent, "Thanks", mode, session)).text == "Welcome"
    assert "response_format" not in raw_server.requests[2]


@pytest.fixture
def local() -> LocalChatClient:
    """A client of the real model."""
    require(local_extra_installed(), "xllamacpp (pip install xllamacpp)")
    require(find_weights(), "the weights (nbagents local install)")
    return LocalChatClient(n_ctx=1024)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("asked", [Part, Annotated[list[int], Field(max_length=2)], bool, Size], ids=str)
async def test_the_local_model_keeps_to_the_schema(local: LocalChatClient, asked: Any, stream: bool) -> None:
    options = {"response_format": asked, "max_tokens": 60}
    run = Agent(local).run("Three red apples.", stream=stream, options=options)
    response = await (run.get_final_response() if stream else run)
    assert response.value is not None


@pytest.mark.slow
async def test_the_local_model_answers_in_the_format_with_tools_at_hand(local: LocalChatClient) -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    options = {"response_format": Size, "max_tokens": 60, "tool_choice": "none"}
    assert isinstance((await Agent(local, tools=[add]).run("Big or small?", options=options)).value, Size)
    options = {"response_format": Size, "max_tokens": 60, "tool_choice": "required"}
    response = await Agent(local, tools=[add]).run("What is 2 and 3?", options=options)
    assert response.messages[1].results
    assert isinstance(response.value, Size)
