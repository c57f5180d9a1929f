"""Servers with Anthropic's API that forget, repeat and mix up: what they say is whole all the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nbagents import Agent, Usage, run_log, tool
from tests.clients.anthropic_endpoints import client_on
from tests.clients.asking import Mode, ask, both_modes
from tests.support import anthropic_events as wire
from tests.support.raw_server import RawServer

OWL = '{"bird": "owl"}'
FOUND: list[str] = []


@tool
def find(bird: str = "none") -> str:
    """Find a bird."""
    FOUND.append(bird)
    return f"{bird} found"


@pytest.fixture(autouse=True)
def nothing_found() -> None:
    FOUND.clear()


def opened(index: int | None, **block: Any) -> wire.Event:
    place = {} if index is None else {"index": index}
    return wire.event("content_block_start", **place, content_block={"type": "tool_use", **block})


def delta(index: int | None, text: str) -> wire.Event:
    place = {} if index is None else {"index": index}
    return wire.event("content_block_delta", **place, delta={"type": "input_json_delta", "partial_json": text})


def stopped(index: int) -> wire.Event:
    return wire.event("content_block_stop", index=index)


T1 = {"id": "t1", "name": "find", "input": {}}
QUIRKS: dict[str, list[wire.Event]] = {
    "as it should be": wire.call(0, "t1", "find", '{"bird"', ': "owl"}'),
    "no places": [opened(None, **T1), delta(None, '{"bird"'), delta(None, ': "owl"}')],  # C20
    "whole where it begins": [opened(0, **{**T1, "input": {"bird": "owl"}}), stopped(0)],  # C25
    "whole where it begins, and in pieces": [
        opened(0, **{**T1, "input": {"bird": "owl"}}),
        delta(0, OWL),
        stopped(0),
    ],
    "begun twice": [opened(0, **T1), opened(0, **T1), delta(0, OWL), stopped(0)],  # C23
    "the whole once more": [opened(0, **T1), delta(0, '{"bird"'), delta(0, ': "owl"}'), delta(0, OWL), stopped(0)],
    "the whole once more as text": [opened(0, **T1), delta(0, OWL), delta(0, json.dumps(OWL)), stopped(0)],
    "no end": [opened(0, **T1), delta(0, OWL)],
    "ended twice": [*wire.call(0, "t1", "find", OWL), stopped(0)],
    "empty and null pieces": [
        opened(0, **T1),
        delta(0, ""),
        wire.event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": None}),
        delta(0, OWL),
        stopped(0),
    ],
    "blank text before": [*wire.text(0, "\n\n"), *wire.call(1, "t1", "find", OWL)],  # C32
    "pings and unknown events": [
        one for e in wire.call(0, "t1", "find", OWL) for one in (wire.event("ping"), wire.event("news"), b": \n\n", e)
    ],
}


@pytest.mark.parametrize("name", QUIRKS)
async def test_a_call_is_whole_whatever_a_server_forgets_or_repeats(raw_server: RawServer, name: str) -> None:
    """C20, C23, C25, C32"""
    raw_server.reply(wire.start(), *QUIRKS[name], *wire.end("tool_use"), done=False)
    raw_server.reply(*wire.stream(wire.text(0, "Found.")), done=False)
    response = await ask(Agent(client_on(raw_server), tools=[find]), "Find an owl", "streamed")
    assert (response.messages[-1].text, FOUND) == ("Found.", ["owl"])
    assert wire.refusal(raw_server.requests[-1]) is None
    (sent,) = (block for block in raw_server.requests[-1]["messages"][1]["content"] if block["type"] == "tool_use")
    assert (sent["id"], sent["input"]) == ("t1", {"bird": "owl"})


async def test_calls_that_are_mixed_are_told_apart(raw_server: RawServer) -> None:
    events = [
        opened(0, **T1),
        opened(1, **{**T1, "id": "t2"}),
        delta(1, '{"bird": "jay'),
        delta(0, OWL),
        delta(1, '"}'),
    ]
    raw_server.reply(wire.start(), *events, stopped(1), stopped(0), *wire.end("tool_use"), done=False)
    raw_server.reply(*wire.stream(wire.text(0, "Found.")), done=False)
    await ask(Agent(client_on(raw_server), tools=[find]), "Find", "streamed")
    assert FOUND == ["owl", "jay"]


@pytest.mark.parametrize("ids", [("t1", "t2"), ("t1", "t1"), ("", "")])
@both_modes
async def test_equal_calls_both_run(raw_server: RawServer, mode: Mode, ids: tuple[str, str]) -> None:
    """C22, C28, C68"""
    calls = [{"type": "tool_use", "id": id, "name": "find", "input": {}} for id in ids]
    if mode == "plain":
        raw_server.reply_json(wire.message(*calls, reason="tool_use")).reply_json(wire.message())
    else:
        blocks = [wire.call(place, id, "find", "{}") for place, id in enumerate(ids)]
        raw_server.reply(*wire.stream(*blocks, reason="tool_use"), done=False)
        raw_server.reply(*wire.stream(wire.text(0, "Found.")), done=False)
    await ask(Agent(client_on(raw_server), tools=[find]), "Find", mode)
    assert FOUND == ["none", "none"]
    assert wire.refusal(raw_server.requests[-1]) is None


@both_modes
async def test_text_around_a_call_keeps_its_order(raw_server: RawServer, mode: Mode) -> None:
    """C33"""
    blocks = [{"type": "text", "text": "Checking"}, {**T1, "type": "tool_use"}, {"type": "text", "text": " done"}]
    if mode == "plain":
        raw_server.reply_json(wire.message(*blocks, reason="tool_use"))
        raw_server.reply_json(wire.message({"type": "text", "text": "Found."}))
    else:
        events = [wire.text(0, "Checking"), wire.call(1, "t1", "find", "{}"), wire.text(2, " done")]
        raw_server.reply(*wire.stream(*events, reason="tool_use"), done=False)
        raw_server.reply(*wire.stream(wire.text(0, "Found.")), done=False)
    response = await ask(Agent(client_on(raw_server), tools=[find]), "Find", mode)
    first = response.messages[0]
    assert ([content.type for content in first.contents], first.text) == (
        ["text", "function_call", "text"],
        "Checking done",
    )


@both_modes
async def test_announced_calls_that_are_not_there_end_the_run_with_a_warning(raw_server: RawServer, mode: Mode) -> None:
    """C35: the run stops at once with the text."""
    if mode == "plain":
        raw_server.reply_json(wire.message({"type": "text", "text": "Opening it now."}, reason="tool_use"))
    else:
        raw_server.reply(*wire.stream(wire.text(0, "Opening it now."), reason="tool_use"), done=False)
    response = await ask(Agent(client_on(raw_server), tools=[find]), "Open", mode)
    assert (response.text, len(raw_server.requests), len(response.warnings)) == ("Opening it now.", 1, 1)


async def test_usage_on_several_events_is_a_running_total(raw_server: RawServer) -> None:
    """C85"""
    counts = [wire.event("message_delta", delta={}, usage={"output_tokens": n}) for n in (1, 5, 9)]
    raw_server.reply(wire.start(), *wire.text(0, "Hello"), *counts, *wire.end(usage={"output_tokens": 9}), done=False)
    response = await ask(Agent(client_on(raw_server)), "Hi", "streamed")
    assert response.usage == Usage(10, 9, 19)
    (done,) = run_log().get(response.run_id).named("llm.succeeded")
    assert done.payload["usage"] == response.usage


async def test_characters_cut_at_network_boundaries_stay_whole(raw_server: RawServer) -> None:
    """C45"""
    call = wire.call(1, "t1", "find", '{"bird": "東京の', '鳥"}')
    raw_server.reply(*wire.stream(wire.text(0, "żółw ", "鳥🐙"), call, reason="tool_use"), split=1, done=False)
    raw_server.reply(*wire.stream(wire.text(0, "Found.")), split=1, done=False)
    response = await ask(Agent(client_on(raw_server), tools=[find]), "Find", "streamed")
    assert (response.messages[0].text, FOUND) == ("żółw 鳥🐙", ["東京の鳥"])
