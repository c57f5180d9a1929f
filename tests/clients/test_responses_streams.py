"""What Responses servers send, in events or whole, becomes the right texts, calls and counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagents import ChatResponse, OpenAIResponsesClient, Usage
from nbagents.clients.responses_replies import ResponseReader
from nbagents.clients.server_events import EventReader
from nbagents.core import HostedToolCall, HostedToolResult, Message
from nbagents.core.content import Content, FunctionCall, ReasoningContent, RefusalContent, TextContent
from nbagents.core.errors import IncompleteStreamError, InvalidReplyError, ModelError
from nbagents.core.folding import UpdateFolder
from tests.clients.asking import Mode, both_modes
from tests.support import responses_events as wire
from tests.support.raw_server import RawServer
from tests.support.responses_events import called, event, refused, response, said, text_part, thought

CITED = {"type": "url_citation", "url": "https://x.test", "title": "X", "start_index": 0, "end_index": 3}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "owls"}}


async def reply(server: RawServer, *events: Any, mode: Mode = "streamed", **more: Any) -> ChatResponse:
    """What a client makes of one reply: events, or with `mode` plain the whole response that stands there."""
    if mode == "plain":
        server.reply_json(*events)
    else:
        server.reply(*events, **{"done": False, **more})
    client = OpenAIResponsesClient("test-model", base_url=server.base_url, max_retries=0)
    if mode == "plain":
        return await client.get_response("Hi")
    return await client.get_response("Hi", stream=True).get_final_response()


async def either(server: RawServer, mode: Mode, *items: wire.Item, **more: Any) -> ChatResponse:
    """What a client makes of a response with these items, in one of the modes."""
    whole = response(*items, **more)
    return await reply(server, whole, mode="plain") if mode == "plain" else await reply(server, *wire.stream(whole))


def contents(answer: ChatResponse) -> list[Content]:
    return [content for message in answer.messages for content in message.contents]


# --- a response is the same in events and whole

TEXTS = st.text(max_size=12)
PARTS = st.one_of(
    TEXTS.map(text_part),
    TEXTS.map(lambda text: text_part(text, CITED)),
    TEXTS.map(lambda text: {"type": "refusal", "refusal": text}),
)
ITEMS = st.one_of(
    st.builds(
        lambda parts, phase: said(*parts, **({"phase": phase} if phase else {})),
        st.lists(PARTS, max_size=3),
        st.sampled_from([None, "commentary", "final_answer"]),
    ),
    st.builds(
        lambda summary, content, secret: thought(*summary, content=content, encrypted=secret),
        st.lists(TEXTS, max_size=2),
        st.lists(TEXTS, max_size=2),
        st.sampled_from([None, "secret"]),
    ),
    st.builds(
        lambda name, arguments: called("call_1", name, arguments),
        st.sampled_from(["add", "look"]),
        st.dictionaries(TEXTS, st.integers(), max_size=2),
    ),
    st.just(SEARCH),
)


def folded(updates: list[Any]) -> tuple[list[Message], Any]:
    folder = UpdateFolder()
    for update in updates:
        folder.add(update)
    return folder.messages(), (folder.finish_reason, folder.usage, folder.conversation_id, folder.model)


def read_streamed(data: bytes, cut: int) -> tuple[list[Message], Any]:
    reader, events, updates = ResponseReader(stored=True), EventReader(), []
    for start in range(0, len(data), cut):
        updates += [reader.read_chunk(value) for value in events.feed(data[start : start + cut])]
    while (more := reader.read_end()) is not None:
        updates.append(more)
    return folded([update for update in updates if update is not None])


def read_whole(whole: dict[str, Any]) -> tuple[list[Message], Any]:
    reader = ResponseReader(stored=True)
    updates = [reader.read_reply(whole)]
    while (more := reader.read_end()) is not None:
        updates.append(more)
    return folded(updates)


def shown(messages: list[Message]) -> list[Any]:
    return [(message.role, [(c.type, c, c.extra) for c in message.contents]) for message in messages]


@given(items=st.lists(ITEMS, max_size=5), cut=st.integers(1, 400))
@settings(max_examples=150, deadline=None)
def test_a_response_is_the_same_in_events_and_whole(items: list[wire.Item], cut: int) -> None:
    """C45 too: whatever the network cuts."""
    numbered = [{**item, "id": f"{item['id']}_{place}"} for place, item in enumerate(items)]
    for place, item in enumerate(numbered):
        if item["type"] == "function_call":
            item["call_id"] = f"call_{place}"
    whole = response(*numbered)
    streamed, facts = read_streamed(b"".join(wire.stream(whole)), cut)
    plain, same_facts = read_whole(whole)
    assert shown(streamed) == shown(plain)
    assert facts == same_facts


# --- messages and texts


@both_modes
async def test_parts_of_a_message_join_without_anything_between(raw_server: RawServer, mode: Mode) -> None:
    answer = await either(raw_server, mode, said("One ", "two."))
    assert (answer.text, contents(answer)) == ("One two.", [TextContent("One two.")])


@both_modes
async def test_each_message_of_the_service_is_one_of_ours(raw_server: RawServer, mode: Mode) -> None:
    items = [
        thought("Hm.", id="rs_1"),
        said("Let me look.", id="msg_1", phase="commentary"),
        SEARCH,
        thought("Aha.", id="rs_2"),
        said("Owls.", id="msg_2", phase="final_answer"),
    ]
    answer = await either(raw_server, mode, *items)
    assert [[content.type for content in message.contents] for message in answer.messages] == [
        ["reasoning", "text", "hosted_tool_call", "hosted_tool_result"],
        ["reasoning", "text"],
    ]
    assert answer.text == "Let me look.\nOwls."
    assert len({message.message_id for message in answer.messages}) == 2


@both_modes
async def test_text_around_a_call_stays_in_one_message(raw_server: RawServer, mode: Mode) -> None:
    """C33"""
    answer = await either(
        raw_server, mode, said("Checking", id="m1"), called("c1", "add", {"a": 1}), said(" done", id="m2")
    )
    (message,) = answer.messages
    assert [content.type for content in message.contents] == ["text", "function_call", "text"]
    assert (message.text, answer.finish_reason) == ("Checking done", "tool_calls")


@both_modes
async def test_citations_are_kept_with_their_text(raw_server: RawServer, mode: Mode) -> None:
    part = text_part("Owls fly.", CITED)
    answer = await either(raw_server, mode, said(part, "And sleep.", phase="final_answer"))
    first, second = contents(answer)
    assert isinstance(first, TextContent)
    assert isinstance(second, TextContent)
    assert (first.text, list(first.annotations), list(second.annotations)) == ("Owls fly.", [CITED], [])
    assert first.extra is not None
    assert first.extra["phase"] == "final_answer"
    (message,) = answer.messages
    again = Message.from_dict(json.loads(json.dumps(message.to_dict())))
    assert again.contents == message.contents
    assert again.contents[0].extra == first.extra


@both_modes
async def test_a_refusal_is_told_apart(raw_server: RawServer, mode: Mode) -> None:
    """C42"""
    answer = await either(raw_server, mode, refused("I cannot help."))
    assert (contents(answer), answer.text) == ([RefusalContent("I cannot help.")], "")


@both_modes
async def test_thoughts_are_kept_apart_with_their_ids_and_secrets(raw_server: RawServer, mode: Mode) -> None:
    """C40"""
    items = [
        thought("One.", "Two.", id="rs_1", encrypted="secret"),
        thought(id="rs_2", content=["Raw ", "thought."]),
        thought(id="rs_3"),
        said("Yes."),
    ]
    answer = await either(raw_server, mode, *items)
    assert contents(answer) == [
        ReasoningContent("One.\n\nTwo.", "rs_1", "secret"),
        ReasoningContent("Raw \n\nthought.", "rs_2"),
        TextContent("Yes."),
    ]


@both_modes
async def test_a_call_of_the_service_comes_with_its_result(raw_server: RawServer, mode: Mode) -> None:
    code = {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "status": "completed",
        "container_id": "c1",
        "code": "1+1",
        "outputs": [{"type": "logs", "logs": "2"}],
    }
    answer = await either(raw_server, mode, SEARCH, code, said("Two."))
    assert contents(answer) == [
        HostedToolCall("web_search", "ws_1", {"type": "search", "query": "owls"}, extra=_extra(answer, 0)),
        HostedToolResult("web_search", "ws_1"),
        HostedToolCall("code_interpreter", "ci_1", {"code": "1+1"}, extra=_extra(answer, 2)),
        HostedToolResult("code_interpreter", "ci_1", "2"),
        TextContent("Two."),
    ]


def _extra(answer: ChatResponse, place: int) -> Any:
    return contents(answer)[place].extra


@both_modes
async def test_an_image_that_the_service_draws_is_content(raw_server: RawServer, mode: Mode) -> None:
    drawn = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw0KGgo="}
    answer = await either(raw_server, mode, {**drawn, "output_format": "webp"}, said("A dot."))
    result = contents(answer)[1]
    assert isinstance(result, HostedToolResult)
    assert [(item.uri, item.media_type) for item in result.items] == [
        ("data:image/webp;base64,iVBORw0KGgo=", "image/webp")
    ]


@both_modes
async def test_a_call_that_failed_at_the_service_says_so(raw_server: RawServer, mode: Mode) -> None:
    answer = await either(raw_server, mode, {**SEARCH, "status": "failed"}, said("Sorry."))
    result = contents(answer)[1]
    assert isinstance(result, HostedToolResult)
    assert result.error == "The service reports that it failed."


@both_modes
async def test_an_unknown_item_is_kept_as_it_is(raw_server: RawServer, mode: Mode) -> None:
    answer = await either(raw_server, mode, {"type": "teleport_call", "id": "tp_1", "where": "Oslo"}, said("Ok."))
    first = contents(answer)[0]
    assert isinstance(first, HostedToolCall)
    assert (first.kind, first.id) == ("teleport_call", "tp_1")
    assert first.extra == {"item": {"type": "teleport_call", "id": "tp_1", "where": "Oslo"}}


# --- calls


@both_modes
@pytest.mark.parametrize("arguments", ["", "{}", None])
async def test_a_call_without_arguments_is_whole(raw_server: RawServer, mode: Mode, arguments: Any) -> None:
    """C27"""
    answer = await either(raw_server, mode, {**called("c1", "now", ""), "arguments": arguments or ""})
    assert contents(answer) == [FunctionCall("c1", "now", {})]


@both_modes
async def test_equal_calls_are_two(raw_server: RawServer, mode: Mode) -> None:
    """C28"""
    answer = await either(raw_server, mode, called("c1", "draw", {}, id="fc_1"), called("c2", "draw", {}, id="fc_2"))
    assert [call.call_id for message in answer.messages for call in message.calls] == ["c1", "c2"]


@both_modes
async def test_a_call_without_a_call_id_has_that_of_its_item(raw_server: RawServer, mode: Mode) -> None:
    item = called("c1", "add", {"a": 1})
    del item["call_id"]
    assert contents(await either(raw_server, mode, item)) == [FunctionCall("fc_1", "add", {"a": 1})]


@both_modes
async def test_arguments_that_are_an_object_already_are_taken(raw_server: RawServer, mode: Mode) -> None:
    """C48"""
    whole = response({**called("c1", "add", ""), "arguments": {"a": 1}})
    answer = await (
        reply(raw_server, whole, mode="plain")
        if mode == "plain"
        else reply(raw_server, *wire.opening(), wire.ending(whole))
    )
    assert contents(answer) == [FunctionCall("c1", "add", {"a": 1})]


@both_modes
@pytest.mark.parametrize("text", ["query = x", "[1,2]", "null", '{"a": "unfinished'])
async def test_broken_arguments_stay_as_text(raw_server: RawServer, mode: Mode, text: str) -> None:
    """C37, C48"""
    assert contents(await either(raw_server, mode, called("c1", "add", text))) == [
        FunctionCall("c1", "add", text, invalid=True)
    ]


# --- servers that forget, repeat and mix up

ADD = called("c1", "add", {"a": 1}, id="fc_1")
LOOK = called("c2", "look", {"at": "owl"}, id="fc_2")
BOTH_CALLS = [FunctionCall("c1", "add", {"a": 1}), FunctionCall("c2", "look", {"at": "owl"})]


def without(events: list[wire.Event], *kinds: str) -> list[wire.Event]:
    return [one for one in events if not any(f"event: response.{kind}\n".encode() in one for kind in kinds)]


def changed(events: list[wire.Event], change: Any) -> list[wire.Event]:
    """The events with what `change` makes of each one's value."""
    values = [json.loads(one.partition(b"data: ")[2]) for one in events]
    made = [change(value) for value in values]
    return [event(value.pop("type"), **value) for value in made]


