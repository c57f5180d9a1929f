"""Each request begins with the bytes of the one before it, so that the provider's cache of prompts hits."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from nbagents import SummarizationReducer, TruncationReducer, tool
from tests.clients.anthropic_endpoints import AnthropicOnRawServer
from tests.clients.asking import Mode, both_modes
from tests.clients.endpoints import Say
from tests.clients.responses_endpoints import StatelessOnRawServer
from tests.clients.served_endpoints import OnRawServer
from tests.clients.talks import Talk
from tests.clients.written_endpoints import Scripted

KINDS = {"chat": OnRawServer, "responses": StatelessOnRawServer, "anthropic": AnthropicOnRawServer}


@tool
def look(page: int) -> dict[str, Any]:
    """Look at a page."""
    return {"page": page, "żółw": ["東京", None, 1.50]}


def history_of(body: dict[str, Any]) -> list[str]:
    """The bytes of each entry of what a request brings."""
    return [json.dumps(entry, ensure_ascii=False) for entry in body.get("input") or body["messages"]]


def the_rest(body: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in body.items() if key not in ("input", "messages")})


async def requests_of(kind: str, mode: Mode, request: pytest.FixtureRequest, turns: int, **settings: Any) -> list[Any]:
    """Have a talk with a tool in every turn; return the bodies that the server got."""
    endpoint = KINDS[kind](request)
    calls = [("look", {"page": 1}), ("look", {"page": 2})]
    script = [
        Say("Looking.", calls=tuple(calls)) if step % 2 == 0 else Say(f"Turn {step}.", reasoning="Hm.")
        for step in range(2 * turns)
    ]
    try:
        talk = Talk(endpoint, mode, endpoint.agent(*script, instructions="Be brief.", tools=[look], **settings))
        for number in range(turns):
            await talk.ask(f"Question {number}: żółw?")
        return list(endpoint._servers[-1].requests)
    finally:
        endpoint.close()


@both_modes
@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_begins_as_the_one_before_it(kind: str, mode: Mode, request: pytest.FixtureRequest) -> None:
    bodies = await requests_of(kind, mode, request, 5)
    assert len(bodies) == 10
    for before, after in pairwise(bodies):
        assert history_of(after)[: len(history_of(before))] == history_of(before)
        assert the_rest(after) == the_rest(before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reduced", ["cut", "summed up"])
async def test_so_it_does_between_two_cuts_of_a_reducer(
    kind: str, reduced: str, request: pytest.FixtureRequest
) -> None:
    writer = Scripted(request).client(*[Say(f"Summary {number}.") for number in range(20)])
    summing = SummarizationReducer(max_messages=24, client=writer)
    reducer = TruncationReducer(24) if reduced == "cut" else summing
    bodies = await requests_of(kind, "plain", request, 16, reducer=reducer)
    pairs = list(pairwise(map(history_of, bodies)))
    cuts = sum(after[: len(before)] != before for before, after in pairs)
    assert 1 <= cuts <= len(pairs) / 4
    assert max(len(history_of(body)) for body in bodies) < 40
