"""What of messages, tools and options goes out to a Responses server: each message once, in its own words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nbagents import Message, tool
from nbagents.clients.responses_tools import hosted_contents
from nbagents.clients.responses_wire import wire_input, wire_options, wire_tools
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
from tests.clients.responding import SEARCH

IMAGE = DataContent("data:image/png;base64,iVBORw0KGgo=", "image/png")


def call(call_id: str = "c1", name: str = "add", arguments: Any = None, **more: Any) -> FunctionCall:
    return FunctionCall(call_id, name, {"a": 1} if arguments is None else arguments, **more)


def result(call_id: str = "c1", text: str = "2", **more: Any) -> Message:
    return Message("tool", [FunctionResult(call_id, "add", text, **more)])


# --- messages


def test_each_message_is_its_items_in_their_order() -> None:
    thought = ReasoningContent("Hm.", "rs_1", "secret")
    messages = [
        Message("system", "Be brief."),
        Message("user", "Add."),
        Message("assistant", [thought, TextContent("Let me see."), call()]),
        result(),
        Message("assistant", "It is 2.", "helper"),
    ]
    assert wire_input(messages) == [
        {"type": "message", "role": "system", "content": "Be brief."},
        {"type": "message", "role": "user", "content": "Add."},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "secret",
        },
        {"type": "message", "role": "assistant", "content": "Let me see."},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "c1", "output": "2"},
        {"type": "message", "role": "assistant", "content": "It is 2."},
    ]


THOUGHT = ReasoningContent("Hm.", "rs_1", "secret")
REASONING: dict[str, tuple[list[Any], list[str]]] = {
    "encrypted": ([THOUGHT, TextContent("Yes.")], ["reasoning", "message"]),
    "not encrypted": ([ReasoningContent("Hm.", "rs_1"), TextContent("Yes.")], ["message"]),
    "of another service": ([ReasoningContent("Hm.", None, "signature"), TextContent("Yes.")], ["message"]),
    "nothing follows": ([TextContent("Yes."), THOUGHT], ["message"]),
    "nothing else": ([THOUGHT], []),
    "an empty text follows": ([THOUGHT, TextContent("")], []),
}


@pytest.mark.parametrize("name", REASONING)
def test_reasoning_goes_out_only_where_the_service_takes_it(name: str) -> None:
    contents, kinds = REASONING[name]
    assert [item["type"] for item in wire_input([Message("assistant", contents)])] == kinds


def test_reasoning_and_hosted_calls_of_an_interrupted_message_stay_here() -> None:
    contents = [ReasoningContent("Hm.", "rs_1", "secret"), *hosted_contents(SEARCH), TextContent("Hel")]
    sent = wire_input([Message("assistant", contents, interrupted=True)])
    assert sent == [{"type": "message", "role": "assistant", "content": "Hel"}]


def test_text_joins_one_way_and_refusals_are_text() -> None:
    contents = [TextContent("One ", extra={"annotations": [1]}), TextContent("two."), RefusalContent(" No.")]
    (sent,) = wire_input([Message("assistant", contents)])
    assert sent["content"] == "One two. No."


def test_text_around_calls_keeps_its_place() -> None:
    """C33"""
    sent = wire_input([Message("assistant", [TextContent("Checking"), call(), TextContent(" done")]), result()])
    assert [item["type"] for item in sent] == ["message", "function_call", "message", "function_call_output"]


def test_a_phase_goes_back_with_its_message() -> None:
    (sent,) = wire_input([Message("assistant", [TextContent("Hm.", extra={"phase": "commentary"})])])
    assert sent == {"type": "message", "role": "assistant", "content": "Hm.", "phase": "commentary"}


@pytest.mark.parametrize(
    "message",
    [Message("assistant", ""), Message("assistant", [ApprovalRequest("a", call())])],
    ids=["empty", "approval"],
)
def test_what_holds_nothing_for_the_service_is_no_item(message: Message) -> None:
    assert wire_input([message]) == []


def test_an_empty_prompt_is_sent() -> None:
    assert wire_input([Message("user", "")]) == [{"type": "message", "role": "user", "content": ""}]


PARTS: list[tuple[DataContent, dict[str, Any]]] = [
    (IMAGE, {"type": "input_image", "image_url": IMAGE.uri, "detail": "auto"}),
    (
        DataContent("https://x.test/a.jpg", "image/jpeg"),
        {"type": "input_image", "image_url": "https://x.test/a.jpg", "detail": "auto"},
    ),
    (
        DataContent("data:application/pdf;base64,AA==", "application/pdf", "a.pdf"),
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
    ),
    (
        DataContent("data:application/pdf;base64,AA==", "application/pdf"),
        {"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,AA=="},
    ),
    (
        DataContent("https://x.test/a.pdf", "application/pdf"),
        {"type": "input_file", "file_url": "https://x.test/a.pdf"},
    ),
    (DataContent("openai-file:file_1", "application/pdf"), {"type": "input_file", "file_id": "file_1"}),
    (
        DataContent("openai-file:file_2", "image/png"),
        {"type": "input_image", "file_id": "file_2", "detail": "auto"},
    ),
    (
        DataContent("data:audio/mpeg;base64,AA==", "audio/mpeg"),
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}},
    ),
]


@pytest.mark.parametrize(("content", "part"), PARTS)
def test_images_files_and_sound_are_parts(content: DataContent, part: dict[str, Any]) -> None:
    (sent,) = wire_input([Message("user", ["What is it?", content])])
    assert sent["content"] == [{"type": "input_text", "text": "What is it?"}, part]


def test_images_that_a_tool_returns_are_sent_with_its_text() -> None:
    sent = wire_input([Message("assistant", [call()]), result(text="A plot.", items=(IMAGE,))])
    assert sent[1]["output"] == [{"type": "input_text", "text": "A plot."}, PARTS[0][1]]


@pytest.mark.parametrize("arguments", ["", "{}", "[1]", "{broken", "null", None, {"x": float("nan")}])
def test_stored_arguments_always_parse(arguments: Any) -> None:
    """C27, C37"""
    written = FunctionCall("c1", "now", arguments, invalid=arguments in ("[1]", "{broken", "null"))
    (sent,) = wire_input([Message("assistant", [written])])
    assert sent["arguments"] == "{}"


def test_ids_of_calls_are_unique_and_the_same_in_call_and_result() -> None:
    """C68: providers repeat ids, across turns and within one reply."""
    turns = [
        Message("assistant", [call("run:0", id="own1"), call("run:0", id="own2")]),
        result("run:0", "A", id="own1"),
        result("run:0", "B", id="own2"),
        Message("assistant", [call("run:0", id="own3")]),
        result("run:0", "C", id="own3"),
    ]
    sent = wire_input(turns)
    ids = [(item["type"], item["call_id"], item.get("output")) for item in sent]
    assert ids == [
        ("function_call", "run:0", None),
        ("function_call", "own2", None),
        ("function_call_output", "run:0", "A"),
        ("function_call_output", "own2", "B"),
        ("function_call", "own3", None),
        ("function_call_output", "own3", "C"),
    ]
    assert wire_input(turns) == sent


def test_results_alone_keep_the_ids_that_the_service_knows() -> None:
    assert [item["call_id"] for item in wire_input([result("c1", id="own1"), result("c2", id="own2")])] == ["c1", "c2"]


def test_half_a_surrogate_is_replaced_wherever_it_stands() -> None:
    """C47"""
    bad = "a\ud83d"
    messages = [
        Message("system", bad),
        Message("user", [bad, IMAGE]),
        Message("assistant", [ReasoningContent(bad, "rs_1", "s"), TextContent(bad), call(arguments={"x": bad})]),
        result(text=bad),
        Message("user", "żółw 鳥🐙"),
    ]
    sent = json.dumps(wire_input(messages), ensure_ascii=False)
    sent.encode()
    assert (sent.count("a\ufffd"), "żółw 鳥🐙" in sent) == (6, True)


def test_names_that_the_service_refuses_are_made_valid() -> None:
    (sent,) = wire_input([Message("assistant", [call(name="nbagents.add it")])])
    assert sent["name"].startswith("nbagents_add_it_")


# --- tools


@tool
def book(city: str, nights: int = 1) -> str:
    """Book a room."""
    return f"{nights} nights in {city}"


@tool
def free(fields: dict[str, int]) -> str:
    """Take anything."""
    return str(fields)


@tool(strict=False)
def loose(city: str) -> str:
    """Never strict."""
    return city


def test_functions_are_strict_where_their_schema_allows_it() -> None:
    """C58: strict and schema agree."""
    sent = wire_tools([book.definition, free.definition, loose.definition])
    assert [(one["name"], one["strict"]) for one in sent] == [("book", True), ("free", False), ("loose", False)]
    assert sent[0]["parameters"]["required"] == ["city", "nights"]
    assert sent[0]["parameters"]["additionalProperties"] is False
    assert sent[0].keys() == {"type", "name", "description", "parameters", "strict"}
    assert sent[2]["parameters"]["required"] == ["city"]


# --- options


def test_options_go_out_under_the_services_names() -> None:
    options = {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_tokens": 50,
        "parallel_tool_calls": False,
        "metadata": {"a": "b"},
        "user": "ada",
        "reasoning_effort": "low",
        "tool_choice": "required",
        "store": True,
        "model": "other",
    }
    assert wire_options(options, host="api.openai.com", reasoning_summary="auto") == {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_output_tokens": 50,
        "parallel_tool_calls": False,
        "metadata": {"a": "b"},
        "user": "ada",
        "reasoning": {"effort": "low", "summary": "auto"},
        "tool_choice": "required",
    }


@pytest.mark.parametrize("name", ["stop", "seed", "logit_bias", "frequency_penalty", "presence_penalty"])
def test_what_responses_does_not_have_is_an_error_there_and_goes_to_other_servers_as_it_is(name: str) -> None:
    for host in ("api.openai.com", "eu.api.openai.com", "x.openai.azure.com", "x.openai.azure.com:443"):
        with pytest.raises(ConfigurationError, match=f"no option '{name}'.*{name}=UNSET"):
            wire_options({name: 1}, host=host)
    assert wire_options({name: 1}, host="localhost:8000") == {name: 1}


CHOICES: list[tuple[Any, Any]] = [
    ("auto", "auto"),
    ({"type": "function", "function": {"name": "add"}}, {"type": "function", "name": "add"}),
    ({"type": "function", "name": "add"}, {"type": "function", "name": "add"}),
    ({"type": "web_search"}, {"type": "web_search"}),
    (
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "add"}}]},
        },
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "add"}]},
    ),
]


@pytest.mark.parametrize(("choice", "sent"), CHOICES)
def test_a_choice_of_tool_has_the_services_form(choice: Any, sent: Any) -> None:
    assert wire_options({"tool_choice": choice}, host="x")["tool_choice"] == sent


FORMATS: list[tuple[Any, Any]] = [
    ({"type": "json_object"}, {"type": "json_object"}),
    (
        {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": False}},
        {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": False},
    ),
]


@pytest.mark.parametrize(("format", "sent"), FORMATS)
def test_a_response_format_has_the_services_form(format: Any, sent: Any) -> None:
    assert wire_options({"response_format": format}, host="x")["text"] == {"format": sent}
