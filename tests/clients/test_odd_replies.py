"""Replies with anything in the place of anything: what comes of them is a reply that can go back, or one error."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagents import Message
from nbagents.clients import anthropic_wire, chat_wire, responses_wire
from nbagents.clients.anthropic_replies import MessageReader
from nbagents.clients.calls import Reader
from nbagents.clients.chat_replies import ReplyReader
from nbagents.clients.responses_replies import ResponseReader
from nbagents.core.content import FunctionCall, ReasoningContent, content_to_dict
from nbagents.core.errors import InvalidReplyError
from nbagents.core.folding import UpdateFolder
from tests.support import anthropic_events, responses_events
from tests.support.responses_events import called, refused, response, said, thought

ODD: list[Any] = [None, 0, -1, 1.5, True, "", "x", "a\ud800", [], [None], ["a"], {}, {"a": 1}, {"type": "x"}]
PATHS = st.lists(st.integers(0, 40), min_size=1, max_size=6)


@dataclass(frozen=True)
class Api:
    """One API: what reads its replies, a reply in both forms, and how messages go out again."""

    reader: Callable[[], Reader]
    whole: dict[str, Any]
    events: list[Any]
    wire: Callable[[Sequence[Message]], Any]


def values(events: Sequence[bytes]) -> list[Any]:
    return [json.loads(event.partition(b"data: ")[2]) for event in events]


ITEMS = [
    thought("Hm.", content=["So."], encrypted="secret"),
    said(responses_events.text_part("Hi.", {"type": "url_citation", "url": "u"}), phase="commentary", id="m1"),
    refused("No.", id="m2"),
    called("c1", "add", {"a": 1}),
    {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"query": "q", "sources": [{"u": 1}]}},
    {"type": "file_search_call", "id": "fs", "status": "completed", "queries": ["q"], "results": [{"text": "t"}]},
    {"type": "code_interpreter_call", "id": "ci", "code": "1", "outputs": [{"type": "logs", "logs": "2"}]},
    {"type": "image_generation_call", "id": "ig", "result": "AA==", "output_format": "webp", "revised_prompt": "p"},
    {"type": "mcp_call", "id": "mc", "name": "n", "server_label": "s", "arguments": "{}", "output": "o"},
    {"type": "mcp_approval_request", "id": "ar", "name": "n", "server_label": "s", "arguments": '{"a": 1}'},
    {"type": "mcp_list_tools", "id": "ml", "server_label": "s", "tools": [{"name": "a"}]},
    {"type": "shell_call", "id": "sh", "call_id": "c2", "action": {"commands": ["ls"]}},
    {"type": "shell_call_output", "id": "so", "call_id": "c2", "output": [{"stdout": "x"}]},
    {"type": "teleport", "id": "tp", "where": "Oslo"},
]
WHOLE = response(*ITEMS, conversation={"id": "conv_1"})
BLOCKS = [
    {"type": "thinking", "thinking": "Hm.", "signature": "s"},
    {"type": "redacted_thinking", "data": "d"},
    {"type": "text", "text": "Hi.", "citations": [{"url": "u"}]},
    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
    {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "u"}]},
    {"type": "mcp_tool_use", "id": "m1", "name": "n", "server_name": "s", "input": {}},
    {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": True, "content": [{"type": "text", "text": "x"}]},
    {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
]
DELTAS = [
    anthropic_events.thinking(0, "Hm.", signature="s"),
    anthropic_events.block(1, BLOCKS[1]),
    anthropic_events.text(2, "Hi.", citations=[{"url": "u"}]),
    *(anthropic_events.block(place, block) for place, block in enumerate(BLOCKS[3:7], 3)),
    anthropic_events.call(7, "t1", "add", '{"a"', ": 1}"),
]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
MESSAGE = {"role": "assistant", "content": "Hi.", "reasoning_content": "Hm.", "refusal": None, "tool_calls": [CALL]}
COUNTS = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 1}}
CHUNKS = [
    {"reasoning_content": "Hm."},
    {"content": "Hi."},
    {"content": [{"type": "text", "text": "Hi."}]},
    {"tool_calls": [{"index": 0, **CALL}]},
]
APIS = {
    "responses": Api(
        lambda: ResponseReader(stored=True), WHOLE, values(responses_events.stream(WHOLE)), responses_wire.wire_input
    ),
    "anthropic": Api(
        MessageReader,
        anthropic_events.message(*BLOCKS, reason="tool_use"),
        values(anthropic_events.stream(*DELTAS, reason="tool_use")),
        anthropic_wire.wire_messages,
    ),
    "chat": Api(
        ReplyReader,
        {"id": "x", "model": "m", "choices": [{"message": MESSAGE, "finish_reason": "tool_calls"}], "usage": COUNTS},
        [
            *({"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta}]} for delta in CHUNKS),
            {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}], "usage": COUNTS},
        ],
        chat_wire.wire_messages,
    ),
}


def replaced(value: Any, path: Sequence[int], odd: Any) -> Any:
    """`value` with `odd` at the end of a path, each step of which is counted around what there is."""
    if not path or not isinstance(value, dict | list) or not value:
        return odd
    names = list(value) if isinstance(value, dict) else range(len(value))
    chosen = names[path[0] % len(names)]
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    changed = {name: replaced(item, path[1:], odd) if name == chosen else item for name, item in pairs}
    return changed if isinstance(value, dict) else list(changed.values())


def read_whole(api: Api, body: Any) -> UpdateFolder:
    reader, folder = api.reader(), UpdateFolder()
    update = reader.read_reply(body)
    while update is not None:
        folder.add(update, new_call_id=lambda: "own")
        update = reader.read_end()
    return folder


def read_events(api: Api, events: Sequence[Any]) -> UpdateFolder:
    reader, folder = api.reader(), UpdateFolder()
    for event in events:
        if (update := reader.read_chunk(event)) is not None:
            folder.add(update, new_call_id=lambda: "own")
        if reader.ended or reader.error:
            break
    while not reader.error and (update := reader.read_end()) is not None:
        folder.add(update, new_call_id=lambda: "own")
    return folder


def assert_goes_on(api: Api, folder: UpdateFolder) -> None:
    """What was read can be stored, read again, and sent."""
    messages = folder.messages()
    stored = json.loads(json.dumps([message.to_dict() for message in messages]))
    assert [Message.from_dict(one).contents for one in stored] == [message.contents for message in messages]
    json.dumps(api.wire([Message("user", "Hi"), *messages]), ensure_ascii=False).encode()
    facts = (folder.response_id, folder.conversation_id, folder.model, folder.finish_reason)
    assert all(isinstance(fact, str | None) for fact in facts)
    for content in (content for message in messages for content in message.contents):
        record = content_to_dict(content)
        texts = ("id", "name", "call_id", "server", "text", "error", "encrypted")
        assert all(isinstance(record.get(name), str | None) for name in texts)


@pytest.mark.parametrize("name", APIS)
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(PATHS, st.sampled_from(ODD)), min_size=1, max_size=3), st.booleans())
def test_anything_in_the_place_of_anything_is_a_reply_or_one_error(
    name: str, changes: list[tuple[list[int], Any]], streamed: bool
) -> None:
    api = APIS[name]
    changed: Any = api.events if streamed else api.whole
    for path, odd in changes:
        changed = replaced(changed, path, odd)
    if streamed and not isinstance(changed, list):
        changed = [changed]
    try:
        folder = read_events(api, changed) if streamed else read_whole(api, changed)
    except InvalidReplyError:
        return
    assert_goes_on(api, folder)


def places(value: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """The paths to all that is in `value`."""
    items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [path, *(inner for number, item in enumerate(items) for inner in places(item, (*path, number)))]


@pytest.mark.parametrize(
    "odd", ["a\ud800", 5, None, [1], {"a": 1}], ids=["half a surrogate", "number", "null", "list", "object"]
)
@pytest.mark.parametrize("name", APIS)
def test_no_single_field_of_a_whole_reply_breaks_more_than_the_reply(name: str, odd: Any) -> None:
    """C47, C48"""
    api = APIS[name]
    for path in places(api.whole):
        try:
            folder = read_whole(api, replaced(api.whole, path, odd))
        except InvalidReplyError:
            continue
        assert_goes_on(api, folder)


@pytest.mark.parametrize("name", APIS)
@pytest.mark.parametrize("gone", [1, 2])
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_events_that_are_lost_repeated_or_out_of_order_are_a_reply_or_one_error(
    name: str, gone: int, data: st.DataObject
) -> None:
    api = APIS[name]
    numbers = list(range(len(api.events)))
    for _ in range(gone):
        numbers.pop(data.draw(st.integers(0, len(numbers) - 1)))
    moved = numbers[data.draw(st.integers(0, len(numbers) - 1))]
    numbers.insert(data.draw(st.integers(0, len(numbers))), moved)
    try:
        folder = read_events(api, [api.events[number] for number in numbers])
    except InvalidReplyError:
        return
    assert_goes_on(api, folder)


@pytest.mark.parametrize("name", APIS)
def test_the_replies_that_are_changed_here_are_whole(name: str) -> None:
    api = APIS[name]
    for folder in (read_whole(api, api.whole), read_events(api, api.events)):
        contents = [content for message in folder.messages() for content in message.contents]
        assert [(c.name, c.arguments) for c in contents if isinstance(c, FunctionCall)] == [("add", {"a": 1})]
        assert any(isinstance(content, ReasoningContent) for content in contents)
        assert "Hi." in folder.text
        assert folder.finish_reason == "tool_calls"
