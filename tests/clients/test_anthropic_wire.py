"""What goes out to Anthropic's API: messages, media, tools and options."""

from __future__ import annotations

import itertools
import json
from base64 import b64encode
from dataclasses import replace
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from nbagents import Message, tool
from nbagents.clients.anthropic_options import MAX_TOKENS, output_instruction, wire_options
from nbagents.clients.anthropic_wire import EMPTY, wire_messages, wire_tools
from nbagents.core.balance import balanced
from nbagents.core.content import (
    Content,
    DataContent,
    FunctionCall,
    FunctionResult,
    HostedToolCall,
    HostedToolResult,
    ReasoningContent,
    RefusalContent,
    TextContent,
)
from nbagents.core.errors import ConfigurationError
from nbagents.core.outputs import output_format
from tests.support import anthropic_events as wire

SERVICE = "api.anthropic.com"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
PDF = b"%PDF-1.7 x"


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def sent(*messages: Message) -> list[tuple[str, Any]]:
    return [(turn["role"], turn["content"]) for turn in wire_messages(messages)[1]]


def user_part(content: Content) -> Any:
    ((_, (block,)),) = sent(Message("user", [content]))
    return block


# --- messages


def test_the_system_prompt_stands_apart_in_its_order() -> None:
    system, turns = wire_messages([Message("system", "A."), Message("user", "Hi"), Message("system", "B.")])
    assert system == [text("A."), text("B.")]
    assert turns == [{"role": "user", "content": [text("Hi")]}]


def test_neighbours_of_one_role_are_one_message() -> None:
    assert sent(Message("user", "a"), Message("user", "b"), Message("assistant", "c"), Message("assistant", "d")) == [
        ("user", [text("a"), text("b")]),
        ("assistant", [text("c"), text("d")]),
    ]


def test_results_stand_before_what_the_user_says_next() -> None:
    """C30: also those of a reply of several messages."""
    calls = [Message("assistant", [FunctionCall(f"c{n}", "f", {"n": n}, f"id{n}")]) for n in (1, 2)]
    results = [Message("tool", [FunctionResult(f"c{n}", "f", f"r{n}", f"id{n}")]) for n in (1, 2)]
    roles = sent(Message("user", "go"), *calls, *results, Message("user", "and?"))
    assert roles[1] == (
        "assistant",
        [{"type": "tool_use", "id": f"c{n}", "name": "f", "input": {"n": n}} for n in (1, 2)],
    )
    answered = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": f"r{n}"} for n in (1, 2)]
    assert roles[2] == ("user", [*answered, text("and?")])


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_no_empty_text_is_sent(blank: str) -> None:
    """The service refuses one."""
    assert sent(Message("user", blank)) == [("user", [text(EMPTY)])]
    assert sent(Message("user", [blank, DataContent.from_bytes(PNG)]))[0][1][0]["type"] == "image"
    assert sent(Message("user", "a"), Message("assistant", blank), Message("user", "b")) == [
        ("user", [text("a"), text("b")])
    ]
    assert wire_messages([Message("system", blank), Message("user", "a")])[0] == []


@pytest.mark.parametrize("first", [[], [Message("system", "S")], [Message("assistant", "Hi")]])
def test_a_conversation_begins_with_the_user(first: list[Message]) -> None:
    assert sent(*first)[0] == ("user", [text(EMPTY)])


def test_words_of_a_refusal_and_half_characters_are_text() -> None:
    (_, (_, said)) = sent(Message("user", "a"), Message("assistant", [RefusalContent("No.")]))
    assert said == [text("No.")]
    assert sent(Message("user", "cut \ud83d")) == [("user", [text("cut \ufffd")])]


def test_what_other_services_thought_and_ran_is_left_out() -> None:
    foreign = [
        ReasoningContent("Hm", "rs_1", "theirs"),
        HostedToolCall("web_search", "ws_1", {"query": "x"}),
        HostedToolResult("web_search", "ws_1", "y"),
        DataContent.from_bytes(PNG),
        TextContent("Well."),
    ]
    assert sent(Message("user", "a"), Message("assistant", foreign))[1] == ("assistant", [text("Well.")])


def test_ids_and_names_of_other_services_are_made_to_fit() -> None:
    calls = [FunctionCall(id, "look up!", {}, f"own{n}") for n, id in enumerate(["call|1", "call:1", "call|1"])]
    results = [Message("tool", [FunctionResult(call.call_id, call.name, "r", call.id)]) for call in calls]
    _, (_, blocks), (_, answers) = sent(Message("user", "a"), Message("assistant", calls), *results)
    ids = [block["id"] for block in blocks]
    assert ids == [answer["tool_use_id"] for answer in answers]
    assert len(set(ids)) == 3
    assert all(wire.BLOCK_ID.fullmatch(id) for id in ids)
    assert len({block["name"] for block in blocks}) == 1
    assert "!" not in blocks[0]["name"]


