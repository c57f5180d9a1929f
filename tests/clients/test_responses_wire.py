"""What of messages, tools and options goes out to a Responses server: each message once, in its own words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nbagents import HostedTool, Message, OpenAIResponsesClient, tool
from nbagents.clients.responses_tools import hosted_contents, hosted_item, included
from nbagents.clients.responses_wire import wire_input, wire_options, wire_tools
from nbagents.core import HostedToolCall, HostedToolResult
from nbagents.core.content import (
    ApprovalRequest,
    DataContent,
    FunctionCall,
    FunctionResult,
    ReasoningContent,
    RefusalContent,
    TextContent,
    content_from_dict,
    content_to_dict,
)
from nbagents.core.errors import ConfigurationError

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
    contents = [ReasoningContent("Hm.", "rs_1", "secret"), *hosted_contents(ITEMS["web search"]), TextContent("Hel")]
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


def test_hosted_tools_stand_in_their_own_words() -> None:
    client = OpenAIResponsesClient("m", api_key="k")
    tools = [
        client.get_web_search_tool(search_context_size="low"),
        client.get_file_search_tool(vector_store_ids=["vs_1"]),
        client.get_code_interpreter_tool(),
        client.get_image_generation_tool(size="1024x1024"),
        client.get_mcp_tool(server_label="docs", server_url="https://x.test/mcp", require_approval="never"),
        client.get_shell_tool(),
        HostedTool("web_search_preview"),
    ]
    assert wire_tools(tools) == [
        {"type": "web_search", "search_context_size": "low"},
        {"type": "file_search", "vector_store_ids": ["vs_1"]},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "image_generation", "size": "1024x1024"},
        {
            "type": "mcp",
            "server_label": "docs",
            "server_url": "https://x.test/mcp",
            "require_approval": "never",
        },
        {"type": "shell", "environment": {"type": "container_auto"}},
        {"type": "web_search_preview"},
    ]
    assert included([*tools, book.definition]) == [
        "code_interpreter_call.outputs",
        "file_search_call.results",
        "web_search_call.action.sources",
    ]


@pytest.mark.parametrize(
    ("method", "settings", "says"),
    [
        ("get_file_search_tool", {}, "vector_store_ids"),
        ("get_mcp_tool", {"server_url": "https://x.test"}, "server_label"),
        ("get_mcp_tool", {"server_label": "x"}, "server_url"),
        ("get_shell_tool", {"environment": {"type": "local"}}, "would run here"),
    ],
)
def test_a_hosted_tool_without_what_it_needs_is_an_error(method: str, settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        getattr(OpenAIResponsesClient("m", api_key="k"), method)(**settings)


# --- calls of the service


ITEMS: dict[str, dict[str, Any]] = {
    "web search": {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "owls"},
    },
    "file search": {
        "type": "file_search_call",
        "id": "fs_1",
        "status": "completed",
        "queries": ["owls"],
        "results": [{"file_id": "f1", "filename": "a.txt", "score": 0.5, "text": "Owls."}],
    },
    "code": {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "status": "completed",
        "container_id": "cntr_1",
        "code": "print(1)",
        "outputs": [{"type": "logs", "logs": "1\n"}, {"type": "image", "url": "https://x.test/plot.png"}],
    },
    "image": {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw0KGgo="},
    "mcp": {
        "type": "mcp_call",
        "id": "mcp_1",
        "status": "completed",
        "name": "look",
        "server_label": "docs",
        "arguments": '{"page": 1}',
        "output": "A page.",
    },
    "failed mcp": {
        "type": "mcp_call",
        "id": "mcp_2",
        "status": "failed",
        "name": "look",
        "server_label": "docs",
        "arguments": "{}",
        "output": None,
        "error": "no such page",
    },
    "mcp tools": {
        "type": "mcp_list_tools",
        "id": "mcpl_1",
        "server_label": "docs",
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
    },
    "compaction": {"type": "compaction", "id": "cmp_1", "encrypted_content": "secret"},
}


@pytest.mark.parametrize("name", ITEMS)
def test_a_call_of_the_service_goes_back_as_it_came(name: str) -> None:
    item = ITEMS[name]
    contents = [content_from_dict(json.loads(json.dumps(content_to_dict(one)))) for one in hosted_contents(item)]
    (sent,) = wire_input([Message("assistant", contents)])
    assert sent == item


def test_a_shell_call_and_its_output_are_one_call_and_go_back_as_they_came() -> None:
    items = [
        {
            "type": "shell_call",
            "id": "sh_1",
            "call_id": "call_1",
            "status": "completed",
            "action": {"commands": ["ls"], "timeout_ms": 100},
        },
        {
            "type": "shell_call_output",
            "id": "sho_1",
            "call_id": "call_1",
            "status": "completed",
            "output": [{"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
    ]
    contents = [content for item in items for content in hosted_contents(item)]
    assert [(type(one), one.kind, one.id) for one in contents] == [
        (HostedToolCall, "shell", "call_1"),
        (HostedToolResult, "shell", "call_1"),
    ]
    assert wire_input([Message("assistant", contents)]) == items


@pytest.mark.parametrize(
    "call",
    [
        HostedToolCall("web_search", "srvtoolu_1", {"query": "owls"}),  # of another service
        *hosted_contents({"type": "web_search_call", "id": "ws_1", "status": "in_progress", "action": None}),
        *hosted_contents({"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "x", "input": "y"}),
    ],
    ids=["foreign", "not done", "waits for an answer"],
)
def test_a_call_that_the_service_would_refuse_does_not_go_back(call: HostedToolCall) -> None:
    assert list(hosted_item(call, None)) == []


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
