"""The OpenAI client as it is set up: where it sends, with which key and options, and that the key shows nowhere."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import pickle
import subprocess
import sys
import traceback
from typing import Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

from nbagents import Agent, AgentSession, Message, OpenAIChatClient, run_log
from nbagents.core.content import DataContent
from nbagents.core.errors import ConfigurationError, NBAgentsError
from tests.clients.asking import KEY, Mode, agent_on, ask, both_modes, client_of, fails, goes_on
from tests.support.raw_server import RawServer

PIECES = {KEY[start : start + 6] for start in range(len(KEY) - 5)}


def shown_pieces(text: str) -> set[str]:
    return {piece for piece in PIECES if piece in text}


def test_no_key_is_an_error_where_the_client_is_made() -> None:
    with pytest.raises(ConfigurationError, match=r"OPENAI_API_KEY.*api_key=") as caught:
        OpenAIChatClient("gpt-5-mini")
    assert "base_url=" in str(caught.value)


def test_an_empty_key_is_no_key() -> None:
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        OpenAIChatClient("gpt-5-mini", api_key="")


def test_the_environment_gives_key_and_address(raw_server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_BASE_URL", raw_server.base_url)
    client = OpenAIChatClient("m")
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    raw_server.reply_text("Hello")
    assert Agent(client).run_sync("Hi").text == "Hello"
    assert raw_server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_a_server_of_ones_own_needs_no_key(raw_server: RawServer) -> None:
    raw_server.reply_text("Hello")
    assert agent_on(raw_server).run_sync("Hi").text == "Hello"
    assert raw_server.paths == ["/v1/chat/completions"]


def test_an_admin_key_in_the_environment_is_not_sent(raw_server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin-0123456789")
    raw_server.reply_text("Hello")
    agent_on(raw_server).run_sync("Hi")
    assert "admin" not in json.dumps(raw_server.headers)


def test_a_key_may_be_renewed_by_a_function(raw_server: RawServer) -> None:
    tokens = iter(["token-one-1234", "token-two-5678"])

    async def token() -> str:
        return next(tokens)

    raw_server.reply_text("Hello")
    agent = agent_on(raw_server, api_key=token)
    agent.run_sync("Hi")
    agent.run_sync("Hi")
    assert [sent["authorization"] for sent in raw_server.headers] == ["Bearer token-one-1234", "Bearer token-two-5678"]


def test_azure_is_asked_by_deployment_and_version(raw_server: RawServer, monkeypatch: pytest.MonkeyPatch) -> None:
    raw_server.reply_text("Hello")
    endpoint = f"http://127.0.0.1:{raw_server.port}"
    client = OpenAIChatClient("my-gpt", azure_endpoint=endpoint, api_version="2024-10-21", api_key=KEY)
    assert client.provider == "azure"
    assert Agent(client).run_sync("Hi").text == "Hello"

    async def streamed() -> str:
        return (await ask(Agent(client), "Hi", "streamed")).text

    assert asyncio.run(streamed()) == "Hello"
    assert raw_server.paths == ["/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"] * 2
    assert [sent["api-key"] for sent in raw_server.headers] == [KEY] * 2
    with pytest.raises(ConfigurationError, match="AZURE_OPENAI_API_KEY"):
        OpenAIChatClient("my-gpt", azure_endpoint=endpoint, api_version="2024-10-21")
    with pytest.raises(ConfigurationError, match="api_version="):
        OpenAIChatClient("my-gpt", azure_endpoint=endpoint, api_key=KEY)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model": ""}, "model is the name"),
    ({"model": None}, "model is the name"),
    ({"base_url": "localhost:8000/v1"}, "http://"),
    ({"base_url": "ftp://x"}, "http://"),
    ({"max_retries": -1}, "max_retries"),
    ({"max_retries": "2"}, "max_retries"),
    ({"max_concurrency": 0}, "max_concurrency"),
    ({"timeout": 0}, "timeout"),
    ({"api_key": 5}, "api_key"),
    ({"client": "x"}, "AsyncOpenAI"),
    ({"client": openai.OpenAI(api_key="k")}, r"AsyncOpenAI.*run_sync"),
    ({"client": lambda: None, "api_key": "k"}, "client="),
    ({"client": lambda: None, "base_url": "http://x"}, "client="),
]


@pytest.mark.parametrize(("wrong", "says"), WRONG)
def test_a_wrong_argument_is_named(wrong: dict[str, Any], says: str) -> None:
    arguments = {
        "model": "m",
        **({} if "client" in wrong or "base_url" in wrong else {"base_url": "http://x"}),
        **wrong,
    }
    with pytest.raises(ConfigurationError, match=says):
        OpenAIChatClient(**arguments)


def test_making_a_client_imports_no_openai() -> None:
    script = (
        "import sys; from nbagents import OpenAIChatClient; OpenAIChatClient('m', api_key='k-12345678'); "
        "print([m for m in ('openai', 'pandas', 'matplotlib', 'IPython', 'ipywidgets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


# --- C108: no piece of six characters of the key, wherever it came from


def echo(server: RawServer) -> None:
    """A server that tells the key back, whole in places and half masked in others, as providers do."""
    text = f"Incorrect API key provided: {KEY[:8]}*************{KEY[-7:]}. Yours is {KEY} ('{KEY[:9]}...{KEY[-6:]}')."
    body = {"error": {"message": text, "code": "invalid_api_key", "key": KEY}}
    server.reply_json(body, 401, headers={"x-echo": f"Bearer {KEY}"})


@pytest.fixture(params=["argument", "function", "environment", "client", "factory", "header", "azure"])
def keyed(request: pytest.FixtureRequest, raw_server: RawServer, monkeypatch: pytest.MonkeyPatch) -> OpenAIChatClient:
    """A client whose key came in one of the ways."""
    settings: dict[str, Any] = {"base_url": raw_server.base_url, "max_retries": 0}
    if request.param == "argument":
        return OpenAIChatClient("m", api_key=KEY, **settings)
    if request.param == "function":

        async def token() -> str:
            return KEY

        return OpenAIChatClient("m", api_key=token, **settings)
    if request.param == "environment":
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        return OpenAIChatClient("m", **settings)
    if request.param == "azure":
        endpoint = f"http://127.0.0.1:{raw_server.port}"
        return OpenAIChatClient("m", azure_endpoint=endpoint, api_version="1", api_key=KEY, max_retries=0)
    if request.param == "client":
        return OpenAIChatClient(
            "m", client=openai.AsyncOpenAI(base_url=raw_server.base_url, api_key=KEY), max_retries=0
        )
    # What a factory makes is the user's to close: without kept connections there is nothing to close.
    http = httpx2.AsyncClient(limits=httpx2.Limits(max_keepalive_connections=0))
    secret = (
        {"api_key": "k", "default_headers": {"x-gateway-token": KEY}} if request.param == "header" else {"api_key": KEY}
    )
    client = openai.AsyncOpenAI(base_url=raw_server.base_url, **secret, http_client=http)
    return OpenAIChatClient("m", client=lambda: client, max_retries=0)


def everything_shown_of(error: BaseException) -> str:
    """All texts of an error and its causes, with the variables of every frame but those of this test module."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    frames: list[str] = []
    waiting: list[traceback.TracebackException | None] = [shown]
    while waiting:
        if (one := waiting.pop()) is None:
            continue
        frames += [f"{frame.name} {frame.locals}" for frame in one.stack if frame.filename != __file__]
        frames += one.format_exception_only()
        waiting += [one.__cause__, one.__context__]
    cause = error.__cause__
    return "\n".join([*frames, repr(error), str(error), repr(cause), str(cause), str(getattr(cause, "args", ""))])


