"""The Anthropic client against two servers written by others: each fault has the right outcome, and they find none."""

from __future__ import annotations

from typing import Any

import pytest

from nbagents import Agent, AnthropicChatClient, run_log
from nbagents.core.errors import ConnectionFailedError, IncompleteStreamError, InvalidReplyError, ModelTimeoutError
from tests.clients.asking import Mode, ask, both_modes, fails
from tests.support.servers import AIMock, LLMock

SAID_BEFORE_TEXT = 3
"""The start of the message, the start of the block and a ping."""


def get_weather(city: str) -> str:
    """Tell the weather."""
    return f"{city}: sunny"


def agent_at(server: LLMock | AIMock, tools: Any = (), model: str = "claude-haiku-4-5", **settings: Any) -> Agent:
    below = "/anthropic" if isinstance(server, LLMock) else ""
    url = f"{server.base_url.removesuffix('/v1')}{below}"
    return Agent(AnthropicChatClient(model, base_url=url, **{"max_retries": 0, **settings}), tools=list(tools))


def reply(text: str = "Still here") -> dict[str, Any]:
    return {"type": "reply", "text": text}


STREAM_FAULTS: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"kind": "disconnect"}, ConnectionFailedError),
    ({"kind": "truncate"}, IncompleteStreamError),
    ({"kind": "malformed"}, InvalidReplyError),
    ({"kind": "stall", "stall_seconds": 3}, ModelTimeoutError),
]
each_stream_fault = pytest.mark.parametrize(
    ("fault", "kind"), STREAM_FAULTS, ids=[fault["kind"] for fault, _ in STREAM_FAULTS]
)


@each_stream_fault
async def test_llmock_breaks_a_stream_that_has_shown_text(
    llmock: LLMock, fault: dict[str, Any], kind: type[Exception]
) -> None:
    broken = {"type": "stream_fault", "after_chunks": SAID_BEFORE_TEXT + 2, **fault}
    llmock.scenario([broken, reply("one two three four five"), reply()])
    agent = agent_at(llmock, timeout=1.0, max_retries=2)
    session = agent.create_session()
    error = await fails(agent, "Count", "streamed", session)
    assert type(error) is kind
    assert error.partial_text.startswith("one")
    assert (await ask(agent, "And now?", "streamed", session)).text == "Still here"
    assert len(llmock.requests()) == 2


@each_stream_fault
async def test_llmock_breaks_a_stream_before_any_text_and_is_asked_again(
    llmock: LLMock, fault: dict[str, Any], kind: type[Exception]
) -> None:
    llmock.scenario([{"type": "stream_fault", "after_chunks": 2, **fault}, reply("one two three"), reply()])
    response = await ask(agent_at(llmock, timeout=1.0, max_retries=2), "Count", "streamed")
    assert response.text == "Still here"
    (failed,) = (event for event in run_log().get(response.run_id).events if event.name == "llm.failed")
    assert failed.payload["error"]["type"] == kind.__name__
    # So short a stream may have been sent before we stop reading it: llmock cannot always tell that we did.
    excused = {"malformed_chunk_ignored"} if fault["kind"] == "malformed" else set()
    assert {finding["code"] for finding in llmock.verdict()["findings"]} <= excused


@pytest.mark.parametrize("whole", [0, 1])
async def test_llmock_breaks_off_behind_the_whole_text(llmock: LLMock, whole: int) -> None:
    """Also where only the very last event is missing, the reply is no whole one."""
    broken = {"type": "stream_fault", "kind": "truncate", "after_chunks": SAID_BEFORE_TEXT + 3 + whole}
    llmock.scenario([broken, reply("one two"), reply()])
    error = await fails(agent_at(llmock), "Count", "streamed")
    assert type(error) is IncompleteStreamError
    assert error.partial_text == "one two"


@both_modes
@pytest.mark.parametrize("status", [429, 529])
async def test_llmock_fails_and_is_asked_again_as_it_wishes(llmock: LLMock, mode: Mode, status: int) -> None:
    llmock.scenario([{"type": "fail", "status": status, "retry_after": 1}, reply("Hello")])
    response = await ask(agent_at(llmock, max_retries=2), "Hi", mode)
    assert response.text == "Hello"
    (retried,) = (event for event in run_log().get(response.run_id).events if event.name == "llm.retried")
    assert retried.payload["wait_s"] >= 1
    assert llmock.verdict()["findings"] == []


@both_modes
async def test_llmock_is_slow_at_first(llmock: LLMock, mode: Mode) -> None:
    llmock.scenario([{"type": "slow_first_token", "seconds": 0.3}, reply("Hello")])
    assert (await ask(agent_at(llmock, timeout=5.0), "Hi", mode)).text == "Hello"
    assert llmock.verdict()["findings"] == []


@both_modes
@pytest.mark.parametrize("kind", ["malformed_arguments", "unknown_tool"])
async def test_llmock_makes_a_bad_call_and_reads_why(llmock: LLMock, mode: Mode, kind: str) -> None:
    call = {"name": "get_weather", "arguments": {"city": "Paris"}}
    made = {"type": "reply", "tool_calls": [call]}
    llmock.scenario([{"type": "tool_fault", "kind": kind}, made, reply("Sorry"), reply()])
    agent = agent_at(llmock, [get_weather])
    session = agent.create_session()
    response = await ask(agent, "Weather?", mode, session)
    assert response.text == "Sorry"
    (result,) = (result for message in response.messages for result in message.results)
    assert result.error
    assert (await ask(agent, "And now?", mode, session)).text == "Still here"
    assert llmock.verdict()["findings"] == []


@both_modes
async def test_aimock_gets_the_thoughts_back_without_which_it_refuses_results(aimock: AIMock, mode: Mode) -> None:
    call = {"id": "toolu_1", "name": "get_weather", "arguments": {"city": "Paris"}}
    thought = {"reasoning": "Let me look.", "reasoningSignature": "sig==", "redactedThinking": ["secret=="]}
    aimock.play(
        [
            {"match": {"turnIndex": 0}, "response": {**thought, "toolCalls": [call]}},
            {"match": {"turnIndex": 1}, "response": {"content": "Sunny."}},
        ]
    )
    response = await ask(agent_at(aimock, [get_weather]), "Weather?", mode, options={"reasoning_effort": "low"})
    assert response.text == "Sunny."
    told = [(c.text, c.encrypted) for c in response.messages[0].contents if c.type == "reasoning"]
    assert told == [("", "secret=="), ("Let me look.", "sig==")]
    assert [entry["response"]["status"] for entry in aimock.journal()] == [200, 200]


@both_modes
@pytest.mark.parametrize(
    ("prompt", "answer", "results"),
    [
        ("say hello", "Hello from the mock model, in a few streamed pieces.", []),
        ("two cities", "Paris is sunny and Oslo is wet.", ["Paris: sunny", "Oslo: sunny"]),
    ],
)
async def test_aimock_answers_and_calls_tools(
    aimock: AIMock, mode: Mode, prompt: str, answer: str, results: list[str]
) -> None:
    response = await ask(agent_at(aimock, [get_weather]), prompt, mode)
    assert response.text == answer
    assert [result.result for message in response.messages for result in message.results] == results
    assert aimock.journal()[-1]["body"].get("stream", False) is (mode == "streamed")