def calls_in_events() -> list[wire.Event]:
    return wire.stream(response(ADD, LOOK))


def mixed_calls() -> list[wire.Event]:
    whole = response(ADD, LOOK)
    first, second = wire.item_events(0, ADD), wire.item_events(1, LOOK)
    turns = [one for pair in zip(first, second, strict=False) for one in pair]
    rest = [*first[len(second) :], *second[len(first) :]]
    return [*wire.opening(), *turns, *rest, wire.ending(whole)]


def rotating_ids() -> list[wire.Event]:
    numbers = iter(range(1_000))

    def rotate(value: dict[str, Any]) -> dict[str, Any]:
        if "item_id" in value:
            return {**value, "item_id": f"id-{next(numbers)}"}
        return {**value, "item": {**value["item"], "id": f"id-{next(numbers)}"}} if "item" in value else value

    return changed(calls_in_events(), rotate)


def same_ids() -> list[wire.Event]:
    def same(value: dict[str, Any]) -> dict[str, Any]:
        known = {**value, "item_id": "x"} if "item_id" in value else value
        return {**known, "item": {**known["item"], "id": "x"}} if "item" in known else known

    return changed(calls_in_events(), same)


def empty_at_the_end(events: list[wire.Event]) -> list[wire.Event]:
    return [*events[:-1], wire.ending(response())]