@pytest.mark.usefixtures("no_known_secrets")
@both_modes
def test_the_key_shows_in_no_error(keyed: OpenAIChatClient, raw_server: RawServer, mode: Mode, caplog: Any) -> None:
    """C108"""
    caplog.set_level(logging.DEBUG)
    echo(raw_server)
    agent = Agent(keyed)
    session = agent.create_session()
    error = asyncio.run(fails(agent, "Hi", mode, session))
    assert not shown_pieces(everything_shown_of(error))
    assert not shown_pieces(f"{error.body_text} {error.headers} {error.message} {error.hint}")
    events = run_log().get(error.response.run_id).events
    assert not shown_pieces(repr([event.payload for event in events]))
    assert not shown_pieces(json.dumps(session.to_dict()))
    logged = [record.getMessage() for record in caplog.records if record.name.startswith(("nbagents", "openai"))]
    assert logged
    assert not shown_pieces("".join(logged))


@pytest.mark.usefixtures("no_known_secrets")
@pytest.mark.parametrize("way", ["refused connection", "broken stream", "closed without an answer", "wrong body"])
def test_the_key_shows_in_no_traceback_of_the_network(raw_server: RawServer, unused_port: int, way: str) -> None:
    """C108: the frames of HTTP libraries have the headers among their variables."""
    url = f"http://127.0.0.1:{unused_port}/v1" if way == "refused connection" else raw_server.base_url
    more: dict[str, Any] = {"client_kwargs": {"x": object()}} if way == "wrong body" else {}
    if way == "broken stream":
        raw_server.reply({"content": "Hel"}, "data: {\n\n")
    else:
        raw_server.reply(end="reset")
    agent = Agent(OpenAIChatClient("m", base_url=url, api_key=KEY, max_retries=0))
    error = asyncio.run(fails(agent, "Hi", "streamed", **more))
    assert not shown_pieces(everything_shown_of(error))
    assert error.__cause__ is not None


