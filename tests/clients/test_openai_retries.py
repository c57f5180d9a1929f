"""What is tried again, how long is waited before, and what is not."""

from __future__ import annotations

import pickle

import pytest

from nbagents import Agent, OpenAIChatClient, requests_df, run_log, tool
from nbagents.core import retries
from nbagents.core.errors import ConnectionFailedError, ModelError, RateLimitError
from tests.clients.asking import Mode, agent_on, ask, both_modes, client_of, fails
from tests.support.chunks import call, delta, error_body, finish, usage
from tests.support.raw_server import RawServer


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_FIRST_BACKOFF_SECONDS", 0.001)


async def test_nothing_shown_yet_is_tried_again_and_both_attempts_are_recorded(raw_server: RawServer) -> None:
    """C92"""
    raw_server.reply(delta("", role="assistant"), end="reset").reply_text("Hello")
    response = await ask(agent_on(raw_server, max_retries=1), "Hi", "streamed")
    assert response.text == "Hello"
    names = [event.name for event in run_log().get(response.run_id).events]
    assert [name for name in names if name.startswith("llm.")] == [
        "llm.requested",
        "llm.failed",
        "llm.retried",
        "llm.requested",
        "llm.succeeded",
    ]


@both_modes
async def test_a_server_error_is_tried_again_a_bad_request_never(raw_server: RawServer, mode: Mode) -> None:
    """C55: a 400 is not sent again."""
    raw_server.reply_json(error_body("Boom"), 500, headers={"retry-after": "0"})
    raw_server.reply_json(error_body("Slow"), 429, headers={"retry-after": "0"})
    raw_server.reply_text("Hello")
    agent = agent_on(raw_server, max_retries=2)
    assert (await ask(agent, "Hi", mode)).text == "Hello"
    assert len(raw_server.requests) == 3
    bad = RawServer()
    try:
        bad.reply_json(error_body("no"), 400)
        await fails(agent_on(bad, max_retries=2), "Hi", mode)
        assert len(bad.requests) == 1
    finally:
        bad.close()


@pytest.mark.parametrize(
    ("headers", "shortest", "longest"),
    [
        ({"retry-after-ms": "30"}, 0.03, 0.0375),
        ({"retry-after-ms": "30", "retry-after": "1"}, 0.03, 0.0375),
        ({"retry-after": "0.02"}, 0.02, 0.025),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0, 0),
        ({"retry-after": "soon"}, 0.3, 0.6),
        ({}, 0.3, 0.6),
    ],
)
async def test_the_wait_is_what_the_server_asks_for(
    raw_server: RawServer, headers: dict[str, str], shortest: float, longest: float
) -> None:
    raw_server.reply_json(error_body("Slow"), 429, headers=headers).reply_text("Hello")
    response = await ask(agent_on(raw_server, max_retries=1), "Hi", "plain")
    (retried,) = (event for event in run_log().get(response.run_id).events if event.name == "llm.retried")
    assert shortest <= retried.payload["wait_s"] <= longest


@both_modes
async def test_retries_are_ours_alone(raw_server: RawServer, mode: Mode) -> None:
    """The openai client would try again by itself, unseen."""
    raw_server.reply_json(error_body("Boom"), 500)
    await fails(agent_on(raw_server, max_retries=0), "Hi", mode)
    assert len(raw_server.requests) == 1


@both_modes
@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_faults_on_the_way_are_tried_again(raw_server: RawServer, soon: None, mode: Mode, status: int) -> None:
    raw_server.reply_json(error_body("Not now"), status).reply_text("Hello")
    assert (await ask(agent_on(raw_server, max_retries=1), "Hi", mode)).text == "Hello"


@both_modes
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_what_cannot_help_is_not_sent_again(raw_server: RawServer, mode: Mode, status: int) -> None:
    raw_server.reply_json(error_body("No"), status).reply_text("Hello")
    await fails(agent_on(raw_server, max_retries=1), "Hi", mode)
    assert len(raw_server.requests) == 1


