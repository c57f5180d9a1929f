"""From streamed pieces to whole messages."""

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagents import AgentResponse, AgentResponseUpdate, ChatResponse, ChatResponseUpdate, Message, Usage
from nbagents.core.content import (
    ApprovalRequest,
    ApprovalResponse,
    DataContent,
    ErrorContent,
    FunctionCall,
    FunctionResult,
    HostedToolCall,
    HostedToolResult,
    ReasoningContent,
    RefusalContent,
    TextContent,
    UsageContent,
)
from nbagents.core.errors import ConfigurationError
from nbagents.core.folding import UpdateFolder


def folded(*contents, **facts):
    return ChatResponse.from_updates([ChatResponseUpdate((c,), role="assistant", **facts) for c in contents])


def fragment(index=None, call_id=None, name="", arguments=None):
    return FunctionCall(call_id, name, arguments, index=index)


def calls_of(*fragments):
    (message,) = folded(*fragments).messages
    return [(call.call_id, call.name, call.arguments) for call in message.calls]


FIND = json.dumps({"term": "owl"})

CALLS = {
    "no index, arguments continue the last open call (C20)": (
        [fragment(None, "c1", "lookup", '{"bird":'), fragment(None, None, "", '"owl"}')],
        [("c1", "lookup", {"bird": "owl"})],
    ),
    "index and no id (C22)": (
        [fragment(0, None, "read", '{"p":'), fragment(0, None, "", '"a"}')],
        [(None, "read", {"p": "a"})],
    ),
    "the id on every chunk, then the whole arguments again (C23)": (
        [fragment(0, "c1", "find", '{"te'), fragment(0, "c1", "", 'rm":"owl"}'), fragment(0, "c1", "find", FIND)],
        [("c1", "find", {"term": "owl"})],
    ),
    "the whole arguments again, encoded twice (C23)": (
        [
            fragment(0, "c1", "find", '{"te'),
            fragment(0, "c1", "", 'rm":"owl"}'),
            fragment(0, "c1", "find", json.dumps('{"term":"owl"}')),
        ],
        [("c1", "find", {"term": "owl"})],
    ),
    "all in the first chunk (C25)": (
        [fragment(0, "c1", "w", '{"city":"Oslo"}')],
        [("c1", "w", {"city": "Oslo"})],
    ),
    "arguments null (C27)": ([fragment(0, "c1", "now", None)], [("c1", "now", {})]),
    "arguments empty (C27)": ([fragment(0, "c1", "now", "")], [("c1", "now", {})]),
    "two calls alike (C28)": (
        [fragment(0, "a", "draw_card", "{}"), fragment(1, "b", "draw_card", "{}")],
        [("a", "draw_card", {}), ("b", "draw_card", {})],
    ),
    "two calls alike without an index (C28)": (
        [fragment(None, "a", "draw_card", "{}"), fragment(None, "b", "draw_card", "{}")],
        [("a", "draw_card", {}), ("b", "draw_card", {})],
    ),
    "interleaved by index": (
        [
            fragment(0, "a", "f", '{"x":'),
            fragment(1, "b", "g", '{"y":'),
            fragment(0, None, "", "1}"),
            fragment(1, None, "", "2}"),
        ],
        [("a", "f", {"x": 1}), ("b", "g", {"y": 2})],
    ),
    "every call at index 0, told apart by id": (
        [fragment(0, "a", "f", '{"x":1}'), fragment(0, "b", "f", '{"x":2}')],
        [("a", "f", {"x": 1}), ("b", "f", {"x": 2})],
    ),
    "one id for two calls of one reply (C68)": (
        [fragment(0, "x", "f", '{"n":1}'), fragment(1, "x", "f", '{"n":2}')],
        [("x", "f", {"n": 1}), ("x", "f", {"n": 2})],
    ),
    "an object inside the arguments is no repetition": (
        [fragment(0, "a", "f", '{"x":'), fragment(0, None, "", '{"y":1}'), fragment(0, None, "", "}")],
        [("a", "f", {"x": {"y": 1}})],
    ),
    "an empty object as a place holder": (
        [fragment(0, "a", "f", "{}"), fragment(0, "a", "", '{"x":1}')],
        [("a", "f", {"x": 1})],
    ),
    "already an object (C48)": ([fragment(0, "a", "f", {"q": 1})], [("a", "f", {"q": 1})]),
}


