"""The OpenAI clients against two servers written by others: their faults give the right outcome, and they find none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from nbagents import Agent, OpenAIChatClient, OpenAIResponsesClient, run_log
from nbagents.core.errors import (
    ConnectionFailedError,
    IncompleteStreamError,
    InvalidReplyError,
    ModelTimeoutError,
    RateLimitError,
    ServerError,
)
from tests.clients.asking import Mode, ask, both_modes, fails
from tests.support.servers import AIMock, LLMock


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def get_weather(city: str) -> str:
    """Tell the weather."""
    return f"{city}: sunny"


@dataclass(frozen=True)
class Api:
    """One of OpenAI's APIs, and how many chunks its streams have before the first one with text."""

    client: Callable[..., Any]
    opening: int

    def __call__(self, server: Any, tools: Any = (), model: str = "gpt-4o-mini", **settings: Any) -> Agent:
        client = self.client(model, base_url=server.base_url, api_key="k", **{"max_retries": 0, **settings})
        return Agent(client, tools=list(tools))


APIS = {"chat": Api(OpenAIChatClient, 1), "responses": Api(partial(OpenAIResponsesClient, stores_by_default=False), 4)}


@pytest.fixture(params=APIS)
def agent_at(request: pytest.FixtureRequest) -> Api:
    return APIS[request.param]


def reply(text: str = "Still here") -> dict[str, Any]:
    return {"type": "reply", "text": text}


STREAM_FAULTS: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"kind": "disconnect"}, ConnectionFailedError),
    ({"kind": "truncate"}, IncompleteStreamError),
    ({"kind": "malformed"}, InvalidReplyError),
    ({"kind": "stall", "stall_seconds": 3}, ModelTimeoutError),
]
each_stream_fault = pytest.mark.parametrize(
    ("fault", "kind"), STREAM_FAULTS, ids=[fault["kind"] for fault, _ in STREAM_FAULTS]
)


def break_stream(server: LLMock, fault: dict[str, Any], *, after_chunks: int) -> None:
    """Break the first reply, which is this fault and the text after it, and answer the rest."""
    broken = {"type": "stream_fault", "after_chunks": after_chunks, **fault}
    server.scenario([broken, reply("one two three four five"), reply()])


@each_stream_fault
async def test_llmock_breaks_a_stream_that_has_shown_text(
    agent_at: Api, llmock: LLMock, fault: dict[str, Any], kind: type[Exception]
) -> None:
    break_stream(llmock, fault, after_chunks=agent_at.opening + 2)
    agent = agent_at(llmock, timeout=1.0, max_retries=2)
    session = agent.create_session()
    error = await fails(agent, "Count", "streamed", session)
    assert type(error) is kind
    assert error.partial_text.startswith("one")
    assert (await ask(agent, "And now?", "streamed", session)).text == "Still here"
    assert len(llmock.requests()) == 2


@each_stream_fault
async def test_llmock_breaks_a_stream_before_any_text_and_is_asked_again(
    agent_at: Api, llmock: LLMock, fault: dict[str, Any], kind: type[Exception]
) -> None:
    break_stream(llmock, fault, after_chunks=1)
    response = await ask(agent_at(llmock, timeout=1.0, max_retries=2), "Count", "streamed")
    assert response.text == "Still here"
    (failed,) = (event for event in run_log().get(response.run_id).events if event.name == "llm.failed")
    assert failed.payload["error"]["type"] == kind.__name__
    # So short a stream may have been sent before we stop reading it: llmock cannot always tell that we did.
    excused = {"malformed_chunk_ignored"} if fault["kind"] == "malformed" else set()
    assert {finding["code"] for finding in llmock.verdict()["findings"]} <= excused


def assert_flawless(server: LLMock) -> None:
    """Its verdict finds nothing, no warning either."""
    assert server.verdict()["findings"] == []


@both_modes
@pytest.mark.parametrize(("status", "kind"), [(500, ServerError), (503, ServerError), (429, RateLimitError)])
async def test_llmock_fails_for_good(
    agent_at: Api, llmock: LLMock, mode: Mode, status: int, kind: type[Exception]
) -> None:
    llmock.scenario([{"type": "fail", "status": status}, reply()])
    agent = agent_at(llmock)
    session = agent.create_session()
    error = await fails(agent, "Hi", mode, session)
    assert type(error) is kind
    assert (await ask(agent, "And now?", mode, session)).text == "Still here"


