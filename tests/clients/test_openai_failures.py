"""Each failure is one clear error that says what happened and what to do, and the session can be used afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nbagents import Agent, OpenAIChatClient
from nbagents.core.errors import (
    AuthenticationError,
    BadRequestError,
    ConfigurationError,
    ConnectionFailedError,
    IncompleteStreamError,
    InvalidReplyError,
    ModelError,
    ModelNotFoundError,
    ModelTimeoutError,
    RateLimitError,
    ServerError,
)
from tests.clients.asking import Mode, agent_on, ask, both_modes, client_of, fails, goes_on
from tests.support.chunks import call, delta, finish, message, usage
from tests.support.raw_server import RawServer, Refuse

HTML = "<!doctype html><html><head><title>Sign in</title></head><body>...</body></html>"


def error_body(text: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": text, "type": "some_error", **more}}


STATUS_CASES: list[tuple[int, dict[str, Any], type[ModelError], bool, str, str]] = [
    (404, error_body("The model `test-model` does not exist"), ModelNotFoundError, False, "'test-model'", "/v1"),
    (400, error_body("no", code="model_not_found"), ModelNotFoundError, False, "'test-model'", "/v1"),
    (401, error_body("Bad key"), AuthenticationError, False, "refused the API key", "OPENAI_API_KEY"),
    (403, error_body("Not in your country"), AuthenticationError, False, "Not in your country", "may use this model"),
    (429, error_body("Slow down"), RateLimitError, True, "Slow down", "max_concurrency"),
    (429, error_body("Pay", code="insufficient_quota"), RateLimitError, False, "quota", "billing"),
    (400, error_body("Unknown parameter"), BadRequestError, False, "Unknown parameter", "cannot help"),
    (422, {"detail": "temperature: too big"}, BadRequestError, False, "temperature: too big", "cannot help"),
    (400, error_body("n", code="context_length_exceeded"), BadRequestError, False, "too long", "Shorten"),
    (400, error_body("It exceeds the available context size"), BadRequestError, False, "too long", "Shorten"),
    (500, error_body("Boom"), ServerError, True, "Boom", "later"),
    (503, {"error": "Loading model"}, ServerError, True, "Loading model", "later"),
]


@both_modes
@pytest.mark.parametrize(("status", "body", "kind", "retryable", "says", "advice"), STATUS_CASES)
async def test_a_refused_request_says_what_and_what_to_do(
    raw_server: RawServer,
    mode: Mode,
    status: int,
    body: dict[str, Any],
    kind: type[ModelError],
    retryable: bool,
    says: str,
    advice: str,
) -> None:
    raw_server.reply_json(body, status, headers={"x-request-id": "r1"}).reply_text("Still here")
    agent = agent_on(raw_server)
    session = agent.create_session()
    error = await fails(agent, "Hi", mode, session)
    assert type(error) is kind
    assert (error.status, error.retryable) == (status, retryable)
    assert says in error.message
    assert f"127.0.0.1:{raw_server.port}" in error.message or "too long" in error.message
    assert advice in str(error)
    assert "\n" not in str(error)
    assert error.headers["x-request-id"] == "r1"
    assert error.body_text
    assert error.__cause__ is not None
    assert error.response.stop_reason == "failed"
    await goes_on(agent, raw_server, mode, session)
    assert len(raw_server.requests) == 2


@both_modes
async def test_a_refused_connection_names_the_host_and_asks_whether_the_server_runs(
    unused_port: int, raw_server: RawServer, mode: Mode
) -> None:
    agent = Agent(OpenAIChatClient("m", base_url=f"http://user:hidden-pass@127.0.0.1:{unused_port}/v1", max_retries=0))
    session = agent.create_session()
    error = await fails(agent, "Hi", mode, session)
    assert type(error) is ConnectionFailedError
    assert f"127.0.0.1:{unused_port}" in error.message
    assert "server running" in str(error)
    assert "hidden-pass" not in f"{error}{agent!r}"
    raw_server.reply_text("Still here")
    await goes_on(agent_on(raw_server), raw_server, mode, session)


@both_modes
async def test_an_unknown_host_is_a_failed_connection(mode: Mode) -> None:
    agent = Agent(OpenAIChatClient("m", base_url="http://no-such-host.invalid/v1", max_retries=0))
    error = await fails(agent, "Hi", mode)
    assert type(error) is ConnectionFailedError
    assert "no-such-host.invalid" in error.message


@both_modes
async def test_a_connection_closed_without_an_answer(raw_server: RawServer, mode: Mode) -> None:
    raw_server.reply(end="reset", status=200) if mode == "streamed" else raw_server.reply(end="cut")
    raw_server.reply_text("Still here")
    agent = agent_on(raw_server)
    session = agent.create_session()
    assert type(await fails(agent, "Hi", mode, session)) is ConnectionFailedError
    await goes_on(agent, raw_server, mode, session)


@pytest.mark.parametrize("end", ["cut", "reset"])
async def test_a_connection_that_breaks_keeps_the_partial_text(raw_server: RawServer, end: Any) -> None:
    """C92: without a retry, since text has been shown."""
    raw_server.reply(delta("Hel"), end=end).reply_text("Still here")
    agent = agent_on(raw_server, max_retries=3)
    session = agent.create_session()
    error = await fails(agent, "Hi", "streamed", session)
    assert type(error) is ConnectionFailedError
    assert "middle of the reply" in error.message
    assert error.partial_text == "Hel"
    assert len(raw_server.requests) == 1
    await goes_on(agent, raw_server, "streamed", session)
    partial = raw_server.requests[-1]["messages"][1]
    assert partial == {"role": "assistant", "content": "Hel"}


async def test_a_connection_that_breaks_after_a_call_runs_no_tool(raw_server: RawServer) -> None:
    """C92"""
    ran = []
    raw_server.strict = True
    raw_server.reply(call(0, "c1", "act", "{}"), end="reset").reply_text("Still here")

    def act() -> None:
        """Act."""
        ran.append(1)

    agent = agent_on(raw_server, [act])
    session = agent.create_session()
    await fails(agent, "Hi", "streamed", session)
    assert ran == []
    await goes_on(agent, raw_server, "streamed", session)


@pytest.mark.parametrize("more", [[], [call(0, "c1", "act", '{"x": 1}')]], ids=["text", "after a whole call"])
async def test_a_stream_that_ends_without_a_finish_is_incomplete(raw_server: RawServer, more: list[Any]) -> None:
    """C38"""
    ran = []
    raw_server.strict = True
    raw_server.reply(delta("Hel"), delta("lo"), *more, done=False).reply_text("Still here")

    def act(x: int) -> None:
        """Act."""
        ran.append(x)

    agent = agent_on(raw_server, [act])
    session = agent.create_session()
    error = await fails(agent, "Hi", "streamed", session)
    assert type(error) is IncompleteStreamError
    assert error.partial_text == "Hello"
    assert ran == []
    stored = await agent.thread(session).get_messages()
    assert [message.interrupted for message in stored] == [False, True]
    await goes_on(agent, raw_server, "streamed", session)


@pytest.mark.parametrize("end", ["cut", "reset"])
async def test_a_break_after_the_finish_loses_nothing(raw_server: RawServer, end: Any) -> None:
    raw_server.reply(delta("Hello"), finish("stop"), end=end)
    response = await ask(agent_on(raw_server), "Hi", "streamed")
    assert (response.text, response.stop_reason) == ("Hello", "completed")


@both_modes
async def test_silence_is_a_timeout(raw_server: RawServer, mode: Mode) -> None:
    if mode == "streamed":
        raw_server.reply(delta("Hel"), end="stall")
    else:
        raw_server.reply(end="stall")
    raw_server.reply_text("Still here")
    agent = agent_on(raw_server, timeout=0.3)
    session = agent.create_session()
    error = await fails(agent, "Hi", mode, session)
    assert type(error) is ModelTimeoutError
    assert "timeout=" in str(error)
    assert error.partial_text == ("Hel" if mode == "streamed" else "")
    await goes_on(agent, raw_server, mode, session)


INVALID: list[tuple[str, str, str, str]] = [
    ("an HTML page", HTML, "text/html", "an HTML page ('Sign in')"),
    ("an HTML page that calls itself JSON", HTML, "application/json", "an HTML page ('Sign in')"),
    ("garbage", "{]", "application/json", "no JSON"),
    ("text", "It works!", "text/plain", "127.0.0.1"),
    ("nothing", "", "application/json", "127.0.0.1"),
    ("another JSON", '{"status": "ok"}', "application/json", "without a choice"),
    ("no choice", '{"choices": []}', "application/json", "without a choice"),
    ("a list", "[1]", "application/json", "without a choice"),
    ("a choice of another kind", '{"choices": ["x"]}', "application/json", "without a choice"),
    ("a message of another kind", '{"choices": [{"message": "x"}]}', "application/json", "without a choice"),
]


@both_modes
@pytest.mark.parametrize(("name", "body", "content_type", "says"), INVALID, ids=[case[0] for case in INVALID])
async def test_what_is_no_chat_completion_is_no_reply(
    raw_server: RawServer, mode: Mode, name: str, body: str, content_type: str, says: str
) -> None:
    raw_server.reply_raw(body, content_type=content_type).reply_text("Still here")
    agent = agent_on(raw_server, max_retries=2)
    session = agent.create_session()
    error = await fails(agent, "Hi", mode, session)
    assert type(error) is InvalidReplyError
    assert says in error.message
    assert "base_url" in str(error)
    await goes_on(agent, raw_server, mode, session)
    assert len(raw_server.requests) == 2


BROKEN_STREAMS: list[tuple[str, list[Any], str]] = [
    ("no event", [], "empty stream"),
    ("a chunk cut in the middle", ['data: {"choices": [{"ind\n\n'], "no JSON"),
    ("bytes that are no text", [b"data: \xff\xfe\n\n"], "no JSON"),
    ("values that are no chunks", ["data: 5\n\n", "data: []\n\n"], "empty stream"),
    ("a delta of another kind", [{"choices": [{"index": 0, "delta": "x", "finish_reason": None}]}], "chunk"),
    ("calls of another kind", [delta(tool_calls=5)], "chunk"),
]


@pytest.mark.parametrize(("name", "chunks", "says"), BROKEN_STREAMS, ids=[case[0] for case in BROKEN_STREAMS])
async def test_a_stream_of_something_else_is_no_reply(
    raw_server: RawServer, name: str, chunks: list[Any], says: str
) -> None:
    raw_server.reply(*chunks).reply_text("Still here")
    agent = agent_on(raw_server)
    session = agent.create_session()
    error = await fails(agent, "Hi", "streamed", session)
    assert type(error) is InvalidReplyError
    assert says in error.message
    await goes_on(agent, raw_server, "streamed", session)


ODD_VALUES = {
    "content": 5,
    "refusal": True,
    "reasoning_content": ["x"],
    "reasoning": {"a": 1},
    "role": 7,
    "unknown": {"deep": [1]},
    "annotations": [],
    "audio": None,
    "function_call": None,
    "tool_calls": None,
}


@both_modes
async def test_fields_of_an_unexpected_kind_are_read_over(raw_server: RawServer, mode: Mode) -> None:
    if mode == "streamed":
        raw_server.reply(delta(**ODD_VALUES), delta("Hello"), finish("stop"), {"choices": [], "usage": "much"})
    else:
        body = message("Hello")
        body["choices"][0]["message"] |= {k: v for k, v in ODD_VALUES.items() if k != "content"}
        raw_server.reply_json({**body, "usage": "much", "created": "x", "model": None})
    response = await ask(agent_on(raw_server), "Hi", mode)
    assert (response.text, response.usage) == ("Hello", None)


@both_modes
async def test_entries_of_calls_may_be_odd(raw_server: RawServer, mode: Mode) -> None:
    """Numbers as ids, a list as arguments, null entries: a result that the model can read, and no crash."""
    raw_server.strict = True
    entries = [
        None,
        {"index": 0, "id": 7, "type": "function", "function": {"name": "act", "arguments": [1]}},
        {"index": 1, "id": "c2", "type": "custom", "custom": {"name": "x", "input": "y"}},
    ]
    if mode == "streamed":
        raw_server.reply(delta(tool_calls=entries), finish("tool_calls"))
    else:
        raw_server.reply_json(message(None, tool_calls=entries, finish_reason="tool_calls"))
    raw_server.reply_text("Done")

    def act() -> None:
        """Act."""

    response = await ask(agent_on(raw_server, [act]), "Hi", mode)
    assert response.text == "Done"
    (result,) = (m for m in raw_server.requests[-1]["messages"] if m["role"] == "tool")
    assert (result["tool_call_id"], "no JSON object" in result["content"]) == ("7", True)


@both_modes
@pytest.mark.parametrize(
    ("reported", "kind"),
    [
        ({"message": "Overloaded", "code": 429}, RateLimitError),
        ({"message": "Overloaded", "type": "rate_limit_error"}, RateLimitError),
        ({"message": "Overloaded", "type": "invalid_request_error"}, BadRequestError),
        ({"message": "Overloaded", "code": "server_error"}, ServerError),
        ("Overloaded", ServerError),
    ],
)
async def test_an_error_inside_a_reply_is_raised(
    raw_server: RawServer, mode: Mode, reported: Any, kind: type[ModelError]
) -> None:
    if mode == "streamed":
        raw_server.reply(delta("Hel"), {"error": reported})
    else:
        raw_server.reply_json({"error": reported})
    raw_server.reply_text("Still here")
    agent = agent_on(raw_server)
    session = agent.create_session()
    error = await fails(agent, "Hi", mode, session)
    assert type(error) is kind
    assert "Overloaded" in f"{error.message}{error.body_text}"
    assert error.partial_text == ("Hel" if mode == "streamed" else "")
    await goes_on(agent, raw_server, mode, session)


async def test_a_server_that_only_streams_is_told_apart(raw_server: RawServer) -> None:
    raw_server.reply(delta("Hello"), finish("stop"))
    error = await fails(agent_on(raw_server), "Hi", "plain")
    assert type(error) is InvalidReplyError
    assert "streaming=True" in str(error)


def _null_refused(body: dict[str, Any]) -> Any:
    if any(sent["role"] == "assistant" and sent.get("content") is None for sent in body["messages"]):
        raise Refuse("content must not be null or missing")
    return message("Done")


@both_modes
async def test_assistant_messages_always_have_content(raw_server: RawServer, mode: Mode) -> None:
    """C55"""
    raw_server.reply_calls(("c1", "act", {})).reply_with(_null_refused)

    def act() -> None:
        """Act."""

    assert (await ask(agent_on(raw_server, [act]), "Hi", mode)).text == "Done"


@both_modes
async def test_options_that_cannot_be_sent_are_a_configuration_error(raw_server: RawServer, mode: Mode) -> None:
    raw_server.reply_text("Still here")
    agent = agent_on(raw_server)
    session = agent.create_session()
    error = await fails(agent, "Hi", mode, session, client_kwargs={"x": object()})
    assert type(error) is ConfigurationError
    assert "client_kwargs" in str(error)
    await goes_on(agent, raw_server, mode, session)


@both_modes
@pytest.mark.parametrize(
    "reply",
    [
        lambda server: server.reply_json(error_body("Boom"), 500),
        lambda server: server.reply_raw(HTML),
        lambda server: server.reply(delta("Hel"), end="cut"),
    ],
    ids=["500", "HTML", "cut"],
)
async def test_failures_leave_nothing_open(
    raw_server: RawServer, mode: Mode, reply: Callable[[RawServer], Any]
) -> None:
    """The connection is free again: a client with a single one goes on."""
    import openai

    reply(raw_server)
    raw_server.reply_text("Still here")
    http = openai.DefaultAsyncHttpxClient(limits=_one_connection(), timeout=2.0)
    async with openai.AsyncOpenAI(base_url=raw_server.base_url, api_key="k", http_client=http) as sdk:
        agent = Agent(OpenAIChatClient("m", client=sdk, max_retries=0))
        session = agent.create_session()
        await fails(agent, "Hi", mode, session)
        await goes_on(agent, raw_server, mode, session)


def _one_connection() -> Any:
    import httpx2

    return httpx2.Limits(max_connections=1, max_keepalive_connections=1)


async def test_usage_of_a_failed_attempt_is_kept(raw_server: RawServer) -> None:
    """C92"""
    raw_server.reply(delta("Hel"), usage(10, 1), end="reset")
    error = await fails(agent_on(raw_server), "Hi", "streamed")
    assert error.response.usage.input_tokens == 10


async def test_the_client_alone_raises_the_same_errors(raw_server: RawServer) -> None:
    raw_server.reply_json(error_body("Bad key"), 401)
    with pytest.raises(AuthenticationError):
        await client_of(raw_server).get_response("Hi")
