"""The Anthropic client as it is set up: address, key, what is cached and what it costs; the key shows nowhere."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import subprocess
import sys
from itertools import pairwise
from typing import Any

import anthropic
import httpx2
import pytest

from nbagents import Agent, AnthropicChatClient, HostedTool, Message, run_log, runs_df
from nbagents.core.errors import AuthenticationError, ConfigurationError
from nbagents.core.hosted import can_send
from nbagents.core.protocols import (
    SupportsCodeInterpreterTool,
    SupportsFileSearchTool,
    SupportsShellTool,
    SupportsWebSearchTool,
)
from tests.clients.anthropic_endpoints import client_on
from tests.clients.asking import KEY, Mode, ask, both_modes, fails
from tests.clients.test_openai_chat import everything_shown_of, shown_pieces
from tests.support import anthropic_events as wire
from tests.support.raw_server import RawServer

HELLO = wire.message({"type": "text", "text": "Hello"})


def answer(server: RawServer, *, mode: Mode) -> RawServer:
    """Have the server say hello as it is asked."""
    return server.reply_json(HELLO) if mode == "plain" else server.reply(*wire.stream(wire.text(0, "Hello")))


# --- address and key


def test_no_key_is_an_error_where_the_client_is_made() -> None:
    with pytest.raises(ConfigurationError, match=r"ANTHROPIC_API_KEY.*api_key=") as caught:
        AnthropicChatClient("claude-sonnet-5")
    assert "base_url=" in str(caught.value)


def test_the_environment_gives_key_and_address(raw_server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", raw_server.base_url)
    client = AnthropicChatClient("m")
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    answer(raw_server, mode="plain")
    assert Agent(client).run_sync("Hi").text == "Hello"
    assert KEY in raw_server.headers[0].get("authorization", "") + raw_server.headers[0].get("x-api-key", "")
    assert raw_server.headers[0]["anthropic-version"]


@pytest.mark.parametrize("ending", ["", "/", "/v1", "/v1/"])
def test_an_address_may_end_in_the_version(raw_server: RawServer, ending: str) -> None:
    answer(raw_server, mode="plain")
    client = AnthropicChatClient("m", base_url=f"http://127.0.0.1:{raw_server.port}{ending}")
    assert client.as_agent().run_sync("Hi").text == "Hello"
    assert raw_server.paths == ["/v1/messages"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"model": ""}, "name of a model"),
        ({"api_key": lambda: "k"}, "api_key is a text"),
        ({"base_url": "nowhere"}, "base_url"),
        ({"client": 5}, "AsyncAnthropic"),
        ({"client": anthropic.Anthropic(api_key="k-12345678")}, "AsyncAnthropic"),
        ({"client": anthropic.AsyncAnthropic(api_key="k-12345678"), "api_key": "k"}, "client= already has"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"cache": "10m"}, "cache"),
        ({"max_retries": -1}, "max_retries"),
        ({"tempo": 1}, "tempo"),
    ],
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any], says: str) -> None:
    given = {"model": "m", **({} if "client" in wrong else {"api_key": "k-12345678"}), **wrong}
    with pytest.raises(ConfigurationError, match=says):
        AnthropicChatClient(**given)


def test_a_missing_package_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anthropic", None)
    for settings in ({"api_key": "k"}, {"client": lambda: None}):
        with pytest.raises(ConfigurationError, match=r"needs the package anthropic.*pip install anthropic"):
            AnthropicChatClient("m", **settings)


def test_making_a_client_imports_no_package_of_a_provider() -> None:
    script = (
        "import sys; from nbagents import AnthropicChatClient; AnthropicChatClient('m', api_key='k-12345678'); "
        "print([m for m in ('anthropic', 'openai', 'pandas', 'matplotlib', 'IPython') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("way", ["argument", "environment", "client", "token", "factory", "header", "headers variable"])
@pytest.mark.usefixtures("no_known_secrets")
@both_modes
def test_the_key_shows_nowhere(
    raw_server: RawServer, monkeypatch: pytest.MonkeyPatch, way: str, mode: Mode, caplog: Any
) -> None:
    """C108: the server tells it back."""
    caplog.set_level(logging.DEBUG)
    url = f"http://127.0.0.1:{raw_server.port}"
    text = f"invalid x-api-key: {KEY[:8]}*************{KEY[-7:]}. Yours is {KEY}."
    raw_server.reply_json({**wire.error("authentication_error", text), "key": KEY}, 401, {"x-echo": f"Bearer {KEY}"})
    if way == "argument":
        client = client_on(raw_server, api_key=KEY)
    elif way == "environment":
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        client = client_on(raw_server)
    elif way == "headers variable":
        monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", f"X-Gateway-Token: {KEY}")
        client = client_on(raw_server)
    elif way in (
        "factory",
        "header",
    ):  # what a factory makes is the user's to close: without kept connections there is nothing
        http = httpx2.AsyncClient(limits=httpx2.Limits(max_keepalive_connections=0))
        secret = {"api_key": KEY} if way == "factory" else {"api_key": "k", "default_headers": {"X-Gateway-Token": KEY}}
        made = anthropic.AsyncAnthropic(base_url=url, **secret, http_client=http)
        client = AnthropicChatClient("m", client=lambda: made, max_retries=0)
    else:
        name = "api_key" if way == "client" else "auth_token"
        given = anthropic.AsyncAnthropic(base_url=url, **{name: KEY})
        client = AnthropicChatClient("m", client=given, max_retries=0)
    agent = Agent(client)
    session = agent.create_session()
    error = asyncio.run(fails(agent, "Hi", mode, session))
    assert isinstance(error, AuthenticationError)
    assert "ANTHROPIC_API_KEY" in str(error)
    assert not shown_pieces(everything_shown_of(error))
    assert not shown_pieces(f"{error.body_text} {error.headers}")
    assert not shown_pieces(" ".join([repr(client), repr(vars(client)), repr(agent), json.dumps(session.to_dict())]))
    assert not shown_pieces(repr([event.payload for event in run_log().get(error.response.run_id).events]))
    # But for the headers of the answer, which the package logs as they are.
    logged = [record.getMessage() for record in caplog.records if record.name.startswith(("nbagents", "anthropic"))]
    assert not shown_pieces("".join(text for text in logged if not text.startswith("HTTP Response")))


def test_a_pickled_client_takes_the_key_of_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"max_tokens": 99, "cache": "1h", "thinking": {"type": "adaptive"}, "timeout": 9.0}
    client = AnthropicChatClient("m", api_key=KEY, base_url="https://api.anthropic.com", **settings)
    pickled = pickle.dumps(client)
    assert not shown_pieces(pickled.decode("latin-1"))
    with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
        pickle.loads(pickled)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "another-key-1234")
    again = pickle.loads(pickled)
    assert {name: getattr(again, name) for name in settings} == settings
    assert again.host == "api.anthropic.com"
    with pytest.raises(ConfigurationError, match="function"):
        pickle.dumps(AnthropicChatClient("m", client=anthropic.AsyncAnthropic(api_key=KEY)))


def test_a_borrowed_client_serves_loops_and_stays_open(raw_server: RawServer) -> None:
    answer(raw_server, mode="plain")
    url = f"http://127.0.0.1:{raw_server.port}"
    own = httpx2.AsyncClient(headers={"x-own": "yes"})
    for given in (
        anthropic.AsyncAnthropic(base_url=url, api_key=KEY),
        anthropic.AsyncAnthropic(base_url=url, api_key=KEY, http_client=own),
    ):
        agent = AnthropicChatClient("m", client=given, max_retries=0).as_agent()
        assert [asyncio.run(ask(agent, "Hi", "plain")).text for _ in range(3)] == ["Hello"] * 3
        assert agent.run_sync("Hi").text == "Hello"
        assert not given.is_closed()
    assert [headers.get("x-own") for headers in raw_server.headers] == [None] * 4 + ["yes"] * 4
    assert {headers["connection"] for headers in raw_server.headers[4:]} == {"close"}


def test_a_closed_client_and_a_wrong_factory_are_clear_errors(raw_server: RawServer) -> None:
    http = httpx2.AsyncClient()
    closed = anthropic.AsyncAnthropic(base_url=raw_server.base_url, api_key=KEY, http_client=http)
    asyncio.run(closed.close())
    for given, says in ((closed, "passed as client= is closed"), (lambda: 5, "an AsyncAnthropic, not int")):
        with pytest.raises(ConfigurationError, match=says):
            AnthropicChatClient("m", client=given).as_agent().run_sync("Hi")


@pytest.mark.parametrize("end", ["clean", "stall"])
def test_nothing_is_left_open_at_the_end_of_a_loop(raw_server: RawServer, no_leaks: None, end: Any) -> None:
    raw_server.reply(wire.start(), *wire.text(0, "Hello"), *([] if end == "stall" else wire.end()), end=end)
    agent = client_on(raw_server).as_agent()

    async def leave_a_stream() -> None:
        async for update in agent.run("Hi", stream=True):
            if update.text:
                break

    for _ in range(2):
        asyncio.run(leave_a_stream())
    raw_server.wait_until(lambda: raw_server.open_connections == 0)


def test_limits_of_the_client_hold(raw_server: RawServer) -> None:
    client = client_on(raw_server, max_concurrency=1, requests_per_minute=60, tokens_per_minute=99_999)
    assert client.limits is not None
    assert (client.limits.max_concurrency, client.limits.requests_per_minute) == (1, 60)
    answer(raw_server, mode="plain")
    assert client.as_agent().run_sync("Hi").text == "Hello"


# --- what is sent besides the conversation


@both_modes
async def test_client_kwargs_reach_the_provider_untouched(raw_server: RawServer, mode: Mode) -> None:
    answer(raw_server, mode=mode)
    kwargs = {"top_k": 5, "extra_headers": {"anthropic-beta": "b1"}, "extra_query": {"q": "1"}, "extra_body": {"x": 2}}
    await ask(client_on(raw_server).as_agent(), "Hi", mode, client_kwargs=kwargs)
    assert (raw_server.requests[0]["top_k"], raw_server.requests[0]["x"]) == (5, 2)
    assert raw_server.headers[0]["anthropic-beta"] == "b1"
    assert raw_server.paths[0] == "/v1/messages?q=1"


async def test_a_cache_is_asked_for_only_where_it_is_wanted(raw_server: RawServer) -> None:
    def look(at: str) -> str:
        """Look."""
        return at

    answer(raw_server, mode="plain")
    marks = []
    for cache in (False, True, "1h"):
        client = client_on(raw_server, cache=cache)
        await ask(Agent(client, "Be brief.", tools=[look]), "Hi", "plain")
        body = raw_server.requests[-1]
        assert "cache_control" not in body["tools"][-1]
        assert "cache_control" not in body["messages"][-1]["content"][-1]
        marks.append((body.get("cache_control"), body["system"][-1].get("cache_control")))
    mark = {"type": "ephemeral"}
    assert marks == [(None, None), (mark, mark), ({**mark, "ttl": "1h"}, {**mark, "ttl": "1h"})]
    await ask(Agent(client_on(raw_server, cache=True), tools=[look]), "Hi", "plain")
    assert raw_server.requests[-1]["tools"][-1]["cache_control"] == mark


@both_modes
async def test_what_was_sent_is_sent_again_byte_for_byte(raw_server: RawServer, mode: Mode) -> None:
    """The provider's cache hits only where the beginning of a request is that of an earlier one."""

    def look(at: str) -> str:
        """Look."""
        return f"{at}: an é and a \ud83d"

    calls = [
        {"type": "thinking", "thinking": "Hm é.", "signature": "s1"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "ü"}},
    ]
    if mode == "plain":
        raw_server.reply_json(wire.message(*calls, reason="tool_use")).reply_json(HELLO)
    else:
        thought, text = wire.thinking(0, "Hm ", "é.", signature="s1"), wire.text(1, "I ", "look.")
        called = wire.call(2, "toolu_1", "look", '{"at"', ': "ü"}')
        raw_server.reply(*wire.stream(thought, text, called, reason="tool_use"))
        raw_server.reply(*wire.stream(wire.text(0, "Hello")))
    agent = Agent(client_on(raw_server, cache=True), "Be brief.", tools=[look])
    session = agent.create_session()
    for prompt in ("Look", "Again", "", "And again"):
        session = type(session).from_dict(json.loads(json.dumps(session.to_dict())))
        await ask(agent, prompt, mode, session)
        assert wire.refusal(raw_server.requests[-1]) is None
    sent = [json.dumps(body["messages"], ensure_ascii=False)[:-1] for body in raw_server.requests]
    assert len(sent) == 5
    for earlier, later in pairwise(sent):
        assert later.startswith(earlier)
    assert len({json.dumps([body["system"], body["tools"]]) for body in raw_server.requests}) == 1


