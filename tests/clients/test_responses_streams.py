"""What Responses servers send, in events or whole, becomes the right texts, calls and counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagents import (
    ChatResponse,
    Message,
    Usage,
)
from nbagents.clients.responses_replies import ResponseReader
from nbagents.clients.server_events import EventReader
from nbagents.core import HostedToolCall, HostedToolResult
from nbagents.core.content import FunctionCall, ReasoningContent, RefusalContent, TextContent
from nbagents.core.folding import UpdateFolder
from tests.clients.asking import Mode, both_modes
from tests.clients.responding import SEARCH, contents, either, reply
from tests.support import responses_events as wire
from tests.support.raw_server import RawServer
from tests.support.responses_events import called, refused, response, said, text_part, thought

CITED = {"type": "url_citation", "url": "https://x.test", "title": "X", "start_index": 0, "end_index": 3}


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
