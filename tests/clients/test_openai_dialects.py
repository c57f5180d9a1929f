"""The ways in which servers that call themselves compatible differ: each is read, or is one clear error."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from nbagents import Usage, tool
from nbagents.core.errors import (
    BadRequestError,
    ConnectionFailedError,
    IncompleteStreamError,
    InvalidReplyError,
    ModelError,
    RateLimitError,
    ServerError,
)
from tests.clients.asking import Mode, agent_on, ask, both_modes, fails, goes_on
from tests.support.chunks import DONE, call, delta, finish, message, sse, usage
from tests.support.raw_server import RawServer

TEXT = "Hello 鳥"
HTML = "<!doctype html><html><head><title>Busy</title></head></html>"
HELLO: list[Any] = [delta("Hel"), delta("lo 鳥"), finish("stop")]
BODY = b"".join(sse({"id": "x", **chunk}) for chunk in HELLO) + DONE.encode()


def choice(finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"finish_reason": finish_reason, **fields}]}


TEXTS: dict[str, list[Any]] = {
    "a byte order mark": [b"\xef\xbb\xbf" + BODY],
    "no [DONE]": HELLO,
    "more after [DONE]": [*HELLO, DONE, delta("XX"), "data: garbage\n\n"],
    "another word for [DONE]": [*HELLO, "data: [done]\n\n"],
    "an event without data": ["data:\n\n", *HELLO],
    "null events": ["data: null\n\n", *HELLO],
    "JSON lines": [json.dumps(chunk) + "\n" for chunk in HELLO],
    "the role each time": [delta("Hel", role="assistant"), delta("lo 鳥", role="assistant"), finish()],
    "another spelling of the role": [delta("Hel", role="Assistant"), delta("lo 鳥", role=None), finish()],
    "null content": [delta(None), delta(TEXT), delta(None), finish()],
    "a list for a delta": [choice(delta=[]), delta(TEXT), finish()],
    "no index": [choice(delta={"content": TEXT}), choice("stop", delta={})],
    "a message for a delta": [choice("stop", message={"role": "assistant", "content": TEXT})],
    "the whole message again": [delta(TEXT), choice("stop", message={"role": "assistant", "content": TEXT})],
    "a text for a delta": [choice(text="Hel"), choice(text="lo 鳥"), finish()],
    "a reason that is empty": [choice("", delta={"content": "Hel"}), delta("lo 鳥"), finish()],
    "a reason that is the word null": [choice("null", delta={"content": TEXT}), finish()],
    "the reason too early": [choice("stop", delta={"content": "Hel"}), delta("lo 鳥")],
    "no reason but [DONE]": [delta("Hel"), delta("lo 鳥"), usage(), DONE],
    "the reason in capitals": [delta(TEXT), finish("STOP")],
    "an error that is none": [{**delta("Hel"), "error": None}, {**delta("lo 鳥"), "error": {}}, finish()],
    "parts": [delta([{"type": "text", "text": "Hel"}]), delta([{"type": "output_text", "text": "lo 鳥"}]), finish()],
    "parts that are text": [delta(["Hel", "lo 鳥"]), finish()],
    "one part alone": [delta({"type": "text", "text": TEXT}), finish()],
    "parts without text": [delta([{"type": "text", "text": 5}, None, {}]), delta(TEXT), finish()],
    "events of other kinds": ['event: ping\ndata: {"type": "ping"}\n\n', *HELLO],
}


@pytest.mark.parametrize("chunks", TEXTS.values(), ids=TEXTS)
async def test_a_text_is_whole_in_every_dialect(raw_server: RawServer, chunks: list[Any]) -> None:
    response = await ask(agent_on(raw_server.reply(*chunks, done=False)), "Hi", "streamed")
    assert (response.text, response.finish_reason, response.stop_reason) == (TEXT, "stop", "completed")
    assert [content.type for content in response.messages[0].contents] == ["text"]


@pytest.mark.parametrize("split", [None, 1, 7])
async def test_a_compressed_stream_is_read(raw_server: RawServer, split: int | None) -> None:
    raw_server.reply(gzip.compress(BODY), headers={"content-encoding": "gzip"}, split=split, done=False)
    assert (await ask(agent_on(raw_server), "Hi", "streamed")).text == TEXT


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/octet-stream"])
async def test_a_stream_is_one_whatever_it_is_called(raw_server: RawServer, content_type: str) -> None:
    raw_server.reply_raw(BODY, content_type=content_type)
    assert (await ask(agent_on(raw_server), "Hi", "streamed")).text == TEXT


@both_modes
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json"])
async def test_a_plain_reply_is_one_whatever_it_is_called(
    raw_server: RawServer, mode: Mode, content_type: str, indent: int | None
) -> None:
    body = "\ufeff" + json.dumps(message(TEXT), indent=indent)
    response = await ask(agent_on(raw_server.reply_raw(body, content_type=content_type)), "Hi", mode)
    assert (response.text, response.usage) == (TEXT, Usage(10, 5, 15))


async def test_many_small_pieces_and_one_long_one_are_whole(raw_server: RawServer) -> None:
    raw_server.reply(b"".join(sse({"id": "x", **delta("x")}) for _ in range(10_000)), ": ping\n\n" * 50, finish())
    raw_server.reply(delta("y" * 3_000_000), finish())
    agent = agent_on(raw_server)
    assert (await ask(agent, "Hi", "streamed")).text == "x" * 10_000
    assert (await ask(agent, "Hi", "streamed")).text == "y" * 3_000_000


async def test_separators_that_are_no_ends_of_lines_stay_in_the_text(raw_server: RawServer) -> None:
    """U+2028, U+2029 and U+0085 end a line for some readers, not for this format."""
    text = "a\u2028b\u2029c\x85d\x0be\0f"
    raw_server.reply(sse({"id": "x", **delta(text)}), finish())
    assert (await ask(agent_on(raw_server), "Hi", "streamed")).text == text


@pytest.mark.parametrize("choices", [[], None, "absent"])
async def test_usage_comes_in_a_chunk_of_its_own(raw_server: RawServer, choices: Any) -> None:
    closing = {"usage": usage(10, 5)["usage"]} | ({} if choices == "absent" else {"choices": choices})
    raw_server.reply(*HELLO, sse(closing))
    assert (await ask(agent_on(raw_server), "Hi", "streamed")).usage == Usage(10, 5, 15)


@both_modes
@pytest.mark.parametrize("name", ["reasoning", "reasoning_content", "reasoning_text", "thinking"])
async def test_thoughts_are_reasoning_under_every_name(raw_server: RawServer, mode: Mode, name: str) -> None:
    if mode == "streamed":
        raw_server.reply(delta(None, **{name: "hm "}), delta("", **{name: "so"}), delta("Four"), finish())
    else:
        raw_server.reply_json(message("Four", **{name: "hm so"}))
    response = await ask(agent_on(raw_server), "2+2?", mode)
    assert [(c.type, c.text) for c in response.messages[0].contents] == [("reasoning", "hm so"), ("text", "Four")]


@both_modes
@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("length", "length"),
        ("MAX_TOKENS", "length"),
        ("model_length", "length"),
        ("end_turn", "stop"),
        ("content_filter", "content_filter"),
        ("recitation", "recitation"),
    ],
)
async def test_other_words_for_the_end_are_understood(
    raw_server: RawServer, mode: Mode, word: str, meaning: str
) -> None:
    raw_server.reply_text("Hello", finish_reason=word)
    assert (await ask(agent_on(raw_server), "Hi", mode)).finish_reason == meaning


IN_STREAM: dict[str, tuple[Any, type[ModelError]]] = {
    "an object": ({"error": {"message": "Overloaded"}}, ServerError),
    "a text": ({"error": "Overloaded"}, ServerError),
    "a list": ({"error": ["Overloaded"]}, ServerError),
    "a code that is text": ({"error": {"message": "Overloaded", "code": "429"}}, RateLimitError),
    "an event": ('event: error\ndata: {"message": "Overloaded"}\n\n', ServerError),
    "an event with text": ("event: error\ndata: Overloaded\n\n", ServerError),
    "a typed object": (sse({"type": "error", "error": {"message": "Overloaded"}}), ServerError),
    "an error for an object": (sse({"object": "error", "message": "Overloaded", "code": 400}), BadRequestError),
    "a detail": (sse({"detail": "Overloaded"}), ServerError),
    "in the choice": (choice("error", delta={}, error={"message": "Overloaded", "code": 502}), ServerError),
    "beside the choice": ({"error": {"message": "Overloaded"}, **choice("error", delta={"content": ""})}, ServerError),
}


@pytest.mark.parametrize(("sent", "kind"), IN_STREAM.values(), ids=IN_STREAM)
async def test_an_error_in_a_stream_is_raised_in_every_form(
    raw_server: RawServer, sent: Any, kind: type[ModelError]
) -> None:
    raw_server.reply(delta("Hel"), sent, end="stall").reply_text("Still here")
    agent = agent_on(raw_server)
    session = agent.create_session()
    error = await fails(agent, "Hi", "streamed", session)
    assert type(error) is kind
    assert "Overloaded" in error.message
    assert error.partial_text == "Hel"
    await goes_on(agent, raw_server, "streamed", session)


@both_modes
async def test_a_reply_that_ends_with_an_error_is_none(raw_server: RawServer, mode: Mode) -> None:
    raw_server.reply_text("Hel", finish_reason="error")
    error = await fails(agent_on(raw_server), "Hi", mode)
    assert type(error) is ServerError
    assert "ended its reply with an error" in error.message


ODD_ANSWERS: dict[str, tuple[dict[str, Any], type[ModelError], str]] = {
    "204": ({"data": b"", "status": 204}, InvalidReplyError, "answered with nothing"),
    "202": ({"data": b'{"id": "job"}', "status": 202}, InvalidReplyError, "without a choice"),
    "304": ({"data": b"", "status": 304}, BadRequestError, "304"),
    "a page": ({"data": HTML, "content_type": "text/event-stream"}, InvalidReplyError, "an HTML page ('Busy')"),
    "no gzip": (
        {"data": b"plain", "content_type": "text/event-stream", "headers": {"content-encoding": "gzip"}},
        InvalidReplyError,
        "cannot be decompressed",
    ),
    "an error": ({"data": b'{"error": "Overloaded"}'}, ServerError, "Overloaded"),
    "an error in lines": (
        {"data": b'{\n "error": "Overloaded"\n}', "content_type": "text/event-stream"},
        ServerError,
        "Overloaded",
    ),
}


@both_modes
@pytest.mark.parametrize(("answer", "kind", "says"), ODD_ANSWERS.values(), ids=ODD_ANSWERS)
async def test_other_answers_are_one_clear_error(
    raw_server: RawServer, mode: Mode, answer: dict[str, Any], kind: type[ModelError], says: str
) -> None:
    raw_server.reply_raw(**answer).reply_text("Still here")
    agent = agent_on(raw_server)
    session = agent.create_session()
    error = await fails(agent, "Hi", mode, session)
    assert type(error) is kind
    assert says in error.message
    await goes_on(agent, raw_server, mode, session)


@both_modes
async def test_a_redirection_is_followed_to_its_end(raw_server: RawServer, mode: Mode) -> None:
    raw_server.reply_raw(b"", 307, headers={"location": "/v1/elsewhere"}).reply_text("Hello")
    assert (await ask(agent_on(raw_server), "Hi", mode)).text == "Hello"
    assert raw_server.paths == ["/v1/chat/completions", "/v1/elsewhere"]


@both_modes
async def test_a_redirection_without_an_end_is_a_failed_connection(raw_server: RawServer, mode: Mode) -> None:
    raw_server.reply_raw(b"", 307, headers={"location": raw_server.base_url})
    assert type(await fails(agent_on(raw_server), "Hi", mode)) is ConnectionFailedError


async def test_a_stream_cut_within_an_event_is_incomplete(raw_server: RawServer) -> None:
    """C38"""
    raw_server.reply(delta("Hel"), 'data: {"choices": [{"ind', done=False)
    error = await fails(agent_on(raw_server), "Hi", "streamed")
    assert type(error) is IncompleteStreamError
    assert error.partial_text == "Hel"


async def test_a_stream_that_says_nothing_but_the_end_is_incomplete(raw_server: RawServer) -> None:
    """C38"""
    raw_server.reply(delta("", role="assistant"))
    assert type(await fails(agent_on(raw_server), "Hi", "streamed")) is IncompleteStreamError


@pytest.mark.parametrize("hostile", ["[" * 100_000, f'{{"id": {"9" * 5000}}}'], ids=["deep", "long number"])
async def test_json_that_cannot_be_read_is_no_reply(raw_server: RawServer, hostile: str) -> None:
    raw_server.reply(f"data: {hostile}\n\n", *HELLO)
    error = await fails(agent_on(raw_server), "Hi", "streamed")
    assert type(error) is InvalidReplyError
    assert "no JSON" in error.message


async def test_a_server_that_says_the_end_and_keeps_talking_is_not_waited_for(raw_server: RawServer) -> None:
    raw_server.reply(*HELLO, DONE, end="stall").reply_text("Still here")
    agent = agent_on(raw_server)
    assert (await ask(agent, "Hi", "streamed")).text == TEXT
    raw_server.wait_until(lambda: raw_server.hang_ups == 1)
    assert (await ask(agent, "Hi", "streamed")).text == "Still here"


async def test_a_connection_serves_again_after_a_whole_stream(raw_server: RawServer) -> None:
    """C93: one connection for all of them."""
    raw_server.reply(*HELLO)
    agent = agent_on(raw_server)
    for _ in range(5):
        assert (await ask(agent, "Hi", "streamed")).text == TEXT
    assert raw_server.connections == 1


ADD = '{"a":1,"b":2}'
END = finish("tool_calls")


def entry(**fields: Any) -> dict[str, Any]:
    return delta(tool_calls=[fields])


CALLS: dict[str, list[Any]] = {
    "gaps in the index": [call(3, "c1", "add", ADD), call(7, "c2", "add", '{"a":3,"b":4}'), END],
    "index 0 for all": [call(0, "c1", "add", ADD), call(0, "c2", "add", '{"a":3,"b":4}'), END],
    "an index that is text": [call("0", "c1", "add", '{"a":1,'), call("0", args='"b":2}'), END],
    "null for an index": [
        entry(index=None, id="c1", function={"name": "add", "arguments": '{"a":1,'}),
        entry(index=None, function={"arguments": '"b":2}'}),
        END,
    ],
    "the same id each time": [call(0, "c1", "add", '{"a":1,'), call(0, "c1", "add", '"b":2}'), END],
    "the same id, no index": [call(None, "c1", "add", '{"a":1,'), call(None, "c1", "add", '"b":2}'), END],
    "another id each time": [call(0, "c1", "add", '{"a":1,'), call(0, "c2", "", '"b":'), call(0, "c3", args="2}"), END],
    "a late id": [call(0, None, "add", '{"a":1,'), call(0, "c1", args='"b":2}'), END],
    "an empty id": [call(0, "c1", "add", '{"a":1,'), call(0, "", "", '"b":2}'), END],
    "a number for an id": [call(0, 5, "add", '{"a":1,'), call(0, 5, args='"b":2}'), END],
    "a name in pieces": [call(0, "c1", "a", ""), call(0, "c1", "dd", ""), call(0, args=ADD), END],
    "a name in pieces, one id": [call(0, "c1", "a"), call(0, name="dd"), call(0, args=ADD), END],
    "a name that grows": [call(0, "c1", "a"), call(0, name="add"), call(0, args=ADD), END],
    "the name each time": [call(0, "c1", "add", ""), call(0, name="add", args='{"a":1,'), call(0, args='"b":2}'), END],
    "a late name": [call(0, "c1", args=""), call(0, name="add", args=ADD), END],
    "spaces around the name": [call(0, "c1", " add\n", ADD), END],
    "an object for arguments": [call(0, "c1", "add", {"a": 1, "b": 2}), END],
    "null around arguments": [call(0, "c1", "add", None), call(0, args=ADD), call(0, args=None), END],
    "{} before arguments": [call(0, "c1", "add", "{}"), call(0, args=ADD), END],
    "one character each": [call(0, "c1", "add", ""), *[call(0, args=letter) for letter in ADD], END],
    "two at once": [
        call(0, "c1", "add", '{"a":1,'),
        call(1, "c2", "add", '{"a":3,'),
        call(0, args='"b":2}'),
        call(1, args='"b":4}'),
        END,
    ],
    "the old form": [
        delta(function_call={"name": "add", "arguments": '{"a":1,'}),
        delta(function_call={"arguments": '"b":2}'}),
        finish("function_call"),
    ],
    "another reason": [call(0, "c1", "add", ADD), finish("stop")],
    "the reason with the call": [
        choice("tool_calls", delta={"tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": ADD}}]})
    ],
    "no list": [delta(tool_calls={"index": 0, "id": "c1", "function": {"name": "add", "arguments": ADD}}), END],
    "no function": [entry(index=0, id="c1", name="add", arguments=ADD), END],
    "a function later": [entry(index=0, id="c1", type="function"), call(0, name="add", args=ADD), END],
    "empty and null lists": [delta(tool_calls=[]), call(0, "c1", "add", ADD), delta(tool_calls=None), END],
    "a whole message": [
        choice(
            "tool_calls",
            message={"content": None, "tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": ADD}}]},
        )
    ],
    "no reason but [DONE]": [call(0, "c1", "add", ADD), DONE],
    "usage in between": [call(0, "c1", "add", '{"a":1,'), usage(1, 2), call(0, args='"b":2}'), END, usage(1, 3)],
}
TWO_CALLS = {"gaps in the index", "index 0 for all", "two at once"}


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_is_whole_in_every_dialect(raw_server: RawServer, name: str) -> None:
    """C20 to C27 and their relatives; what goes back is what strict servers take."""
    ran = []

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        ran.append((a, b))
        return a + b

    raw_server.strict = True
    raw_server.reply(*CALLS[name]).reply_text("Done").reply_text("Still here")
    agent = agent_on(raw_server, [add])
    session = agent.create_session()
    response = await ask(agent, "Go", "streamed", session)
    assert response.text == "Done"
    assert sorted(ran) == ([(1, 2), (3, 4)] if name in TWO_CALLS else [(1, 2)])
    assert [call.name for call in response.messages[0].calls] == ["add"] * len(ran)
    await goes_on(agent, raw_server, "streamed", session)