@both_modes
async def test_the_server_may_say_itself_whether_to_come_again(raw_server: RawServer, soon: None, mode: Mode) -> None:
    raw_server.reply_json(error_body("Once more"), 400, headers={"x-should-retry": "true"}).reply_text("Hello")
    raw_server.reply_json(error_body("No more"), 503, headers={"x-should-retry": "false"})
    agent = agent_on(raw_server, max_retries=1)
    assert (await ask(agent, "Hi", mode)).text == "Hello"
    await fails(agent, "Hi", mode)
    assert len(raw_server.requests) == 3


@both_modes
async def test_no_connection_is_tried_again(unused_port: int, soon: None, mode: Mode) -> None:
    client = OpenAIChatClient("m", base_url=f"http://127.0.0.1:{unused_port}/v1", max_retries=2)
    error = await fails(Agent(client), "Hi", mode)
    assert isinstance(error, ConnectionFailedError)
    assert error.attempts == 3
    assert "Tried 3 times." in str(error)


@both_modes
async def test_the_last_error_has_status_headers_and_body_of_its_reply(
    raw_server: RawServer, soon: None, mode: Mode
) -> None:
    for number in range(2):
        raw_server.reply_json(error_body(f"Slow {number}"), 429, headers={"x-request-id": f"r{number}"})
    error = await fails(agent_on(raw_server, max_retries=1), "Hi", mode)
    assert isinstance(error, RateLimitError)
    assert (error.status, error.headers["x-request-id"], error.attempts) == (429, "r1", 2)
    assert "Slow 1" in (error.body_text or "")


@pytest.mark.parametrize("with_call", [False, True], ids=["text", "text and call"])
async def test_a_stream_that_broke_begins_again_where_that_is_asked_for(
    raw_server: RawServer, soon: None, with_call: bool
) -> None:
    """C92: with and without a call that was whole already."""
    ran: list[int] = []

    @tool
    def double(n: int) -> int:
        """Double."""
        ran.append(n)
        return 2 * n

    entry = call(0, "c1", "double", '{"n": 2}')
    raw_server.reply(delta("Hel"), *([entry] if with_call else []), usage(9, 1), end="reset")
    if with_call:
        raw_server.reply(delta("Hello"), entry, finish("tool_calls"), usage(10, 2))
    raw_server.reply(delta("Hel"), delta("lo"), finish("stop"), usage(10, 2))
    agent = agent_on(raw_server, [double], max_retries=1, retry_streams=True)
    shown: dict[str | None, str] = {}
    stream = agent.run("Hi", stream=True)
    async for update in stream:
        for message_id in update.retracts:
            shown.pop(message_id)
        if update.text:
            shown[update.message_id] = shown.get(update.message_id, "") + update.text
    response = await stream.get_final_response()
    assert list(shown.values()) == ["Hello"] * (1 + with_call)
    assert response.messages[-1].text == "Hello"
    assert ran == [2] * with_call
    table = requests_df(run_id=response.run_id)
    assert list(table["attempt"]) == [1, 2] + [1] * with_call
    assert list(table["input_tokens"]) == [9, 10] + [10] * with_call
    assert response.usage is not None
    assert response.usage.input_tokens == sum(table["input_tokens"])


async def test_a_bare_client_tries_again_by_the_same_rules(raw_server: RawServer, soon: None) -> None:
    raw_server.reply_json(error_body("Boom"), 500).reply_text("Hello")
    raw_server.reply(delta("Hel"), end="reset").reply_text("Hello")
    client = client_of(raw_server, max_retries=1)
    assert (await client.get_response("Hi")).text == "Hello"
    with pytest.raises(ModelError) as caught:
        await client.get_response("Hi", stream=True).get_final_response()
    assert caught.value.partial_text == "Hel"
    assert len(raw_server.requests) == 3


async def test_a_bare_stream_that_was_cut_is_an_error(raw_server: RawServer) -> None:
    raw_server.reply(delta("Hel"), done=False)
    with pytest.raises(ModelError, match="before the model said that it had finished"):
        await client_of(raw_server).get_response("Hi", stream=True).get_final_response()


def test_a_pickled_client_still_retries_streams() -> None:
    client = OpenAIChatClient("m", api_key="k", base_url="http://localhost:1/v1", retry_streams=True, max_retries=7)
    again = pickle.loads(pickle.dumps(client))
    assert (again.retry_streams, again.max_retries) == (True, 7)