def whole_when_announced(value: dict[str, Any]) -> dict[str, Any]:
    if value["type"] != "response.output_item.added":
        return value
    return {**value, "item": [ADD, LOOK][value["output_index"]]}


QUIRKS: dict[str, list[wire.Event]] = {
    "whole when announced": changed(calls_in_events(), whole_when_announced),  # C25
    "whole when announced, and nothing more": empty_at_the_end(
        without(
            changed(calls_in_events(), whole_when_announced),
            *("function_call_arguments.delta", "function_call_arguments.done"),
        )
    ),
    "items only in the end": [*wire.opening(), wire.ending(response(ADD, LOOK))],
    "the end without items": empty_at_the_end(calls_in_events()),
    "arguments without an end": without(calls_in_events(), "function_call_arguments.done"),
    "items without an end": without(calls_in_events(), "function_call_arguments.done", "output_item.done"),
    "no end but the last": empty_at_the_end(
        without(calls_in_events(), "function_call_arguments.done", "output_item.done")
    ),
    "arguments in one piece": without(calls_in_events(), "function_call_arguments.delta"),
    "arguments with the item only": without(
        calls_in_events(), "function_call_arguments.delta", "function_call_arguments.done"
    ),
    "items never announced": without(calls_in_events(), "output_item.added"),
    "announced twice": [one for e in calls_in_events() for one in ([e, e] if b"output_item.added" in e else [e])],
    "ended twice": [one for e in calls_in_events() for one in ([e, e] if b".done" in e else [e])],
    "mixed": mixed_calls(),
    "mixed, without an end": empty_at_the_end(without(mixed_calls(), "output_item.done")),
    "ids that change": rotating_ids(),
    "ids that are the same": same_ids(),
    "no ids": changed(calls_in_events(), lambda value: {k: v for k, v in value.items() if k != "item_id"}),
    "no places": changed(calls_in_events(), lambda value: {k: v for k, v in value.items() if k != "output_index"}),
    "one place for all": changed(
        calls_in_events(), lambda value: {**value, **({"output_index": 0} if "output_index" in value else {})}
    ),
    "neither ids nor places": changed(
        calls_in_events(),
        lambda value: {k: v for k, v in value.items() if k not in ("item_id", "output_index")},
    ),
    "no event names": [one.partition(b"\n")[2] for one in calls_in_events()],
    "unknown events": [
        one for e in calls_in_events() for one in (event("response.news", x=[1]), e, event("keepalive"), b": ping\n\n")
    ],
    "a [DONE]": [*calls_in_events(), b"data: [DONE]\n\n"],
    "no blank line after the last": [*calls_in_events()[:-1], calls_in_events()[-1].rstrip()],
}