@pytest.mark.parametrize(("fragments", "expected"), CALLS.values(), ids=CALLS.keys())
def test_call_fragments_merge_by_index_id_or_open_call(fragments, expected):
    assert calls_of(*fragments) == expected


@pytest.mark.parametrize("text", ["query = x", "[1,2]", "null", '{"a": "unfinished', "{} {}"])
def test_arguments_that_are_no_object_stay_as_text_and_are_marked_invalid(text):
    """C48"""
    (message,) = folded(fragment(0, "a", "f", text)).messages
    assert (message.calls[0].arguments, message.calls[0].invalid) == (text, True)


def test_text_after_a_call_keeps_its_place():
    """C33"""
    (message,) = folded(TextContent("Checking"), fragment(0, "c1", "f", "{}"), TextContent(" done")).messages
    assert [type(c).__name__ for c in message.contents] == ["TextContent", "FunctionCall", "TextContent"]
    assert message.text == "Checking done"


def test_reasoning_is_kept_apart_from_the_answer():
    """C40"""
    (message,) = folded(ReasoningContent("think "), ReasoningContent("more"), TextContent("42")).messages
    assert message.contents == (ReasoningContent("think more"), TextContent("42"))
    assert message.text == "42"


def test_a_thought_takes_its_id_and_encrypted_form_whenever_they_come():
    """C40"""
    (message,) = folded(
        ReasoningContent("", "rs_1"),
        ReasoningContent("think "),
        ReasoningContent("more", "rs_1"),
        ReasoningContent("", "rs_1", "gAAAA"),
        ReasoningContent("", "rs_2", "gBBBB"),
        ReasoningContent("nameless"),
        TextContent("42"),
    ).messages
    assert message.contents == (
        ReasoningContent("think more", "rs_1", "gAAAA"),
        ReasoningContent("", "rs_2", "gBBBB"),
        ReasoningContent("nameless"),
        TextContent("42"),
    )
    assert "gAAAA" not in repr(message)


def test_an_empty_piece_with_fields_of_its_own_closes_the_text_before_it():
    cited = [{"type": "url_citation", "url": "https://x.test"}]
    pieces = [TextContent("a"), TextContent("b"), TextContent("", extra={"annotations": cited}), TextContent("c")]
    (message,) = folded(*pieces).messages
    assert message.contents == Message("assistant", pieces).contents
    closed, other = message.contents
    assert (closed.text, list(closed.annotations), other.text, list(other.annotations)) == ("ab", cited, "c", [])
    alone = TextContent("", extra={"annotations": cited})
    assert folded(alone).messages[0].contents == (alone,)


def test_the_last_word_on_a_hosted_call_counts_in_its_first_place():
    begun, done = HostedToolCall("shell", "h1"), HostedToolCall("shell", "h1", {"commands": ["ls"]})
    half, whole = HostedToolResult("shell", "h1", "a"), HostedToolResult("shell", "h1", "a b")
    (message,) = folded(begun, TextContent("listing"), half, done, HostedToolCall("shell", "h2"), whole).messages
    assert message.contents == (done, TextContent("listing"), whole, HostedToolCall("shell", "h2"))


def test_messages_that_others_follow_are_handed_out_once():
    folder = UpdateFolder()
    taken = []
    for text, role in [("a", "assistant"), ("b", None), ("r", "tool"), ("", "assistant"), ("c", "assistant")]:
        folder.add(ChatResponseUpdate((TextContent(text),), role))
        taken.append([m.text for m in folder.next_messages()])
    assert taken == [[], [], ["ab"], ["r"], []]
    assert [m.text for m in folder.next_messages(ended=True)] == ["c"]
    assert folder.next_messages(ended=True) == []