@both_modes
async def test_llmock_asks_to_wait_and_is_obeyed(agent_at: Api, llmock: LLMock, mode: Mode) -> None:
    llmock.scenario([{"type": "fail", "status": 429, "retry_after": 1, "times": 1}, reply("Hello")])
    response = await ask(agent_at(llmock, max_retries=2), "Hi", mode)
    assert response.text == "Hello"
    (retried,) = (event for event in run_log().get(response.run_id).events if event.name == "llm.retried")
    assert retried.payload["wait_s"] >= 1
    assert [request["status"] for request in llmock.requests()] == [429, 200]
    assert_flawless(llmock)


@both_modes
async def test_llmock_fails_twice_and_is_asked_again(agent_at: Api, llmock: LLMock, mode: Mode) -> None:
    llmock.scenario([{"type": "fail", "status": 500, "times": 2}, reply("Hello")])
    assert (await ask(agent_at(llmock, max_retries=2), "Hi", mode)).text == "Hello"
    assert_flawless(llmock)


@both_modes
async def test_llmock_calls_a_tool(agent_at: Api, llmock: LLMock, mode: Mode) -> None:
    call = {"name": "get_weather", "arguments": {"city": "Paris"}}
    llmock.scenario([{"type": "reply", "tool_calls": [call, {**call, "arguments": {"city": "Oslo"}}]}, reply("Fine")])
    response = await ask(agent_at(llmock, [get_weather]), "Weather?", mode)
    assert response.text == "Fine"
    results = [result.result for message in response.messages for result in message.results]
    assert results == ["Paris: sunny", "Oslo: sunny"]
    assert response.usage is not None
    assert_flawless(llmock)


@both_modes
@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
async def test_llmock_makes_a_bad_call_and_reads_why(agent_at: Api, llmock: LLMock, mode: Mode, kind: str) -> None:
    call = {"name": "get_weather", "arguments": {"city": "Paris"}}
    made = {"type": "reply", "tool_calls": [call]}
    llmock.scenario([{"type": "tool_fault", "kind": kind}, made, reply("Sorry"), reply()])
    agent = agent_at(llmock, [get_weather])
    session = agent.create_session()
    response = await ask(agent, "Weather?", mode, session)
    assert response.text == "Sorry"
    (result,) = (result for message in response.messages for result in message.results)
    assert result.error
    assert (await ask(agent, "And now?", mode, session)).text == "Still here"
    assert_flawless(llmock)


@both_modes
async def test_aimock_answers(agent_at: Api, aimock: AIMock, mode: Mode) -> None:
    response = await ask(agent_at(aimock), "say hello", mode)
    assert response.text == "Hello from the mock model, in a few streamed pieces."
    # Of Responses it reports zeros, which nobody has: they count as nothing.
    assert (response.usage is not None) is (agent_at is APIS["chat"])
    (entry,) = aimock.journal()
    assert entry["body"].get("stream", False) is (mode == "streamed")


@both_modes
@pytest.mark.parametrize(
    ("prompt", "answer", "results"),
    [
        ("add 2 and 3", "The sum is 5.", ["5"]),
        ("look, then add", "It is 2.", ["2"]),
        ("two cities", "Paris is sunny and Oslo is wet.", ["Paris: sunny", "Oslo: sunny"]),
    ],
)
async def test_aimock_calls_tools(
    agent_at: Api, aimock: AIMock, mode: Mode, prompt: str, answer: str, results: list[str]
) -> None:
    response = await ask(agent_at(aimock, [add, get_weather]), prompt, mode)
    assert response.text.splitlines()[-1] == answer
    assert [result.result for message in response.messages for result in message.results] == results
    sent = aimock.journal()[-1]["body"]["messages"]
    assert [m["content"] for m in sent if m["role"] == "tool"] == results


@both_modes
async def test_aimock_reasons(agent_at: Api, aimock: AIMock, mode: Mode) -> None:
    response = await ask(agent_at(aimock, model="o4-mini"), "think first", mode)
    assert response.text == "Four."
    thoughts = [c.text for c in response.messages[0].contents if c.type == "reasoning"]
    assert thoughts == ["Two plus two makes four."]


@both_modes
async def test_aimock_is_busy_once(agent_at: Api, aimock: AIMock, mode: Mode) -> None:
    response = await ask(agent_at(aimock, max_retries=1), "busy once", mode)
    assert response.text == "Back again."
    (retried,) = (event for event in run_log().get(response.run_id).events if event.name == "llm.retried")
    assert retried.payload["wait_s"] >= 1


@both_modes
async def test_aimock_breaks_down(agent_at: Api, aimock: AIMock, mode: Mode) -> None:
    agent = agent_at(aimock)
    session = agent.create_session()
    assert type(await fails(agent, "break down", mode, session)) is ServerError
    assert (await ask(agent, "say hello", mode, session)).text.startswith("Hello")