@pytest.mark.parametrize(
    ("arguments", "goes_out"),
    [
        ({"a": [1, "\ud83d"]}, {"a": [1, "\ufffd"]}),
        ({"a": float("nan")}, {}),
        (None, {}),
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"a": ', {}),
        ("[1]", {}),
    ],
)
def test_arguments_go_out_as_an_object(arguments: Any, goes_out: Any) -> None:
    call = FunctionCall("c1", "f", arguments, "id1")
    _, (_, (block,)) = sent(Message("user", "a"), Message("assistant", [call]))
    assert block["input"] == goes_out


def test_a_conversation_is_converted_once() -> None:
    message = Message("user", "Hi")
    first = wire_messages([message])[1][0]["content"][0]
    assert wire_messages([message, Message("user", "again")])[1][0]["content"][0] is first
    assert wire_messages([message])[1] == [{"role": "user", "content": [text("Hi")]}]


# --- images and files


def test_images_and_files_go_out_in_the_forms_of_the_service() -> None:
    image, pdf = DataContent.from_bytes(PNG), DataContent.from_bytes(PDF, name="a.pdf")
    assert user_part(image) == {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": b64encode(PNG).decode()},
    }
    assert user_part(pdf) == {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": b64encode(PDF).decode()},
        "title": "a.pdf",
    }
    address = DataContent.from_uri("https://example.org/a.jpg")
    assert user_part(address) == {"type": "image", "source": {"type": "url", "url": "https://example.org/a.jpg"}}
    table = DataContent.from_bytes("a,b\né,1".encode(), name="t.csv")
    assert user_part(table)["source"] == {"type": "text", "media_type": "text/plain", "data": "a,b\né,1"}
    by_hand = DataContent("data:image/png,%89PNG", "image/png")
    assert user_part(by_hand)["source"]["data"] == b64encode(b"\x89PNG").decode()


@pytest.mark.parametrize("kind", ["audio/wav", "image/bmp", "video/mp4"])
def test_what_the_models_do_not_take_is_named(kind: str) -> None:
    with pytest.raises(ConfigurationError, match=kind):
        sent(Message("user", [DataContent.from_bytes(b"x", kind)]))


def test_images_that_a_tool_returned_go_with_its_result() -> None:
    items = (DataContent.from_bytes(PNG), DataContent.from_bytes(b"x", "audio/wav"))
    result = FunctionResult("c1", "plot", "[image/png] [audio/wav]", "id1", items=items)
    call = Message("assistant", [FunctionCall("c1", "plot", {}, "id1")])
    *_, (_, (block,)) = sent(Message("user", "a"), call, Message("tool", [result]))
    assert [part["type"] for part in block["content"]] == ["text", "image"]


# --- tools


def test_tools_go_out_with_their_schema() -> None:
    @tool
    def now() -> str:
        """Tell the time."""
        return ""

    @tool(strict=True)
    def pick(n: Annotated[int, Field(ge=1, le=9)], kind: Literal["a", "b"] = "a") -> str:
        """Pick."""
        return ""

    plain, strict = wire_tools([now.definition, pick.definition])
    assert plain == {"name": "now", "description": "Tell the time.", "input_schema": plain["input_schema"]}
    assert (plain["input_schema"]["type"], plain["input_schema"]["properties"]) == ("object", {})
    assert strict["strict"] is True
    number = strict["input_schema"]["properties"]["n"]
    assert "minimum" not in number
    assert '"minimum": 1' in number["description"]
    assert strict["input_schema"]["additionalProperties"] is False


# --- options


def options(model: str = "claude-sonnet-5", host: str = SERVICE, **given: Any) -> dict[str, Any]:
    return wire_options(given, model=model, host=host)


def test_options_are_translated() -> None:
    sent = options(temperature=0.2, top_p=0.5, max_tokens=9, stop="x", user="ada", metadata={"a": "b"}, store=False)
    assert sent == {
        "temperature": 0.2,
        "top_p": 0.5,
        "max_tokens": 9,
        "stop_sequences": ["x"],
        "metadata": {"a": "b", "user_id": "ada"},
    }
    assert options(stop=["x", "y"])["stop_sequences"] == ["x", "y"]
    assert options() == {"max_tokens": MAX_TOKENS}
    assert wire_options({}, model="m", host="h", max_tokens=7) == {"max_tokens": 7}


@pytest.mark.parametrize("name", ["seed", "logit_bias", "frequency_penalty", "presence_penalty"])
def test_what_the_service_does_not_have_is_an_error_there_only(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name}.*UNSET"):
        options(**{name: 1})
    assert options(host="localhost:8000", **{name: 1})[name] == 1


@pytest.mark.parametrize(
    ("given", "goes_out"),
    [
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, {"type": "tool", "name": "f"}),
        ({"tool_choice": {"type": "any"}}, {"type": "any"}),
        ({"parallel_tool_calls": False}, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"tool_choice": "required", "parallel_tool_calls": False}, {"type": "any", "disable_parallel_tool_use": True}),
        ({"parallel_tool_calls": True}, None),
    ],
)
def test_the_choice_of_a_tool_is_translated(given: dict[str, Any], goes_out: Any) -> None:
    assert options(**given).get("tool_choice") == goes_out