def test_an_update_finds_its_message_by_id_wherever_it_stands():
    response = ChatResponse.from_updates(
        [
            ChatResponseUpdate((TextContent("A"),), "assistant", message_id="1"),
            ChatResponseUpdate((TextContent("B"),), "assistant", message_id="2"),
            ChatResponseUpdate((TextContent("a"),), "assistant", message_id="1"),
        ]
    )
    assert [m.text for m in response.messages] == ["Aa", "B"]
    assert response.text == "Aa\nB"


@pytest.mark.parametrize("change", [{"role": "user"}, {"author_name": "editor"}])
def test_a_new_role_or_author_begins_a_new_message(change):
    response = ChatResponse.from_updates(
        [
            ChatResponseUpdate((TextContent("A"),), "assistant", "writer"),
            ChatResponseUpdate((TextContent("B"),), **({"role": "assistant", "author_name": "writer"} | change)),
        ]
    )
    assert [m.text for m in response.messages] == ["A", "B"]


def test_usage_within_a_response_is_a_running_total():
    """C85"""
    reports = [(10, 1), (10, 5), (0, 9), (None, None)]
    response = folded(*(UsageContent(Usage(*report)) for report in reports), response_id="r")
    assert (response.usage.input_tokens, response.usage.output_tokens) == (0, 9)


def test_usage_of_different_responses_is_summed_and_says_what_is_missing():
    """C90"""
    updates = [
        AgentResponseUpdate((UsageContent(Usage(input_tokens=1, cached_input_tokens=cached)),), response_id=str(cached))
        for cached in (100, None, 50)
    ]
    usage = AgentResponse.from_updates(updates).usage
    assert (usage.input_tokens, usage.cached_input_tokens, usage.partial) == (3, 150, ("cached_input_tokens",))


texts = st.text(string.printable + "żół鳥🐙", max_size=12)
some_text = st.none() | texts
ids = st.uuids().map(str)
extras = st.none() | st.just({"signature": [1, None]})
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda value: st.lists(value, max_size=2) | st.dictionaries(st.sampled_from("ab"), value),
    max_leaves=4,
)
objects = st.dictionaries(st.sampled_from("abc"), values)
media = st.one_of(
    st.builds(DataContent.from_bytes, st.binary(max_size=20), name=st.none() | st.just("a.csv")),
    st.builds(DataContent, st.just("https://example.org/x.png"), st.just("image/png"), extra=extras),
)
calls = st.builds(
    FunctionCall, st.none() | st.sampled_from(["c1", "c2"]), st.sampled_from("fg"), objects, ids, extra=extras
) | st.builds(FunctionCall, st.none(), st.just("f"), texts, ids, invalid=st.just(True), extra=extras)
contents = st.one_of(
    st.builds(TextContent, texts, extra=extras),
    st.builds(ReasoningContent, texts, st.none() | ids, some_text, extra=extras),
    st.builds(RefusalContent, texts, extra=extras),
    media,
    calls,
    st.builds(
        FunctionResult,
        some_text,
        st.just("f"),
        texts,
        ids,
        error=some_text,
        interrupted=st.booleans(),
        items=st.lists(media, max_size=2).map(tuple),
        extra=extras,
    ),
    st.builds(HostedToolCall, st.sampled_from(["mcp", "shell"]), ids, values, some_text, some_text, extra=extras),
    st.builds(
        HostedToolResult,
        st.just("shell"),
        ids,
        values,
        st.lists(media, max_size=2).map(tuple),
        some_text,
        extra=extras,
    ),
    st.builds(ApprovalRequest, ids, calls, extra=extras),
    st.builds(ApprovalResponse, ids, calls, st.booleans(), some_text, extra=extras),
    st.builds(ErrorContent, texts, some_text, extra=extras),
)
messages = st.builds(
    Message,
    st.sampled_from(["assistant", "tool", "user"]),
    st.lists(contents, max_size=4),
    st.none() | st.just("writer"),
    st.none(),
    created_at=st.none() | st.just(12.5),
    run_id=st.none() | st.just("run"),
    interrupted=st.booleans(),
    extra=st.none() | st.just({"mood": "calm"}),
)
responses = st.builds(
    AgentResponse,
    messages=st.lists(messages, max_size=4),
    response_id=st.none() | st.just("resp"),
    model=st.none() | st.just("m"),
    usage=st.none() | st.builds(Usage, st.integers(0, 9), st.integers(0, 9)),
    finish_reason=st.sampled_from([None, "stop"]),
    run_id=st.none() | st.just("run"),
    stop_reason=st.sampled_from([None, "completed"]),
)


