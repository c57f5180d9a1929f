"""Responses servers that forget, repeat and mix up: what they say is whole all the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nbagents import (
    Usage,
)
from nbagents.core.content import FunctionCall, ReasoningContent, TextContent
from tests.clients.responding import contents, reply
from tests.support import responses_events as wire
from tests.support.raw_server import RawServer
from tests.support.responses_events import called, event, response, said, thought

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
    """C20, C23, C25"""
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


# --- the end says something else


def ended_with(*items: wire.Item, done: bool) -> list[wire.Event]:
    """A stream of a text and a call whose end, or that of its items, says `items` instead."""
    spoken = [said("Hello Ada.", id="m1"), called("c1", "add", {"a": 1}, id="fc_1")]
    events = [one for place, item in enumerate(spoken) for one in wire.item_events(place, item)]
    events = without(events, "output_item.done", "output_text.done", "content_part.done", "arguments.done")
    ends = [event("response.output_item.done", output_index=place, item=item) for place, item in enumerate(items)]
    return [*wire.opening(), *events, *(ends if done else ()), wire.ending(response(*items))]


@pytest.mark.parametrize("done", [True, False], ids=["of the items", "of the response"])
async def test_an_end_that_says_something_else_is_glued_to_nothing(raw_server: RawServer, done: bool) -> None:
    other = [said("Good morning, Ada.", id="m1"), called("c1", "add", {"a": 2, "b": 3}, id="fc_1")]
    answer = await reply(raw_server, *ended_with(*other, done=done))
    assert contents(answer) == [TextContent("Hello Ada."), FunctionCall("c1", "add", {"a": 1})]


async def test_an_end_that_has_more_brings_the_rest(raw_server: RawServer) -> None:
    longer = [said("Hello Ada. Bye.", id="m1"), called("c1", "add", {"a": 1}, id="fc_1"), LOOK]
    answer = await reply(raw_server, *ended_with(*longer, done=False))
    assert answer.text == "Hello Ada. Bye."
    assert [call.name for message in answer.messages for call in message.calls] == ["add", "look"]


async def test_an_end_that_has_less_takes_nothing_back(raw_server: RawServer) -> None:
    answer = await reply(raw_server, *ended_with(said("Hello", id="m1"), done=False))
    assert contents(answer) == [TextContent("Hello Ada."), FunctionCall("c1", "add", {"a": 1})]


async def test_what_comes_after_the_end_is_not_read(raw_server: RawServer) -> None:
    events = wire.stream(response(said("Hello.")))
    more = [*wire.item_events(1, said("More.", id="m2")), wire.ending(response(status="failed"))]
    assert (await reply(raw_server, *events, *more)).text == "Hello."


@pytest.mark.parametrize("status", ["in_progress", "queued", None])
async def test_a_response_that_was_not_updated_at_its_end_is_whole_all_the_same(
    raw_server: RawServer, status: str | None
) -> None:
    whole = response(said("Hello."))
    events = [*wire.stream(whole)[:-1], event("response.completed", response={**whole, "status": status})]
    answer = await reply(raw_server, *events)
    assert (answer.text, answer.finish_reason) == ("Hello.", "stop")


async def test_usage_on_several_events_is_a_running_total(raw_server: RawServer) -> None:
    """C85"""
    whole = response(said("Hello."), usage=wire.usage(10, 9))
    totals = [
        event("response.in_progress", response={**whole, "status": "in_progress", "usage": wire.usage(10, number)})
        for number in (1, 5, 9)
    ]
    events = wire.stream(whole)
    answer = await reply(raw_server, *events[:-1], *totals, events[-1])
    assert (answer.text, answer.usage) == ("Hello.", Usage(10, 9, 19))
