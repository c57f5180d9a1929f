"""Both ways of asking, streamed and plain, and what a reply is said to have cost."""

from __future__ import annotations

import threading

import pytest

from nbagents import Usage
from tests.clients.asking import Mode, agent_on, ask, both_modes, client_of
from tests.support.chunks import delta, finish, message, usage
from tests.support.raw_server import RawServer


@pytest.fixture
def server(raw_server: RawServer) -> RawServer:
    raw_server.strict = True
    return raw_server


@pytest.mark.parametrize("server_ids", ["same", "new for each chunk"])
async def test_usage_on_several_chunks_is_a_running_total(server: RawServer, server_ids: str) -> None:
    """C85"""
    reports = [(10, 1), (10, 5), (10, 9)]
    chunks = [{**delta("x"), "usage": usage(*counts)["usage"]} for counts in reports]
    chunks = [*chunks, finish("stop"), usage(10, 9)]
    if server_ids != "same":
        chunks = [{**chunk, "id": f"chunk-{place}"} for place, chunk in enumerate(chunks)]
    server.reply(*chunks)
    agent = agent_on(server)
    session = agent.create_session()
    for _ in range(2):
        assert (await ask(agent, "Hi", "streamed", session)).usage == Usage(10, 9, 19)


@pytest.mark.parametrize(("last", "total"), [(0, Usage(0, 9, 9)), (None, Usage(10, 9, 19))], ids=["zero", "null"])
async def test_a_reported_zero_counts_and_null_does_not(server: RawServer, last: int | None, total: Usage) -> None:
    """C85"""
    closing = {"choices": [], "usage": {"prompt_tokens": last, "completion_tokens": 9}}
    if last is not None:
        closing["usage"]["total_tokens"] = 9
    server.reply({**delta("x"), "usage": usage(10, 9)["usage"]}, {**finish("stop"), "usage": None}, closing)
    assert (await ask(agent_on(server), "Hi", "streamed")).usage == total


@both_modes
async def test_cached_and_reasoning_tokens_are_told(server: RawServer, mode: Mode) -> None:
    details = {
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": None},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    whole = message("Hi")
    whole["usage"] |= details
    if mode == "streamed":
        server.reply(delta("Hi"), finish("stop"), usage(10, 5, **details))
    else:
        server.reply_json(whole)
    usage_seen = (await ask(agent_on(server), "Hi", mode)).usage
    assert usage_seen == Usage(10, 5, 15, cached_input_tokens=4, reasoning_tokens=2)


@both_modes
async def test_details_that_are_null_or_missing_leave_the_counts_unknown(server: RawServer, mode: Mode) -> None:
    counts = {"prompt_tokens": 10, "completion_tokens": None, "prompt_tokens_details": None, "total_tokens": "x"}
    if mode == "streamed":
        server.reply(delta("Hi"), finish("stop"), {"choices": [], "usage": counts})
    else:
        server.reply_json({**message("Hi"), "usage": counts})
    assert (await ask(agent_on(server), "Hi", mode)).usage == Usage(input_tokens=10)


async def test_a_server_that_cannot_stream_may_answer_plainly(server: RawServer) -> None:
    server.reply_json(message("Hello"))
    response = await ask(agent_on(server), "Hi", "streamed")
    assert (response.text, response.usage) == ("Hello", Usage(10, 5, 15))
    assert server.requests[0]["stream"] is True


@pytest.mark.parametrize("forced", [True, False])
@both_modes
async def test_streaming_can_be_forced_for_a_server_that_does_one_of_the_two(
    server: RawServer, mode: Mode, forced: bool
) -> None:
    server.reply_text("Hello you")
    assert (await ask(agent_on(server, streaming=forced), "Hi", mode)).text == "Hello you"
    assert server.requests[0].get("stream", False) is forced


async def test_a_server_that_does_not_know_stream_options_is_asked_without(server: RawServer) -> None:
    server.strict = False
    server.reply_json({"error": {"message": "Unrecognized request argument supplied: stream_options"}}, 400)
    server.reply_text("Hello").reply_text("Again")
    agent = agent_on(server)
    assert (await ask(agent, "Hi", "streamed")).text == "Hello"
    assert (await ask(agent, "Hi", "streamed")).text == "Again"
    assert ["stream_options" in request for request in server.requests] == [True, False, False]


async def test_pieces_arrive_before_the_next_one_is_made(server: RawServer) -> None:
    go = threading.Event()
    server.reply(delta("one "), go, delta("two"), finish("stop"))
    seen = []
    async for update in agent_on(server).run("Hi", stream=True):
        if update.text:
            seen.append(update.text)
            go.set()
    assert seen == ["one ", "two"]


@both_modes
async def test_the_client_alone_answers_messages(server: RawServer, mode: Mode) -> None:
    server.reply_text("Hello you")
    client = client_of(server)
    if mode == "plain":
        response = await client.get_response("Hi", options={"temperature": 0})
    else:
        stream = client.get_response("Hi", stream=True, options={"temperature": 0})
        assert [update.text async for update in stream if update.text] == ["Hello ", "you"]
        response = await stream.get_final_response()
    assert (response.text, response.model, response.finish_reason) == ("Hello you", "test-model", "stop")
    assert response.response_id == "chatcmpl-1"
    assert server.requests[0]["temperature"] == 0
