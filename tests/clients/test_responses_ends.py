"""How a response ends: whole, cut, failed, cancelled, or as no response at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nbagents import (
    OpenAIResponsesClient,
    Usage,
)
from nbagents.core.errors import (
    IncompleteStreamError,
    InvalidReplyError,
    ModelError,
)
from tests.clients.asking import Mode, both_modes
from tests.clients.responding import either, reply
from tests.support import responses_events as wire
from tests.support.raw_server import RawServer
from tests.support.responses_events import called, event, response, said


@both_modes
@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"reason": "max_output_tokens"}, "length"),
        ({"reason": "content_filter"}, "content_filter"),
        ({"reason": None}, "length"),
        (None, "length"),
        ({"reason": "max_tool_calls"}, "max_tool_calls"),
    ],
)
async def test_an_incomplete_response_says_why(raw_server: RawServer, mode: Mode, details: Any, reason: str) -> None:
    answer = await either(raw_server, mode, said("Once upon"), status="incomplete", incomplete_details=details)
    assert (answer.text, answer.finish_reason) == ("Once upon", reason)


async def test_the_status_of_the_response_counts_and_not_the_name_of_the_event(raw_server: RawServer) -> None:
    whole = response(said("Once"), status="incomplete")
    answer = await reply(raw_server, *wire.opening(), event("response.completed", response=whole))
    assert answer.finish_reason == "length"


FAILURES: list[tuple[dict[str, Any], str, int, bool]] = [
    ({"code": "server_error", "message": "It broke."}, "It broke.", 500, True),
    ({"code": "rate_limit_exceeded", "message": "Slow down."}, "Slow down.", 429, True),
    ({"code": "invalid_prompt", "message": "Not that."}, "Not that.", 400, False),
    ({"code": "image_too_large", "message": "Too large."}, "Too large.", 400, False),
]


@both_modes
@pytest.mark.parametrize(("error", "says", "status", "retryable"), FAILURES)
async def test_a_failed_response_is_an_error_that_has_its_usage(
    raw_server: RawServer, mode: Mode, error: dict[str, Any], says: str, status: int, retryable: bool
) -> None:
    whole = response(status="failed", error=error)
    events = [whole] if mode == "plain" else [*wire.opening(), wire.ending(whole)]
    agent = OpenAIResponsesClient("test-model", base_url=raw_server.base_url, max_retries=0).as_agent()
    if mode == "plain":
        raw_server.reply_json(*events)
    else:
        raw_server.reply(*events, done=False)
    with pytest.raises(ModelError, match=says) as raised:
        await (agent.run("Hi", stream=True).get_final_response() if mode == "streamed" else agent.run("Hi"))
    assert (raised.value.status, raised.value.retryable) == (status, retryable)
    assert raised.value.response is not None
    assert raised.value.response.usage == Usage(10, 5, 15)


@both_modes
@pytest.mark.parametrize(
    ("status", "says"), [("cancelled", "cancelled at the service"), ("queued", "'queued'"), ("in_progress", "'in_pr")]
)
async def test_a_response_that_was_cancelled_or_goes_on_elsewhere_is_no_reply(
    raw_server: RawServer, mode: Mode, status: str, says: str
) -> None:
    whole = response(status=status, usage=None)
    events = [whole] if mode == "plain" else [*wire.opening(), event("response.cancelled", response=whole)]
    with pytest.raises(ModelError, match=says) as raised:
        await reply(raw_server, *events, mode=mode)
    assert not raised.value.retryable


ERRORS: dict[str, wire.Event] = {
    "flat": event("error", code="server_error", message="It broke.", param=None, sequence_number=3),
    "nested": event("error", error={"code": "server_error", "message": "It broke.", "type": "server_error"}),
    "without a name": b'data: {"type":"error","code":"server_error","message":"It broke."}\n\n',
    "bare": b'data: {"error":{"message":"It broke."}}\n\n',
}


@pytest.mark.parametrize("form", ERRORS)
async def test_an_error_event_is_raised_with_the_text_so_far(raw_server: RawServer, form: str) -> None:
    begun = [*wire.opening(), *wire.item_events(0, said("Hello you"))[:3]]
    agent = OpenAIResponsesClient("m", base_url=raw_server.base_url, max_retries=0).as_agent()
    raw_server.reply(*begun, ERRORS[form], done=False)
    with pytest.raises(ModelError, match="It broke") as raised:
        await agent.run("Hi", stream=True).get_final_response()
    assert raised.value.partial_text == "Hello "


@pytest.mark.parametrize("done", [False, True])
async def test_a_stream_without_its_last_event_is_an_error_and_runs_no_tool(raw_server: RawServer, done: bool) -> None:
    """C38: also where a [DONE] follows, and the call happens to be complete."""
    ran = []

    def add(a: int) -> int:
        """Add."""
        ran.append(a)
        return a

    raw_server.reply(*wire.stream(response(said("Hello", id="m1"), called("c1", "add", {"a": 1})))[:-1], done=done)
    agent = OpenAIResponsesClient("m", base_url=raw_server.base_url, max_retries=0).as_agent(tools=[add])
    with pytest.raises(IncompleteStreamError) as raised:
        await agent.run("Hi", stream=True).get_final_response()
    assert (raised.value.partial_text, ran) == ("Hello", [])


async def test_the_last_event_ends_a_stream_that_the_server_leaves_open(raw_server: RawServer) -> None:
    answer = await reply(raw_server, *wire.stream(response(said("Hello"))), end="stall")
    assert answer.text == "Hello"


INVALID: list[tuple[str, str, str]] = [
    ("a page", "<html><title>Sign in</title></html>", "Sign in"),
    ("nothing", "", "nothing|empty|no JSON"),
    ("a chat completion", json.dumps({"object": "chat.completion", "choices": [{"message": {}}]}), "without an output"),
    ("a list", "[1]", "without an output"),
    ("items that are none", json.dumps({"output": ["x"]}), "none of the Responses API"),
    ("an item without a type", json.dumps({"output": [{"id": "x"}]}), "none of the Responses API"),
]


@both_modes
@pytest.mark.parametrize(("name", "body", "says"), INVALID, ids=[case[0] for case in INVALID])
async def test_what_is_no_response_is_no_reply(
    raw_server: RawServer, mode: Mode, name: str, body: str, says: str
) -> None:
    raw_server.reply_raw(body, content_type="application/json")
    client = OpenAIResponsesClient("m", base_url=raw_server.base_url, max_retries=0)
    with pytest.raises(InvalidReplyError, match=says):
        await (
            client.get_response("Hi")
            if mode == "plain"
            else client.get_response("Hi", stream=True).get_final_response()
        )


MALFORMED: list[wire.Event] = [
    b"data: {broken\n\n",
    event("response.output_text.delta", item_id="m1", output_index=0, content_index=0),
    event("response.output_text.delta", item_id="m1", output_index=0, content_index=0, delta=[1]),
    event("response.output_item.added", output_index=0, item="x"),
    event("response.completed", response=None),
    event("response.completed", response={"status": "completed", "output": {"a": 1}}),
]


@pytest.mark.parametrize("malformed", MALFORMED, ids=range(len(MALFORMED)))
async def test_a_malformed_event_is_an_error_of_our_tree(raw_server: RawServer, malformed: wire.Event) -> None:
    with pytest.raises(InvalidReplyError):
        await reply(raw_server, *wire.opening(), malformed, wire.ending(response()))


@pytest.mark.parametrize("error", [{"error": {"message": "It broke."}}, {"detail": "It broke."}])
@both_modes
async def test_an_error_with_status_200_is_raised(raw_server: RawServer, mode: Mode, error: Any) -> None:
    raw_server.reply_json(error)
    client = OpenAIResponsesClient("m", base_url=raw_server.base_url, max_retries=0)
    with pytest.raises(ModelError, match="It broke"):
        await (
            client.get_response("Hi")
            if mode == "plain"
            else client.get_response("Hi", stream=True).get_final_response()
        )


async def test_a_server_that_cannot_stream_may_answer_whole(raw_server: RawServer) -> None:
    raw_server.reply_json(response(said("One.", id="m1"), said("Two.", id="m2")))
    client = OpenAIResponsesClient("m", base_url=raw_server.base_url, max_retries=0)
    assert (await client.get_response("Hi", stream=True).get_final_response()).text == "One.\nTwo."


@pytest.mark.parametrize("form", ["data: %s\n\n", "%s\n"])
async def test_a_whole_response_in_a_stream_is_the_reply(raw_server: RawServer, form: str) -> None:
    whole = response(said("One.", id="m1"), called("c1", "add", {"a": 1}))
    answer = await reply(raw_server, form % json.dumps(whole))
    assert (answer.text, answer.finish_reason, answer.usage) == ("One.", "tool_calls", Usage(10, 5, 15))


async def test_a_server_that_can_only_stream_is_named(raw_server: RawServer) -> None:
    raw_server.reply(*wire.stream(response(said("Hello"))), done=False)
    client = OpenAIResponsesClient("m", base_url=raw_server.base_url, max_retries=0)
    with pytest.raises(InvalidReplyError, match="streaming=True"):
        await client.get_response("Hi")
    forced = OpenAIResponsesClient("m", base_url=raw_server.base_url, max_retries=0, streaming=True)
    assert (await forced.get_response("Hi")).text == "Hello"
