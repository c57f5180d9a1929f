"""Hostile places for a key: none of them shows it."""

from __future__ import annotations

import base64
import json
import logging
import traceback
import warnings
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy
import pytest
from pydantic import BaseModel

from nbagents import (
    Agent,
    ScriptedChatClient,
    ToolContext,
    events_df,
    messages_df,
    run_log,
    runs_df,
    tool,
    tool_call,
    tool_calls_df,
)
from nbagents.core import ChatRequest, secrets
from nbagents.core.errors import ConfigurationError, ModelError, NBAgentsError, ToolError
from nbagents.core.middleware import ChatContext
from nbagents.core.run import RunContext
from nbagents.core.secrets import mask_known, redact, redact_exception, register_secret
from tests.clients.asking import Mode, agent_on, ask, both_modes, client_of, fails
from tests.support.raw_server import RawServer

KEY = "Vx9pMARKER-fig-31-amber-0071-Qd"
"""A key that no pattern knows: only its registration can hide it."""
ODD_KEY = 'Lm4/MARKER+plum "55"\\teal=-Wz'
"""One that looks different inside a URL, JSON and a repr."""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    register_secret(KEY)
    register_secret(ODD_KEY)
    monkeypatch.setattr(secrets, "_looked_at", float("-inf"))  # the test before has left another environment


def pieces(key: str) -> list[str]:
    """The parts of a key that must not be shown: C108 allows no six characters of it."""
    return [key[start : start + 6] for start in range(0, len(key) - 5, 3)]


def assert_hidden(*texts: str, key: str = KEY) -> None:
    for text in texts:
        assert text
        assert [piece for piece in pieces(key) if piece in text] == []


