"""What is tried again, how long is waited before, and what is not."""

from __future__ import annotations

import pytest

from nbagents import run_log
from tests.clients.asking import Mode, agent_on, ask, both_modes, fails
from tests.support.chunks import delta, error_body
from tests.support.raw_server import RawServer


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
