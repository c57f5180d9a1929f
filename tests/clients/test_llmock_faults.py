"""Every fault of `llmock`, over each API and in both modes: one right outcome, and its verdict on the client is clean.

Calls of tools, waits that it asks for and breaks that a run ends with are in `test_openai_servers` and
`test_anthropic_servers`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from nbagents import Agent, AnthropicChatClient, OpenAIChatClient, OpenAIResponsesClient, run_log
from nbagents.core import retries
from nbagents.core.errors import (
    AuthenticationError,
    BadRequestError,
    ConnectionFailedError,
    IncompleteStreamError,
    InvalidReplyError,
    ModelNotFoundError,
    ModelTimeoutError,
    RateLimitError,
    ServerError,
)
from tests.clients.asking import Mode, ask, both_modes, fails
from tests.support.servers import LLMock


@dataclass(frozen=True)
class Api:
    """One API.

    Attributes:
        client: makes its client.
        opening: how many chunks its streams have before the first one with text.
        below: where it is, below the server's address.
    """

    client: Callable[..., Any]
    opening: int
    below: str = "/v1"

    def agent(self, server: LLMock, tools: Any = (), **settings: Any) -> Agent:
        url = f"{server.base_url.removesuffix('/v1')}{self.below}"
        client = self.client("some-model", base_url=url, api_key="k", **{"max_retries": 2, **settings})
        return Agent(client, tools=list(tools))


APIS = {
    "chat": Api(OpenAIChatClient, 1),
    "rolling": Api(OpenAIResponsesClient, 4),
    "stateless": Api(partial(OpenAIResponsesClient, stores_by_default=False), 4),
    "anthropic": Api(AnthropicChatClient, 3, "/anthropic"),
}
STILL = {"type": "reply", "text": "Still here"}
COUNTED = {"type": "reply", "text": "one two three four five"}


@pytest.fixture(params=APIS)
def api(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setattr(retries, "_FIRST_BACKOFF_SECONDS", 0.1)
    return APIS[request.param]


def assert_flawless(server: LLMock, *, excused: str = "") -> None:
    """Its verdict finds nothing, no warning either."""
    assert [finding for finding in server.verdict()["findings"] if finding["code"] != excused] == []


@both_modes
@pytest.mark.parametrize(
    ("status", "kind"), [(401, AuthenticationError), (404, ModelNotFoundError), (422, BadRequestError)]
)
async def test_what_cannot_help_is_not_sent_again(
    api: Api, llmock: LLMock, mode: Mode, status: int, kind: type[Exception]
) -> None:
    """C55"""
    llmock.scenario([{"type": "fail", "status": status, "message": "Played"}, STILL])
    agent = api.agent(llmock)
    session = agent.create_session()
    error = await fails(agent, "Hi", mode, session)
    assert (type(error), error.status, error.retryable) == (kind, status, False)
    assert (await ask(agent, "And now?", mode, session)).text == "Still here"
    assert [request["status"] for request in llmock.requests()] == [status, 200]
    assert_flawless(llmock)


@both_modes
@pytest.mark.parametrize(("status", "kind"), [(429, RateLimitError), (500, ServerError)])
async def test_what_may_pass_is_tried_again_until_there_are_no_retries_left(
    api: Api, llmock: LLMock, mode: Mode, status: int, kind: type[Exception]
) -> None:
    wait = {"retry_after": 0.05} if status == 429 else {}
    llmock.scenario([{"type": "fail", "status": status, "times": 3, **wait}, STILL])
    agent = api.agent(llmock)
    session = agent.create_session()
    error = await fails(agent, "Hi", mode, session)
    assert (type(error), error.status, error.attempts) == (kind, status, 3)
    assert (await ask(agent, "And now?", mode, session)).text == "Still here"
    assert [request["status"] for request in llmock.requests()] == [status, status, status, 200]
    assert_flawless(llmock)


@both_modes
@pytest.mark.parametrize("kind", ["slow_first_token", "delay"])
async def test_a_slow_beginning_is_waited_for(api: Api, llmock: LLMock, mode: Mode, kind: str) -> None:
    llmock.scenario([{"type": kind, "seconds": 0.1}, STILL])
    response = await ask(api.agent(llmock), "Hi", mode)
    assert response.text == "Still here"
    (done,) = (event for event in run_log().get(response.run_id).events if event.name == "llm.succeeded")
    # A plain reply has no first token to wait for.
    assert done.payload["latency_s"] >= 0.1 or (kind, mode) == ("slow_first_token", "plain")
    assert_flawless(llmock)


@both_modes
async def test_a_beginning_that_is_slower_than_the_timeout_is_asked_for_again(
    api: Api, llmock: LLMock, mode: Mode
) -> None:
    llmock.scenario([{"type": "delay", "seconds": 0.9}, {"type": "reply", "text": "Late"}, STILL])
    response = await ask(api.agent(llmock, timeout=0.4), "Hi", mode)
    assert response.text == "Still here"
    (failed,) = (event for event in run_log().get(response.run_id).events if event.name == "llm.failed")
    assert failed.payload["error"]["type"] == ModelTimeoutError.__name__
    assert_flawless(llmock)


STREAM_FAULTS: dict[str, type[Exception]] = {
    "disconnect": ConnectionFailedError,
    "truncate": IncompleteStreamError,
    "malformed": InvalidReplyError,
    "stall": ModelTimeoutError,
}


def broken(kind: str, after_chunks: int) -> dict[str, Any]:
    return {"type": "stream_fault", "kind": kind, "after_chunks": after_chunks, "stall_seconds": 3}


@pytest.mark.parametrize("kind", STREAM_FAULTS)
async def test_a_stream_that_breaks_begins_again_where_that_is_asked_for(api: Api, llmock: LLMock, kind: str) -> None:
    """C92"""
    llmock.scenario([broken(kind, api.opening + 2), COUNTED, STILL, STILL])
    agent = api.agent(llmock, retry_streams=True, timeout=0.5)
    session = agent.create_session()
    response = await ask(agent, "Count", "streamed", session)
    assert response.text == "Still here"
    (failed,) = (event for event in run_log().get(response.run_id).events if event.name == "llm.failed")
    assert failed.payload["error"]["type"] == STREAM_FAULTS[kind].__name__
    assert (await ask(agent, "And now?", "streamed", session)).text == "Still here"
    # So short a stream may have been sent before we stop reading it: llmock cannot always tell that we did.
    assert_flawless(llmock, excused="malformed_chunk_ignored" if kind == "malformed" else "")


async def test_a_plain_reply_has_no_stream_that_could_break(api: Api, llmock: LLMock) -> None:
    llmock.scenario([*(broken(kind, 1) for kind in STREAM_FAULTS), COUNTED])
    assert (await ask(api.agent(llmock), "Count", "plain")).text == "one two three four five"
    assert_flawless(llmock)


@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed"])
async def test_a_stream_that_breaks_within_a_call_runs_no_tool(api: Api, llmock: LLMock, kind: str) -> None:
    """C38"""
    ran = []

    def act(x: str) -> None:
        """Act."""
        ran.append(x)

    made = {"type": "reply", "tool_calls": [{"name": "act", "arguments": {"x": "one two three four"}}]}
    llmock.scenario([broken(kind, api.opening + 1), made, STILL, STILL])
    agent = api.agent(llmock, [act], max_retries=0)
    session = agent.create_session()
    error = await fails(agent, "Go", "streamed", session)
    assert type(error) is STREAM_FAULTS[kind]
    assert (await ask(agent, "And now?", "streamed", session)).text == "Still here"
    assert ran == []


@both_modes
@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
async def test_a_bad_call_over_a_rolling_id_is_answered(llmock: LLMock, mode: Mode, kind: str) -> None:
    """C48"""

    def act(x: str) -> None:
        """Act."""

    made = {"type": "reply", "tool_calls": [{"name": "act", "arguments": {"x": "one"}}]}
    llmock.scenario([{"type": "tool_fault", "kind": kind}, made, {"type": "reply", "text": "Sorry"}, STILL])
    agent = APIS["rolling"].agent(llmock, [act])
    session = agent.create_session()
    response = await ask(agent, "Go", mode, session)
    (result,) = (result for message in response.messages for result in message.results)
    assert (response.text, bool(result.error)) == ("Sorry", True)
    assert (await ask(agent, "And now?", mode, session)).text == "Still here"
    assert_flawless(llmock)