@settings(deadline=None)
@given(responses)
def test_folding_what_was_unfolded_gives_the_same_response(response):
    assert AgentResponse.from_updates(response.to_updates()) == response


@settings(deadline=None)
@given(responses, st.randoms(use_true_random=False))
def test_the_size_of_the_pieces_does_not_matter(response, random):
    pieces = []
    for update in response.to_updates():
        first = True
        for content in update.contents or [None]:
            for part in chopped(content, random):
                pieces.append(piece_of(update, part, first=first))
                first = False
    assert AgentResponse.from_updates(pieces) == response


def chopped(content, random):
    """The pieces in which a service may send `content`; what has fields of its own comes whole."""
    if content is None or content.extra or getattr(content, "invalid", False):
        return [content]
    if isinstance(content, ReasoningContent):
        cut = random.randint(0, len(content.text))
        first, last = content.text[:cut], content.text[cut:]
        return [ReasoningContent(first, content.id), ReasoningContent(last, content.id, content.encrypted)]
    if isinstance(content, TextContent | RefusalContent):
        cut = random.randint(0, len(content.text))
        return [type(content)(content.text[:cut]), type(content)(content.text[cut:])]
    if isinstance(content, FunctionCall):
        text = json.dumps(content.arguments)
        cut = random.randint(0, len(text))
        return [
            FunctionCall(content.call_id, content.name, text[:cut], content.id),
            FunctionCall(None, "", text[cut:], content.id),
        ]
    if isinstance(content, HostedToolCall):
        return [HostedToolCall(content.kind, content.id), content]
    return [content]


def piece_of(update, part, *, first):
    changes = {"contents": () if part is None else (part,), "starts_message": update.starts_message and first}
    names = ["role", "author_name", "response_id", "conversation_id", "model", "finish_reason", "interrupted", "extra"]
    if first:
        names += ["created_at", "agent_id", "run_id", "stop_reason"]
    return AgentResponseUpdate(**{name: getattr(update, name) for name in names}, **changes)


@settings(deadline=None)
@given(messages)
def test_a_message_survives_json(message):
    once = json.dumps(message.to_dict())
    read = Message.from_dict(json.loads(once))
    assert read == message
    assert json.dumps(read.to_dict()) == once


@settings(deadline=None)
@given(responses)
def test_updates_survive_json_and_still_fold_to_the_response(response):
    texts = [json.dumps(update.to_dict()) for update in response.to_updates()]
    read = [AgentResponseUpdate.from_dict(json.loads(text)) for text in texts]
    assert [json.dumps(update.to_dict()) for update in read] == texts
    assert AgentResponse.from_updates(read) == response


def test_an_update_keeps_unknown_fields_and_not_what_the_provider_sent():
    update = ChatResponseUpdate(
        (FunctionCall(None, "", '{"a"', index=0),), starts_message=True, extra={"mood": "calm"}, raw=object()
    )
    record = update.to_dict()
    assert record == {
        "version": 1,
        "type": "chat_update",
        "contents": [{"type": "function_call", "call_id": None, "name": "", "arguments": '{"a"', "index": 0}],
        "starts_message": True,
        "extra": {"mood": "calm"},
    }
    assert ChatResponseUpdate.from_dict(record) == update
    newer = {**record, "colour": "red", "raw": 1}
    assert ChatResponseUpdate.from_dict(newer).to_dict() == newer
    for wrong in ({**record, "version": 2}, AgentResponseUpdate().to_dict(), {**record, "contents": {}}, [], None):
        with pytest.raises(ConfigurationError, match="no chat_update of version 1"):
            ChatResponseUpdate.from_dict(wrong)


@settings(deadline=None)
@given(responses)
def test_a_response_survives_json(response):
    once = json.dumps(response.to_dict())
    read = AgentResponse.from_dict(json.loads(once))
    assert read == response
    assert json.dumps(read.to_dict()) == once