def test_an_unknown_choice_or_effort_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"always.*required"):
        options(tool_choice="always")
    with pytest.raises(ConfigurationError, match=r"some.*medium"):
        options(reasoning_effort="some")


@pytest.mark.parametrize(
    "model",
    [
        *("claude-opus-4-6", "claude-sonnet-4-6", "claude-opus-4-8", "claude-mythos-preview", "claude-sonnet-5"),
        *("claude-haiku-5-5", "claude-fable-5-2", "anthropic.claude-opus-4-6-v1", "claude-opus-5@20260101"),
    ],
)
def test_models_that_decide_themselves_are_told_the_effort(model: str) -> None:
    sent = options(model, reasoning_effort="minimal", max_tokens=99)
    assert sent == {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}, "max_tokens": 99}


@pytest.mark.parametrize(
    "model",
    [
        *("claude-haiku-4-5", "claude-haiku-4-5-20251001", "claude-opus-4-1-20250805", "claude-opus-4-20250514"),
        *("claude-3-7-sonnet-20250219", "anthropic.claude-sonnet-4-5-20250929-v1:0", "anthropic/claude-sonnet-4.5"),
        *("claude-opus-4-1@20250805", "other-model"),
    ],
)
def test_other_models_are_given_a_number_of_tokens(model: str) -> None:
    sent = options(model, reasoning_effort="medium")
    assert sent == {"thinking": {"type": "enabled", "budget_tokens": 8_192}, "max_tokens": MAX_TOKENS + 8_192}
    assert options(model, reasoning_effort="low", max_tokens=4_000)["max_tokens"] == 4_000
    with pytest.raises(ConfigurationError, match=r"max_tokens=2000 leaves no room.*16384"):
        options(model, reasoning_effort="high", max_tokens=2_000)


def test_thinking_is_switched_off_or_in_the_services_words() -> None:
    assert options(reasoning_effort="none")["thinking"] == {"type": "disabled"}
    own = {"type": "adaptive", "display": "summarized"}
    sent = wire_options({"reasoning_effort": "high"}, model="claude-opus-5", host=SERVICE, thinking=own)
    assert sent == {"thinking": own, "output_config": {"effort": "high"}, "max_tokens": MAX_TOKENS}


class Colour(Enum):
    RED = "red"


class Answer(BaseModel):
    number: Annotated[int, Field(ge=0)]
    colour: Colour = Colour.RED
    names: Annotated[list[str], Field(min_length=2)]


def test_a_strict_schema_is_the_services_own_structured_output() -> None:
    sent = options(response_format=Answer, reasoning_effort="low")
    assert sent["output_config"]["effort"] == "low"
    schema = sent["output_config"]["format"]["schema"]
    assert (sent["output_config"]["format"]["type"], schema["additionalProperties"]) == ("json_schema", False)
    told = json.dumps(schema["properties"])
    assert '"minimum":' not in told
    assert '"minItems":' not in told
    assert '\\"minItems\\": 2' in told
    assert output_instruction({"response_format": Answer}) is None


@pytest.mark.parametrize("asked", [{"type": "json_object"}, dict[str, int]])
def test_the_model_is_told_what_the_service_cannot_enforce(asked: Any) -> None:
    assert "output_config" not in options(response_format=asked)
    told = output_instruction({"response_format": asked})
    assert told is not None
    assert "JSON" in told
    if asked is not dict[str, int]:
        return
    known = output_format(asked)
    assert known is not None
    assert json.dumps(known.schema) in told


# --- whatever a session holds

WORDS = st.sampled_from(["", " ", "a", "é\ud83d"])
CALL_IDS = st.sampled_from([None, "c1", "c|1", "c:1"])
PARTS = st.one_of(
    WORDS.map(TextContent),
    st.builds(lambda words, signed: ReasoningContent(words, encrypted=signed), WORDS, st.sampled_from([None, "s"])),
    st.builds(lambda id: FunctionCall(id, "f", {}), CALL_IDS),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.one_of(WORDS, st.lists(PARTS, max_size=3)), max_size=6))
def test_the_service_takes_every_conversation_and_what_is_added_leaves_the_rest(turns: list[Any]) -> None:
    numbers = itertools.count()
    messages = [Message("user", "go")]
    for turn in turns:
        if isinstance(turn, str):
            messages.append(Message("user", turn))
        else:
            own = [replace(c, id=f"own{next(numbers)}") if isinstance(c, FunctionCall) else c for c in turn]
            messages.append(Message("assistant", own))
    repaired = balanced(messages)
    _, sent = wire_messages(repaired)
    assert wire.refusal({"model": "m", "max_tokens": 1, "messages": sent}) is None
    whole = json.dumps(sent)
    for length in range(1, len(repaired)):
        part = json.dumps(wire_messages(repaired[:length])[1])
        assert whole.startswith(part.removesuffix("]}]"))
