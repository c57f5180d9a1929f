"""Items that OpenAI has stored come back as the messages that they were."""

from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbagents import DataContent, Message, TextContent
from nbagents.clients.openai_threads import batches
from nbagents.clients.responses_history import messages_of
from nbagents.clients.responses_wire import wire_input
from nbagents.core.content import FunctionCall, FunctionResult, HostedToolCall
from nbagents.core.errors import InvalidReplyError
from tests.core.thread_contract import shown
from tests.support import responses_events as wire

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@st.composite
def conversations(draw):
    """Whole turns: what a user says, what the model answers, perhaps after calls, and perhaps with text beside them."""
    numbers, messages = count(), []
    for _ in range(draw(st.integers(1, 4))):
        messages.append(Message("user", draw(texts)))
        for _ in range(draw(st.integers(0, 2))):
            ids = [f"c{next(numbers)}" for _ in range(draw(st.integers(1, 3)))]
            calls = [FunctionCall(id, "f", {"n": id}, f"call_{id}") for id in ids]
            messages.append(Message("assistant", [*draw(st.lists(texts, max_size=1)), *calls]))
            messages += [Message("tool", [FunctionResult(c.call_id, "f", draw(texts), c.id)]) for c in calls]
        messages.append(Message("assistant", draw(texts)))
    return messages


def stored(messages):
    return [{"id": f"item_{number}", **item} for number, item in enumerate(wire_input(messages))]


@given(conversations())
@settings(max_examples=60, deadline=None)
def test_every_conversation_comes_back(messages):
    found = messages_of(stored(messages))
    assert shown(found) == shown(messages)
    assert [[(c.call_id, c.arguments) for c in m.calls] for m in found] == [
        [(c.call_id, c.arguments) for c in m.calls] for m in messages
    ]
    assert wire_input(found) == wire_input(messages)
    assert messages_of(stored(messages)) == found
    assert len({message.message_id for message in found}) == len(found)


@given(conversations())
@settings(max_examples=40, deadline=None)
def test_batches_bring_everything_in_order_and_split_no_group_that_fits(messages):
    items = wire_input(messages)
    cut = list(batches(items))
    assert [item for batch in cut for item in batch] == items
    assert all(0 < len(batch) <= 20 for batch in cut)
    for batch in cut:
        calls = [item["call_id"] for item in batch if item["type"] == "function_call"]
        assert calls == [item["call_id"] for item in batch if item["type"] == "function_call_output"]


def test_a_group_that_fits_in_no_batch_is_split():
    calls = [FunctionCall(f"c{n}", "f", {}, f"call_{n}") for n in range(15)]
    group = [
        Message("assistant", calls),
        *(Message("tool", [FunctionResult(c.call_id, "f", "r", c.id)]) for c in calls),
    ]
    assert [len(batch) for batch in batches(wire_input(group))] == [20, 10]


def test_what_is_said_in_other_ways_is_read_too():
    png = "data:image/png;base64,iVBORw0KGgo="
    user, told, model = messages_of(
        [
            {
                "type": "message",
                "id": "m1",
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Look: "},
                    {"type": "text", "text": "here"},
                    {"type": "input_image", "file_id": "file_1", "detail": "auto"},
                    {"type": "input_image", "image_url": png},
                    {"type": "input_file", "file_url": "https://x/a.pdf"},
                    {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
                    {"type": "later"},
                ],
            },
            {"role": "developer", "content": "Be brief.", "id": "m2"},
            {"role": "assistant", "content": "Yes.", "id": "m3", "type": "message"},
        ]
    )
    assert user.contents == (
        TextContent("Look: here"),
        DataContent("openai-file:file_1", "image/png"),
        DataContent(png, "image/png"),
        DataContent("https://x/a.pdf", "application/octet-stream"),
        DataContent("data:audio/wav;base64,AA==", "audio/wav"),
    )
    assert (told.role, told.text, told.message_id) == ("system", "Be brief.", "m2")
    assert (model.role, model.text, model.message_id) == ("assistant", "Yes.", "m3")


def test_a_reply_with_thoughts_and_several_texts_is_put_together_as_when_it_arrived():
    items = [
        wire.thought("hm", id="rs_1", encrypted="secret"),
        wire.said("First.", id="msg_1"),
        wire.called("c1", "f", {"a": 1}, id="fc_1"),
        {"type": "function_call_output", "id": "o1", "call_id": "c1", "output": "r"},
        wire.said("Second.", id="msg_2"),
        wire.said("Third.", id="msg_3"),
        wire.refused("No.", id="msg_4"),
    ]
    first, result, *rest = messages_of(items)
    assert [content.type for content in first.contents] == ["reasoning", "text", "function_call"]
    assert first.calls[0].id == result.results[0].id == "fc_1"
    assert [(m.message_id, m.contents[0].text) for m in rest] == [
        ("msg_2", "Second."),
        ("msg_2-2", "Third."),
        ("msg_2-3", "No."),
    ]
    assert rest[-1].contents[0].type == "refusal"


def test_what_the_service_did_itself_and_asked_comes_back():
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    asked = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "name": "remove",
        "server_label": "files",
        "arguments": "{}",
    }
    answer = {"type": "mcp_approval_response", "id": "a1", "approval_request_id": "mcpr_1", "approve": False}
    later = {"type": "later_call", "id": "l1", "what": 1}
    items = [search, asked, {**answer, "reason": "no"}, later]
    model, person, unknown = messages_of(items)
    assert [content.type for content in model.contents][-1] == "approval_request"
    (said,) = person.contents
    assert (said.approved, said.reason, said.service, said.call.name) == (False, "no", "files", "files.remove")
    assert isinstance(unknown.contents[0], HostedToolCall)
    sent = wire_input([model, person, unknown])
    assert [item["type"] for item in sent] == [item["type"] for item in items]


@pytest.mark.parametrize(
    "item",
    [
        None,
        "text",
        {"id": "x"},
        {"type": "function_call_output", "output": "r"},
        {"type": "mcp_approval_response", "approval_request_id": "never asked", "approve": True},
        {"type": "message", "role": "user", "content": [None]},
        {"type": "message", "role": "user", "content": [{"type": "input_audio"}]},
        {"type": "message", "role": "assistant", "content": [None]},
    ],
)
def test_what_is_no_item_is_an_error_that_shows_it(item):
    with pytest.raises(InvalidReplyError):
        messages_of([item])