def test_the_key_shows_in_no_repr_and_no_pickle(keyed: OpenAIChatClient, raw_server: RawServer) -> None:
    """C108"""
    raw_server.reply_text("Hello")
    agent = Agent(keyed)
    session = agent.create_session()
    agent.run_sync("Hi", session=session)
    shown = [repr(keyed), str(keyed), repr(vars(keyed)), repr(agent), repr(vars(agent)), repr(session)]
    assert not shown_pieces(" ".join(shown))
    assert not hasattr(keyed, "_repr_html_")
    if isinstance(keyed._settings["client"], openai.AsyncOpenAI):
        with pytest.raises(ConfigurationError, match="function"):
            pickle.dumps(keyed)
    elif keyed._settings["client"] is None and "token" not in repr(vars(keyed)):
        assert not shown_pieces(pickle.dumps(keyed).decode("latin-1"))


def test_the_key_shows_in_no_error_of_the_constructor() -> None:
    """C108"""
    for wrong in ({"base_url": "no address"}, {"model": ""}, {"max_retries": -1}, {"client": lambda: None}):
        with pytest.raises(ConfigurationError) as caught:
            OpenAIChatClient(**{"model": "m", "api_key": KEY, **wrong})
        assert not shown_pieces(everything_shown_of(caught.value))


def test_a_pickled_client_takes_the_key_of_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    client = OpenAIChatClient("m", api_key=KEY, base_url="https://api.openai.com/v1", max_retries=5, timeout=9.0)
    pickled = pickle.dumps(client)
    with pytest.raises(ConfigurationError, match="OPENAI_API_KEY"):
        pickle.loads(pickled)
    monkeypatch.setenv("OPENAI_API_KEY", "another-key-1234")
    again = pickle.loads(pickled)
    assert (again.model, again.host, again.max_retries, again.timeout) == ("m", "api.openai.com", 5, 9.0)


def test_a_copy_of_an_agent_shares_the_client(raw_server: RawServer) -> None:
    raw_server.reply_text("Hello")
    agent = agent_on(raw_server, api_key=KEY)
    assert copy.deepcopy(agent).client is agent.client


# --- what is sent


@both_modes
async def test_options_go_out_under_their_names(raw_server: RawServer, mode: Mode) -> None:
    raw_server.reply_text("Hello")
    options = {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_tokens": 50,
        "stop": ["\n"],
        "seed": 7,
        "reasoning_effort": "low",
        "metadata": {"a": "b"},
        "user": "ada",
        "store": False,
        "logit_bias": {"5": -100},
        "frequency_penalty": 0.1,
        "presence_penalty": 0.3,
    }
    await ask(agent_on(raw_server), "Hi", mode, options=options)
    assert {name: raw_server.requests[0].get(name) for name in options} == options


async def test_the_option_model_overrides_the_models_name(raw_server: RawServer) -> None:
    raw_server.reply_text("Hello")
    response = await ask(agent_on(raw_server), "Hi", "plain", options={"model": "other"})
    assert (raw_server.requests[0]["model"], response.model) == ("other", "other")