@pytest.mark.parametrize("name", QUIRKS)
async def test_calls_are_whole_whatever_a_server_forgets_or_repeats(raw_server: RawServer, name: str) -> None:
    """C23, C25"""
    answer = await reply(raw_server, *QUIRKS[name])
    assert contents(answer) == BOTH_CALLS
    assert (answer.finish_reason, answer.usage) == ("tool_calls", Usage(10, 5, 15))


TWO = [thought("Hm.", id="rs_1", encrypted="secret"), said("One.", id="m1"), said("Two.", id="m2")]


def two_in_events() -> list[wire.Event]:
    return wire.stream(response(*TWO))


def mixed_messages() -> list[wire.Event]:
    events = [wire.item_events(place, item) for place, item in enumerate(TWO)]
    turns = [one for pair in zip(events[1], events[2], strict=True) for one in pair]
    return [*wire.opening(), *events[0], *turns, wire.ending(response(*TWO))]


TEXT_QUIRKS: dict[str, list[wire.Event]] = {
    "as it should be": two_in_events(),
    "only in the end": [*wire.opening(), wire.ending(response(*TWO))],
    "only in the end, which no blank line ends": [*wire.opening(), wire.ending(response(*TWO)).rstrip()],
    "no ends of parts": without(two_in_events(), "output_text.done", "content_part.done"),
    "no ends of messages": [
        one
        for one in without(two_in_events(), "output_text.done", "content_part.done")
        if b"output_item.done" not in one or b"rs_1" in one
    ],
    "no pieces": without(two_in_events(), "output_text.delta", "reasoning_summary_text.delta"),
    "only pieces": without(
        two_in_events(), "output_item.added", "content_part.added", "content_part.done", "output_text.done"
    ),
    "mixed": mixed_messages(),
    "nothing but the end of items": without(
        two_in_events(),
        *("output_item.added", "content_part.added", "content_part.done", "output_text.delta", "output_text.done"),
        *("reasoning_summary_text.delta", "reasoning_summary_text.done"),
    ),
}