# --- tools that the service runs


def test_the_client_offers_the_tools_that_the_service_runs() -> None:
    client = AnthropicChatClient("m", base_url="http://localhost:1")
    assert isinstance(client, SupportsWebSearchTool)
    assert isinstance(client, SupportsCodeInterpreterTool)
    assert not isinstance(client, SupportsFileSearchTool | SupportsShellTool)
    search = client.get_web_search_tool(max_uses=3)
    assert search == HostedTool("web_search_20250305", {"name": "web_search", "max_uses": 3})
    code = client.get_code_interpreter_tool(version="20260521")
    assert code == HostedTool("code_execution_20260521", {"name": "code_execution"})
    assert can_send(client, search)
    assert can_send(client, code)


# --- usage and cost


@both_modes
async def test_cached_tokens_are_part_of_the_input_and_priced_once(raw_server: RawServer, mode: Mode) -> None:
    cached = {"cache_read_input_tokens": 4_000, "cache_creation_input_tokens": 1_000}
    details = {"output_tokens": 500, "output_tokens_details": {"thinking_tokens": 200}}
    if mode == "plain":
        raw_server.reply_json({**HELLO, "usage": {"input_tokens": 100, **cached, **details}})
    else:
        raw_server.reply(wire.start(input_tokens=100, **cached), *wire.text(0, "Hello"), *wire.end(usage=details))
    client = AnthropicChatClient("claude-sonnet-4-5", base_url=raw_server.base_url)
    usage = (await ask(client.as_agent(), "Hi", mode)).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (5_100, 500, 5_600)
    assert (usage.cached_input_tokens, usage.cache_write_tokens, usage.reasoning_tokens) == (4_000, 1_000, 200)
    (row,) = runs_df().to_dict("records")
    # Dollars for a million tokens, November 2026: 3 sent, 0.30 from the cache, 3.75 into it, 15 received.
    assert row["cost_usd"] == pytest.approx((100 * 3 + 4_000 * 0.3 + 1_000 * 3.75 + 500 * 15) / 1e6)
    assert row["provider"] == "anthropic"


async def test_output_that_was_not_counted_yet_is_unknown(raw_server: RawServer) -> None:
    """A stream begins with a count of the output that is none: to show it would make a broken run too cheap."""
    raw_server.reply(wire.start(), *wire.text(0, "Hello")[:2], end="cut")
    failure = await fails(client_on(raw_server).as_agent(), "Hi", "streamed")
    assert failure.response is not None
    assert failure.response.usage is not None
    assert (failure.response.usage.input_tokens, failure.response.usage.output_tokens) == (10, None)


async def test_the_client_alone_takes_messages_and_gives_a_value(raw_server: RawServer) -> None:
    raw_server.reply_json(wire.message({"type": "text", "text": '{"a": 1}'}))
    messages = [Message("system", "Be brief."), Message("user", "Hi")]
    response = await client_on(raw_server).get_response(messages, options={"response_format": dict[str, int]})
    assert response.value == {"a": 1}
    assert raw_server.requests[0]["system"][0] == {"type": "text", "text": "Be brief."}
