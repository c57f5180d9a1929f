"""The servers written by others work with the plain `openai` client and the scripts given to them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.support.servers import AIMock, LLMock


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    server = request.getfixturevalue(request.param)
    with openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client:
        yield client


def ask(client: openai.OpenAI, text: str, model: str = "gpt-4o-mini", **more: Any) -> Any:
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], **more)


def streamed(client: openai.OpenAI, text: str, **more: Any) -> list[Any]:
    with ask(client, text, stream=True, **more) as chunks:
        return [chunk.choices[0].delta for chunk in chunks if chunk.choices]


def text_of(deltas: list[Any]) -> str:
    return "".join(delta.content or "" for delta in deltas)


@pytest.mark.parametrize("client", ["llmock"], indirect=True)
def test_llmock_plays_a_scenario_and_judges_the_client(client: openai.OpenAI, llmock: LLMock) -> None:
    call = {"name": "get_weather", "arguments": {"city": "Paris"}}
    llmock.scenario([{"type": "fail", "status": 429, "retry_after": 1}, {"type": "reply", "tool_calls": [call]}])
    with pytest.raises(openai.RateLimitError):
        ask(client, "Hi")
    (called,) = ask(client, "Hi").choices[0].message.tool_calls
    assert (called.function.name, called.function.arguments) == ("get_weather", '{"city": "Paris"}')
    assert [request["status"] for request in llmock.requests()] == [429, 200]
    assert [finding["code"] for finding in llmock.verdict()["findings"]] == ["retry_after_ignored"]


@pytest.mark.parametrize("client", ["llmock"], indirect=True)
def test_llmock_starts_each_test_afresh(client: openai.OpenAI, llmock: LLMock) -> None:
    assert llmock.requests() == []
    llmock.scenario([{"type": "reply", "text": "Hello you"}])
    assert text_of(streamed(client, "Hi")) == "Hello you"


@pytest.mark.parametrize("client", ["aimock"], indirect=True)
def test_aimock_streams_text_and_reasoning(client: openai.OpenAI, aimock: AIMock) -> None:
    assert text_of(streamed(client, "say hello")) == "Hello from the mock model, in a few streamed pieces."
    thought = streamed(client, "think first", model="o4-mini")
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in thought) == "Two plus two makes four."
    assert [entry["body"]["stream"] for entry in aimock.journal()] == [True, True]


@pytest.mark.parametrize("client", ["aimock"], indirect=True)
def test_aimock_calls_tools_and_answers_after_their_results(client: openai.OpenAI) -> None:
    names = [call.function.name for call in ask(client, "two cities").choices[0].message.tool_calls]
    assert names == ["get_weather", "get_weather"]
    asked = ask(client, "add 2 and 3").choices[0].message
    history: list[Any] = [{"role": "user", "content": "add 2 and 3"}, asked]
    result: Any = {"role": "tool", "tool_call_id": asked.tool_calls[0].id, "content": "5"}
    answer = client.chat.completions.create(model="gpt-4o-mini", messages=[*history, result])
    assert answer.choices[0].message.content == "The sum is 5."


@pytest.mark.parametrize("client", ["aimock"], indirect=True)
@pytest.mark.parametrize("time", ["first", "second"])
def test_aimock_counts_a_fixture_afresh_in_each_test(client: openai.OpenAI, time: str) -> None:
    with pytest.raises(openai.RateLimitError):
        ask(client, "busy once")
    assert ask(client, "busy once").choices[0].message.content == "Back again."


@pytest.mark.parametrize("client", ["aimock"], indirect=True)
def test_aimock_fails_as_told_and_refuses_the_unscripted(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError):
        ask(client, "break down")
    with pytest.raises(openai.APIStatusError):
        ask(client, "nobody wrote a fixture for this")


def test_nothing_listens_on_the_unused_port(unused_port: int) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", unused_port), timeout=5)