class Mute(Exception):
    """Builds its text itself, out of reach of `args`."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key

    def __str__(self) -> str:
        return f"no access with {self.key}"


def noted(key: str) -> Exception:
    error = ValueError("bad")
    error.add_note(f"used {key}")
    return error


def chained(key: str) -> Exception:
    try:
        try:
            raise ValueError(f"first {key}")
        except ValueError as first:
            try:
                raise KeyError(key)
            except KeyError:
                raise RuntimeError("outer") from first
    except RuntimeError as error:
        return error


@dataclass(frozen=True)
class Frozen(Exception):
    """Cannot be changed in the usual way."""

    key: str


class Awkward(Exception):
    """Carries what cannot be compared, and what is inside itself."""

    def __init__(self, key: str) -> None:
        super().__init__(numpy.arange(3), key)
        self.table = {"a": numpy.arange(3), "key": key}
        self.loop: list[Any] = []
        self.loop.append(self.loop)

    def __str__(self) -> str:
        return f"{self.args} {self.table} {self.loop}"


FAILURES = {
    "frozen": Frozen,
    "awkward": Awkward,
    "text": lambda key: ValueError(f"no access with {key}"),
    "several arguments": lambda key: OSError(13, f"refused {key}", f"/tmp/{key}"),
    "nested arguments": lambda key: ValueError({"headers": [{"x": key}]}),
    "bytes": lambda key: ValueError(key.encode()),
    "key error": lambda key: KeyError(key),
    "own text": Mute,
    "note": noted,
    "chain": chained,
    "group": lambda key: ExceptionGroup("several", [ValueError(key), KeyError(key)]),
    "tool error": lambda key: ToolError(f"no access with {key}"),
    "model error": lambda key: ModelError("x", headers={"a": key}, body_text=key),
}
each_failure = pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)


@each_failure
@both_modes
async def test_a_tool_that_fails_with_a_key_shows_it_to_nobody(failure: Any, mode: Mode) -> None:
    @tool
    def look() -> str:
        """Look."""
        raise failure(KEY)

    client = ScriptedChatClient([tool_call("look"), "ok"])
    agent = Agent(client, tools=[look])
    session = agent.create_session()
    response = await ask(agent, "q", mode, session)
    told = client.requests[1].messages[-1].results[0].result
    events = [repr(event.payload) for event in run_log().get(response.run_id).named("tool.failed")]
    stored = json.dumps(session.to_dict())
    bundle = json.dumps(response._repr_mimebundle_())
    assert_hidden(told, *events, stored, bundle, repr(response), tool_calls_df().to_csv(), events_df().to_csv())


@each_failure
@both_modes
async def test_an_error_of_middleware_that_ends_the_run_shows_no_key(failure: Any, mode: Mode) -> None:
    async def around_run(context: RunContext, call_next: Any) -> None:
        raise failure(KEY)

    async def around_chat(context: ChatContext, call_next: Any) -> None:
        raise failure(KEY)

    for middleware in (around_run, around_chat):
        error = await fails(Agent(ScriptedChatClient(["x"]), middleware=[middleware]), "q", mode)
        assert isinstance(error, NBAgentsError)
        ended = repr(run_log().runs()[-1].named("run.ended")[0].payload)
        assert_hidden(str(error), repr(error), ended, runs_df().to_csv(), "".join(traceback.format_exception(error)))


@both_modes
async def test_what_a_tool_returns_is_masked_in_every_form(mode: Mode) -> None:
    class Settings(BaseModel):
        key: str

    forms = [
        f"The key is {ODD_KEY}.",
        {"key": ODD_KEY},
        Settings(key=ODD_KEY),
        f"https://x.org/?key={quote(ODD_KEY, safe='')}",
        repr(ODD_KEY),
        f"Authorization: Basic {base64.b64encode(ODD_KEY.encode()).decode()}",
    ]

    @tool
    def look(n: int) -> Any:
        """Look."""
        return forms[n]

    client = ScriptedChatClient([[tool_call("look", n=n) for n in range(len(forms))], "ok"])
    response = await ask(Agent(client, tools=[look]), "q", mode)
    results = [result.result for message in response.messages for result in message.results]
    assert len(results) == len(forms)
    assert_hidden(*results, *(quote(one) for one in results), key=ODD_KEY)


@both_modes
async def test_arguments_that_do_not_fit_are_not_quoted_with_a_key(mode: Mode) -> None:
    @tool
    def look(n: int) -> str:
        """Look."""
        return "x"

    client = ScriptedChatClient([tool_call("look", n=KEY), "ok"])
    response = await ask(Agent(client, tools=[look]), "q", mode)
    failed = run_log().get(response.run_id).named("tool.failed")[0].payload
    assert_hidden(response.messages[1].results[0].result, repr(failed), tool_calls_df().to_csv(), events_df().to_csv())


@pytest.mark.parametrize(
    "name", ["ACME_API_KEY", "OPENAI_KEY_2", "GH_TOKEN", "MY_SECRET", "DB_PASSWORD", "PGPASSWORD", "APP_CREDENTIALS"]
)
async def test_secrets_of_the_environment_are_not_shown_to_the_model(name, monkeypatch):
    value = f"{name[:2]}8k-orchid-47-umber-{len(name)}"
    monkeypatch.setenv(name, value)

    @tool
    def look(fail: bool) -> str:
        """Look."""
        if fail:
            raise RuntimeError(f"cannot log in with {value}")
        return f"PATH=/usr/bin\n{name}={value}"

    client = ScriptedChatClient([[tool_call("look", fail=False), tool_call("look", fail=True)], "ok"])
    response = await Agent(client, tools=[look]).run("q")
    assert_hidden(*(m.results[0].result for m in response.messages[1:3]), key=value)
    assert_hidden(str(ConfigurationError(f"x {value}")), tool_calls_df().to_csv(), key=value)


async def test_passwords_in_addresses_of_the_environment_are_not_shown(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://ada:Kd5-quince-83@db.example/x")
    assert mask_known("Kd5-quince-83") == "[redacted]"
    assert redact("password Kd5-quince-83 refused") == "password [redacted] refused"


def test_ordinary_variables_are_no_secrets(monkeypatch):
    ordinary = {
        "PWD": "/srv/ada/project",
        "TOKENIZERS_PARALLELISM": "disabled",
        "SSH_ASKPASS": "/usr/bin/ask-pass",
        "KEYBOARD_LAYOUT": "german-latin",
        "HOME_URL": "https://example.org/path",
        "SHORT_KEY": "abc",
    }
    for name, value in ordinary.items():
        monkeypatch.setenv(name, value)
        assert mask_known(f"x {value} y") == f"x {value} y"


@both_modes
async def test_headers_of_a_run_that_a_server_gives_back_are_hidden(raw_server: RawServer, mode: Mode) -> None:
    sent = "Hc7-damson-29-ochre-0815"
    raw_server.reply_json({"error": {"message": f"no such token {sent}"}}, status=400, headers={"x-echo": sent})
    seen: list[Any] = []

    async def watch(context: ChatContext, call_next: Any) -> None:
        seen.append(repr(context))
        await call_next()

    agent = agent_on(raw_server, agent={"middleware": [watch]})
    headers = {"extra_headers": {"X-Token": sent, "Authorization": f"Bearer {sent}"}}
    error = await fails(agent, "q", mode, client_kwargs=headers)
    assert raw_server.headers[0]["x-token"] == sent
    shown = "".join(traceback.format_exception(error))
    assert_hidden(str(error), repr(vars(error)), shown, *seen, runs_df().to_csv(), events_df().to_csv(), key=sent)
    assert_hidden(repr(ChatRequest([], client_kwargs=headers)), repr(agent), key=sent)


@both_modes
async def test_a_key_in_the_query_of_base_url_is_hidden(raw_server: RawServer, mode: Mode) -> None:
    key = "Tq2-medlar-64-sepia-0333"
    raw_server.reply_json({"error": {"message": f"bad url ...?code={key}"}}, status=400)
    agent = agent_on(raw_server, base_url=f"{raw_server.base_url}?code={key}")
    error = await fails(agent, "q", mode)
    assert_hidden("".join(traceback.format_exception(error)), repr(agent), str(error), events_df().to_csv(), key=key)
    with pytest.raises(ConfigurationError) as caught:
        client_of(raw_server, base_url=f"ftp://ada:{key}@host/?code={key}")
    assert_hidden(str(caught.value), key=key)


@both_modes
async def test_own_loggers_and_warnings_say_no_key(raw_server: RawServer, mode: Mode, caplog: Any) -> None:
    raw_server.reply_json({"error": {"message": f"bad key {KEY}"}}, status=500)
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        await fails(agent_on(raw_server, api_key=KEY), "q", mode)
    own = [record.getMessage() for record in caplog.records if record.name.startswith("nbagents")]
    assert KEY not in "".join(own) + "".join(str(one.message) for one in warned)


@both_modes
async def test_what_a_model_says_is_kept_in_the_session_and_masked_in_tables(mode: Mode) -> None:
    """The rule stops here: the words of a conversation are content, also a key that comes in two pieces."""
    agent = Agent(ScriptedChatClient([["It is ", KEY[:15], KEY[15:], "."]]))
    session = agent.create_session()
    response = await ask(agent, f"My key is {KEY}", mode, session)
    assert response.text == f"It is {KEY}."
    assert KEY in json.dumps(session.to_dict())
    assert_hidden(*(frame.to_csv() for frame in (runs_df(), messages_df(), events_df())))


async def test_a_context_shows_neither_arguments_nor_headers():
    seen: list[str] = []

    @tool
    def look(context: ToolContext) -> str:
        """Look."""
        seen.append(repr(context))
        return "x"

    async def watch(context: ChatContext, call_next: Any) -> None:
        seen.extend([repr(context), str(context)])
        await call_next()

    agent = Agent(ScriptedChatClient([tool_call("look"), "ok"]), tools=[look], middleware=[watch])
    private = "Zr3-sloe-18-indigo-0222"
    await agent.run("q", arguments={"k": private}, client_kwargs={"extra_headers": {"k": private}})
    assert len(seen) == 5
    assert_hidden(*seen, key=private)


MASKED = [
    "Authorization: Bearer abcdefghijklmnop",
    "authorization: Basic dXNlcjpodW50ZXIy",
    '{"api_key": "abcd-efgh"}',
    "x-api-key: abcdefgh",
    "password=hunter22",
    "passwd: hunter22",
    "client_secret='abcdefgh'",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_11ABCDEFG0123456789_abcdefghij",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-abcdefghijkl",
    "glpat-abcdefghij0123456789",
    "sk-proj-abcdefghijklmnop",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcDEF123456",
    "access_token=abcd1234abcd1234",
    "session token: 0123456789abcdef0123",
    "redis://:hunter22@host:6379",
    "postgresql://ada:hun@ter22@host/db",
    "https://ada:hunter22@host",
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQ\n-----END PRIVATE KEY-----",
]
SECRET_PARTS = [
    "abcdefgh",
    "hunter",
    "dXNlcj",
    "efgh",
    "ter22",
    "16C7e42F",
    "IOSFODNN7",
    "0123456789",
    "MIIE",
    "abcDEF",
]
KEPT = [
    "The first token: hello",
    "Ask for the password at the desk.",
    "See https://medium.com/@ada/a-story and ada@example.org",
    "git+ssh://git@github.com/x/y",
    "A basic idea: bearer of news",
    "key-value pairs, sk-learn, task-oriented",
    "12 tokens: 10 in, 2 out",
    "http://localhost:8000/v1 answers ada@host",
]


@pytest.mark.parametrize("text", MASKED)
def test_what_looks_like_a_key_is_masked(text):
    for form in (text, f"Error ({text})", json.dumps({"x": text})):
        shown = redact(form)
        assert "[redacted]" in shown
        assert [part for part in SECRET_PARTS if part in shown] == []


@pytest.mark.parametrize("text", KEPT)
def test_ordinary_words_stay(text):
    assert redact(text) == text


def test_many_repetitions_are_masked_in_good_time():
    for unit in ("://a", "://a:", "a@", "bearer ", "token:", "sk-", "password=", "eyJ.", "-----BEGIN KEY-----\n"):
        assert redact(unit * 20_000)


def test_an_exception_is_masked_in_place_with_all_that_it_carries():
    error = chained(KEY)
    error.add_note(f"with {KEY}")
    assert redact_exception(error) is error
    assert_hidden("".join(traceback.format_exception(error)))
    looping = ValueError(KEY)
    looping.__context__ = looping
    redact_exception(looping)


def test_bytes_and_short_values_can_be_registered():
    register_secret(b"Bq6-bullace-92-rust-0444")
    assert "bullace" not in repr({"k": mask_known("Bq6-bullace-92-rust-0444")})
    register_secret("abc")
    register_secret(None)
    assert mask_known("abc") == "abc"
