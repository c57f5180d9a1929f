"""Tools that run at OpenAI: how they are asked for, and how their calls come back and go out again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nbagents import HostedTool, Message, OpenAIResponsesClient
from nbagents.clients.responses_tools import hosted_contents, hosted_item, included
from nbagents.clients.responses_wire import wire_input, wire_tools
from nbagents.core import HostedToolCall, HostedToolResult
from nbagents.core.content import (
    content_from_dict,
    content_to_dict,
)
from nbagents.core.errors import ConfigurationError
from tests.clients.responding import SEARCH, add


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
    assert included([*tools, add.definition]) == [
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


ITEMS: dict[str, dict[str, Any]] = {
    "web search": SEARCH,
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