@pytest.mark.parametrize("name", TEXT_QUIRKS)
async def test_texts_are_whole_whatever_a_server_forgets_or_repeats(raw_server: RawServer, name: str) -> None:
    answer = await reply(raw_server, *TEXT_QUIRKS[name])
    assert [list(message.contents) for message in answer.messages] == [
        [ReasoningContent("Hm.", "rs_1", "secret"), TextContent("One.")],
        [TextContent("Two.")],
    ]
    assert answer.finish_reason == "stop"


async def test_characters_cut_at_network_boundaries_stay_whole(raw_server: RawServer) -> None:
    """C45"""
    whole = response(said("żółw 鳥🐙"), called("c1", "look", {"city": "東京"}))
    answer = await reply(raw_server, *wire.stream(whole), split=1)
    assert contents(answer) == [TextContent("żółw 鳥🐙"), FunctionCall("c1", "look", {"city": "東京"})]


# --- usage

USAGES: list[tuple[Any, Usage | None]] = [
    (wire.usage(10, 5), Usage(10, 5, 15)),
    (
        wire.usage(
            10,
            5,
            input_tokens_details={"cached_tokens": 8, "cache_write_tokens": 2},
            output_tokens_details={"reasoning_tokens": 3},
        ),
        Usage(10, 5, 15, 8, 2, 3),
    ),
    (wire.usage(10, 5, input_tokens_details=None, output_tokens_details=None), Usage(10, 5, 15)),
    (wire.usage(10, 5, output_tokens_details={"reasoning_tokens": 0}), Usage(10, 5, 15, reasoning_tokens=0)),
    ({"input_tokens": 10}, Usage(10)),
    ({"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}, None),
    (None, None),
    ("many", None),
]


@both_modes
@pytest.mark.parametrize(("reported", "usage"), USAGES)
async def test_counts_are_taken_where_they_are_there(
    raw_server: RawServer, mode: Mode, reported: Any, usage: Usage | None
) -> None:
    assert (await either(raw_server, mode, said("Hi."), usage=reported)).usage == usage


# --- how a response ends


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

    raw_server.reply(*wire.stream(response(said("Hello", id="m1"), ADD))[:-1], done=done)
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
