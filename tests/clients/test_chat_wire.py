"""Messages, tools and options as a Chat Completions server takes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbagents import Message
from nbagents.clients.chat_wire import wire_messages, wire_options, wire_tools
from nbagents.core.content import (
    ApprovalRequest,
    DataContent,
    FunctionCall,
    FunctionResult,
    ReasoningContent,
    RefusalContent,
    TextContent,
)
from nbagents.core.errors import ConfigurationError
from nbagents.core.tools import ToolDefinition
from tests.support import strict

Turn = list[Message]


def turn(call_id: str | None, own_id: str, *, arguments: Any = None, name: str = "f") -> Turn:
    call = FunctionCall(call_id, name, {} if arguments is None else arguments, own_id)
    return [
        Message("user", "Go"),
        Message("assistant", [call]),
        Message("tool", [FunctionResult(call_id, name, f"result of {own_id}", own_id)]),
    ]


def ids(messages: Turn) -> list[tuple[str, str]]:
    """Each call's id beside that of its result."""
    sent = wire_messages(messages)
    calls = [call["id"] for m in sent for call in m.get("tool_calls", ())]
    results = [m["tool_call_id"] for m in sent if m["role"] == "tool"]
    return list(zip(calls, results, strict=True))


def test_the_roles() -> None:
    messages = [Message("system", "Be brief."), Message("user", "Hi"), Message("assistant", "Hello")]
    assert wire_messages(messages) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
    ]


def test_the_providers_id_stays_while_it_is_unique() -> None:
    assert ids([*turn("c1", "own1"), *turn("c2", "own2")]) == [("c1", "c1"), ("c2", "c2")]


def test_an_id_that_is_missing_or_comes_again_is_ours() -> None:
    """C22, C68"""
    history = [*turn("c", "own1"), *turn("c", "own2"), *turn(None, "own3"), *turn("", "own4")]
    assert ids(history) == [("c", "c"), ("own2", "own2"), ("own3", "own3"), ("own4", "own4")]


def test_messages_made_by_hand_need_no_id_of_ours() -> None:
    calls = [FunctionCall("x", "f", {}), FunctionCall("x", "f", {"a": 1})]
    results = [FunctionResult("x", "f", "first"), FunctionResult("x", "f", "second")]
    sent = wire_messages([Message("user", "Go"), Message("assistant", calls), *[Message("tool", r) for r in results]])
    assert [call["id"] for call in sent[1]["tool_calls"]] == ["x", "x_2"]
    assert [(m["tool_call_id"], m["content"]) for m in sent[2:]] == [("x", "first"), ("x_2", "second")]
    assert strict.refusal({"messages": sent}) is None


def test_the_same_turn_twice_is_told_apart() -> None:
    again = turn("c", "own")
    history = [*again, *again, *again]
    assert ids(history) == [("c", "c"), ("own", "own"), ("own_2", "own_2")]


def test_several_results_in_one_message_are_several_tool_messages() -> None:
    calls = [FunctionCall("a", "f", {}, "o1"), FunctionCall("b", "f", {}, "o2")]
    results = [FunctionResult("a", "f", "1", "o1"), FunctionResult("b", "f", "2", "o2")]
    sent = wire_messages([Message("user", "Go"), Message("assistant", calls), Message("tool", results)])
    assert [(m["tool_call_id"], m["content"]) for m in sent[2:]] == [("a", "1"), ("b", "2")]


@pytest.mark.parametrize(
    ("arguments", "invalid", "sent"),
    [
        ({"b": 1, "a": "ż"}, False, '{"b":1,"a":"ż"}'),
        ({}, False, "{}"),
        ('{"a": 1}', False, '{"a": 1}'),
        ('{"a": unfinished', True, "{}"),
        ("[1,2]", True, "{}"),
        ("[1,2]", False, "{}"),
        ("  ", False, "{}"),
        (None, False, "{}"),
        ({"a": float("nan")}, False, "{}"),
        ({"a": "\ud83d"}, False, '{"a":"\ufffd"}'),
    ],
)
def test_arguments_always_parse(arguments: Any, invalid: bool, sent: str) -> None:
    """C37"""
    call = FunctionCall("c", "f", arguments, "own", invalid=invalid)
    (entry,) = wire_messages([Message("assistant", [call])])
    assert entry["tool_calls"][0]["function"]["arguments"] == sent


def test_names_that_services_refuse_are_made_valid() -> None:
    history = [*turn("a", "o1", name="made.up/tool"), *turn("b", "o2", name="")]
    assert strict.refusal({"messages": wire_messages(history)}) is None


def test_content_is_never_null() -> None:
    """C55"""
    sent = wire_messages([*turn("c", "own"), Message("assistant", []), Message("assistant", [ReasoningContent("hm")])])
    assert [m["content"] for m in sent if m["role"] == "assistant"] == ["", "", ""]


def test_a_refusal_and_interrupted_text_are_text() -> None:
    sent = wire_messages(
        [Message("assistant", [RefusalContent("I cannot")]), Message("assistant", "Hel", interrupted=True)]
    )
    assert [m["content"] for m in sent] == ["I cannot", "Hel"]