@both_modes
async def test_client_kwargs_reach_the_provider_untouched(raw_server: RawServer, mode: Mode) -> None:
    raw_server.reply_text("Hello")
    kwargs = {
        "extra_headers": {"x-a": "1"},
        "extra_query": {"q": "2"},
        "extra_body": {"top_k": 3, "temperature": 1.5},
        "min_p": 0.1,
        "timeout": 20.0,
    }
    await ask(agent_on(raw_server), "Hi", mode, client_kwargs=kwargs, options={"temperature": 0})
    (sent,) = raw_server.requests
    assert (sent["top_k"], sent["min_p"], sent["temperature"]) == (3, 0.1, 1.5)
    assert not {"extra_headers", "extra_query", "extra_body", "timeout"} & sent.keys()
    assert raw_server.headers[0]["x-a"] == "1"
    assert raw_server.paths == ["/v1/chat/completions?q=2"]
    assert kwargs["extra_headers"] == {"x-a": "1"}


@both_modes
async def test_the_timeout_of_one_run_counts(raw_server: RawServer, mode: Mode) -> None:
    raw_server.reply(end="stall")
    error = await fails(agent_on(raw_server), "Hi", mode, client_kwargs={"timeout": 0.2})
    assert error.code == "model_timeout"


class Answer(BaseModel):
    number: int


@both_modes
async def test_a_response_format_is_sent_as_a_schema(raw_server: RawServer, mode: Mode) -> None:
    raw_server.reply_text('{"number":4}')
    response = await ask(agent_on(raw_server), "2+2?", mode, options={"response_format": Answer})
    assert response.value == Answer(number=4)
    assert raw_server.requests[0]["response_format"]["json_schema"]["name"] == "Answer"
    await client_of(raw_server).get_response("2+2?", options={"response_format": Answer})
    assert raw_server.requests[1]["response_format"] == raw_server.requests[0]["response_format"]


@both_modes
async def test_a_stored_session_goes_on_elsewhere(raw_server: RawServer, mode: Mode) -> None:
    """Ids, arguments and images survive the way through JSON."""

    def look(what: str) -> str:
        """Look."""
        return f"a {what}"

    raw_server.strict = True
    raw_server.reply_calls(("c1", "look", {"what": "cat"})).reply_text("A cat").reply_text("Still here")
    agent = agent_on(raw_server, [look])
    session = agent.create_session()
    image = DataContent("data:image/png;base64,iVBORw0KGgo=", "image/png")
    await ask(agent, [Message("user", ["What is it?", image])], mode, session)
    before = raw_server.requests[-1]["messages"]
    stored = json.loads(json.dumps(session.to_dict()))
    again = AgentSession.from_dict(stored)
    await goes_on(agent_on(raw_server, [look]), raw_server, mode, again)
    assert raw_server.requests[-1]["messages"][: len(before)] == before
    assert before[0]["content"][1] == {"type": "image_url", "image_url": {"url": image.uri}}


async def test_a_run_never_changes_what_it_was_given(raw_server: RawServer) -> None:
    raw_server.reply_text("Hello")
    options = {"metadata": {"a": "b"}, "max_tokens": 5}
    kwargs = {"extra_body": {"x": 1}, "extra_headers": {"x-a": "1"}}
    given = copy.deepcopy((options, kwargs))
    await ask(agent_on(raw_server), "Hi", "streamed", options=options, client_kwargs=kwargs)
    assert (options, kwargs) == given


async def test_many_turns_cost_about_the_same_each(raw_server: RawServer) -> None:
    """A message is converted once, not once per turn."""
    import nbagents.clients.chat_wire as chat_wire

    converted: list[Message] = []
    original = chat_wire._entries

    def counted(message: Message) -> Any:
        converted.append(message)
        return original(message)

    raw_server.reply_text("Hello")
    agent = agent_on(raw_server)
    session = agent.create_session()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_wire, "_entries", counted)
        for _ in range(20):
            await agent.run("Hi", session=session)
    assert len(raw_server.requests[-1]["messages"]) == 39
    assert len(converted) == 39


def test_errors_are_of_our_tree_from_every_door(raw_server: RawServer) -> None:
    raw_server.reply_json({"error": {"message": "no"}}, 400)
    agent = agent_on(raw_server)
    with pytest.raises(NBAgentsError):
        agent.run_sync("Hi")
    with pytest.raises(NBAgentsError):
        list(agent.stream_sync("Hi"))
    with pytest.raises(NBAgentsError):
        agent.start("Hi").result(10)
