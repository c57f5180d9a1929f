"""What fails at Anthropic's API, instead of a reply or within it: one right error, and the text so far is kept."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest

from nbagents import run_log
from nbagents.core.errors import (
    AuthenticationError,
    BadRequestError,
    ConnectionFailedError,
    IncompleteStreamError,
    InvalidReplyError,
    ModelError,
    ModelTimeoutError,
    RateLimitError,
    ServerError,
)
from tests.clients.anthropic_endpoints import client_on
from tests.clients.asking import Mode, ask, both_modes, fails
from tests.support import anthropic_events as wire
from tests.support.raw_server import RawServer


@both_modes
@pytest.mark.parametrize(
    ("status", "kind", "error", "retryable", "says"),
    [
        (400, "invalid_request_error", BadRequestError, False, "options and messages"),
        (400, "invalid_request_error: prompt is too long: 210000 tokens > 200000", BadRequestError, False, "too long"),
        (401, "authentication_error", AuthenticationError, False, "ANTHROPIC_API_KEY"),
        (413, "request_too_large", BadRequestError, False, "too large"),
        (429, "rate_limit_error", RateLimitError, True, "no more requests"),
        (500, "api_error", ServerError, True, "failed"),
        (529, "overloaded_error", ServerError, True, "failed"),
    ],
)
async def test_a_status_is_one_error(
    raw_server: RawServer, mode: Mode, status: int, kind: str, error: type[ModelError], retryable: bool, says: str
) -> None:
    raw_server.reply_json(wire.error(kind, f"Played {kind}"), status, {"retry-after": "7", "request-id": "req_7"})
    failure = await fails(client_on(raw_server).as_agent(), "Hi", mode)
    assert isinstance(failure, error)
    assert (failure.status, failure.retryable) == (status, retryable)
    assert (failure.headers["retry-after"], failure.headers["request-id"]) == ("7", "req_7")
    assert f"Played {kind}" in failure.message
    assert says in str(failure)


@pytest.mark.parametrize(
    ("kind", "error", "status"),
    [
        ("overloaded_error", ServerError, 529),
        ("api_error", ServerError, 500),
        ("rate_limit_error", RateLimitError, 429),
        ("authentication_error", AuthenticationError, 401),
        ("invalid_request_error", BadRequestError, 400),
        ("request_too_large", BadRequestError, 413),
        ("timeout_error", ServerError, 504),
    ],
)
@pytest.mark.parametrize("named", [True, False])
async def test_an_error_within_a_stream_is_that_error(
    raw_server: RawServer, kind: str, error: type[ModelError], status: int, named: bool
) -> None:
    """Servers and gateways send it with and without the name of the event."""
    body = wire.error(kind, "Played")
    data = f"data: {json.dumps(body)}\n\n".encode()
    sent = b"event: error\n" + data if named else data
    raw_server.reply(wire.start(), *wire.text(0, "Once ")[:2], sent, done=False)
    failure = await fails(client_on(raw_server).as_agent(), "Hi", "streamed")
    assert isinstance(failure, error)
    assert (failure.status, failure.partial_text) == (status, "Once ")
    assert "Played" in failure.message


async def test_an_overloaded_service_is_asked_again_before_anything_is_shown(raw_server: RawServer) -> None:
    overloaded = wire.event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    raw_server.reply(wire.start(), wire.event("ping"), overloaded, done=False, headers={"retry-after": "0"})
    raw_server.reply(*wire.stream(wire.text(0, "Hello")))
    response = await ask(client_on(raw_server, max_retries=1).as_agent(), "Hi", "streamed")
    assert response.text == "Hello"
    names = [e.name for e in run_log().get(response.run_id).events if e.name.startswith("llm.re")]
    assert names == ["llm.requested", "llm.retried", "llm.requested"]


@both_modes
@pytest.mark.parametrize(
    "body", [{}, {"choices": []}, {"content": [5]}, {"content": [{"type": "redacted_thinking"}]}, []]
)
async def test_what_is_no_message_is_an_error(raw_server: RawServer, mode: Mode, body: Any) -> None:
    raw_server.reply_json(body)
    failure = await fails(client_on(raw_server).as_agent(), "Hi", mode)
    assert isinstance(failure, InvalidReplyError)
    assert "base_url" in str(failure)


@pytest.mark.parametrize("left_out", ["message_stop", "message_delta", "all but the start"])
@pytest.mark.parametrize("done", [True, False])
async def test_a_stream_without_its_end_is_no_reply(raw_server: RawServer, left_out: str, done: bool) -> None:
    """C38; only `[DONE]`, with which gateways end streams, may stand for the last event."""
    events = [wire.start(), *wire.text(0, "Hello"), *wire.end()]
    kept = {"message_stop": events[:-1], "message_delta": [*events[:-2], events[-1]], "all but the start": events[:1]}
    raw_server.reply(*kept[left_out], done=done)
    agent = client_on(raw_server).as_agent()
    if done and left_out == "message_stop":
        assert (await ask(agent, "Hi", "streamed")).finish_reason == "stop"
        return
    failure = await fails(agent, "Hi", "streamed")
    assert isinstance(failure, IncompleteStreamError)
    assert failure.retryable


async def test_a_broken_event_is_an_error_and_not_lost_text(raw_server: RawServer) -> None:
    raw_server.reply(wire.start(), *wire.text(0, "Once ")[:2], "event: content_block_delta\ndata: {\n\n", done=False)
    failure = await fails(client_on(raw_server).as_agent(), "Hi", "streamed")
    assert isinstance(failure, InvalidReplyError)
    assert (failure.partial_text, failure.retryable) == ("Once ", True)


@both_modes
async def test_a_server_that_falls_silent_is_a_timeout(raw_server: RawServer, mode: Mode) -> None:
    raw_server.reply(wire.start(), end="stall")
    failure = await fails(client_on(raw_server, timeout=0.2).as_agent(), "Hi", mode)
    assert isinstance(failure, ModelTimeoutError)


@pytest.mark.parametrize("end", ["stall", "reset", "cut"])
async def test_a_reply_that_is_whole_does_not_depend_on_what_follows(raw_server: RawServer, end: Any) -> None:
    # The server breaks off when the text has been read: what it had sent by then is not lost with the connection.
    read = threading.Event()
    raw_server.reply(*wire.stream(wire.text(0, "Hello")), read, end=end)
    async with client_on(raw_server).as_agent().run("Hi", stream=True) as stream:
        async for update in stream:
            if update.text:
                read.set()
        response = await asyncio.wait_for(stream.get_final_response(), 10)
    assert (response.text, response.finish_reason) == ("Hello", "stop")


async def test_what_is_no_http_is_a_short_error(raw_server: RawServer) -> None:
    """The HTTP library says all of what came in the place of an answer."""
    raw_server.reply_raw(b'{"x": "' + b"x" * 20_000 + b'"}', 204)  # one that has no body
    agent = client_on(raw_server).as_agent()
    await fails(agent, "Hi", "plain")
    failure = await fails(agent, "Hi", "plain")
    assert isinstance(failure, ConnectionFailedError)
    assert len(str(failure)) < 600