def test_approvals_never_go_out() -> None:
    call = FunctionCall("c", "f", {}, "own")
    request = ApprovalRequest("own", call)
    messages = [Message("assistant", [request]), Message("user", [request.approve()]), Message("user", "Hi")]
    assert wire_messages(messages) == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("plain", "plain"),
        ("鳥 🐙 ż", "鳥 🐙 ż"),
        ("a\ud83d", "a\ufffd"),
        ("a\udc00b", "a\ufffdb"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d \ude00", "\ufffd \ufffd"),
    ],
)
def test_half_a_surrogate_pair_is_replaced(text: str, sent: str) -> None:
    """C47"""
    messages = [Message(role, text) for role in ("system", "user", "assistant")]  # type: ignore[arg-type]
    messages.append(Message("tool", [FunctionResult("c", "f", text)]))
    assert [m["content"] for m in wire_messages(messages)] == [sent] * 4


def test_reasoning_goes_back_only_where_asked_and_only_in_this_turn() -> None:
    """C40"""
    old = turn("a", "o1")
    old[1] = Message("assistant", [ReasoningContent("old"), *old[1].contents])
    new = turn("b", "o2")
    new[1] = Message("assistant", [ReasoningContent("new"), *new[1].contents])
    asked = wire_messages([*old, *new], replay_reasoning=True)
    assert [m.get("reasoning_content") for m in asked if m["role"] == "assistant"] == [None, "new"]
    assert not any("reasoning_content" in m for m in wire_messages([*old, *new]))


def test_authors_are_named_where_that_says_something() -> None:
    """One assistant needs no name, and some servers refuse one; invalid names are left out."""
    alone = [Message("user", "Hi", "ada"), Message("user", "Hi", "Ada Lovelace"), Message("assistant", "Yes", "bot")]
    assert [m.get("name") for m in wire_messages(alone)] == ["ada", None, None]
    two = [Message("assistant", "A", "writer"), Message("assistant", "B", "the editor"), Message("assistant", "C", "c")]
    assert [m.get("name") for m in wire_messages(two)] == ["writer", None, "c"]


def test_images_sounds_and_files_are_parts() -> None:
    contents = [
        TextContent("See"),
        DataContent("https://example.org/a.png", "image/png"),
        DataContent("data:audio/wav;base64,UklGRg==", "audio/wav"),
        DataContent("data:application/pdf;base64,JVBERi0=", "application/pdf"),
    ]
    (sent,) = wire_messages([Message("user", contents)])
    assert sent["content"] == [
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "file", "file": {"filename": "file.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
    ]
    with pytest.raises(ConfigurationError, match="data: URI"):
        wire_messages([Message("user", [DataContent("https://example.org/a.pdf", "application/pdf")])])


def test_a_message_is_converted_once() -> None:
    messages = turn("c", "own")
    first = wire_messages(messages)
    assert wire_messages(messages)[0] is first[0]
    assert wire_messages(messages) == first


def test_one_message_in_two_conversations_has_its_id_in_each() -> None:
    shared = turn("c", "own")
    assert ids([*turn("c", "other"), *shared]) == [("c", "c"), ("own", "own")]
    assert ids(shared) == [("c", "c")]


call_ids = st.sampled_from([None, "", "a", "b", "own-1"])


@given(st.lists(st.lists(st.tuples(call_ids, st.sampled_from(["{}", "[", "", None])), min_size=1, max_size=3)))
def test_every_balanced_history_satisfies_a_strict_server(turns: list[list[tuple[str | None, str | None]]]) -> None:
    """C68: whatever ids and arguments the provider gave."""
    history: list[Message] = [Message("user", "Go")]
    number = 0
    for calls in turns:
        made = []
        for call_id, arguments in calls:
            number += 1
            made.append(FunctionCall(call_id, "f", arguments, f"own-{number}"))
        history.append(Message("assistant", made))
        history += [Message("tool", [FunctionResult(c.call_id, c.name, c.id, c.id)]) for c in made]
        history.append(Message("user", "And?"))
    sent = wire_messages(history)
    assert strict.refusal({"messages": sent}) is None
    results = [m["content"] for m in sent if m["role"] == "tool"]
    assert results == [f"own-{place}" for place in range(1, number + 1)]
    assert json.loads(json.dumps(sent)) == sent


def test_tools() -> None:
    schema = {"type": "object", "properties": {}}
    assert wire_tools([ToolDefinition("add", "Add two.", schema)]) == [
        {"type": "function", "function": {"name": "add", "description": "Add two.", "parameters": schema}}
    ]


@pytest.mark.parametrize(
    ("host", "model", "renamed"),
    [
        ("api.openai.com", "gpt-4o-mini", True),
        ("eu.api.openai.com", "gpt-5", True),
        ("mine.openai.azure.com", "gpt-5-mini", True),
        ("mine.openai.azure.com", "o4-mini", True),
        ("mine.openai.azure.com", "gpt-4o", False),
        ("localhost:8000", "gpt-5", False),
        ("notapi.openai.com.evil.org", "gpt-5", False),
    ],
)
def test_max_tokens_is_renamed_where_openai_has_replaced_it(host: str, model: str, renamed: bool) -> None:
    sent = wire_options({"max_tokens": 5, "temperature": 0}, model=model, host=host)
    assert sent == {("max_completion_tokens" if renamed else "max_tokens"): 5, "temperature": 0}
